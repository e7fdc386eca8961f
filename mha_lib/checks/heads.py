"""Known wrong heads, layers and contributions: how columns are cut, moved and put together (04, 05)."""

from itertools import permutations

import numpy as np

from mha_lib.checks.errors import came_out_empty
from mha_lib.checks.known import SCALES, returns, turn_one, two_faults
from mha_lib.checks.structure import same
from mha_lib.layers import layer_norm
from mha_lib.numpy_attention import attention, merge_heads, split_heads

# ------------------------------------------------------------------ 04 heads

SPLIT = {
    "split-by-reshape": [lambda X, h: X.reshape(h, len(X), -1)],
    "every-h-th-column": [lambda X, h: np.stack([X[:, a::h] for a in range(h)])],
}
TOGETHER = {"heads-together": [lambda heads: heads.sum(axis=0), lambda heads: heads.mean(axis=0)]}

MERGE = {
    "merge-by-reshape": [lambda heads: heads.reshape(heads.shape[1], -1)],
    "every-h-th-column": [lambda heads: heads.transpose(1, 2, 0).reshape(heads.shape[1], -1)],
}


def scrambled(trial):
    """Every number is there, in another place: say where the first wrong one came from."""
    got, want = trial.result, next(iter(trial.want.values()))
    name, source = next(iter(trial.args.items()))
    if np.array_equal(np.sort(got, axis=None), np.sort(want, axis=None)):
        at = tuple(np.argwhere(got != want)[0].tolist())
        came, due = (np.argwhere(source == x[at])[0].tolist() for x in (got, want))
        return {"at": list(at), "name": name, "came": came, "due": due}


def _window(found, d, d_k, make):
    """The first of the d_k neighbours that make(slice) turns into what was found, or None."""
    return next((first for first in range(d - d_k + 1) if same(found, make(slice(first, first + d_k)))), None)


def other_columns_split(trial):
    X, h = trial.args.values()
    d_k = X.shape[1] // h
    for a, (head, due) in enumerate(zip(trial.result, trial.want["heads"], strict=True)):
        if not same(head, due):
            first = _window(head, X.shape[1], d_k, lambda columns: X[:, columns])
            return first is not None and {"part": "X", "a": a, "first": first, "last": first + d_k - 1}


def _other_columns(head, X, Ws, a, h):
    """The head has the wrong columns of all three matrices, of Q and K, or of one."""
    d = len(Ws[0])
    d_k = d // h
    own = slice(a * d_k, (a + 1) * d_k)
    for part in ("Q, K and V", "Q and K", "Q", "K", "V"):
        def make(columns, part=part):
            taken = (columns if name in part else own for name in "QKV")
            return attention(*(X @ W[:, these] for W, these in zip(Ws, taken, strict=True)))[0]
        first = _window(head, d, d_k, make)
        if first is not None:
            return {"part": part, "a": a, "first": first, "last": first + d_k - 1}


def other_columns(trial):
    X, *Ws, a, h = trial.args.values()
    return _other_columns(trial.result, X, Ws, a, h)


def other_columns_in_layer(trial):
    X, *Ws, W_O, h = trial.args.values()
    mine, due = (split_heads(x @ np.linalg.inv(W_O), h) for x in (trial.result, trial.want["output"]))
    for a in range(h):
        if not same(mine[:, a], due[:, a]):
            return _other_columns(mine[:, a], X, Ws, a, h)


def empty_slice(trial):
    return trial.result.size == 0 and {"empty": came_out_empty("Your output", trial.result.shape, trial.args)}


def ignores_a(trial):
    varied = np.isfinite(trial.result).all() and np.ptp(trial.result) > 0
    others = (trial.ask(trial.args | {"a": a})["output"] for a in range(trial.args["h"]))
    return varied and all(same(other, trial.result) for other in others)


def other_rows(trial):
    """One of the parts is a head times d_k neighbouring rows of W_O, but not the ones it should be."""
    heads, W_O = trial.args.values()
    d_k = heads.shape[-1]
    for a, (part, due) in enumerate(zip(trial.result, trial.want["contributions"], strict=True)):
        if not same(part, due):
            for b, head in enumerate(heads):
                first = _window(part, len(W_O), d_k, lambda rows, head=head: head @ W_O[rows])
                if first is not None:
                    return {"a": a, "b": b, "first": first, "last": first + d_k - 1}
            return False


def _columns(W, a, h):
    d_k = W.shape[1] // h
    return W[:, a * d_k:(a + 1) * d_k]


