"""Broken attention: mistakes that people really make, each as a small replacement for one function of mha_lib.

test_broken.py puts each in the place of the real function and shows that the test named here notices.
"""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from mha_lib import numpy_attention, torch_attention
from mha_lib.layers import layer_norm
from mha_lib.projections import Projections

# the real functions, as they are before anything is broken
real = SimpleNamespace(**vars(numpy_attention), append=numpy_attention.KVCache.append)


class Broken(NamedTuple):
    """A mistake, the function it stands in for, and the test that must fail, with its arguments besides the backend."""

    name: str
    replaces: str
    function: object
    caught_by: str
    arguments: dict


BROKEN = []


def broken(name, replaces, caught_by, **arguments):
    def register(function):
        BROKEN.append(Broken(name, replaces, function, caught_by, arguments))
        return function
    return register


def swap(x):
    return x.swapaxes(-1, -2)


def share(scores, axis=-1):
    """A plain softmax over any axis."""
    exps = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


# ---- scores

SCORES = "numpy_attention.attention_scores"
LOOPS = "test_attention.test_attention_equals_the_loops"
TORCH = "test_attention.test_attention_equals_torchs_own_function"
MULTI_HEAD = "test_attention.test_multi_head_attention_equals_the_loops_at_every_stage"


@broken("no scale", SCORES, "test_attention.test_scores_are_dot_products_over_sqrt_d_k")
def _(Q, K, scale=None):
    return Q @ swap(K) * (1.0 if scale is None else float(scale))


@broken("divided by d_k", SCORES, TORCH)
def _(Q, K, scale=None):
    return Q @ swap(K) / Q.shape[-1]


@broken("divided by the root of the model width", SCORES, MULTI_HEAD, causal=False)
def _(Q, K, scale=None):
    return Q @ swap(K) / (Q.shape[-1] * Q.shape[-3]) ** 0.5


@broken("scale upside down", SCORES, LOOPS, mask=None)
def _(Q, K, scale=None):
    return Q @ swap(K) * Q.shape[-1] ** 0.5


@broken("d_k ** 1 / 2, which is d_k / 2", SCORES, "test_attention.test_scores_are_dot_products_over_sqrt_d_k")
def _(Q, K, scale=None):
    return Q @ swap(K) / (Q.shape[-1] ** 1 / 2)


@broken("the given scale ignored", SCORES, "test_attention.test_scores_are_dot_products_over_sqrt_d_k")
def _(Q, K, scale=None):
    return real.attention_scores(Q, K)


@broken("a NumPy root, which turns float32 into float64", SCORES, "test_attention.test_the_dtype_follows_the_input")
def _(Q, K, scale=None):
    return Q @ swap(K) / np.sqrt(Q.shape[-1])


@broken("scaled only after float16 has overflowed", SCORES,
        "test_attention.test_float16_scores_are_scaled_before_they_overflow")
def _(Q, K, scale=None):
    return Q @ swap(K) * Q.shape[-1] ** -0.5


@broken("Q scaled in place", SCORES, "test_attention.test_nothing_is_changed_in_place")
def _(Q, K, scale=None):
    Q *= Q.shape[-1] ** -0.5
    return Q @ swap(K)


@broken("K Q^T instead of Q K^T", SCORES, "test_attention.test_stages_fit_together")
def _(Q, K, scale=None):
    return real.attention_scores(K, Q, scale)


@broken("every head reads the keys of head 0", SCORES, "test_attention.test_each_head_is_an_attention_of_its_own")
def _(Q, K, scale=None):
    return real.attention_scores(Q, K[..., :1, :, :] if K.ndim > 2 else K, scale)


@broken("heads of K tiled in another order than those of Q", SCORES, LOOPS, mask=None)
def _(Q, K, scale=None):
    return real.attention_scores(Q, np.roll(K, 1, axis=-3), scale)


# ---- softmax

SOFTMAX = "numpy_attention.softmax"
ROWS = "test_attention.test_every_row_of_weights_is_a_share_of_one"
NOTHING_SEEN = "test_attention.test_a_query_that_may_see_nothing_gets_zeros"
ANY_SIZE = "test_attention.test_softmax_takes_scores_of_any_size"


