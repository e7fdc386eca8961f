"""Wrong functions that people really write, and a few questions that only one exercise is asked.

Each table belongs to one exercise: id -> wrong functions with the same outputs or the same cause. A function stands
here only where the result alone, in structure.py, does not already give the mistake away.
"""

from itertools import combinations

import numpy as np

from mha_lib import layers
from mha_lib.checks.structure import above, divisor, same, sum_to_one
from mha_lib.numpy_attention import attention, attention_scores, causal_mask, merge_heads, softmax, split_heads


def diagnoses(table):
    """Turn a table of wrong functions into diagnoses: does one of them return what the answer returned?"""
    return {name: _same_as(functions) for name, functions in table.items()}


def _same_as(functions):
    return lambda trial: any(_returns(wrong, trial) for wrong in functions)


def _returns(wrong, trial):
    try:
        result = wrong(*trial.args.values())
    except (ValueError, IndexError):                    # this wrong function stops on these sizes
        return False
    parts = result if len(trial.returns) > 1 else [result]
    return all(same(trial.got[name], part) for name, part in zip(trial.returns, parts, strict=True))


def _unit(X):
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def two_faults(build, faults):
    """A diagnosis: build(**parts) with two of its parts exchanged. faults: words -> {part: another}."""
    def diagnosis(trial):
        for (first, one), (second, other) in combinations(faults.items(), 2):
            if not one.keys() & other.keys() and _returns(build(**one, **other), trial):
                return {"first": first, "second": second}
    return diagnosis


SCALES = {
    "scores are not scaled": {"scale": lambda d, h: 1},
    "scores are divided by d_k": {"scale": lambda d, h: h / d},
    "scores are divided by sqrt(d)": {"scale": lambda d, h: d ** -0.5},
}


# ------------------------------------------------------------------ 01 projections

PROJECT = {
    "transposed-weight": [lambda X, *Ws: [X @ W.T for W in Ws]],
    "no-projection": [lambda X, *Ws: [X, X, X]],
}


def reused_projection(trial):
    names = list(trial.got)
    for a, b in ((a, b) for a in names for b in names if a < b):
        if same(trial.got[a], trial.got[b]) and not same(trial.want[a], trial.want[b]):
            return {"a": a, "b": b}


LINEAR = {
    "not-transposed": [lambda weight: weight],
    "reshaped": [lambda weight: weight.reshape(weight.shape[::-1])],
}

