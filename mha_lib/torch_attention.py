"""Multi-head attention in torch: the names and arguments of numpy_attention, on any device, differentiable.

n queries, m keys, d = h * d_k. Rows are tokens: X (..., n, d), X @ W_Q. dtype and device follow the input, nothing is
changed in place. Errors are those of rules.py. Formula and scale: Vaswani et al. 2017, section 3.2.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_lib import rules
from mha_lib.projections import Projections

BLOCK = 128                                             # query rows at a time where no fused kernel fits


class Stages(NamedTuple):
    """All that one attention sublayer computes, to be used by field: stages.weights."""

    Q: Tensor                                           # (..., h, n, d_k)
    K: Tensor                                           # (..., h, n, d_k)
    V: Tensor                                           # (..., h, n, d_k)
    scores: Tensor                                      # (..., h, n, n) scaled, before the mask
    weights: Tensor                                     # (..., h, n, n) rows sum to 1
    heads: Tensor                                       # (..., h, n, d_k)
    concat: Tensor                                      # (..., n, d)
    output: Tensor                                      # (..., n, d)


def attention_scores(Q, K, scale=None):
    """Q K^T * scale: (..., n, d_k), (..., m, d_k) -> (..., n, m). `scale=None` means 1 / sqrt(d_k)."""
    rules.queries_meet_keys("torch", Q, K)
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    return (Q * scale) @ K.transpose(-2, -1)            # (..., n, m) scaled first, or float16 could overflow


def softmax(scores):
    """exp(s) / sum of exp(s) along the last axis, the keys: (..., m) -> (..., m).

    A row of -inf only (a query that may see nothing) becomes zeros with zero gradients, as in torch's fused kernel.
    """
    rules.same_kind("torch", scores=scores)
    rules.has_axes("m", scores=scores)
    top = scores.detach().amax(dim=-1, keepdim=True)    # (..., 1) a shift changes no weight, so it needs no gradient
    top = torch.where(top == -torch.inf, 0, top)        # -inf - -inf would be NaN
    exps = torch.exp(scores - top)
    total = exps.sum(dim=-1, keepdim=True)              # (..., 1)
    return exps / torch.where(total == 0, 1, total)     # 0 / 0 would be NaN


def causal_mask(n, m=None, *, dtype=torch.float64, device=None):
    """(n, m) to add to the scores: 0 where query i may see key j, -inf where not. `m=None` means m = n.

    The queries are the last n of the m tokens, so the last query sees the last key. ValueError for m < n.
    """
    m = n if m is None else m
    rules.causal_lengths(n, m)
    rules.float_dtype("torch", dtype)
    return torch.full((n, m), -torch.inf, dtype=dtype, device=device).triu(1 + m - n)


def split_heads(X, h):
    """(..., n, d) -> (..., h, n, d_k): head a gets the columns a * d_k to (a + 1) * d_k. A view, no numbers move."""
    rules.same_kind("torch", X=X)
    rules.has_axes("n, d", X=X)
    rules.heads_divide(X.shape[-1], h)
    return _split(X, h)


def _split(X, h):
    return X.reshape(*X.shape[:-1], h, -1).transpose(-3, -2)


def merge_heads(heads):
    """(..., h, n, d_k) -> (..., n, d), the reverse of split_heads: heads side by side."""
    rules.same_kind("torch", heads=heads)
    rules.has_axes("h, n, d_k", heads=heads)
    return _merge(heads)


def _merge(heads):
    return heads.transpose(-3, -2).reshape(*heads.shape[:-3], heads.shape[-2], -1)


def attention(Q, K, V, mask=None, scale=None):
    """softmax(Q K^T / sqrt(d_k) + mask) V: (..., n, d_k), (..., m, d_k), (..., m, d_v) -> output, weights.

    output (..., n, d_v), weights (..., n, m).
    mask: floats that broadcast to (..., n, m), 0 or -inf. `scale=None` means 1 / sqrt(d_k).
    """
    rules.queries_meet_keys("torch", Q, K, V)
    return _weigh(attention_scores(Q, K, scale), V, mask)


def _weigh(scores, V, mask):
    """Masked softmax and weighted sum: -> output, weights."""
    if mask is not None:
        rules.mask_fits("torch", mask, scores)
        scores = scores + mask.to(scores.dtype)
    weights = softmax(scores)                           # (..., n, m)
    return weights @ V, weights


def multi_head_attention(X, projections, h, mask=None, scale=None):
    """The whole sublayer, every stage kept: X (..., n, d), Projections, h heads -> Stages."""
    rules.same_kind("torch", X=X)
    Q, K, V = (split_heads(part, h) for part in projections.project(X))     # (..., h, n, d_k) each
    scores = attention_scores(Q, K, scale)              # (..., h, n, n)
    heads, weights = _weigh(scores, V, mask)            # (..., h, n, d_k), (..., h, n, n)
    concat = merge_heads(heads)                         # (..., n, d)
    return Stages(Q, K, V, scores, weights, heads, concat, projections.mix(concat))


def fast_attention(Q, K, V, causal=False):
    """The output of attention by torch's fused kernel, which never builds the (n, m) matrix -> (..., n, d_v).

    causal=True equals mask=causal_mask(n, m). No other mask: use attention for padding. Where torch has no fused kernel
    (float64 on CUDA, d_v different from d_k) it falls back to its own explicit one, with the matrix.
    """
    rules.queries_meet_keys("torch", Q, K, V)
    if causal:
        rules.causal_lengths(Q.shape[-2], K.shape[-2])
    batch = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])       # torch's own loads sympy: 1 s, 40 MB
    flat = (-1, *batch[-1:]) if batch else (1, 1)       # the CPU kernel takes (batch, h, n, d_k) and nothing else
    Q, K, V = (x.expand(*batch, *x.shape[-2:]).reshape(*flat, *x.shape[-2:]) for x in (Q, K, V))
    return _attend(Q, K, V, causal).reshape(*batch, Q.shape[-2], V.shape[-1])


def _attend(Q, K, V, causal):
    """(batch, h, n, d_k), (batch, h, m, d_k), (batch, h, m, d_v) -> (batch, h, n, d_v)."""
    n, m = Q.shape[-2], K.shape[-2]
    if n == 1 or not causal:                            # a single last query sees every key
        return F.scaled_dot_product_attention(Q, K, V)
    if n == m:
        return F.scaled_dot_product_attention(Q, K, V, is_causal=True)
    return _last_queries(Q, K, V)


def _last_queries(Q, K, V):
    """Causal attention of the last n of m tokens. torch's is_causal lines up the first ones, so mask by blocks."""
    n, past = Q.shape[-2], K.shape[-2] - Q.shape[-2]
    blocks = []
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        mask = causal_mask(stop - start, past + stop, dtype=Q.dtype, device=Q.device)       # (rows, seen)
        blocks.append(F.scaled_dot_product_attention(
            Q[..., start:stop, :], K[..., :past + stop, :], V[..., :past + stop, :], attn_mask=mask))
    return torch.cat(blocks, dim=-2)