@broken("softmax over the queries", SOFTMAX, ROWS)
def _(scores):
    return share(scores, axis=-2)


@broken("softmax over the heads", SOFTMAX, ROWS)
def _(scores):
    return share(scores, axis=-3)


@broken("softmax over the whole matrix", SOFTMAX, ROWS)
def _(scores):
    return share(scores, axis=(-2, -1))


@broken("the maximum not subtracted", SOFTMAX, ANY_SIZE)
def _(scores):
    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)


@broken("the maximum of everything subtracted, not of the row", SOFTMAX, ANY_SIZE)
def _(scores):
    exps = np.exp(scores - scores.max())
    return exps / exps.sum(axis=-1, keepdims=True)


@broken("keepdims forgotten, silent on square scores", SOFTMAX, ANY_SIZE)
def _(scores):
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1)


@broken("a small number added below the fraction line", SOFTMAX, ROWS)
def _(scores):
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / (exps.sum(axis=-1, keepdims=True) + 1e-6)


@broken("all weight to the largest score", SOFTMAX, LOOPS, mask=None)
def _(scores):
    return (scores == scores.max(axis=-1, keepdims=True)).astype(scores.dtype)


@broken("a query that sees nothing becomes NaN", SOFTMAX, NOTHING_SEEN)
def _(scores):
    return share(scores)


@broken("a query that sees nothing reads all alike", SOFTMAX, NOTHING_SEEN)
def _(scores):
    return share(np.maximum(scores, -1e9))


@broken("NaN hidden", SOFTMAX, "test_attention.test_nan_passes_through_and_stays_in_its_sequence")
def _(scores):
    return np.nan_to_num(real.softmax(scores))


@broken("softmax in place", SOFTMAX, "test_attention.test_nothing_is_changed_in_place")
def _(scores):
    weights = real.softmax(scores)
    scores[:] = weights
    return scores


# ---- masks

WEIGH, MASK = "numpy_attention._weigh", "numpy_attention.causal_mask"
HIDDEN = "test_attention.test_hidden_keys_weigh_exactly_zero_whatever_the_scores"
ALIGNED = "test_attention.test_the_causal_mask_ends_at_the_last_key"
MOVING = "test_attention.test_moving_a_token_moves_no_earlier_output_and_every_later_one"


def weighed(scores, V):
    weights = real.softmax(scores)
    return weights @ V, weights


@broken("mask forgotten", WEIGH, MOVING)
def _(scores, V, mask):
    return weighed(scores, V)


@broken("hidden scores set to 0", WEIGH, NOTHING_SEEN)
def _(scores, V, mask):
    return weighed(scores * (mask == 0), V)


@broken("hidden weights set to 0 after the softmax", WEIGH, HIDDEN)
def _(scores, V, mask):
    output, weights = weighed(scores, V)
    return (weights * (mask == 0)) @ V, weights * (mask == 0)


@broken("-1e9 where large scores need -inf", WEIGH, HIDDEN)
def _(scores, V, mask):
    return weighed(scores + np.maximum(mask, -1e9), V)


@broken("1e-9 typed for 1e9", WEIGH, HIDDEN)
def _(scores, V, mask):
    return weighed(scores + np.maximum(mask, -1e-9), V)


@broken("mask subtracted", WEIGH, HIDDEN)
def _(scores, V, mask):
    return weighed(np.where(mask < 0, scores, scores - np.inf), V)


@broken("mask added in place, into the stored scores", WEIGH, "test_attention.test_stages_fit_together")
def _(scores, V, mask):
    scores += mask
    return weighed(scores, V)


@broken("masks handed to the sequences in the wrong order", WEIGH, TORCH)
def _(scores, V, mask):
    return weighed(scores + (mask[::-1] if mask.ndim == 4 else mask), V)


@broken("mask turned around, silent on square scores", WEIGH, MOVING)
def _(scores, V, mask):
    return weighed(scores + swap(mask), V)