def _head_from(cut=lambda X, W, a, h: X @ _columns(W, a, h), scale=lambda d, h: (d // h) ** -0.5):
    """One head whose Q, K and V are cut(X, W, a, h)."""
    return lambda X, W_Q, W_K, W_V, a, h: attention(
        *(cut(X, W, a, h) for W in (W_Q, W_K, W_V)), scale=scale(len(W_Q), h))[0]


def _head_with(matrices):
    """One head on other matrices than (W_Q, W_K, W_V)."""
    return lambda X, W_Q, W_K, W_V, a, h: attention(*(X @ _columns(W, a, h) for W in matrices(W_Q, W_K, W_V)))[0]


def _scores_of_all(scale):
    return lambda X, W_Q, W_K, W_V, a, h: attention(
        X @ W_Q, X @ W_K, X @ _columns(W_V, a, h), scale=scale(len(W_Q), h))[0]


def _short_scores(less):
    """Queries and keys lose their last column; the scale counts it, or not."""
    def wrong(X, W_Q, W_K, W_V, a, h):
        Q, K, V = (X @ _columns(W, a, h) for W in (W_Q, W_K, W_V))
        return attention(Q[:, :-1], K[:, :-1], V, scale=(Q.shape[-1] - less) ** -0.5)[0]
    return wrong


def _head_further(by):
    return lambda X, W, a, h: X @ _columns(W, (a + by) % h, h)


def _every_hth(X, W, a, h):
    return X @ W[:, a::h]


def _own_slice(X, W, a, h):
    return _columns(X, a, h) @ _columns(_columns(W, a, h).T, a, h).T


def _rows(X, W, a, h):
    return X @ _columns(W.T, a, h)


ONE_HEAD = {
    "every-h-th-column": [_head_from(_every_hth)],
    "one-column-short": [_short_scores(0), _short_scores(1)],
    "sliced-input": [_head_from(_own_slice)],
    "transposed-weight": [_head_from(_rows)],
    "scores-of-all-heads": [_scores_of_all(lambda d, h: d ** -0.5), _scores_of_all(lambda d, h: (d // h) ** -0.5),
                            _scores_of_all(lambda d, h: 1)],
    "keys-as-values": [_head_with(lambda W_Q, W_K, W_V: (W_Q, W_K, W_K))],
    "split-by-reshape": [lambda X, W_Q, W_K, W_V, a, h: attention(
        *((X @ W).reshape(h, len(X), -1)[a] for W in (W_Q, W_K, W_V)))[0]],
    "keys-values-swapped": [_head_with(lambda W_Q, W_K, W_V: (W_Q, W_V, W_K))],
}


ONE_HEAD_TWICE = two_faults(_head_from, SCALES | {
    "the columns are those of the next head": {"cut": _head_further(1)},
    "the columns are those of the head before": {"cut": _head_further(-1)},
    "the head takes every h-th column": {"cut": _every_hth},
    "X itself is cut": {"cut": _own_slice},
    "rows of the matrices are taken for columns": {"cut": _rows},
})


def one_matrix_for_two(head):
    """A diagnosis: two of Q, K and V come from one matrix. head: a function of (W_Q, W_K, W_V) -> a wrong answer."""
    def diagnosis(trial):
        for a, b in permutations(range(3), 2):
            if returns(head(lambda *Ws, a=a, b=b: [Ws[a] if i == b else W for i, W in enumerate(Ws)]), trial):
                return dict(zip("ab", sorted(("QKV"[a], "QKV"[b]), key="QKV".index), strict=True))
    return diagnosis


# ------------------------------------------------------------------ 05 the whole layer

def _layer(cut=split_heads, join=merge_heads, matrices=lambda *Ws: Ws, out=lambda W_O: W_O, scale=None, plus=0):
    """The sublayer with exchangeable parts, to build wrong ones from."""
    def wrong(X, W_Q, W_K, W_V, W_O, h):
        *Ws, W_O = matrices(W_Q, W_K, W_V, W_O)
        heads = attention(*(cut(X @ W, h) for W in Ws), scale=scale and scale(len(W_O), h))[0]
        return join(heads) @ out(W_O) + plus * X
    return wrong


def _no_matrix(W):
    return np.eye(len(W))


def _turned(W_Q, W_K, W_V, W_O):
    return W_Q.T, W_K.T, W_V.T, W_O


def _cut_by_reshape(X, h):
    return X.reshape(*X.shape[:-2], h, X.shape[-2], -1)


def _join_by_reshape(heads):
    *batch, h, n, d_k = heads.shape
    return heads.reshape(*batch, n, h * d_k)


def _cut_every_hth(X, h):
    return np.stack([X[..., a::h] for a in range(h)], axis=-3)


def _join_every_hth(heads):
    return np.moveaxis(heads, -3, -1).reshape(*heads.shape[:-3], heads.shape[-2], -1)


def as_by_T(K):
    """What the product with K^T becomes when .T turns all axes: only equal axes let it run."""
    return K.T.swapaxes(-1, -2)


def _all_axes_turned(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (split_heads(X @ W, h) for W in (W_Q, W_K, W_V))
    return merge_heads(attention(Q, as_by_T(K), V)[0]) @ W_O


ALL_AXES = {"all-axes-turned": [_all_axes_turned]}


def _blocks(W, h):
    return W * np.kron(np.eye(h), np.ones((len(W) // h,) * 2))


LAYER = {
    "no-W_O": [_layer(out=_no_matrix)],
    "split-by-reshape": [_layer(cut=_cut_by_reshape)],
    "merge-by-reshape": [_layer(join=_join_by_reshape)],
    "split-and-merge-by-reshape": [_layer(cut=_cut_by_reshape, join=_join_by_reshape)],
    "every-h-th-column": [_layer(cut=_cut_every_hth), _layer(join=_join_every_hth),
                          _layer(cut=_cut_every_hth, join=_join_every_hth)],
    "one-head-only": [lambda X, W_Q, W_K, W_V, W_O, h: _layer()(X, W_Q, W_K, W_V, W_O, 1),
                      lambda X, W_Q, W_K, W_V, W_O, h: attention(
                          X @ W_Q, X @ W_K, X @ W_V, scale=(len(W_Q) // h) ** -0.5)[0] @ W_O],
    "h-for-d_k": [_layer(cut=lambda X, h: split_heads(X, X.shape[-1] // h), scale=lambda d, h: (d // h) ** -0.5),
                  _layer(cut=lambda X, h: split_heads(X, X.shape[-1] // h))],
    "W_O-in-blocks": [lambda X, W_Q, W_K, W_V, W_O, h: _layer()(X, W_Q, W_K, W_V, _blocks(W_O, h), h)],
    "step-around": [_layer(plus=1), lambda X, *Ws: _layer()(X, *Ws) + X @ Ws[3],
                    lambda X, *Ws: _layer()(layer_norm(X), *Ws)],
    "W_O-twice": [_layer(out=lambda W_O: W_O @ W_O)],
    "transposed-weight": [_layer(matrices=_turned), _layer(matrices=_turned, out=np.transpose),
                          *[_layer(matrices=lambda *Ws, i=i: turn_one(Ws, i)) for i in range(3)]],
    "W_O-transposed": [_layer(out=np.transpose)],
    "keys-as-values": [_layer(matrices=lambda W_Q, W_K, W_V, W_O: (W_Q, W_K, W_K, W_O))],
    "keys-values-swapped": [_layer(matrices=lambda W_Q, W_K, W_V, W_O: (W_Q, W_V, W_K, W_O))],
    "sliced-input": [lambda X, *Ws, cut=_blocks: _layer()(X, *(cut(W, Ws[-1]) for W in Ws[:3]), *Ws[3:])],
}
LAYER_TWICE = two_faults(_layer, SCALES | {
    "heads are cut by a reshape": {"cut": _cut_by_reshape},
    "each head takes every h-th column": {"cut": _cut_every_hth},
    "heads are merged by a reshape": {"join": _join_by_reshape},
    "merging shuffles the columns of all heads": {"join": _join_every_hth},
    "W_Q, W_K and W_V are transposed": {"matrices": _turned},
    "W_O is missing": {"out": _no_matrix},
    "W_O is transposed": {"out": np.transpose},
    "X is added to the result": {"plus": 1},
})
ONE_MATRIX_IN_HEAD = one_matrix_for_two(_head_with)
ONE_MATRIX_IN_LAYER = one_matrix_for_two(lambda pair: _layer(matrices=lambda *Ws: (*pair(*Ws[:3]), Ws[3])))


def _moved(trial, at):
    """(B, n): which outputs move when the part `at` of X moves."""
    X = trial.args["X"].copy()
    X[at] += 1
    output, = trial.ask(trial.args | {"X": X}).values()
    return ~np.isclose(output, trial.result, atol=1e-9, equal_nan=True).all(axis=-1)


def merged_astray(trial):
    """Before W_O every number of the heads is there, in another place."""
    mine, due = (x @ np.linalg.inv(trial.args["W_O"]) for x in (trial.result, trial.want["output"]))
    return np.allclose(np.sort(mine, axis=None), np.sort(due, axis=None), atol=1e-6)


def samples_mixed(trial):
    return _moved(trial, (0,))[1:].any()


def tokens_do_not_mix(trial):
    moved = _moved(trial, (0, 0))
    return moved[0, 0] and not moved[0, 1:].any()


def already_summed(trial):
    heads, W_O = trial.args.values()
    return same(trial.result, merge_heads(heads) @ W_O)


def _each_head(rows):
    """heads[a] @ rows(W_O, a, h, d_k), for every a."""
    def wrong(heads, W_O):
        h, _, d_k = heads.shape
        return np.stack([heads[a] @ rows(W_O, a, h, d_k) for a in range(h)])
    return wrong


def _rows_of_head(W_O, a, h, d_k):
    return W_O[a * d_k:(a + 1) * d_k]


CONTRIBUTIONS = {
    "every-h-th-row": [_each_head(lambda W_O, a, h, d_k: W_O[a::h])],
    "W_O-transposed": [_each_head(lambda W_O, a, h, d_k: _columns(W_O, a, h).T)],
    "not-projected": [_each_head(lambda W_O, a, h, d_k: _columns(np.eye(h * d_k), a, h).T)],
    "shared-equally": [lambda heads, W_O: np.stack([merge_heads(heads) @ W_O / len(heads)] * len(heads))],
    "running-sum": [lambda heads, W_O: np.cumsum(_each_head(_rows_of_head)(heads, W_O), axis=0),
                    lambda heads, W_O: np.stack([merge_heads(heads) @ W_O] * len(heads))],
}
