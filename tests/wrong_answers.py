"""Wrong answers, exercise by exercise, each under the id that its verdict must carry. Nothing here comes from mha_lib.

`variants` makes the four attention exercises wrong in the same ways; the rest is written out.
"""

import numpy as np


def soft(s, axis=-1):
    exps = np.exp(s - s.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


def sums_to_columns(s):
    return np.exp(s) / np.exp(s).sum(-1)


def never_nan(s):
    return np.nan_to_num(naive(s))


def naive(s):
    return np.exp(s) / np.exp(s).sum(-1, keepdims=True)


def into_integers(x):
    filled = np.zeros(x.shape, dtype=int)
    filled[...] = x
    return filled


def attend(Q, K, V, scale=lambda d_k, d: d_k ** -0.5, share=soft, change=lambda s: s, d=0,
           mix=lambda w, Q, K, V: w @ V):
    s = change(Q @ K.swapaxes(-1, -2) * scale(Q.shape[-1], d))
    w = share(s)
    return mix(w, Q, K, V), w


def cut(X, h):
    return np.stack(np.split(X, h, axis=-1), axis=-3)


def join(H):
    return np.concatenate([H[..., a, :, :] for a in range(H.shape[-3])], axis=-1)


def as_attention(**how):
    return lambda Q, K, V: attend(Q, K, V, **how)


def as_head(**how):
    def one_head(X, W_Q, W_K, W_V, a, h):
        return attend(*(cut(X @ W, h)[a] for W in (W_Q, W_K, W_V)), d=X.shape[-1], **how)[0]
    return one_head


def as_layer(cut=cut, join=join, Ws=lambda *W: W, **how):
    def layer(X, W_Q, W_K, W_V, W_O, h):
        W_Q, W_K, W_V, W_O = Ws(W_Q, W_K, W_V, W_O)
        return join(attend(*(cut(X @ W, h) for W in (W_Q, W_K, W_V)), d=X.shape[-1], **how)[0]) @ W_O
    return layer


def hide(s, k=1, value=-np.inf):
    s = s.copy()
    s[..., np.triu(np.ones(s.shape[-2:], bool), k)] = value
    return s


def as_masked(change=hide, **how):
    return lambda Q, K, V: attend(Q, K, V, change=change, d=Q.shape[0] * Q.shape[-1], **how)


HOW = {
    "no-scale": [dict(scale=lambda d_k, d: 1)],
    "divided-by-d_k": [dict(scale=lambda d_k, d: 1 / d_k)],
    "divided-by-sqrt-d": [dict(scale=lambda d_k, d: d ** -0.5)],
    "upside-down": [dict(scale=lambda d_k, d: d_k ** 0.5)],
    "precedence": [dict(scale=lambda d_k, d: 1 / (d_k ** 1 / 2)), dict(scale=lambda d_k, d: 1 / d_k ** 1 / 2)],
    "minus": [dict(scale=lambda d_k, d: -d_k ** -0.5)],
    "wrong-scale": [dict(scale=lambda d_k, d: 0.2), dict(scale=lambda d_k, d: d_k ** -0.25),
                    dict(scale=lambda d_k, d: 1 / (d_k + 1))],
    "softmax-over-queries": [dict(share=lambda s: soft(s, -2))],
    "softmax-over-everything": [dict(share=lambda s: soft(s, (-1, -2)))],
    "softmax-over-heads": [dict(share=lambda s: soft(s, -3))],
    "no-softmax": [dict(share=lambda s: s)],
    "no-exp": [dict(share=lambda s: s / s.sum(-1, keepdims=True))],
    "hard-max": [dict(share=lambda s: (s == s.max(-1, keepdims=True)) * 1.0)],
    "uniform": [dict(share=lambda s: np.full(s.shape, 1 / s.shape[-1]))],
    "queries-keys-swapped": [dict(change=lambda s: s.swapaxes(-1, -2))],
    "softmax-twice": [dict(share=lambda s: soft(soft(s)))],
    "rounded": [dict(mix=lambda w, Q, K, V: (w @ V).round(2))],
    "causal-unasked": [dict(change=hide)],
    "overflow": [dict(share=naive)],
    "nan-replaced": [dict(share=never_nan)],
    "no-keepdims": [dict(share=sums_to_columns), dict(share=lambda s: sums_to_columns(s - s.max(-1)))],
    "step-around": [dict(mix=lambda w, Q, K, V: w @ V + Q)],
    "scores-as-weights": [dict(mix=lambda w, Q, K, V: Q @ K.T / 3 @ V)],
    "only-the-best": [dict(mix=lambda w, Q, K, V: V[w.argmax(-1)])],
    "last-only": [dict(mix=lambda w, Q, K, V: np.array([row[-1] * V[-1] for row in w]))],
    "row-sums": [dict(share=lambda s: 1 / (1 + np.exp(-s))), dict(share=np.exp),
                 dict(share=lambda s: np.exp(s) / (1 + np.exp(s).sum(-1, keepdims=True)))],
    "nan": [dict(share=np.log)],
    "cut-to-integers": [dict(mix=lambda w, Q, K, V: into_integers(w @ V))],
    "constant": [dict(mix=lambda w, Q, K, V: np.full(Q.shape, 0.75))],
    "keys-as-values": [dict(mix=lambda w, Q, K, V: w @ K)],
    "identity": [dict(mix=lambda w, Q, K, V: Q)],
    "queries-as-values": [dict(mix=lambda w, Q, K, V: w @ Q)],
    "summed-over-queries": [dict(mix=lambda w, Q, K, V: w.swapaxes(-1, -2) @ V)],
    "outside-the-values": [dict(mix=lambda w, Q, K, V: w @ (3 * V + K))],
    "off-by-a-factor": [dict(mix=lambda w, Q, K, V: w @ V * V.shape[-1] ** -0.5), dict(mix=lambda w, Q, K, V: -w @ V)],
    "rows-scaled": [dict(share=lambda s: soft(2 * s) / 3)],
    "flattened": [dict(share=lambda s: soft(np.clip(s, -50, 50)))],
    "ignores": [dict(mix=lambda w, Q, K, V: V.mean(-2, keepdims=True) + 0 * w @ V)],
}


ONLY_RETURNED = "step-around", "scores-as-weights", "only-the-best", "last-only"      # seen beside right weights


def variants(build, *without):
    return {id: [build(**how) for how in hows] for id, hows in HOW.items() if id not in without}


def shapes(right, *, swap, less=None, more=None, longer=None):
    """Answers of a wrong shape, made from the right one: each function takes its array."""
    ways = {"swapped-axes": swap, "missing-axis": less, "extra-axis": more, "wrong-length": longer}
    return {id: [lambda *a, f=f: f(right(*a))] for id, f in ways.items() if f}


def one_shape(x, axis=-1):
    return np.concatenate([x, x], axis=axis)


AXES = dict(swap=lambda x: x.swapaxes(-1, -2), less=lambda x: x.sum(-1), more=lambda x: x[None], longer=one_shape)
SQUARE = dict(AXES, swap=None)              # (n, n): turned, it keeps its shape


def both(**ways):
    """The same for answers that return (output, weights)."""
    return {name: f and (lambda pair, f=f: (f(pair[0]), pair[1])) for name, f in ways.items()}


def norm(X, axis=-1, eps=1e-5, root=np.sqrt, ddof=0):
    return (X - X.mean(axis=axis, keepdims=True)) / root(X.var(axis=axis, keepdims=True, ddof=ddof) + eps)


def own_norm(X, f, given):
    return X + f(norm(X))


def triangle(n, m=None, k=1, value=-np.inf):
    M = np.zeros((n, n if m is None else m))
    M[np.triu(np.ones(M.shape, bool), k)] = value
    return M


def past(n):
    return np.tril(np.ones((n, n), bool))


def see(real, causal=True, axis=2):
    n = real.shape[1]
    keys = real[:, None, None, :] if axis == 2 else real[:, None, :, None]
    return np.ones((len(real), 1, n, n), bool) & keys & (past(n) if causal else True)


def width_as_float(d, h):
    if d % h:
        raise ValueError(f"{d} columns, {h} heads")
    return d / h


def project(X, W_Q, W_K, W_V):
    return X @ W_Q, X @ W_K, X @ W_V


def parts(heads, W_O):
    return np.stack([H @ W for H, W in zip(heads, np.split(W_O, len(heads)), strict=True)])


def spoil_first(f):
    """Spoil only the first of several arrays."""
    return lambda arrays: (f(arrays[0]), *arrays[1:])


def with_rows(rows):
    return lambda heads, W_O: np.stack([H @ rows(W_O, a, *heads.shape) for a, H in enumerate(heads)])


def turned_by_reshape(Q, K, mask=lambda s: s, scale=None):
    K = K.reshape(*K.shape[:-2], K.shape[-1], K.shape[-2])
    return soft(mask(Q @ K * (Q.shape[-1] ** -0.5 if scale is None else scale)))


def attention_by_reshape(mask=lambda s: s, scale=None):
    def attention(Q, K, V):
        w = turned_by_reshape(Q, K, mask, scale)
        return w @ V, w
    return attention


def head_by_reshape(X, W_Q, W_K, W_V, a, h):
    Q, K, V = (cut(X @ W, h)[a] for W in (W_Q, W_K, W_V))
    return turned_by_reshape(Q, K) @ V


def layer_by_reshape(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (cut(X @ W, h) for W in (W_Q, W_K, W_V))
    return join(turned_by_reshape(Q, K) @ V) @ W_O


def all_columns_first(scale):
    def one_head(X, W_Q, W_K, W_V, a, h):
        d_k = X.shape[-1] // h
        return soft(X @ W_Q @ (X @ W_K).T * scale(X.shape[-1], d_k)) @ (X @ W_V)[:, a * d_k:(a + 1) * d_k]
    return one_head


def from_columns(columns):
    def one_head(X, W_Q, W_K, W_V, a, h):
        return attend(*(columns(X, W, a, X.shape[-1] // h, h) for W in (W_Q, W_K, W_V)))[0]
    return one_head


def empty_head(X, W_Q, W_K, W_V, a, h):
    d_k = X.shape[-1] // h
    Q, K, V = ((X @ W)[:, a * d_k:a + 1 * d_k] for W in (W_Q, W_K, W_V))
    return soft(Q @ K.T / d_k ** 0.5) @ V


def first_values(X, W_Q, W_K, W_V, a, h):
    Q, K = (cut(X @ W, h)[a] for W in (W_Q, W_K))
    return attend(Q, K, cut(X @ W_V, h)[0])[0]


def short_scores(X, W_Q, W_K, W_V, a, h):
    Q, K, V = (cut(X @ W, h)[a] for W in (W_Q, W_K, W_V))
    return attend(Q[:, :-1], K[:, :-1], V)[0]


def head_of(X, W_Q, W_K, W_V, a, h):
    return as_head()(X, W_Q, W_K, W_V, a, h)


def by_reshape(X, h):
    return X.reshape(*X.shape[:-2], h, X.shape[-2], X.shape[-1] // h)


def back_by_reshape(H):
    return H.reshape(*H.shape[:-3], H.shape[-2], -1)


def every_hth(X, h):
    return np.stack([X[..., a::h] for a in range(h)], -3)


def samples_as_tokens(X, *rest):
    return as_layer()(X.swapaxes(0, 1), *rest).swapaxes(0, 1)


def unfolded_in_other_order(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (cut(X @ W, h) for W in (W_Q, W_K, W_V))              # (B, h, n, d_k), folded batch first below
    B, _, n, d_k = Q.shape
    folded = attend(*(x.reshape(B * h, n, d_k) for x in (Q, K, V)))[0]
    return join(folded.reshape(h, B, n, d_k).swapaxes(0, 1)) @ W_O


def heads_as_tokens(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = ((X @ W).reshape(*X.shape[:-1], h, -1) for W in (W_Q, W_K, W_V))
    return attend(Q, K, V)[0].reshape(X.shape) @ W_O


def shared_weights(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (cut(X @ W, h) for W in (W_Q, W_K, W_V))
    return join(attend(Q, K, V)[1].mean(1, keepdims=True) @ V) @ W_O


def first_weights(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (cut(X @ W, h) for W in (W_Q, W_K, W_V))
    return join(attend(Q, K, V)[1][:, :1] @ V) @ W_O


def turned(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (cut(X @ W, h) for W in (W_Q, W_K, W_V))
    return join(soft(Q @ K.T / Q.shape[-1] ** 0.5) @ V) @ W_O


def turned_and_masked(Q, K, V):
    w = soft(hide(Q @ K.T / Q.shape[-1] ** 0.5))
    return w @ V, w


def blocks(W, h):
    size = len(W) // h
    out = np.zeros_like(W)
    for i in range(0, len(W), size):
        out[i:i + size, i:i + size] = W[i:i + size, i:i + size]
    return out


def whole(X, *rest):
    return as_layer()(X, *rest)


def broken(where, value):
    """The right array with something strange at the first places."""
    def change(x):
        x = x.copy()
        x[where] = value
        return x
    return change


NAN = broken((..., slice(1)), np.nan)


def grown(keys, values, K, V, axis=2):
    return np.concatenate([keys, K], axis), np.concatenate([values, V], axis)


def written_from_0(keys, values, K, V):
    keys[:, :, :K.shape[2]], values[:, :, :V.shape[2]] = K, V
    return keys, values


def cached(n, d, h, layers, itemsize, kv_heads):
    return 2 * layers * kv_heads * n * (d // h) * itemsize


def words(memory, parameters, d, h, layers, itemsize, kv_heads, batch, sides=2, whole=int, least=0):
    one = sides * batch * cached(1, d, h, layers, itemsize, kv_heads) // 2
    return max(least, whole((memory - itemsize * parameters) / one))


def step(x, W_Q, W_K, W_V, W_O, keys, values, read=None, keep=lambda old, new: np.append(old, new, 2),
         out=lambda concat, x, W: concat @ W, **how):
    """One decode step that attends to read(stored, new), or to all words, and returns keep(stored, new)."""
    h = keys.shape[1]
    Q, K, V = (cut(x @ W, h) for W in (W_Q, W_K, W_V))
    read = read or (lambda old, new: np.append(old, new, 2))
    heads = attend(Q, read(keys, K), read(values, V), d=x.shape[-1], **how)[0]
    return out(join(heads), x, W_O), keep(keys, K), keep(values, V)


def as_step(**how):
    return lambda *args: step(*args, **how)


WRONG = {
    "project_qkv": {
        **shapes(project, **{k: spoil_first(f) for k, f in AXES.items()}),
        "parts-swapped": [lambda X, *W: project(X, *W)[::-1]],
        "transposed-weight": [lambda X, W_Q, W_K, W_V: ((W_Q @ X.T).T, (W_K @ X.T).T, (W_V @ X.T).T),
                              lambda X, W_Q, W_K, W_V: (X @ W_Q, X @ W_K.T, X @ W_V)],
        "no-projection": [lambda X, *W: (X, X, X)],
        "off-by-a-factor": [lambda X, *W: [x / 3 for x in project(X, *W)],
                            lambda X, *W: [x + 1 for x in project(X, *W)]],
        "rounded": [lambda *a: [x.round(2) for x in project(*a)]],
        "ignores": [lambda X, W_Q, W_K, W_V: (X @ W_Q, X @ W_K, X), lambda X, q, k, v: (X @ q, X @ k, X @ (q + k) / 2)],
        "listens": [lambda X, W_Q, W_K, W_V: (X @ W_Q, X @ W_Q @ W_K, X @ W_V)],
        "reused-projection": [lambda X, W_Q, W_K, W_V: (X @ W_Q, X @ W_K, X @ W_K),
                              lambda X, W_Q, W_K, W_V: (X @ W_Q, X @ W_Q, X @ W_V)],
        "nan": [lambda *a: spoil_first(NAN)(project(*a))],
        "cut-to-integers": [lambda *a: [into_integers(x) for x in project(*a)]],
        "constant": [lambda X, *W: (X * 0, *project(X, *W)[1:])],
    },
    "linear_weight_to_W": {
        "not-transposed": [lambda weight: weight],
        "reshaped": [lambda weight: weight.reshape(weight.shape[1], weight.shape[0])],
        **shapes(np.transpose, swap=lambda W: W[::-1].T, less=np.ravel, more=lambda W: W[None], longer=one_shape),
        "nan": [lambda weight: np.sqrt(weight.T)],
        "scrambled": [np.rot90, lambda weight: weight.T[::-1]],
        "constant": [lambda weight: np.zeros(weight.shape[::-1])],
    },
    "attention_scores": {
        **shapes(lambda Q, K: Q @ K.T / 3, **AXES),
        **{id: [lambda Q, K, how=how: Q @ K.T * how["scale"](Q.shape[1], 0) for how in HOW[id]]
           for id in ("no-scale", "divided-by-d_k", "upside-down", "precedence", "minus", "wrong-scale")},
        "reshaped": [lambda Q, K: Q @ K.reshape(K.shape[1], K.shape[0]) / 3],
        "cosine": [lambda Q, K: Q @ K.T / np.linalg.norm(Q, axis=1)[:, None] / np.linalg.norm(K, axis=1)],
        "rounded": [lambda Q, K: (Q @ K.T * Q.shape[1] ** -0.5).round(2)],
        "softmax-included": [lambda Q, K: soft(Q @ K.T / 3)],
        "one-array-twice": [lambda Q, K: Q @ Q.T / 3, lambda Q, K: K @ K.T],
        "last-only": [lambda Q, K: Q[:, -1:] * K[:, -1] / 3],
        "distance": [lambda Q, K: -((Q[:, None] - K) ** 2).sum(-1),
                     lambda Q, K: np.linalg.norm(Q[:, None] - K, axis=2)],
        "nan": [lambda Q, K: NAN(Q @ K.T)],
        "cut-to-integers": [lambda Q, K: into_integers(Q @ K.T * Q.shape[1] ** -0.5)],
        "constant": [lambda Q, K: np.ones((len(Q), len(K)))],
    },
    "softmax": {
        **shapes(soft, **AXES),
        **{id: [how["share"] for how in HOW[id]] for id in (
            "softmax-over-queries", "softmax-over-everything", "no-softmax", "no-exp", "hard-max", "uniform",
            "overflow", "flattened", "nan-replaced")},
        "rows-scaled": [lambda s: np.exp(s) / np.exp(s).mean(1, keepdims=True)],
        "other-function": [lambda s: np.abs(s) / np.abs(s).sum(1, keepdims=True),
                           lambda s: soft(s / np.abs(s).max(1, keepdims=True))],
        "no-keepdims": [sums_to_columns, lambda s: sums_to_columns(s - s.max(1, keepdims=True))],
        "max-of-columns": [lambda s: soft(s - s.max(axis=0))],
        "not-normalised": [np.exp, lambda s: np.exp(s - s.max(1, keepdims=True))],
        "logarithm": [lambda s: s - np.log(np.exp(s).sum(1, keepdims=True))],
        "one-by-one": [lambda s: 1 / (1 + np.exp(-s))],
        "rounded": [lambda s: soft(s).round(2)],
        "other-base": [lambda s: 2 ** s / (2 ** s).sum(1, keepdims=True), lambda s: soft(s / 3)],
        "global-maximum": [lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(1, keepdims=True)],
        "row-sums": [lambda s: np.exp(s) / (1 + np.exp(s).sum(1, keepdims=True))],
        "nan": [np.log],
        "cut-to-integers": [lambda s: into_integers(soft(s))],
        "constant": [lambda s: np.full(s.shape, 0.75)],
    },
    "attention": {
        "parts-swapped": [lambda *a: as_attention()(*a)[::-1]],
        **shapes(as_attention(), **both(**AXES)),
        **variants(as_attention, "divided-by-sqrt-d", "softmax-over-heads"),
        "reshaped": [attention_by_reshape(), attention_by_reshape(scale=1)],
        "keys-values-swapped": [lambda Q, K, V: attend(Q, V, K)],
        "listens": [lambda Q, K, V: (lambda w: (w @ V, w))(soft(Q @ (K + V).T / 3))],
        "values-as-keys": [lambda Q, K, V: attend(Q, V, V)],
        "one-array-twice": [lambda Q, K, V: attend(Q, Q, V)],
        "scores-returned": [lambda Q, K, V: (attend(Q, K, V)[0], Q @ K.T / 3)],
    },
    "pick_scale": {
        **{id: [lambda d, h, how=how: how["scale"](d / h, d) for how in HOW[id]]
           for id in ("no-scale", "divided-by-d_k", "divided-by-sqrt-d", "upside-down", "precedence", "minus")},
        "wrong-scale": [lambda d, h: (d * h) ** -0.5, lambda d, h: h ** -0.5, lambda d, h: 1 / h, lambda d, h: d // h],
        "same-always": [lambda d, h: 1 / 8, lambda d, h: 0.5],
        "rounded": [lambda d, h: round((d / h) ** -0.5, 2)],
        "not-one-number": [lambda d, h: np.array([0.1, 0.2])],
        "zero-scale": [lambda d, h: 1 // (d // h) ** 0.5, lambda d, h: int((d // h) ** -0.5)],
        "nan": [lambda d, h: np.sqrt(-1.0 * d)],
    },
    "head_width": {
        "silent-remainder": [lambda d, h: d // h],
        "not-one-number": [lambda d, h: (d // h, h)],
        "not-whole": [width_as_float],
        "zero-width": [lambda d, h: h // d, lambda d, h: d % h],
        "same-always": [lambda d, h: 4],
    },
    "split_heads": {
        **shapes(cut, swap=lambda x: x.swapaxes(0, 1), less=lambda x: x[0], more=lambda x: x[None], longer=one_shape),
        "split-by-reshape": [by_reshape],
        "every-h-th-column": [lambda X, h: X.reshape(len(X), -1, h).transpose(2, 0, 1), every_hth],
        "other-columns": [lambda X, h: cut(X, h)[::-1],
                          lambda X, h: np.stack([X[:, a:a + X.shape[1] // h] for a in range(h)]),
                          lambda X, h: np.stack([X[:, :X.shape[1] // h]] * h)],
        "scrambled": [lambda X, h: X.T.reshape(h, len(X), -1), lambda X, h: cut(X, h)[..., ::-1]],
        "nan": [lambda X, h: NAN(cut(X, h))],
        "constant": [lambda X, h: np.zeros((h, len(X), X.shape[1] // h))],
    },
    "merge_heads": {
        **shapes(join, swap=lambda x: x.T, less=lambda x: x[0], more=lambda x: x[None], longer=lambda x: x[:, :9]),
        "merge-by-reshape": [back_by_reshape],
        "every-h-th-column": [lambda H: np.stack(list(H), axis=-1).reshape(H.shape[1], -1)],
        "heads-together": [lambda H: H.sum(0), lambda H: H.mean(0)],
        "scrambled": [lambda H: np.concatenate(list(H)[::-1], axis=1),
                      lambda H: H.transpose(2, 1, 0).reshape(H.shape[1], -1), lambda H: join(H)[::-1]],
        "nan": [lambda H: NAN(join(H))],
        "constant": [lambda H: np.ones((H.shape[1], H.shape[0] * H.shape[2]))],
    },
    "one_head": {
        **shapes(head_of, **AXES),
        **variants(as_head, "softmax-over-heads", "identity", "queries-as-values", "summed-over-queries",
                   "outside-the-values", "ignores", *ONLY_RETURNED),
        "ignores": [lambda X, W_Q, W_K, W_V, a, h: attend(*(cut(x, h)[a] for x in (X @ W_Q, X @ W_K, X)))[0]],
        "empty-slice": [empty_head],
        "reshaped": [head_by_reshape],
        "ignores-a": [from_columns(lambda X, W, a, d_k, h: X @ W[:, :d_k])],
        "other-columns": [from_columns(lambda X, W, a, d_k, h: X @ W[:, a:a + d_k]), first_values,
                          lambda X, W_Q, W_K, W_V, a, h: head_of(X, W_Q, W_K, W_V, a - 1, h),
                          from_columns(lambda X, W, a, d_k, h: X @ W[:, a * h:a * h + d_k])],
        "one-column-short": [short_scores],
        "two-faults": [lambda X, W_Q, W_K, W_V, a, h: as_head(scale=lambda d_k, d: 1)(X, W_Q, W_K, W_V, a - 1, h)],
        "every-h-th-column": [from_columns(lambda X, W, a, d_k, h: X @ W[:, a::h])],
        "sliced-input": [from_columns(
            lambda X, W, a, d_k, h: X[:, a * d_k:][:, :d_k] @ W[a * d_k:, a * d_k:][:d_k, :d_k])],
        "transposed-weight": [from_columns(lambda X, W, a, d_k, h: X @ W[a * d_k:(a + 1) * d_k].T)],
        "scores-of-all-heads": [all_columns_first(lambda d, d_k: d ** -0.5),
                                all_columns_first(lambda d, d_k: d_k ** -0.5),
                                lambda *a: cut(attend(*(a[0] @ W for W in a[1:4]))[0], a[5])[a[4]]],
        "split-by-reshape": [lambda X, q, k, v, a, h: attend(*(by_reshape(X @ W, h)[a] for W in (q, k, v)))[0]],
        "keys-values-swapped": [lambda X, W_Q, W_K, W_V, a, h: head_of(X, W_Q, W_V, W_K, a, h)],
        "reused-projection": [lambda X, W_Q, W_K, W_V, a, h: head_of(X, W_K, W_K, W_V, a, h),
                              lambda X, W_Q, W_K, W_V, a, h: head_of(X, W_Q, W_V, W_V, a, h),
                              lambda X, W_Q, W_K, W_V, a, h: head_of(X, W_Q, W_Q, W_V, a, h)],
    },
    "parameter_count": {
        "W_O-forgotten": [lambda d, h: 3 * d ** 2],
        "times-h": [lambda d, h: 4 * d * d * h, lambda d, h: h * (d * d * 3)],
        "biases-counted": [lambda d, h: 4 * (d + 1) * d, lambda d, h: 4 * d * d + 3 * d],
        "other-matrices": [lambda d, h: 5 * d * d, lambda d, h: 4 * d, lambda d, h: 12 * d * d],
        "same-always": [lambda d, h: 576],
        "one-matrix": [lambda d, h: d ** 2],
        "one-head-counted": [lambda d, h: 4 * d * d // h],
        "slices-counted": [lambda d, h: 4 * (d // h) ** 2],
        "not-one-number": [lambda d, h: (4, d, d)],
    },
    "multi_head_attention": {
        **shapes(whole, **AXES),
        **variants(as_layer, "identity", "queries-as-values", "summed-over-queries", "constant",
                   "outside-the-values", "cut-to-integers", "rounded", "ignores", *ONLY_RETURNED),
        "ignores": [lambda X, W_Q, W_K, W_V, W_O, h: whole(X, W_Q, W_K, np.eye(len(W_V)), W_O, h),
                    lambda X, q, k, v, o, h: whole(X, *[np.eye(len(o))] * 3, o, h)],
        "W_O-twice": [lambda X, *rest: whole(X, *rest) @ rest[3]],
        "h-for-d_k": [as_layer(cut=lambda X, h: cut(X, X.shape[-1] // h)),
                      as_layer(cut=lambda X, h: cut(X, X.shape[-1] // h), scale=lambda h, d: (d // h) ** -0.5)],
        "two-faults": [lambda X, *W: X + as_layer(join=back_by_reshape)(X, *W),
                       as_layer(cut=by_reshape, scale=lambda d_k, d: 1)],
        "rounded": [lambda *a: whole(*a).round(2)],
        "all-axes-turned": [turned],
        "reshaped": [layer_by_reshape],
        "identity": [lambda X, *rest: X],
        "constant": [lambda X, *rest: X * 0],
        "cut-to-integers": [lambda *a: into_integers(whole(*a))],
        "samples-mixed": [samples_as_tokens, unfolded_in_other_order],
        "tokens-do-not-mix": [heads_as_tokens],
        "no-W_O": [as_layer(Ws=lambda *W: (*W[:3], np.eye(len(W[3]))))],
        "split-by-reshape": [as_layer(cut=by_reshape)],
        "merge-by-reshape": [as_layer(join=back_by_reshape)],
        "split-and-merge-by-reshape": [as_layer(cut=by_reshape, join=back_by_reshape)],
        "every-h-th-column": [as_layer(cut=every_hth)],
        "one-head-only": [as_layer(cut=lambda X, h: X, join=lambda H: H),
                          lambda X, *Ws: attend(*(X @ W for W in Ws[:3]), lambda d, _: (d / Ws[4]) ** -0.5)[0] @ Ws[3]],
        "merged-astray": [as_layer(join=lambda H: H.transpose(0, 1, 3, 2).reshape(len(H), H.shape[2], -1)),
                          as_layer(join=lambda H: join(H[:, ::-1]))],
        "step-around": [lambda X, *rest: X + whole(X, *rest), lambda X, *rest: whole(norm(X), *rest),
                        lambda X, *rest: whole(X, *rest) + X @ rest[3]],
        "W_O-in-blocks": [lambda X, q, k, v, o, h: whole(X, q, k, v, blocks(o, h), h)],
        "other-columns": [as_layer(cut=lambda X, h: np.stack([X[..., a:a + X.shape[-1] // h] for a in range(h)], -3)),
                          lambda X, q, k, v, o, h: whole(X, q, k, np.concatenate(np.split(v, h, 1)[::-1], 1), o, h)],
        "heads-averaged": [shared_weights, first_weights],
        "transposed-weight": [as_layer(Ws=lambda *W: [x.T for x in W]), as_layer(Ws=lambda q, k, v, o: (q, k, v.T, o))],
        "W_O-transposed": [as_layer(Ws=lambda *W: (*W[:3], W[3].T))],
        "keys-values-swapped": [as_layer(Ws=lambda q, k, v, o: (q, v, k, o))],
        "sliced-input": [lambda X, q, k, v, o, h: whole(X, blocks(q, h), blocks(k, h), blocks(v, h), o, h)],
        "reused-projection": [as_layer(Ws=lambda q, k, v, o: (k, k, v, o)),
                              as_layer(Ws=lambda q, k, v, o: (q, q, v, o))],
    },
    "output_as_sum_over_heads": {
        "already-summed": [lambda heads, W_O: parts(heads, W_O).sum(0)],
        **shapes(parts, swap=lambda x: x.swapaxes(0, 1), less=lambda x: x[0], more=lambda x: x[None], longer=one_shape),
        "every-h-th-row": [with_rows(lambda W, a, h, n, d_k: W[a::h])],
        "other-rows": [with_rows(lambda W, a, h, n, d_k: W[:d_k]), with_rows(lambda W, a, h, n, d_k: W[a:a + d_k]),
                       lambda heads, W_O: parts(heads[:1].repeat(len(heads), 0), W_O)],
        "running-sum": [lambda heads, W_O: parts(heads, W_O).cumsum(0),
                        lambda heads, W_O: np.stack([parts(heads, W_O).sum(0)] * len(heads))],
        "W_O-transposed": [with_rows(lambda W, a, h, n, d_k: W.T[a * d_k:(a + 1) * d_k])],
        "not-projected": [lambda heads, W_O: parts(heads, np.eye(len(W_O)))],
        "shared-equally": [lambda heads, W_O: np.stack([parts(heads, W_O).mean(0)] * len(heads))],
        "nan": [lambda heads, W_O: np.sqrt(parts(heads, W_O))],
        "cut-to-integers": [lambda heads, W_O: into_integers(parts(heads, W_O))],
        "constant": [lambda heads, W_O: parts(heads, W_O) * 0],
        "off-by-a-factor": [lambda heads, W_O: parts(heads, W_O) / len(heads)],
    },
    "layer_norm": {
        **shapes(norm, **AXES),
        "identity": [lambda X: X],
        "over-columns": [lambda X: norm(X, 0)],
        "over-everything": [lambda X: norm(X, (0, 1)), lambda X: (X - X.mean()) / X.std()],
        "not-centred": [lambda X: X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-5)],
        "not-divided": [lambda X: X - X.mean(1)[:, None]],
        "variance-not-root": [lambda X: norm(X, root=lambda v: v)],
        "divided-by-d-minus-1": [lambda X: norm(X, ddof=1)],
        "unit-length": [lambda X: np.array([(x - x.mean()) / np.linalg.norm(x - x.mean()) for x in X])],
        "eps-outside-the-root": [lambda X: (X - X.mean(1)[:, None]) / (X.std(1)[:, None] + 1e-5)],
        "no-eps": [lambda X: norm(X, eps=0)],
        "nan": [lambda X: np.log(X - 100)],
        "cut-to-integers": [lambda X: into_integers(norm(X))],
        "constant": [lambda X: np.zeros(X.shape)],
        "rounded": [lambda X: norm(X, eps=1e-6), lambda X: norm(X).round(2)],
        "mean-not-0": [lambda X: norm(X) + 1,
                       lambda X: (X - np.median(X, axis=1, keepdims=True)) / X.std(1, keepdims=True)],
        "spread-not-1": [lambda X: norm(X) / 2,
                         lambda X: (X - X.mean(1, keepdims=True)) / np.ptp(X, axis=1, keepdims=True)],
    },
    "sublayer": {
        **shapes(lambda X, f, norm: X + f(norm(X)), **AXES),
        "identity": [lambda X, f, norm: X],
        "post-norm": [lambda X, f, norm: norm(X + f(X)), lambda X, f, norm: norm(X + f(norm(X)))],
        "not-added": [lambda X, f, norm: X - f(norm(X)), lambda X, f, norm: f(norm(X)) - X,
                      lambda X, f, norm: X * f(norm(X))],
        "added-too-much": [lambda X, f, norm: X + X + f(norm(X)), lambda X, f, norm: X + norm(X) + f(norm(X))],
        "own-norm": [own_norm, lambda X, f, own=None: X + f((X - X.mean(1)[:, None]) / X.std(1)[:, None]),
                     lambda X, f, norm: (X + f(norm(X))).round(2)],
        "off-by-a-factor": [lambda X, f, norm: (X + f(norm(X))) / 2],
        "no-residual": [lambda X, f, norm: f(norm(X))],
        "normalised-stream": [lambda X, f, norm: norm(X) + f(norm(X)), lambda X, f, norm: norm(X) + f(X)],
        "no-norm": [lambda X, f, norm: X + f(X)],
        "norm-after-f": [lambda X, f, norm: X + norm(f(X)), lambda X, f, norm: X + norm(f(norm(X)))],
        "f-left-out": [lambda X, f, norm: X + norm(X), lambda X, f, norm: norm(X)],
        "f-twice": [lambda X, f, norm: X + f(f(norm(X)))],
        "f-of-the-sum": [lambda X, f, norm: f(X + norm(X))],
        "nan": [lambda X, f, norm: np.sqrt(X)],
        "cut-to-integers": [lambda X, f, norm: into_integers(X + f(norm(X)))],
        "constant": [lambda X, f, norm: X * 0],
    },
    "causal_mask": {
        **shapes(triangle, less=lambda M: M[0], more=lambda M: M[None], longer=one_shape, swap=None),
        "boolean-mask": [past, lambda n: ~past(n)],
        "ones-and-zeros": [lambda n: np.tril(np.ones((n, n))), lambda n: np.triu(np.ones((n, n)), 1)],
        "zero-times-inf": [lambda n: np.triu(np.ones((n, n)), 1) * -np.inf],
        "plus-infinity": [lambda n: triangle(n, value=np.inf)],
        "tiny-mask": [lambda n: triangle(n, value=1e-9), lambda n: triangle(n, value=-1e-9)],
        "finite-mask": [lambda n: triangle(n, value=-1e9), lambda n: triangle(n, value=-1e4)],
        "everything-blocked": [lambda n: np.full((n, n), -np.inf)],
        "no-mask": [lambda n: np.zeros((n, n))],
        "diagonal-blocked": [lambda n: triangle(n, k=0)],
        "one-future-token": [lambda n: triangle(n, k=2)],
        "past-blocked": [lambda n: triangle(n).T, lambda n: triangle(n, k=0).T],
        "adds-to-visible": [lambda n: triangle(n) + 1],
        "entry-open": [lambda n: np.where(np.arange(n) == n - 1, triangle(n), 0)],
        "entry-blocked": [lambda n: np.where(np.eye(n), 0, -np.inf)],
    },
    "shifted_causal_mask": {
        **shapes(lambda n, m: triangle(n, m, 1 + m - n), **AXES),
        "boolean-mask": [lambda n, m: triangle(n, m, 1 + m - n) == 0],
        "ones-and-zeros": [lambda n, m: (triangle(n, m, 1 + m - n) == 0) * 1.0],
        "zero-times-inf": [lambda n, m: np.triu(np.ones((n, m)), 1 + m - n) * -np.inf],
        "plus-infinity": [lambda n, m: triangle(n, m, 1 + m - n, np.inf)],
        "tiny-mask": [lambda n, m: triangle(n, m, 1 + m - n, 1e-9)],
        "finite-mask": [lambda n, m: triangle(n, m, 1 + m - n, -1e9)],
        "everything-blocked": [lambda n, m: np.full((n, m), -np.inf)],
        "no-mask": [lambda n, m: np.zeros((n, m))],
        "diagonal-blocked": [lambda n, m: triangle(n, m, m - n)],
        "one-future-token": [lambda n, m: triangle(n, m, 2 + m - n)],
        "past-blocked": [lambda n, m: np.where(np.tril(np.ones((n, m)), m - n - 1), -np.inf, 0.0)],
        "top-left-aligned": [lambda n, m: triangle(n, m)],
        "adds-to-visible": [lambda n, m: triangle(n, m, 1 + m - n) + 1],
        "entry-open": [lambda n, m: triangle(n, m, 1 + m - n)[:, ::-1]],
        "entry-blocked": [lambda n, m: np.hstack([np.full((n, m - n), -np.inf), triangle(n)])],
    },
    "masked_attention": {
        "parts-swapped": [lambda *a: as_masked()(*a)[::-1]],
        **shapes(as_masked(), **both(**AXES)),
        **variants(as_masked, "no-softmax", "no-exp", "uniform", "causal-unasked", "queries-keys-swapped", "row-sums",
                   "nan", "softmax-twice", "queries-as-values", "flattened", "ignores", "no-keepdims", *ONLY_RETURNED),
        "values-as-keys": [lambda Q, K, V: attend(Q, V, V, change=hide)],
        "queries-keys-swapped": [as_masked(change=lambda s: hide(s.swapaxes(-1, -2)))],
        "all-axes-turned": [turned_and_masked],
        "reshaped": [attention_by_reshape(hide)],
        "diagonal-blocked": [as_masked(lambda s: hide(s, 0, -1e9)), as_masked(lambda s: hide(s, 0)),
                             as_masked(lambda s: s - 1e9 * np.triu(np.ones(s.shape)))],
        "past-blocked": [as_masked(lambda s: hide(s.swapaxes(-1, -2)).swapaxes(-1, -2)),
                         as_masked(lambda s: hide(s.swapaxes(-1, -2), 0).swapaxes(-1, -2))],
        "one-future-token": [as_masked(lambda s: hide(s, 2))],
        "zero-times-inf": [as_masked(lambda s: s + np.triu(np.ones(s.shape), 1) * -np.inf)],
        "masked-after-softmax": [as_masked(lambda s: s, share=lambda s: np.tril(soft(s))),
                                 as_masked(lambda s: s, share=lambda s: hide(soft(s)))],
        "no-mask": [as_masked(lambda s: s)],
        "other-weights": [lambda Q, K, V: (attend(Q, K, V)[0], attend(Q, K, V, change=hide)[1])],
        "blocked-at-zero": [as_masked(np.tril), as_masked(lambda s: hide(s, value=1e-9))],
        "ones-added": [as_masked(lambda s: s + np.tril(np.ones(s.shape))),
                       as_masked(lambda s: s - np.triu(np.ones(s.shape), 1))],
        "finite-mask": [as_masked(lambda s: hide(s, value=-1e4)), as_masked(lambda s: hide(s, value=-1e5)),
                        as_masked(lambda s: s - 1e3 * np.triu(np.ones(s.shape), 1))],
        "flattened": [as_masked(lambda s: hide(np.clip(s, -1e4, 1e4)))],
        "future-leaks": [as_masked(lambda s: hide(s, value=-10)), as_masked(lambda s: hide(s, 3))],
        "heads-averaged": [as_masked(lambda s: hide(s.mean(0) + 0 * s))],
        "row-sums": [as_masked(share=lambda s: soft(s) + 0.05 * soft(s, -2))],
        "mask-multiplied": [as_masked(lambda s: s * triangle(s.shape[-1]))],
        "plus-infinity": [as_masked(lambda s: s - triangle(s.shape[-1])), as_masked(lambda s: hide(s, value=np.inf))],
        "nan": [as_masked(mix=lambda w, Q, K, V: NAN(w @ V))],
    },
    "guarded_softmax": {
        **shapes(lambda s: np.nan_to_num(soft(s)), **AXES),
        "empty-row-nan": [soft, naive],
        "empty-row-uniform": [lambda s: soft(np.maximum(s, -1e9))],
        "global-maximum": [lambda s: np.nan_to_num(np.exp(s - s.max()) / np.exp(s - s.max()).sum(-1, keepdims=True))],
        "all-rows-zero": [lambda s: np.zeros(s.shape), lambda s: np.nan_to_num(soft(s)) * np.isfinite(s[:, :1])],
        "overflow": [lambda s: np.exp(s) / np.maximum(np.exp(s).sum(1, keepdims=True), 1e-300)],
        "softmax-over-queries": [lambda s: soft(s, 0)],
        "rounded": [lambda s: np.exp(s) / (np.exp(s).sum(1, keepdims=True) + 1e-6)],
        "identity": [lambda s: s],
        "nan": [lambda s: np.log(np.where(np.isneginf(s).all(-1, keepdims=True), 1, s))],
        "constant": [lambda s: np.full(s.shape, 0.5)],
    },
    "combine_masks": {
        "constant": [lambda real: see(real) & False],
        "no-head-axis": [lambda real: see(real)[:, 0]],
        **shapes(see, swap=lambda x: x.swapaxes(0, 1), less=lambda x: x[0, 0], more=lambda x: x[None],
                 longer=lambda x: x.repeat(3, 1)),
        "not-boolean": [lambda real: see(real) * 1, lambda real: np.where(see(real), 0.0, -np.inf)],
        "inverted": [lambda real: ~see(real)],
        "or-for-and": [lambda real: see(real, causal=False) | past(real.shape[1])],
        "padding-lost": [lambda real: see(np.ones_like(real))],
        "causal-lost": [lambda real: see(real, causal=False), lambda real: real[:, None, None, :]],
        "padding-on-queries": [lambda real: see(real, axis=1)],
        "padding-on-both": [lambda real: see(real) & see(real, axis=1)],
        "padding-shown": [lambda real: see(~real)],
        "past-blocked": [lambda real: see(real, causal=False) & past(real.shape[1]).T,
                         lambda real: see(real, causal=False) & ~past(real.shape[1])],
        "diagonal-blocked": [lambda real: see(real) & np.tril(np.ones((real.shape[1],) * 2, bool), -1)],
    },
    "to_sdpa_mask": {
        **shapes(lambda M: M == 0, less=lambda x: x[0], more=lambda x: x[None], longer=one_shape, swap=None),
        "not-boolean": [lambda M: M, lambda M: (M == 0) * 1],
        "inverted": [lambda M: M < 0, lambda M: M.astype(bool)],
        "all-true": [lambda M: M <= 0],
        "mask-turned": [lambda M: (M == 0).T],
        "constant": [lambda M: M > 0],
        "diagonal-blocked": [lambda M: np.tri(*M.shape, -1, dtype=bool)],
        "one-future-token": [lambda M: np.tri(*M.shape, 1, dtype=bool)],
    },
    "to_mha_mask": {
        **shapes(lambda v, h: ~np.repeat(v, h, 0), swap=lambda x: x.swapaxes(0, 1), less=lambda x: x[0],
                 more=lambda x: x[None], longer=lambda x: x[:2]),
        "not-boolean": [lambda v, h: 1 - np.repeat(v, h, 0), lambda v, h: ~np.repeat(v.astype(int), h, 0)],
        "inverted": [lambda v, h: np.repeat(v, h, 0)],
        "heads-first": [lambda v, h: ~np.tile(v, (h, 1, 1))],
        "inverted-and-heads-first": [lambda v, h: np.tile(v, (h, 1, 1))],
        "mask-turned": [lambda v, h: ~np.repeat(v, h, 0).swapaxes(1, 2)],
        "constant": [lambda v, h: np.repeat(v, h, 0) < 0],
    },
    "attention_flops": {
        "not-one-number": [lambda n, d, h: [8 * n * d * d, 4 * n * n * d]],
        "half-the-flops": [lambda n, d, h: 4 * (n * d * d) + 2 * (n * n * d)],
        "W_O-forgotten": [lambda n, d, h: 3 * 2 * n * d * d + 2 * 2 * n * n * d],
        "half-the-square": [lambda n, d, h: 4 * 2 * n * d * d + 2 * n * d * n],
        "causal-unasked": [lambda n, d, h: 8 * n * d * d + 4 * d * sum(range(n + 1))],
        "square-only": [lambda n, d, h: 4 * n ** 2 * d],
        "projections-only": [lambda n, d, h: 2 * n * 4 * d ** 2],
        "n-not-squared": [lambda n, d, h: 8 * n * d * d + 4 * n * d],
        "times-h": [lambda n, d, h: 8 * n * d * d + h * 4 * n * n * d,
                    lambda n, d, h: h * 8 * n * d * d + 4 * n * n * d,
                    lambda n, d, h: h * (8 * n * d * d + 4 * n * n * d)],
        "one-head-counted": [lambda n, d, h: 8 * n * d * d + 4 * n * n * d // h,
                             lambda n, d, h: (8 * n * d * d + 4 * n * n * d) // h],
        "per-token": [lambda n, d, h: 8 * d * d + 4 * n * d, lambda n, d, h: 2 * 4 * d ** 2],
        "parameters": [lambda n, d, h: 4 * d ** 2],
        "one-addition-fewer": [lambda n, d, h: 4 * n * d * (d + d - 1) + h * n * n * (2 * (d // h) - 1)
                               + h * n * (d // h) * (2 * n - 1)],
        "biases-counted": [lambda n, d, h: 2 * n * d * (4 * d + 2 * n) + n * (3 * d + d),
                           lambda n, d, h: 2 * n * d * (4 * d + 2 * n) + 4 * d],
        "softmax-added": [lambda n, d, h: 8 * n * d * d + 4 * n * n * d + 5 * h * n * n],
        "size-ignored": [lambda n, d, h: 1000, lambda n, d, h: 24 * d],
        "size-counted": [lambda n, d, h: 8 * n * d * d + 4 * n * n * d + 8 * n * h * d],
        "times-a-number": [lambda n, d, h: 16 * n * d * d + 8 * n * n * d],
        "other-factors": [lambda n, d, h: 4 * n * d * d + 4 * n * n * d, lambda n, d, h: 8 * n * d * d + 6 * n * n * d],
    },
    "kv_append": {
        "parts-swapped": [lambda keys, values, K, V: grown(values, keys, V, K)],
        "new-words-first": [lambda keys, values, K, V: grown(K, V, keys, values)],
        "only-the-new": [lambda keys, values, K, V: (K, V)],
        "keys-with-values": [lambda keys, values, K, V: (np.append(keys, values, 2), np.append(K, V, 2))],
        "summed": [lambda keys, values, K, V: (keys + K, values + V)],
        "nothing-appended": [lambda keys, values, K, V: (keys, values)],
        "one-grows": [lambda keys, values, K, V: (np.append(keys, K, 2), values),
                      lambda keys, values, K, V: (np.append(keys, K, 2), V)],
        "overwritten": [written_from_0, lambda keys, values, K, V: [
            np.append(old[:, :, :-K.shape[2]], new, 2) for old, new in ((keys, K), (values, V))]],
        "joined-elsewhere": [lambda *a, i=i: grown(*a, axis=i) for i in (1, 0, 3, -1)],
        "unused-slots": [lambda *a: [np.pad(x, [(0, 0), (0, 0), (0, 4), (0, 0)]) for x in grown(*a)]],
        **shapes(grown, **{k: spoil_first(f) for k, f in AXES.items()}),
        "nan": [lambda *a: spoil_first(NAN)(grown(*a))],
        "cut-to-integers": [lambda *a: [into_integers(x) for x in grown(*a)]],
        "constant": [lambda *a: [0.5 * np.ones(x.shape) for x in grown(*a)]],
        "off-by-a-factor": [lambda *a: [3 * x for x in grown(*a)]],
        "ignores": [lambda keys, values, K, V: grown(keys, values, K, K),
                    lambda keys, values, K, V: grown(keys, keys, K, V)],
        "listens": [lambda keys, values, K, V: grown(keys, values, K, V + K)],
    },
    "cache_bytes": {
        "not-one-number": [lambda *sizes: [cached(*sizes), 1]],
        "not-whole": [lambda n, d, h, layers, itemsize, kv_heads: 2 * layers * kv_heads * n * (d / h) * itemsize],
        "one-of-two": [lambda n, d, h, layers, itemsize, kv_heads: layers * kv_heads * n * (d // h) * itemsize],
        "layers-forgotten": [lambda n, d, h, layers, itemsize, kv_heads: 2 * kv_heads * n * (d // h) * itemsize],
        "kv-heads-ignored": [lambda n, d, h, layers, itemsize, kv_heads: 2 * layers * n * d * itemsize],
        "full-width": [lambda n, d, h, layers, itemsize, kv_heads: 2 * layers * kv_heads * n * d * itemsize,
                       lambda n, d, h, layers, itemsize, kv_heads: 2 * layers * h * n * d * itemsize],
        "width-of-a-group": [lambda n, d, h, layers, size, kv_heads: 2 * layers * n * h * (d // kv_heads) * size],
        "one-head-counted": [lambda n, d, h, layers, itemsize, kv_heads: 2 * layers * n * (d // h) * itemsize],
        "one-side-shared": [lambda n, d, h, layers, itemsize, kv_heads:
                            (n * d + n * kv_heads * (d // h)) * layers * itemsize],
        "plus-for-times": [lambda n, d, h, layers, itemsize, kv_heads: 2 * kv_heads * n * (d // h) * itemsize + layers,
                           lambda n, d, h, layers, itemsize, kv_heads: 2 * kv_heads * n * (d // h) * layers + itemsize,
                           lambda n, d, h, layers, itemsize, kv_heads: 2 * layers * n * (d // h) * itemsize + kv_heads],
        "numbers-not-bytes": [lambda n, d, h, layers, itemsize, kv_heads: 2 * layers * n * (d // h) * kv_heads],
        "queries-counted": [lambda *sizes: 3 * cached(*sizes) // 2,
                            lambda n, d, h, layers, size, kv_heads: layers * n * size * (d // h) * (2 * kv_heads + h)],
        "n-squared": [lambda n, *rest: cached(n * n, *rest),
                      lambda n, d, h, layers, itemsize, kv_heads: layers * h * n * n * itemsize],
        "other-unit": [lambda *sizes: 8 * cached(*sizes), lambda *sizes: cached(*sizes) / 1e9,
                       lambda *sizes: cached(*sizes) / 2 ** 20],
        "size-ignored": [lambda n, d, h, layers, itemsize, kv_heads: cached(n, d, h, layers, 2, kv_heads),
                         lambda *sizes: 960, lambda n, d, h, layers, itemsize, kv_heads: 4 * layers * n * d * kv_heads],
        "times-a-number": [lambda *sizes: 2 * cached(*sizes)],
    },
    "decode_step": {
        "parts-swapped": [lambda *a: (lambda out, keys, values: (out, values, keys))(*step(*a))],
        **shapes(step, **{k: spoil_first(f) for k, f in AXES.items()}),
        **variants(as_step, "softmax-over-everything", "queries-keys-swapped", "causal-unasked", "no-keepdims",
                   "ignores", "constant", "outside-the-values", "queries-as-values", "identity", "step-around",
                   "summed-over-queries", "rows-scaled", *ONLY_RETURNED),
        "no-W_O": [lambda *a: step(*a, out=lambda concat, x, W: concat)],
        "W_O-transposed": [lambda *a: step(*a, out=lambda concat, x, W: concat @ W.T)],
        "step-around": [lambda *a: step(*a, out=lambda concat, x, W: x + concat @ W)],
        "new-word-unseen": [lambda *a: step(*a, read=lambda old, new: old)],
        "only-itself": [lambda *a: step(*a, read=lambda old, new: new)],
        "top-left-aligned": [as_step(change=lambda s: s + triangle(1, s.shape[-1])),
                             lambda *a: step(*a, read=lambda old, new: np.append(old, new, 2)[:, :, :1])],
        "new-words-first": [lambda *a: step(*a, keep=lambda old, new: np.append(new, old, 2))],
        "only-the-new": [lambda *a: step(*a, read=lambda old, new: new, keep=lambda old, new: new)],
        "kept-wrong": [lambda *a: step(*a, keep=lambda old, new: new), lambda *a: step(*a, keep=lambda old, new: old)],
        "constant": [lambda x, *rest: (0 * x, *step(x, *rest)[1:])],
        "cut-to-integers": [lambda *a: spoil_first(into_integers)(step(*a))],
        "heads-averaged": [as_step(share=lambda s: soft(s).mean(1, keepdims=True) + 0 * s)],
        "ignores": [lambda x, W_Q, W_K, W_V, *rest: step(x, W_Q, W_V, W_V, *rest)],
        "listens": [lambda x, W_Q, W_K, W_V, *rest: step(x, W_Q, W_Q @ W_K, W_V, *rest)],
    },
    "gqa_expand": {
        "identity": [lambda K, h: K],
        "tiled": [lambda K, h: np.tile(K, (1, h // K.shape[1], 1, 1)), lambda K, h: K[:, np.arange(h) % K.shape[1]],
                  lambda K, h: np.concatenate([K] * (h // K.shape[1]), axis=1)],
        "divided-by-kv-heads": [lambda K, h: np.stack([K[:, a // K.shape[1]] for a in range(h)], axis=1)],
        "first-head-only": [lambda K, h: np.stack([K[:, 0]] * h, axis=1)],
        "repeated-h-times": [lambda K, h: np.repeat(K, h, axis=1)],
        "repeated-elsewhere": [lambda K, h, i=i: np.repeat(K, h // K.shape[1], axis=i) for i in (2, 0, 3, -1)],
        **shapes(lambda K, h: np.repeat(K, h // K.shape[1], axis=1), **AXES),
        "scrambled": [lambda K, h: np.repeat(K[:, ::-1], h // K.shape[1], axis=1)],
        "nan": [lambda K, h: np.sqrt(np.repeat(K, h // K.shape[1], axis=1) - 5)],
        "constant": [lambda K, h: np.ones((len(K), h, *K.shape[2:]))],
    },
    "longest_context": {
        "not-one-number": [lambda *sizes: [words(*sizes), 0]],
        "negative": [lambda *sizes: words(*sizes, least=-np.inf)],
        "model-forgotten": [lambda memory, parameters, *rest: words(memory, 0, *rest)],
        "parameters-not-bytes": [lambda memory, parameters, *rest: words(memory - parameters, 0, *rest)],
        "one-of-two": [lambda *sizes: words(*sizes, sides=1)],
        "batch-forgotten": [lambda *sizes: words(*sizes[:-1], 1)],
        "layers-forgotten": [lambda memory, parameters, d, h, layers, *rest: words(memory, parameters, d, h, 1, *rest)],
        "kv-heads-ignored": [lambda *sizes: words(*sizes[:-2], sizes[3], sizes[-1])],
        "full-width": [lambda memory, parameters, d, h, *rest: words(memory, parameters, d, 1, *rest)],
        "numbers-not-bytes": [lambda *sizes: words(*sizes, sides=2 / sizes[5]),
                              lambda *sizes: words(*sizes[:5], 1, *sizes[6:])],
        "rounded-up": [lambda *sizes: words(*sizes, whole=np.ceil), lambda *sizes: words(*sizes, whole=round)],
        "gibibytes": [lambda memory, *rest: words(memory / 1e9 * 1024 ** 3, *rest),
                      lambda memory, *rest: words(memory / 1024 ** 3 * 1e9, *rest)],
        "not-whole": [lambda *sizes: words(*sizes, whole=float), lambda *sizes: float(words(*sizes))],
        "size-ignored": [lambda *sizes: 4812, lambda memory, *rest: words(9 * 10 ** 6, *rest),
                         # all heads and no batch: right wherever kv_heads times batch is h
                         lambda memory, parameters, d, h, layers, itemsize, kv_heads, batch:
                         words(memory, parameters, d, h, layers, itemsize, h, 1),
                         lambda memory, parameters, d, h, layers, itemsize, kv_heads, batch:
                         words(memory, parameters, d, h, layers, itemsize, 1, batch)],
    },
}