@broken("weights dropped out while nothing is trained", WEIGH, ROWS)
def _(scores, V, mask):
    _, weights = weighed(scores, V)
    weights = weights * (np.random.default_rng(0).random(weights.shape) < 0.9) / 0.9
    return weights @ V, weights


@broken("values summed over the queries, silent on square weights", WEIGH, MULTI_HEAD, causal=False)
def _(scores, V, mask):
    _, weights = weighed(scores, V)
    return swap(weights) @ V, weights


@broken("the diagonal hidden too", MASK, ALIGNED)
def _(n, m=None, *, dtype=float):
    return np.triu(np.full((n, m or n), -np.inf, dtype), (m or n) - n)


@broken("one future token visible", MASK, ALIGNED)
def _(n, m=None, *, dtype=float):
    return np.triu(np.full((n, m or n), -np.inf, dtype), 2 + (m or n) - n)


@broken("the past hidden, the future visible", MASK, ALIGNED)
def _(n, m=None, *, dtype=float):
    return np.tril(np.full((n, m or n), -np.inf, dtype), (m or n) - n - 1)


@broken("the first query lined up with the first key", MASK, ALIGNED)
def _(n, m=None, *, dtype=float):
    return np.triu(np.full((n, m or n), -np.inf, dtype), 1)


@broken("ones and zeros instead of 0 and -inf", MASK, ALIGNED)
def _(n, m=None, *, dtype=float):
    return np.tri(n, m, (m or n) - n, dtype=dtype)


@broken("the dtype of the mask ignored", MASK, ALIGNED)
def _(n, m=None, *, dtype=float):
    return real.causal_mask(n, m)


@broken("fewer keys than queries allowed", MASK, "test_errors.test_a_causal_mask_has_at_least_as_many_keys_as_queries",
        lengths=(5, 3), error=ValueError, message="m must be at least n")
def _(n, m=None, *, dtype=float):
    return np.triu(np.full((n, m), -np.inf, dtype), 1 + m - n)


# ---- heads

SPLIT, MERGE = "numpy_attention.split_heads", "numpy_attention.merge_heads"
SPLITTING = "test_attention.test_split_heads_gives_head_a_its_own_columns"
MERGING = "test_attention.test_merge_heads_puts_the_heads_side_by_side"