COUNT = {
    "W_O-forgotten": [lambda d, h: 3 * d * d],
    "times-h": [lambda d, h: 4 * d * d * h, lambda d, h: 3 * d * d * h, lambda d, h: 3 * d * d * h + d * d],
    "biases-counted": [lambda d, h: 4 * d * d + 4 * d],
    "one-matrix": [lambda d, h: d * d],
    "one-head-counted": [lambda d, h: 4 * d * (d // h), lambda d, h: 3 * d * (d // h)],
    "slices-counted": [lambda d, h: 4 * (d // h) ** 2, lambda d, h: 3 * (d // h) ** 2],
}


def zero_scale(trial):
    return trial.result == 0


def not_whole(trial):
    return trial.result.dtype.kind == "f" and trial.result == np.round(trial.result) and {"got": float(trial.result)}


def silent_remainder(trial):
    """Asked was an error, and a number came."""
    return trial.want is None and trial.args


# ------------------------------------------------------------------ 02 scores

SCORES = {
    "reshaped": [lambda Q, K: attention_scores(Q, K.reshape(K.shape[::-1]).T),
                 lambda Q, K: Q @ K.reshape(K.shape[::-1])],
    "cosine": [lambda Q, K: _unit(Q) @ _unit(K).T, lambda Q, K: attention_scores(_unit(Q), _unit(K))],
    "softmax-included": [lambda Q, K: softmax(attention_scores(Q, K)), lambda Q, K: softmax(Q @ K.T)],
}


def _sums_line_up_with_columns(scores):
    return np.exp(scores) / np.exp(scores).sum(axis=-1)


SOFTMAX = {
    "no-keepdims": [_sums_line_up_with_columns,
                    lambda s: _sums_line_up_with_columns(s - s.max(axis=-1, keepdims=True))],
    "max-of-columns": [lambda s: softmax(s - s.max(axis=0)), lambda s: softmax(s - s.max(axis=-1))],
    "not-normalised": [np.exp, lambda s: np.exp(s - s.max(axis=-1, keepdims=True)), lambda s: np.exp(s - s.max())],
    "logarithm": [lambda s: np.log(softmax(s))],
    "one-by-one": [lambda s: 1 / (1 + np.exp(-s))],
}


def other_base(trial):
    found = divisor(trial.seen) if not trial.large else None
    return found is not None and not np.isclose(found, 1) and {"found": found}


def other_function(trial):
    """Positive, and each row sums to 1, but no power of one base gives such shares."""
    weights = trial.result
    return not trial.large and (weights >= 0).all() and sum_to_one(weights) and divisor(trial.seen) is None


def global_maximum(trial):
    """The large scores hold their maximum in row 0: only the other rows fail."""
    return trial.large and np.isnan(trial.result).any() and not np.isnan(trial.result[0]).any()


def _mixing(product, mask_for=lambda n: None):
    """Attention whose last product is product(weights, Q, K, V)."""
    def wrong(Q, K, V):
        weights = attention(Q, K, V, mask_for(Q.shape[-2]))[1]
        return product(weights, Q, K, V), weights
    return wrong


def _without_keepdims(Q, K, V):
    weights = _sums_line_up_with_columns(attention_scores(Q, K))
    return weights @ V, weights


ATTENTION = {
    "keys-as-values": [_mixing(lambda w, Q, K, V: w @ K)],
    "queries-as-values": [_mixing(lambda w, Q, K, V: w @ Q)],
    "summed-over-queries": [_mixing(lambda w, Q, K, V: w.T @ V)],
    "keys-values-swapped": [lambda Q, K, V: attention(Q, V, K)],
    "no-keepdims": [_without_keepdims],
}


def outside_the_values(trial):
    """A weighted mean stays between the smallest and the largest of what it is a mean of."""
    V = trial.args["V"]
    low, high = V.min(axis=-2, keepdims=True), V.max(axis=-2, keepdims=True)
    return (trial.got["output"] < low - 1e-6).any() or (trial.got["output"] > high + 1e-6).any()


# ------------------------------------------------------------------ 04 heads

SPLIT = {
    "split-by-reshape": [lambda X, h: X.reshape(h, len(X), -1)],
    "every-h-th-column": [lambda X, h: np.stack([X[:, a::h] for a in range(h)])],
    "heads-reversed": [lambda X, h: split_heads(X, h)[::-1]],
}

MERGE = {
    "merge-by-reshape": [lambda heads: heads.reshape(heads.shape[1], -1)],
    "every-h-th-column": [lambda heads: heads.transpose(1, 2, 0).reshape(heads.shape[1], -1)],
    "heads-reversed": [lambda heads: merge_heads(heads[::-1])],
}


def scrambled(trial):
    """Every number is there, in another place: say where the first wrong one came from."""
    got, want = trial.result, next(iter(trial.want.values()))
    name, source = next(iter(trial.args.items()))
    if np.array_equal(np.sort(got, axis=None), np.sort(want, axis=None)):
        at = tuple(np.argwhere(got != want)[0].tolist())
        came, due = (np.argwhere(source == x[at])[0].tolist() for x in (got, want))
        return {"at": list(at), "name": name, "came": came, "due": due}


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


def _head_further(by):
    return lambda X, W, a, h: X @ _columns(W, (a + by) % h, h)


def _every_hth(X, W, a, h):
    return X @ W[:, a::h]


def _own_slice(X, W, a, h):
    return _columns(X, a, h) @ _columns(_columns(W, a, h).T, a, h).T


def _rows(X, W, a, h):
    return X @ _columns(W.T, a, h)


ONE_HEAD = {
    "next-head": [_head_from(_head_further(1)), _head_from(_head_further(-1))],
    "every-h-th-column": [_head_from(_every_hth)],
    "begins-at-a": [_head_from(lambda X, W, a, h: X @ W[:, a:a + len(W) // h])],
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
    """A diagnosis: queries and keys come from one matrix. `head` makes the output from (W_Q, W_K, W_V) and the rest."""
    pairs = {"Q": lambda W_Q, W_K, W_V: (W_K, W_K, W_V), "K": lambda W_Q, W_K, W_V: (W_Q, W_Q, W_V)}
    return lambda trial: any(_returns(head(pair), trial) for pair in pairs.values()) and {"a": "Q", "b": "K"}


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


def _as_by_T(K):
    """What the product with K^T becomes when .T turns all axes: only equal axes let it run."""
    return K.T.swapaxes(-1, -2)


def _all_axes_turned(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (split_heads(X @ W, h) for W in (W_Q, W_K, W_V))
    return merge_heads(attention(Q, _as_by_T(K), V)[0]) @ W_O


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
    "residual-added": [_layer(plus=1)],
    "transposed-weight": [_layer(matrices=_turned), _layer(matrices=_turned, out=np.transpose)],
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


CONTRIBUTIONS = {
    "every-h-th-row": [_each_head(lambda W_O, a, h, d_k: W_O[a::h])],
    "same-rows": [_each_head(lambda W_O, a, h, d_k: W_O[:d_k])],
    "W_O-transposed": [_each_head(lambda W_O, a, h, d_k: _columns(W_O, a, h).T)],
    "not-projected": [_each_head(lambda W_O, a, h, d_k: _columns(np.eye(h * d_k), a, h).T)],
    "shared-equally": [lambda heads, W_O: np.stack([merge_heads(heads) @ W_O / len(heads)] * len(heads))],
}


# ------------------------------------------------------------------ 05 around the layer

def _normed(divide=lambda X, axis: np.sqrt(X.var(axis=axis, keepdims=True) + 1e-5), axis=-1):
    return lambda X: (X - X.mean(axis=axis, keepdims=True)) / divide(X, axis)


NORM = {
    "over-columns": [_normed(axis=0), _normed(lambda X, axis: X.std(axis=axis), axis=0)],
    "over-everything": [_normed(axis=(0, 1)), _normed(lambda X, axis: X.std(), axis=(0, 1))],
    "not-centred": [layers.rms_norm, lambda X: X / np.sqrt(X.var(axis=-1, keepdims=True) + 1e-5)],
    "not-divided": [_normed(lambda X, axis: 1)],
    "variance-not-root": [_normed(lambda X, axis: X.var(axis=axis, keepdims=True) + 1e-5),
                          _normed(lambda X, axis: X.var(axis=axis, keepdims=True))],
    "divided-by-d-minus-1": [_normed(lambda X, axis: np.sqrt(X.var(axis=axis, ddof=1, keepdims=True) + 1e-5)),
                             _normed(lambda X, axis: X.std(axis=axis, ddof=1, keepdims=True) + 1e-5),
                             _normed(lambda X, axis: X.std(axis=axis, ddof=1, keepdims=True))],
    "unit-length": [_unit, lambda X: _unit(X - X.mean(axis=-1, keepdims=True))],
    "eps-outside-the-root": [_normed(lambda X, axis: X.std(axis=axis, keepdims=True) + 1e-5)],
    "no-eps": [_normed(lambda X, axis: X.std(axis=axis, keepdims=True))],
}


def mean_not_0(trial):
    means = trial.result.mean(axis=-1)
    return not np.allclose(means, 0, atol=1e-6) and {"mean": means[0]}


def spread_not_1(trial):
    spreads = trial.result.std(axis=-1)
    return trial.args["X"].std(axis=-1).all() and not np.allclose(spreads, 1, atol=1e-3) and {"spread": spreads[0]}


SUBLAYER = {
    "post-norm": [lambda X, f, norm: norm(X + f(X)), lambda X, f, norm: norm(X + f(norm(X)))],
    "subtracted": [lambda X, f, norm: X - f(norm(X)), lambda X, f, norm: f(norm(X)) - X],
    "no-residual": [lambda X, f, norm: f(norm(X)), lambda X, f, norm: norm(f(X))],
    "normalised-stream": [lambda X, f, norm: norm(X) + f(norm(X))],
    "no-norm": [lambda X, f, norm: X + f(X)],
    "norm-after-f": [lambda X, f, norm: X + norm(f(X))],
    "f-left-out": [lambda X, f, norm: X + norm(X)],
    "f-twice": [lambda X, f, norm: X + f(f(norm(X)))],
    "f-of-the-sum": [lambda X, f, norm: f(X + norm(X))],
}


# ------------------------------------------------------------------ 06 masks

def _masked(change):
    """Causal attention whose scores pass through change(scores, visible) instead of the mask."""
    def wrong(Q, K, V):
        scores = attention_scores(Q, K)
        weights = softmax(change(scores, np.tril(np.ones(scores.shape[-2:]))))
        return weights @ V, weights
    return wrong


MASKED = {
    "blocked-at-zero": [_masked(lambda scores, visible: scores * visible),
                        _masked(lambda scores, visible: np.where(visible, scores, 1e-9)),
                        _masked(lambda scores, visible: np.where(visible, scores, -1e-9))],
    "mask-multiplied": [_masked(lambda scores, visible: scores * causal_mask(scores.shape[-1]))],
    "plus-infinity": [_masked(lambda scores, visible: scores - causal_mask(scores.shape[-1]))],
    "ones-added": [_masked(lambda scores, visible: scores + visible),
                   _masked(lambda scores, visible: scores - visible)],
    "keys-as-values": [_mixing(lambda w, Q, K, V: w @ K, causal_mask)],
    "summed-over-queries": [_mixing(lambda w, Q, K, V: w.swapaxes(-1, -2) @ V, causal_mask)],
    "all-axes-turned": [lambda Q, K, V: attention(Q, _as_by_T(K), V, causal_mask(Q.shape[-2]))],
}


def leaks_on_low_scores(trial):
    return trial.large and (above(trial.got["weights"]) > 1e-9).any()


def future_leaks(trial):
    share = above(trial.got["weights"]).max()
    return sum_to_one(trial.got["weights"]) and share > 1e-12 and {"share": share}


def _values(test):
    return lambda trial: test(trial.result)


CODING = {      # what stands in a mask that is added to the scores
    "boolean-mask": _values(lambda mask: mask.dtype == bool),
    "ones-and-zeros": _values(lambda mask: mask.any() and np.isin(mask, (-1, 0, 1)).all()),
    "zero-times-inf": _values(lambda mask: np.isnan(mask).any()),
    "plus-infinity": _values(lambda mask: np.isposinf(mask).any()),
    "tiny-mask": _values(lambda mask: 0 < np.abs(mask).max() < 1e-3),
    "finite-mask": _values(lambda mask: np.isfinite(mask).all() and mask.min() < -1),
}


def _blocks_where(*patterns):
    """A diagnosis from which entries are -inf: one of patterns(all True, m - n)."""
    def diagnosis(trial):
        n, m = trial.result.shape
        ones = np.ones((n, m), bool)
        return any(np.array_equal(np.isneginf(trial.result), blocked(ones, m - n)) for blocked in patterns)
    return diagnosis


PATTERN = {
    "everything-blocked": _blocks_where(lambda ones, past: ones),
    "no-mask": _blocks_where(lambda ones, past: ~ones),
    "diagonal-blocked": _blocks_where(lambda ones, past: np.triu(ones, past)),
    "one-future-token": _blocks_where(lambda ones, past: np.triu(ones, past + 2)),
    "past-blocked": _blocks_where(lambda ones, past: np.tril(ones, past - 1), lambda ones, past: np.tril(ones, past)),
}


def _entry(wrong):
    """A diagnosis: the first entry where wrong(mine blocks, the right one blocks) holds."""
    def diagnosis(trial):
        found = np.argwhere(wrong(np.isneginf(trial.result), np.isneginf(trial.want["mask"])))
        return len(found) > 0 and dict(zip("ij", found[0].tolist(), strict=True))
    return diagnosis


def adds_to_visible(trial):
    """Blocked where it should be, but what is added elsewhere is not 0."""
    seen = trial.result[np.isfinite(trial.result)]
    right = np.array_equal(np.isneginf(trial.result), np.isneginf(trial.want["mask"]))
    return right and seen.any() and {"value": seen[seen != 0][0]}


ENTRIES = {
    "adds-to-visible": adds_to_visible,
    "entry-open": _entry(lambda mine, right: right & ~mine),
    "entry-blocked": _entry(lambda mine, right: mine & ~right),
}
TOP_LEFT = {"top-left-aligned": _blocks_where(lambda ones, past: np.triu(ones, 1))}


def causal(n):
    return np.tril(np.ones((n, n), bool))


def visible_keys(real):
    """(B, n) -> (B, 1, n, n): padding hidden as keys, for every query."""
    return np.repeat(real[:, None, None, :], real.shape[1], axis=2)


COMBINE = {
    "inverted": [lambda real: ~(causal(real.shape[1]) & visible_keys(real))],
    "or-for-and": [lambda real: causal(real.shape[1]) | visible_keys(real)],
    "padding-lost": [lambda real: causal(real.shape[1]) | (visible_keys(real) & False)],
    "causal-lost": [visible_keys],
    "padding-on-queries": [lambda real: causal(real.shape[1]) & visible_keys(real).swapaxes(2, 3)],
    "padding-on-both": [lambda real: causal(real.shape[1]) & visible_keys(real) & visible_keys(real).swapaxes(2, 3)],
    "padding-shown": [lambda real: causal(real.shape[1]) & ~visible_keys(real)],
    "past-blocked": [lambda real: causal(real.shape[1]).T & visible_keys(real)],
    "diagonal-blocked": [lambda real: np.tril(causal(real.shape[1]), -1) & visible_keys(real)],
}


def no_head_axis(trial):
    B, n = trial.args["real"].shape
    return trial.result.shape == (B, n, n)


TO_SDPA = {"inverted": [lambda mask: mask != 0], "all-true": [lambda mask: np.ones(mask.shape, bool)],
           "mask-turned": [lambda mask: mask.T == 0]}

TO_MHA = {
    "inverted": [lambda visible, h: np.repeat(visible, h, axis=0)],
    "heads-first": [lambda visible, h: np.concatenate([~visible] * h)],
    "inverted-and-heads-first": [lambda visible, h: np.concatenate([visible] * h)],
    "mask-turned": [lambda visible, h: ~np.repeat(visible.swapaxes(1, 2), h, axis=0)],
}


def _empty_rows(test):
    def diagnosis(trial):
        empty = np.isneginf(trial.args["scores"]).all(axis=-1)
        return test(trial.result[empty], trial.result[~empty])
    return diagnosis


EMPTY = {
    "empty-row-nan": _empty_rows(lambda empty, rest: np.isnan(empty).all()),
    "empty-row-uniform": _empty_rows(lambda empty, rest: np.allclose(empty, 1 / empty.shape[-1])),
    "all-rows-zero": _empty_rows(lambda empty, rest: not rest.any(axis=-1).all()),
}
