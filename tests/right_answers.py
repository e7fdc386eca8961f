"""Right answers written differently, exercise by exercise: each must pass. Nothing here comes from mha_lib.

The last ones of each list are torch, and are tried with library="torch".
"""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F

from tests.wrong_answers import as_masked, attend, cut, hide, join, past, soft, triangle


def loops_softmax(scores):
    rows = []
    for row in scores:
        exps = [math.exp(s - max(row)) for s in row]
        rows.append([e / sum(exps) for e in exps])
    return rows


def loops_scores(Q, K):
    scores = np.empty((len(Q), len(K)), Q.dtype)
    for i, q in enumerate(Q):
        for j, k in enumerate(K):
            scores[i, j] = sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))
    return scores


class CallableSoftmax:
    def __call__(self, scores, *, temperature=1.0):
        return soft(scores / temperature)


def quarter_each(Q, K, V):
    d_k = Q.shape[-1]
    weights = soft((Q * d_k ** -0.25) @ (K * d_k ** -0.25).T)
    return [weights @ V, weights]


def by_einsum(Q, K, V):
    weights = soft(np.einsum("id,jd->ij", Q, K) / math.sqrt(Q.shape[1]))
    return np.einsum("ij,jd->id", weights, V), weights


def packed(X, W_Q, W_K, W_V):
    return np.split(X @ np.hstack([W_Q, W_K, W_V]), 3, axis=1)


def head_by_slices(X, W_Q, W_K, W_V, a, h, debug=False):
    d_k = X.shape[1] // h
    columns = slice(a * d_k, (a + 1) * d_k)
    Q, K, V = X @ W_Q[:, columns], (X @ W_K)[:, columns], X @ W_V[:, columns]
    print("Q", Q.shape)
    return soft(Q @ K.T / d_k ** 0.5) @ V


def layer_by_loops(X, W_Q, W_K, W_V, W_O, h):
    outputs = []
    for x in X:
        heads = [head_by_slices(x, W_Q, W_K, W_V, a, h) for a in range(h)]
        outputs.append(np.hstack(heads) @ W_O)
    return outputs


def layer_by_sums(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (cut(X @ W, h) for W in (W_Q, W_K, W_V))
    heads = attend(Q, K, V)[0]
    return np.einsum("bhnk,hkd->bnd", heads, W_O.reshape(h, -1, len(W_O)))


def masked_and_renormalised(Q, K, V):
    weights = soft(Q @ K.swapaxes(1, 2) / Q.shape[-1] ** 0.5) * past(Q.shape[1])
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ V, weights


def filled(value):
    def masked(Q, K, V):
        scores = Q @ K.transpose(0, 2, 1) / math.sqrt(Q.shape[2])
        weights = soft(np.where(past(Q.shape[1]), scores, value))
        return weights @ V, weights
    return masked


def masked_early(Q, K, V):
    """Query by query, over the keys it may see and no others."""
    output, weights = np.zeros(V.shape, V.dtype), np.zeros((*Q.shape[:2], K.shape[1]), Q.dtype)
    for a, i in np.ndindex(Q.shape[:2]):
        weights[a, i, :i + 1] = soft(K[a, :i + 1] @ Q[a, i] / math.sqrt(Q.shape[-1]))
        output[a, i] = weights[a, i] @ V[a]
    return output, weights


def mask_by_comparing(n):
    mask = np.zeros((n, n))
    mask[np.arange(n)[:, None] < np.arange(n)] = -math.inf
    return mask


def mask_by_loops(n):
    return [[0.0 if j <= i else -math.inf for j in range(n)] for i in range(n)]


def width(d, h):
    if d % h:
        raise ValueError(f"{d} columns do not divide into {h} heads")
    return d // h


def guarded(s):
    empty = (s == -np.inf).all(-1, keepdims=True)
    return soft(np.where(empty, 0, s)) * ~empty


def sdpa_causal(Q, K, V):
    n = Q.shape[-2]
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    weights = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1)
    return F.scaled_dot_product_attention(Q, K, V, is_causal=True), weights


def torch_layer(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = ((X @ W).unflatten(-1, (h, -1)).transpose(1, 2) for W in (W_Q, W_K, W_V))
    return F.scaled_dot_product_attention(Q, K, V).transpose(1, 2).flatten(2) @ W_O


def torch_attention(Q, K, V):
    weights = torch.softmax(Q @ K.T / math.sqrt(Q.size(1)), dim=1)
    return weights @ V, weights


def torch_guarded(s):
    empty = torch.isneginf(s).all(-1, keepdim=True)
    return s.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)


