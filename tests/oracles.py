"""What attention is, number by number: loops over Python floats, with nothing of mha_lib in them."""

import math

import numpy as np


def attention(Q, K, V, mask=None, scale=None):
    """One head, lists of rows: Q n x d_k, K m x d_k, V m x d_v -> output, weights. Sees nothing: zeros."""
    scale = 1 / math.sqrt(len(Q[0])) if scale is None else scale
    output, weights = [], []
    for i, q in enumerate(Q):
        scores = [sum(a * b for a, b in zip(q, k, strict=True)) * scale for k in K]
        if mask is not None:
            scores = [score + mask[i][j] for j, score in enumerate(scores)]
        top = max(scores)
        exps = [0.0 if score == -math.inf else math.exp(score - top) for score in scores]
        total = sum(exps) or 1.0
        row = [e / total for e in exps]
        weights.append(row)
        output.append([sum(w * v[c] for w, v in zip(row, V, strict=True)) for c in range(len(V[0]))])
    return output, weights


def batched_attention(Q, K, V, mask=None, scale=None):
    """`attention` for every (batch, head) index of equal leading axes -> output, weights as float64 arrays."""
    batch = Q.shape[:-2]
    output, weights = np.empty((*batch, Q.shape[-2], V.shape[-1])), np.empty((*batch, Q.shape[-2], K.shape[-2]))
    for at in np.ndindex(batch):
        output[at], weights[at] = attention(Q[at].tolist(), K[at].tolist(), V[at].tolist(), mask, scale)
    return output, weights


def linear(X, W, bias=None):
    """Rows times a matrix, plus a bias for each column."""
    bias = [0.0] * len(W[0]) if bias is None else bias
    return [[sum(x * w[c] for x, w in zip(row, W, strict=True)) + bias[c] for c in range(len(W[0]))] for row in X]


def multi_head(X, projections, h, mask=None):
    """One sequence X n x d through the whole sublayer, head after head -> dict stage -> float64 array."""
    X, W_QKV, W_O = X.tolist(), projections.W_QKV.tolist(), projections.W_O.tolist()
    b_QKV, b_O = (None if b is None else b.tolist() for b in (projections.b_QKV, projections.b_O))
    d, QKV = len(X[0]), linear(X, W_QKV, b_QKV)
    d_k = d // h
    heads, weights, concat = [], [], [[] for _ in X]
    for a in range(h):
        Q, K, V = ([row[part * d + a * d_k:part * d + (a + 1) * d_k] for row in QKV] for part in range(3))
        head, rows = attention(Q, K, V, mask)
        heads.append(head)
        weights.append(rows)
        for i, row in enumerate(head):
            concat[i] += row
    stages = dict(weights=weights, heads=heads, concat=concat, output=linear(concat, W_O, b_O))
    return {name: np.array(stage) for name, stage in stages.items()}
