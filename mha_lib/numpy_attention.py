"""Multi-head attention in NumPy, every step its own function. Leading axes (batch, head) are always allowed.

n queries, m keys, d = h * d_k. Rows are tokens: X (..., n, d), X @ W_Q. dtype follows the input, nothing is changed in
place. Errors are those of rules.py. Formula and scale: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
"""

import math
from typing import NamedTuple

import numpy as np

from mha_lib import rules

BLOCK = 128                                             # query rows at a time in fast_attention
IN_CACHE = 2**20                                        # scores at a time: about what a processor keeps at hand


class Stages(NamedTuple):
    """All that one attention sublayer computes, to be used by field: stages.weights."""

    Q: np.ndarray                                       # (..., h, n, d_k)
    K: np.ndarray                                       # (..., h, n, d_k)
    V: np.ndarray                                       # (..., h, n, d_k)
    scores: np.ndarray                                  # (..., h, n, n) scaled, before the mask
    weights: np.ndarray                                 # (..., h, n, n) rows sum to 1
    heads: np.ndarray                                   # (..., h, n, d_k)
    concat: np.ndarray                                  # (..., n, d)
    output: np.ndarray                                  # (..., n, d)


def attention_scores(Q, K, scale=None):
    """Q K^T * scale: (..., n, d_k), (..., m, d_k) -> (..., n, m). `scale=None` means 1 / sqrt(d_k)."""
    rules.queries_meet_keys("numpy", Q, K)
    scale = Q.shape[-1] ** -0.5 if scale is None else float(scale)      # a NumPy scalar would turn float32 into float64
    return (Q * scale) @ K.swapaxes(-1, -2)             # (..., n, m) scaled first, or float16 could overflow


def softmax(scores):
    """exp(s) / sum of exp(s) along the last axis, the keys: (..., m) -> (..., m).

    A row of -inf only (a query that may see nothing) becomes zeros, as in torch's fused kernel.
    """
    rules.same_kind("numpy", scores=scores)
    rules.has_axes("m", scores=scores)
    top = scores.max(axis=-1, keepdims=True)            # (..., 1) subtracted, so that exp cannot overflow
    top = np.where(np.isneginf(top), 0, top)            # -inf - -inf would be NaN
    exps = np.exp(scores - top)
    total = exps.sum(axis=-1, keepdims=True)            # (..., 1)
    return exps / np.where(total == 0, 1, total)        # 0 / 0 would be NaN


def causal_mask(n, m=None, *, dtype=np.float64):
    """(n, m) to add to the scores: 0 where query i may see key j, -inf where not. `m=None` means m = n.

    The queries are the last n of the m tokens, so the last query sees the last key. ValueError for m < n.
    """
    m = n if m is None else m
    rules.causal_lengths(n, m)
    rules.float_dtype("numpy", dtype)
    return np.triu(np.full((n, m), -np.inf, dtype), 1 + m - n)


def split_heads(X, h):
    """(..., n, d) -> (..., h, n, d_k): head a gets the columns a * d_k to (a + 1) * d_k. A view, no numbers move."""
    rules.same_kind("numpy", X=X)
    rules.has_axes("n, d", X=X)
    rules.heads_divide(X.shape[-1], h)
    return _split(X, h)


def _split(X, h):
    return X.reshape(*X.shape[:-1], h, -1).swapaxes(-3, -2)


def merge_heads(heads):
    """(..., h, n, d_k) -> (..., n, d), the reverse of split_heads: heads side by side."""
    rules.same_kind("numpy", heads=heads)
    rules.has_axes("h, n, d_k", heads=heads)
    *batch, h, n, d_k = heads.shape
    return heads.swapaxes(-3, -2).reshape(*batch, n, h * d_k)


def attention(Q, K, V, mask=None, scale=None):
    """softmax(Q K^T / sqrt(d_k) + mask) V: (..., n, d_k), (..., m, d_k), (..., m, d_v) -> output, weights.

    output (..., n, d_v), weights (..., n, m).
    mask: floats that broadcast to (..., n, m), 0 or -inf. `scale=None` means 1 / sqrt(d_k).
    """
    rules.queries_meet_keys("numpy", Q, K, V)
    return _weigh(attention_scores(Q, K, scale), V, mask)


def _weigh(scores, V, mask):
    """Masked softmax and weighted sum: -> output, weights."""
    if mask is not None:
        rules.mask_fits("numpy", mask, scores)
        scores = scores + mask.astype(scores.dtype)
    weights = softmax(scores)                           # (..., n, m)
    return weights @ V, weights