def flops_by_heads(n, d, h):
    projections = 4 * sum(2 * d * d for _ in range(n))
    return projections + h * sum(2 * (2 * n * (d // h)) for _ in range(n))


def into_new_rooms(keys, values, K, V):
    """Room for all, then both are written into it."""
    B, h, m, d_k = keys.shape
    rooms = [np.empty((B, h, m + K.shape[2], d_k), keys.dtype) for _ in range(2)]
    for room, old, new in zip(rooms, (keys, values), (K, V), strict=True):
        room[:, :, :m], room[:, :, m:] = old, new
    return rooms


def bytes_of_arrays(n, d, h, layers, itemsize, kv_heads):
    return sum(np.empty((kv_heads, n, d // h), f"V{itemsize}").nbytes for _ in range(layers) for _ in "KV")


def step_by_loops(x, W_Q, W_K, W_V, W_O, keys, values):
    """Head by head, in one text after the other."""
    B, h, m, d_k = keys.shape
    all_keys, all_values = (np.zeros((B, h, m + 1, d_k), x.dtype) for _ in range(2))
    concat = np.zeros(x.shape, x.dtype)
    for b, a in np.ndindex(B, h):
        own = slice(a * d_k, (a + 1) * d_k)
        q, k, v = (x[b, 0] @ W[:, own] for W in (W_Q, W_K, W_V))
        all_keys[b, a], all_values[b, a] = np.vstack([keys[b, a], k]), np.vstack([values[b, a], v])
        concat[b, 0, own] = soft(all_keys[b, a] @ q / math.sqrt(d_k)) @ all_values[b, a]
    return concat @ W_O, all_keys, all_values


def step_with_mask(x, W_Q, W_K, W_V, W_O, keys, values):
    """A mask that is shifted by the past: for one new word it hides nothing."""
    h = keys.shape[1]
    keys, values = (np.append(old, cut(x @ W, h), axis=2) for old, W in ((keys, W_K), (values, W_V)))
    mask = triangle(1, keys.shape[2], keys.shape[2]).astype(x.dtype)
    heads = attend(cut(x @ W_Q, h), keys, values, change=lambda s: s + mask)[0]
    return [join(heads) @ W_O, keys, values]


def longest_by_steps(memory, parameters, d, h, layers, itemsize, kv_heads, batch):
    if memory < parameters * itemsize:
        return 0
    return divmod(memory - parameters * itemsize, 2 * batch * layers * kv_heads * (d // h) * itemsize)[0]


def torch_step(x, W_Q, W_K, W_V, W_O, keys, values):
    Q, K, V = ((x @ W).unflatten(-1, (keys.shape[1], -1)).transpose(1, 2) for W in (W_Q, W_K, W_V))
    keys, values = torch.cat([keys, K], dim=2), torch.cat([values, V], dim=2)
    return F.scaled_dot_product_attention(Q, keys, values).transpose(1, 2).flatten(2) @ W_O, keys, values


RIGHT = {
    "project_qkv": ([packed, lambda X, *W: [X @ w for w in W], lambda X, *W: np.stack([X @ w for w in W])],
                    [lambda X, *W: (X @ torch.cat(W, 1)).chunk(3, -1)]),
    "linear_weight_to_W": ([np.transpose, lambda weight: [list(column) for column in zip(*weight, strict=True)]],
                           [lambda weight: weight.T.contiguous()]),
    "attention_scores": ([loops_scores, lambda Q, K: Q / math.sqrt(Q.shape[1]) @ K.T,
                          lambda Q, K: np.inner(Q, K) / math.sqrt(Q.shape[1]),
                          lambda Q, K: (K @ (Q * Q.shape[1] ** -0.5).T).T],
                         [lambda Q, K: Q @ K.mT / np.sqrt(Q.shape[1])]),
    "softmax": ([loops_softmax, CallableSoftmax(), lambda s, axis=1: soft(s, axis), functools.partial(soft, axis=-1),
                 lambda s: 1 / np.exp(s[:, None, :] - s[:, :, None]).sum(-1)],
                [lambda s: s.softmax(1), lambda s: torch.log_softmax(s, -1).exp()]),
    "attention": ([quarter_each, by_einsum, lambda Q, K, V: attend(Q, K, V)], [torch_attention]),
    "pick_scale": ([lambda d, h: math.sqrt(h / d), lambda d, h: np.float64(1) / np.sqrt(d // h),
                    lambda d, h: (d / h) ** (-1 / 2)],
                   [lambda d, h: torch.tensor(d / h).double().rsqrt()]),
    "head_width": ([width], []),
    "split_heads": ([cut, lambda X, h: np.hsplit(X, h), lambda X, h: np.moveaxis(X.reshape(len(X), h, -1), 0, 1),
                     lambda X, h: X.T.reshape(h, -1, len(X)).transpose(0, 2, 1)],
                    [lambda X, h: X.view(len(X), h, -1).permute(1, 0, 2), lambda X, h: torch.stack(X.chunk(h, dim=-1)),
                     lambda X, h: list(X.chunk(h, dim=-1))]),
    "merge_heads": ([join, lambda H: np.hstack(list(H)), lambda H: np.einsum("hnk->nhk", H).reshape(H.shape[1], -1)],
                    [lambda H: torch.cat(tuple(H), -1)]),
    "one_head": ([head_by_slices], [lambda X, q, k, v, a, h: F.scaled_dot_product_attention(
        *((X @ W).chunk(h, -1)[a][None] for W in (q, k, v)))[0]]),
    "parameter_count": ([lambda d, h: 3 * d ** 2 + d * d,
                         lambda d, h: sum(np.zeros((d, d // h)).size * h for _ in range(4))], []),
    "multi_head_attention": ([layer_by_loops, layer_by_sums], [torch_layer]),
    "output_as_sum_over_heads": ([lambda H, W: [H[a] @ W[a * H.shape[2]:(a + 1) * H.shape[2]] for a in range(len(H))],
                                  lambda H, W: np.einsum("hnk,hkd->hnd", H, W.reshape(len(H), -1, len(W)))],
                                 [lambda H, W: H @ W.unflatten(0, (len(H), -1))]),
    "layer_norm": ([lambda X: (X - X.mean(-1)[:, None]) / np.sqrt(np.var(X, -1) + 1e-5)[:, None],
                    lambda X: np.array([(x - x.mean()) / math.sqrt(x.var() + 1e-5) for x in X])],
                   [lambda X: F.layer_norm(X, X.shape[-1:])]),
    "sublayer": ([lambda X, f, norm: f(norm(X)) + X], [lambda X, f, norm: torch.add(X, f(norm(X)))]),
    "causal_mask": ([mask_by_comparing, mask_by_loops, triangle, lambda n: np.log(np.tril(np.ones((n, n))))],
                    [lambda n: torch.full((n, n), -torch.inf).triu(1)]),
    "shifted_causal_mask": ([lambda n, m: triangle(m)[-n:], lambda n, m: np.where(np.tri(n, m, m - n), 0, -np.inf)],
                            [lambda n, m: torch.full((n, m), -torch.inf).triu(1 + m - n)]),
    "masked_attention": ([filled(-np.inf), filled(-1e9), as_masked(change=hide), masked_early, masked_and_renormalised],
                         [sdpa_causal]),
    "guarded_softmax": ([guarded, lambda s: np.nan_to_num(soft(s))], [torch_guarded]),
    "combine_masks": ([lambda real: past(real.shape[1])[None, None] & real[:, None, None, :],
                       lambda real: np.array([[past(len(row)) * row] for row in real])],
                      [lambda real: torch.ones(real.shape[1], real.shape[1]).tril().bool() & real[:, None, None]]),
    "to_sdpa_mask": ([lambda M: M == 0, lambda M: M > -1, np.isfinite, lambda M: ~np.isinf(M)], [lambda M: M.eq(0)]),
    "to_mha_mask": ([lambda v, h: np.logical_not(v)[:, None].repeat(h, 1).reshape(-1, *v.shape[1:]),
                     lambda v, h: np.array([~sample for sample in v for _ in range(h)])],
                    [lambda v, h: ~v.repeat_interleave(h, dim=0)]),
    "attention_flops": ([lambda n, d, h: 4 * n * d * (2 * d + n), lambda n, d, h: 8e0 * n * d ** 2 + 4e0 * n ** 2 * d,
                         flops_by_heads], []),
    "kv_append": ([lambda keys, values, K, V: (np.append(keys, K, 2), np.append(values, V, -2)), into_new_rooms,
                   lambda keys, values, K, V: np.concatenate([[keys, values], [K, V]], axis=3)],
                  [lambda keys, values, K, V: (torch.cat([keys, K], 2), torch.cat([values, V], dim=-2))]),
    "cache_bytes": ([lambda n, d, h, layers, itemsize, kv_heads: layers * n * itemsize * (2 * kv_heads * d // h),
                     lambda n, d, h, layers, itemsize, kv_heads: int(2 * layers * kv_heads * n * (d / h) * itemsize),
                     bytes_of_arrays], []),
    "decode_step": ([step_by_loops, step_with_mask], [torch_step]),
    "gqa_expand": ([lambda K, h: K[:, np.arange(h) // (h // K.shape[1])],
                    lambda K, h: np.stack([K[:, a // (h // K.shape[1])] for a in range(h)], axis=1),
                    lambda K, h: np.broadcast_to(K[:, :, None], (*K.shape[:2], h // K.shape[1], *K.shape[2:])).reshape(
                        len(K), h, *K.shape[2:])],
                   [lambda K, h: K.repeat_interleave(h // K.shape[1], dim=1)]),
    "longest_context": ([longest_by_steps,
                         lambda memory, parameters, d, h, layers, itemsize, kv_heads, batch: max(math.floor(
                             (memory / itemsize - parameters) / (2 * layers * kv_heads * d / h * batch)), 0)], []),
}