def fast_multi_head_attention(X, projections, h, causal=False, cache=None):
    """The output of multi_head_attention by the fast path: X (..., n, d) -> (..., n, d).

    With a cache, X (batch, n, d) holds the tokens after those already stored, as many as you like: a prompt, a chunk or
    one token; they are appended, and causal must be True. No padding masks here.
    """
    rules.same_kind("torch", X=X)
    Q, K, V = projections.project(X)                    # (..., n, d) each
    rules.heads_divide(projections.d, h)
    Q, K, V = _split(Q, h), _split(K, h), _split(V, h)  # (..., h, n, d_k) each
    if cache is not None:
        rules.cache_is_causal(causal)
        K, V = cache.append(K, V)                       # (batch, h, m, d_k)
    heads = _attend(Q, K, V, causal) if X.ndim == 3 else fast_attention(Q, K, V, causal)
    return projections.mix(_merge(heads))


class KVCache:
    """The keys and values of one layer's past tokens: (batch, h, capacity, d_k) each. For inference."""

    def __init__(self, batch, h, capacity, d_k, dtype=torch.float32, device=None):
        rules.whole(batch=batch, h=h, capacity=capacity, d_k=d_k)
        rules.float_dtype("torch", dtype)
        self.keys, self.values = (torch.empty((batch, h, capacity, d_k), dtype=dtype, device=device) for _ in range(2))
        self.length = 0

    def append(self, K, V):
        """Store K, V (batch, h, n, d_k) after the past -> views of all that is stored, (batch, h, length, d_k).

        ValueError when they do not fit or carry gradients, TypeError for another dtype; then nothing has been stored.
        """
        rules.cache_takes("torch", self, K, V)
        if K.requires_grad or V.requires_grad:
            raise ValueError("a KV cache is for inference and keeps no gradients: run this under torch.no_grad()")
        start, self.length = self.length, self.length + K.shape[2]
        self.keys[:, :, start:self.length], self.values[:, :, start:self.length] = K, V
        return self.keys[:, :, :self.length], self.values[:, :, :self.length]


class MultiHeadAttention(nn.Module):
    """The sublayer as a torch module: X (..., n, d) -> (..., n, d), fast path. Weights start with variance 1/d."""

    def __init__(self, d, h, causal=False, bias=False, device=None, dtype=None):
        super().__init__()
        rules.whole(d=d)
        rules.heads_divide(d, h)
        self.h, self.causal = h, causal
        self.W_QKV = nn.Parameter(torch.randn(d, 3 * d, device=device, dtype=dtype) * d ** -0.5)
        self.W_O = nn.Parameter(torch.randn(d, d, device=device, dtype=dtype) * d ** -0.5)
        self.b_QKV = nn.Parameter(torch.zeros(3 * d, device=device, dtype=dtype)) if bias else None
        self.b_O = nn.Parameter(torch.zeros(d, device=device, dtype=dtype)) if bias else None

    @classmethod
    def from_projections(cls, projections, h, causal=False):
        """A module that starts with copies of these weights, NumPy or torch."""
        given = projections.to_torch()
        module = cls(given.d, h, causal, device="meta")         # no numbers drawn: they come from `given`
        for name, value in vars(given).items():
            setattr(module, name, None if value is None else nn.Parameter(value.detach().clone()))
        return module

    @property
    def projections(self):
        """The current weights, for multi_head_attention(X, module.projections, module.h)."""
        return Projections(self.W_QKV, self.W_O, self.b_QKV, self.b_O)

    def forward(self, X, cache=None):
        return fast_multi_head_attention(X, self.projections, self.h, self.causal, cache)