def multi_head_attention(X, projections, h, mask=None, scale=None):
    """The whole sublayer, every stage kept: X (..., n, d), Projections, h heads -> Stages."""
    rules.same_kind("numpy", X=X)
    Q, K, V = (split_heads(part, h) for part in projections.project(X))     # (..., h, n, d_k) each
    scores = attention_scores(Q, K, scale)              # (..., h, n, n)
    heads, weights = _weigh(scores, V, mask)            # (..., h, n, d_k), (..., h, n, n)
    concat = merge_heads(heads)                         # (..., n, d)
    return Stages(Q, K, V, scores, weights, heads, concat, projections.mix(concat))


FUTURE = causal_mask(BLOCK, dtype=np.float32)           # made once: for short inputs it costs as much as a product


def fast_attention(Q, K, V, causal=False):
    """The output of attention without the (n, m) matrix: blocks of query rows, O(n * BLOCK) memory -> (..., n, d_v).

    causal=True equals mask=causal_mask(n, m), and never touches the keys it hides. No other mask: use attention for
    padding. It divides last, so in float16 a sum over m values must stay below 65,504. The idea of working block by
    block: Rabe and Staats 2021; Dao et al. 2022 (FlashAttention).
    """
    rules.queries_meet_keys("numpy", Q, K, V)
    if causal:
        rules.causal_lengths(Q.shape[-2], K.shape[-2])
    batch = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    Q, K, V = (np.broadcast_to(x, batch + x.shape[-2:]) for x in (Q, K, V))
    output = np.empty((*Q.shape[:-1], V.shape[-1]), Q.dtype)
    _attend(Q, K, V, output, causal)
    return output


def _attend(Q, K, V, output, causal):
    """Write softmax(Q K^T / sqrt(d_k)) V into output, a block of query rows at a time. Same leading axes everywhere."""
    n, m = Q.shape[-2], K.shape[-2]
    if Q.ndim > 2 and (total := min(n, BLOCK) * m * math.prod(Q.shape[:-2])) > IN_CACHE:
        step = max(1, len(Q) * IN_CACHE // total)       # so many sequences or heads that their scores stay in the cache
        for start in range(0, len(Q), step):
            part = slice(start, start + step) if len(Q) > 1 else 0
            _attend(Q[part], K[part], V[part], output[part], causal)
        return
    Q = Q * Q.shape[-1] ** -0.5                         # scaled first: n * d_k products instead of n * m
    ones = np.ones((m, 1), Q.dtype)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        seen = m - n + stop if causal else m            # keys after the block's last row are never touched
        scores = Q[..., start:stop, :] @ K[..., :seen, :].swapaxes(-1, -2)      # (..., rows, seen)
        if causal and n > 1:                            # a single last query sees every key
            scores[..., m - n + start:] += FUTURE[:stop - start, :stop - start]
        scores -= scores.max(axis=-1, keepdims=True)
        exps = np.exp(scores, out=scores)
        total = exps @ ones[:seen]                      # (..., rows, 1) each row summed, several times faster than .sum
        np.divide(exps @ V[..., :seen, :], total, out=output[..., start:stop, :])
        del scores, exps                                # or the next block would lie beside this one


def fast_multi_head_attention(X, projections, h, causal=False, cache=None):
    """The output of multi_head_attention by the fast path: X (..., n, d) -> (..., n, d).

    With a cache, X (batch, n, d) holds the tokens after those already stored, as many as you like: a prompt, a chunk or
    one token; they are appended, and causal must be True. No padding masks here.
    """
    rules.same_kind("numpy", X=X)
    Q, K, V = projections.project(X)                    # (..., n, d) each
    rules.heads_divide(projections.d, h)
    Q, K, V = _split(Q, h), _split(K, h), _split(V, h)  # (..., h, n, d_k) each
    if cache is not None:
        rules.cache_is_causal(causal)
        K, V = cache.append(K, V)                       # (batch, h, m, d_k)
    concat = np.empty_like(X, order="C")                # (..., n, d) each head writes into its own columns
    _attend(Q, K, V, _split(concat, h), causal)
    return projections.mix(concat)


class KVCache:
    """The keys and values of one layer's past tokens: room for `capacity`, (batch, h, capacity, d_k) each."""

    def __init__(self, batch, h, capacity, d_k, dtype=np.float64):
        rules.whole(batch=batch, h=h, capacity=capacity, d_k=d_k)
        rules.float_dtype("numpy", dtype)
        self.keys, self.values = (np.empty((batch, h, capacity, d_k), dtype) for _ in range(2))
        self.length = 0

    def append(self, K, V):
        """Store K, V (batch, h, n, d_k) after the past -> views of all that is stored, (batch, h, length, d_k).

        ValueError when they do not fit, TypeError for another dtype; then nothing has been stored.
        """
        rules.cache_takes("numpy", self, K, V)
        start, self.length = self.length, self.length + K.shape[2]
        self.keys[:, :, start:self.length], self.values[:, :, start:self.length] = K, V
        return self.keys[:, :, :self.length], self.values[:, :, :self.length]