@broken("split by a reshape alone", SPLIT, SPLITTING)
def _(X, h):
    *batch, n, d = X.shape
    return X.reshape(*batch, h, n, d // h)


@broken("split without the swap, so that heads attend to heads", SPLIT, SPLITTING)
def _(X, h):
    *batch, n, d = X.shape
    return X.reshape(*batch, n, h, d // h)


@broken("every h-th column to a head", SPLIT, SPLITTING)
def _(X, h):
    return np.stack([X[..., a::h] for a in range(h)], axis=-3)


@broken("batch and heads mixed up", SPLIT, SPLITTING)
def _(X, h):
    heads = real.split_heads(X, h)
    B, h, n, d_k = heads.shape
    return heads.reshape(h, B, n, d_k).swapaxes(0, 1)


@broken("columns left over are dropped", SPLIT, "test_errors.test_a_width_that_does_not_divide_into_heads_is_refused")
def _(X, h):
    return real.split_heads(X[..., :X.shape[-1] // h * h], h)


@broken("merged by a reshape alone", MERGE, MERGING)
def _(heads):
    *batch, h, n, d_k = heads.shape
    return heads.reshape(*batch, n, h * d_k)


@broken("heads merged in reverse", MERGE, "test_attention.test_the_output_is_the_sum_of_what_each_head_writes")
def _(heads):
    return real.merge_heads(heads[..., ::-1, :, :])


@broken("heads merged column by column", MERGE, MERGING)
def _(heads):
    return np.moveaxis(heads, -3, -1).reshape(*heads.shape[:-3], heads.shape[-2], -1)


# ---- projections

PROJECT, MIX = "projections.Projections.project", "projections.Projections.mix"
MODULE = "test_attention.test_multi_head_attention_equals_torchs_own_module"
WRITTEN = "test_attention.test_the_output_is_the_sum_of_what_each_head_writes"
SIDE_BY_SIDE = "test_projections.test_the_three_matrices_stand_side_by_side"
project = Projections.project


@broken("W_O forgotten", MIX, WRITTEN)
def _(self, concat):
    return concat


@broken("W_O the other way round", MIX, MODULE, bias=False)
def _(self, concat):
    return concat @ self.W_O.T


@broken("the bias of the output forgotten", MIX, MODULE, bias=True)
def _(self, concat):
    return concat @ self.W_O


@broken("weights used as nn.Linear stores them", PROJECT, SIDE_BY_SIDE)
def _(self, X):
    return X @ self.W_Q.T, X @ self.W_K.T, X @ self.W_V.T


@broken("the biases of Q, K and V forgotten", PROJECT, MODULE, bias=True)
def _(self, X):
    return X @ self.W_Q, X @ self.W_K, X @ self.W_V


@broken("V made with W_K", PROJECT, MODULE, bias=False)
def _(self, X):
    Q, K, _ = project(self, X)
    return Q, K, K


@broken("Q made with W_K", PROJECT, MODULE, bias=False)
def _(self, X):
    _, K, V = project(self, X)
    return K, K, V


@broken("K before Q in the packed matrix", PROJECT, MODULE, bias=False)
def _(self, X):
    Q, K, V = project(self, X)
    return K, Q, V


@broken("the packed matrix read as q k v, q k v", PROJECT, SIDE_BY_SIDE)
def _(self, X):
    return tuple((X @ self.W_QKV)[..., part::3] for part in range(3))


@broken("torch's module copied without turning its weights", "projections.Projections.from_multihead_attention",
        "test_projections.test_torchs_own_module_gives_the_same_output_with_our_weights", bias=False)
def _(module):
    return Projections(module.in_proj_weight.detach().reshape(-1, 81), module.out_proj.weight.detach())


@broken("a GPT-2 port in another layout taken as it is", "projections.Projections.from_gpt2",
        "test_projections.test_gpt2_weights_in_nn_linears_layout_are_refused")
def _(weights):
    return Projections(weights["c_attn.weight"].T, weights["c_proj.weight"])


# ---- the fast path

FAST = "numpy_attention.fast_attention"
BLOCKWISE = "numpy_attention._attend"
FAST_EQUALS = "test_attention.test_the_fast_path_equals_the_explicit_one"
LONG = dict(n=2 * real.BLOCK + 3, m=3 * real.BLOCK)


@broken("the last, shorter block skipped", FAST, FAST_EQUALS, **LONG, causal=False)
def _(Q, K, V, causal=False):
    output = real.fast_attention(Q, K, V, causal)
    output[..., Q.shape[-2] // real.BLOCK * real.BLOCK:, :] = 0
    return output


@broken("each block sees one key too few", FAST, FAST_EQUALS, **LONG, causal=True)
def _(Q, K, V, causal=False):
    output = real.fast_attention(Q, K, V, causal)
    for row in range(real.BLOCK - 1, Q.shape[-2], real.BLOCK):
        seen = K.shape[-2] - Q.shape[-2] + row
        output[..., row, :] = real.fast_attention(Q[..., row:row + 1, :], K[..., :seen, :], V[..., :seen, :])[..., 0, :]
    return output


@broken("fast path lined up with the first key", FAST, FAST_EQUALS, n=5, m=7, causal=True)
def _(Q, K, V, causal=False):
    n, m = Q.shape[-2], K.shape[-2]
    return real.attention(Q, K, V, np.triu(np.full((n, m), -np.inf), 1))[0]


@broken("causal forgotten in the fast path", BLOCKWISE,
        "test_attention.test_the_fast_sublayer_equals_the_explicit_one", causal=True)
def _(Q, K, V, output, causal):
    output[...] = real.attention(Q, K, V)[0]


@broken("every head gets the values of the first", BLOCKWISE,
        "test_attention.test_many_scores_are_worked_through_head_by_head", causal=True)
def _(Q, K, V, output, causal):
    mask = real.causal_mask(Q.shape[-2], K.shape[-2]) if causal else None
    output[...] = real.attention(Q, K, V[..., :1, :, :], mask)[0]


@broken("no scale in the fast path", FAST, FAST_EQUALS, n=5, m=7, causal=False)
def _(Q, K, V, causal=False):
    return real.fast_attention(Q * Q.shape[-1] ** 0.5, K, V, causal)


@broken("the maximum not subtracted in the fast path", FAST,
        "test_attention.test_float16_scores_are_scaled_before_they_overflow")
def _(Q, K, V, causal=False):
    exps = np.exp(real.attention_scores(Q, K))
    return exps @ V / exps.sum(axis=-1, keepdims=True)


@broken("the fast path writes into float64", FAST, "test_attention.test_the_dtype_follows_the_input")
def _(Q, K, V, causal=False):
    return real.fast_attention(Q, K, V, causal).astype(float)


@broken("the fast path builds the whole matrix", FAST,
        "test_attention.test_memory_of_the_fast_path_grows_with_n_and_not_with_n_squared", causal=False)
def _(Q, K, V, causal=False):
    return real.attention(Q, K, V)[0]


@broken("leading axes not those of the input", FAST,
        "test_attention.test_the_fast_path_broadcasts_and_takes_any_memory_layout", causal=False)
def _(Q, K, V, causal=False):
    return real.fast_attention(Q, K, V, causal).reshape(-1, Q.shape[-2], V.shape[-1])


# ---- the cache

APPEND = "numpy_attention.KVCache.append"
CACHED = "test_cache.test_prefill_chunk_and_steps_equal_one_uncached_pass"
STORED = "test_cache.test_append_returns_all_that_is_stored_and_nothing_else"
FULL = "test_cache.test_a_full_cache_takes_the_last_token_and_refuses_the_next"


@broken("the cache does not count", APPEND, STORED)
def _(self, K, V):
    stored = real.append(self, K, V)
    self.length = 0
    return stored


@broken("the cache hands out its empty places", APPEND, STORED)
def _(self, K, V):
    self.keys[:, :, self.length:], self.values[:, :, self.length:] = 0, 0
    real.append(self, K, V)
    return self.keys, self.values


@broken("the cache hands out the new tokens only", APPEND, CACHED)
def _(self, K, V):
    real.append(self, K, V)
    return K, V


@broken("the cache stores keys as values", APPEND, STORED)
def _(self, K, V):
    return real.append(self, K, K)


@broken("a full cache overwrites its last token", APPEND, FULL)
def _(self, K, V):
    self.length = min(self.length, self.keys.shape[2] - K.shape[2])
    return real.append(self, K, V)


@broken("a refused token is counted", APPEND, FULL)
def _(self, K, V):
    if self.length + K.shape[2] > self.keys.shape[2]:
        self.length += K.shape[2]
        raise ValueError("the cache is full: 3 of 3 tokens are stored, 1 more do not fit")
    return real.append(self, K, V)


@broken("half stored before the other half is refused", APPEND,
        "test_cache.test_what_does_not_fit_is_refused_and_nothing_is_stored", wrong="width of V")
def _(self, K, V):
    self.keys[:, :, :K.shape[2]] = K
    return real.append(self, K, V)


@broken("the whole past copied for every token", APPEND, "test_cache.test_append_copies_nothing_of_the_past")
def _(self, K, V):
    return tuple(x.copy() for x in real.append(self, K, V))


@broken("the cache joined along the heads", APPEND, STORED)
def _(self, K, V):
    keys, values = real.append(self, K, V)
    return keys.reshape(keys.shape[0], -1, K.shape[2], keys.shape[3]), values


@broken("the mask not moved by what is cached", BLOCKWISE, CACHED)
def _(Q, K, V, output, causal):
    n, m = Q.shape[-2], K.shape[-2]
    output[...] = real.attention(Q, K, V, np.triu(np.full((n, m), -np.inf), 1))[0]


@broken("no mask with a cache, because there is no future to see", BLOCKWISE, CACHED)
def _(Q, K, V, output, causal):
    n, m = Q.shape[-2], K.shape[-2]
    output[...] = real.attention(Q, K, V, real.causal_mask(n) if n == m else None)[0]


@broken("a cache without the causal mask allowed", "rules.cache_is_causal",
        "test_cache.test_a_cache_without_the_causal_mask_is_refused")
def _(causal):
    pass


# ---- torch

GRADIENTS = "test_attention.test_gradients_equal_torchs"
FINITE = "test_attention.test_a_query_that_sees_nothing_leaves_all_gradients_finite"
torch_real = SimpleNamespace(**vars(torch_attention))


@broken("NaN wiped from the weights, not from the gradients", "torch_attention.softmax", FINITE)
def _(scores):
    return torch.softmax(scores, dim=-1).nan_to_num(0)


@broken("weights cut from autograd", "torch_attention.softmax", GRADIENTS)
def _(scores):
    return torch_real.softmax(scores).detach()


@broken("computed in float32, for accuracy, and left there", "torch_attention.fast_attention",
        "test_attention.test_the_dtype_follows_the_input")
def _(Q, K, V, causal=False):
    return torch_real.fast_attention(Q.float(), K.float(), V.float(), causal)


@broken("torch's is_causal with more keys than queries", "torch_attention._last_queries", FAST_EQUALS,
        n=5, m=7, causal=True)
def _(Q, K, V):
    return F.scaled_dot_product_attention(Q, K, V, is_causal=True)


@broken("True taken for hidden", "torch_attention._last_queries", FAST_EQUALS,
        n=5, m=7, causal=True)
def _(Q, K, V):
    n, m = Q.shape[-2], K.shape[-2]
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=torch.ones(n, m, dtype=torch.bool).triu(1 + m - n))


@broken("the explicit path called fast", "torch_attention.fast_attention",
        "test_attention.test_torchs_fused_kernel_really_runs_on_the_cpu",
        shape=(3, 300, 8), rows=300, causal=False)
def _(Q, K, V, causal=False):
    return torch_real.attention(Q, K, V)[0]


@broken("a shape that misses torch's fused kernel", "torch_attention.fast_attention",
        "test_attention.test_torchs_fused_kernel_really_runs_on_the_cpu", shape=(3, 300, 8), rows=300, causal=False)
def _(Q, K, V, causal=False):
    return F.scaled_dot_product_attention(Q, K, V, is_causal=causal)


@broken("the module uses copies of its weights", "torch_attention.MultiHeadAttention.projections",
        "test_attention.test_the_module_trains_every_weight_and_equals_the_functions")
@property
def _(self):
    return Projections(self.W_QKV.detach(), self.W_O, self.b_QKV.detach(), self.b_O)


@broken("the module borrows the weights it is given", "torch_attention.MultiHeadAttention.from_projections",
        "test_attention.test_a_module_from_projections_copies_them")
def _(projections, h, causal=False):
    module = torch_attention.MultiHeadAttention(projections.d, h, causal, bias=True)
    for name, value in vars(projections.to_torch()).items():
        setattr(module, name, torch.nn.Parameter(value))
    return module


# ---- layers

NORMS = "test_layers_ledger_runtime.test_norms_equal_torchs"
ADDED = "test_layers_ledger_runtime.test_a_sublayer_adds_what_f_makes_of_the_normed_stream"


@broken("variance over d - 1", "layers.layer_norm", NORMS, affine=False)
def _(X, gain=None, bias=None, eps=1e-5):
    return layer_norm(X, gain, bias, eps) * ((X.shape[-1] - 1) / X.shape[-1]) ** 0.5


@broken("normed over the tokens", "layers.layer_norm", NORMS, affine=False)
def _(X, gain=None, bias=None, eps=1e-5):
    return swap(layer_norm(swap(X)))


@broken("the mean subtracted in the RMS norm", "layers.rms_norm", NORMS, affine=False)
def _(X, gain=None, eps=1e-5):
    return layer_norm(X, gain, None, eps)


@broken("nothing added back", "layers.sublayer", ADDED)
def _(X, f, norm=layer_norm):
    return f(norm(X))


@broken("normed after adding", "layers.sublayer", ADDED)
def _(X, f, norm=layer_norm):
    return norm(X + f(X))
