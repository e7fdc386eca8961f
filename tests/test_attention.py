"""Attention against oracles that are not ours, and the properties that make it attention.

All sizes differ, data are signed, W_O mixes: equal sizes, d_k = 4, one head or W_O = I each hide some mistake.
"""

import inspect
import tracemalloc

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mha_lib import numpy_attention, torch_attention
from mha_lib.projections import Projections
from tests import oracles

B, n, m, h, d_k, d_v = 2, 5, 7, 3, 9, 4
d = h * d_k


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def qkv(n=n, m=m, d_v=d_v):
    return draw(B, h, n, d_k, seed=1), draw(B, h, m, d_k, seed=2), draw(B, h, m, d_v, seed=3)


def agree(actual, expected, tolerance=1e-12):
    """Equal shapes, and equal numbers up to `tolerance` of the largest one."""
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


CAUSAL = np.array([[0.0 if j <= i + m - n else -np.inf for j in range(m)] for i in range(n)])       # (n, m)
SQUARE = CAUSAL[:, m - n:]                                      # (n, n)
SUBLAYER = Projections.draw(d, seed=4, bias=True)


# ---- oracles

@pytest.mark.parametrize("mask", [None, CAUSAL], ids=["all visible", "causal"])
def test_attention_equals_the_loops(backend, mask):
    for dtype, tolerance in backend.tolerances.items():
        Q, K, V = (backend.array(x, dtype) for x in qkv())
        output, weights = backend.lib.attention(Q, K, V, None if mask is None else backend.array(mask))
        expected_output, expected_weights = oracles.batched_attention(*qkv(), mask)
        agree(backend.numpy(output), expected_output, tolerance)
        agree(backend.numpy(weights), expected_weights, tolerance)


def test_attention_equals_torchs_own_function(backend):
    Q, K, V = qkv()
    visible = np.tile(draw(n, m) > 0, (B, 1, 1, 1))             # (B, 1, n, m) one mask a sequence, for all its heads
    visible[..., 0], visible[1, :, :, 3:] = True, False         # every query sees something; the second one is padded
    expected = F.scaled_dot_product_attention(*map(torch.tensor, (Q, K, V)), attn_mask=torch.tensor(visible))
    mask = backend.array(np.where(visible, 0, -np.inf))
    output, _ = backend.lib.attention(*map(backend.array, (Q, K, V)), mask)
    agree(backend.numpy(output), expected.numpy())


def test_attention_in_numbers_worked_by_hand(backend):
    Q, K, V = (backend.array(x) for x in ([[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]))
    output, _ = backend.lib.attention(Q, K, V)
    np.testing.assert_allclose(backend.numpy(output), [[10.9717, 11.9717], [10.9999, 11.9999]], atol=5e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_equals_the_loops_at_every_stage(backend, causal):
    X, mask = draw(B, n, d), backend.array(SQUARE) if causal else None
    for dtype, tolerance in backend.tolerances.items():
        projections = backend.projections(SUBLAYER, dtype)
        stages = backend.lib.multi_head_attention(backend.array(X, dtype), projections, h, mask)
        for b in range(B):
            expected = oracles.multi_head(X[b], SUBLAYER, h, SQUARE if causal else None)
            for name, stage in expected.items():
                agree(backend.numpy(getattr(stages, name))[b], stage, 2 * tolerance)    # three products in a row


@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention_equals_torchs_own_module(backend, bias):
    torch.manual_seed(0)
    X = draw(B, n, d)
    module = torch.nn.MultiheadAttention(d, h, bias=bias, batch_first=True, dtype=torch.float64)
    if bias:
        torch.nn.init.normal_(module.in_proj_bias), torch.nn.init.normal_(module.out_proj.bias)
    projections = backend.projections(Projections.from_multihead_attention(module).to_numpy())
    blocked = torch.ones(n, n, dtype=torch.bool).triu(1)        # True means hidden in this module
    output, weights = module(*[torch.tensor(X)] * 3, attn_mask=blocked, average_attn_weights=False)
    stages = backend.lib.multi_head_attention(backend.array(X), projections, h, backend.array(SQUARE))
    agree(backend.numpy(stages.weights), weights.detach().numpy())
    agree(backend.numpy(stages.output), output.detach().numpy())


# ---- one step at a time

def test_scores_are_dot_products_over_sqrt_d_k(backend):
    Q, K, _ = qkv()
    dots = np.array([[[[np.dot(q, k) for k in K[b, a]] for q in Q[b, a]] for a in range(h)] for b in range(B)])
    for scale, factor in ((None, 1 / 3), (0.5, 0.5), (np.float64(0.5), 0.5)):
        scores = backend.lib.attention_scores(backend.array(Q), backend.array(K), scale)
        agree(backend.numpy(scores), dots * factor)


def test_every_row_of_weights_is_a_share_of_one(backend):
    _, weights = backend.lib.attention(*map(backend.array, qkv()))
    weights = backend.numpy(weights)
    assert (weights > 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-14)
    assert np.ptp(weights.sum(axis=-2)) > 0.1                   # the columns do not: these are no queries' shares


def test_softmax_takes_scores_of_any_size(backend):
    up = [0.09003057, 0.24472847, 0.66524096]
    scores = backend.array([[800, 801, 802], [-800, -801, -802], [-2e5, -2e5, -2e5]])
    np.testing.assert_allclose(backend.numpy(backend.lib.softmax(scores)), [up, up[::-1], [1 / 3] * 3], atol=1e-8)


def test_a_query_that_may_see_nothing_gets_zeros(backend):
    mask = CAUSAL.copy()
    mask[2] = -np.inf
    output, weights = backend.lib.attention(*map(backend.array, qkv()), backend.array(mask))
    expected_output, expected_weights = oracles.batched_attention(*qkv(), mask)
    assert (backend.numpy(weights)[:, :, 2] == 0).all() and (backend.numpy(output)[:, :, 2] == 0).all()
    agree(backend.numpy(weights), expected_weights)
    agree(backend.numpy(output), expected_output)


def test_hidden_keys_weigh_exactly_zero_whatever_the_scores(backend):
    Q, K, V = qkv()
    _, weights = backend.lib.attention(*map(backend.array, (1e6 * Q, 1e6 * K, V)), backend.array(CAUSAL))
    assert (backend.numpy(weights)[..., CAUSAL < 0] == 0).all()
    np.testing.assert_allclose(backend.numpy(weights).sum(axis=-1), 1)


def test_the_causal_mask_ends_at_the_last_key(backend):
    for rows, keys in ((n, m), (n, n), (1, m), (1, 1)):
        expected = [[0 if j <= i + keys - rows else -np.inf for j in range(keys)] for i in range(rows)]
        np.testing.assert_array_equal(backend.numpy(backend.lib.causal_mask(rows, keys)), expected)
    np.testing.assert_array_equal(backend.lib.causal_mask(n), backend.lib.causal_mask(n, n))
    dtype = np.float32 if backend.name == "numpy" else torch.float32
    assert backend.lib.causal_mask(n, dtype=dtype).dtype == dtype


def test_split_heads_gives_head_a_its_own_columns(backend):
    X = draw(B, n, d)
    heads = backend.numpy(backend.lib.split_heads(backend.array(X), h))
    assert heads.shape == (B, h, n, d_k)
    for a in range(h):
        np.testing.assert_array_equal(heads[:, a], X[..., a * d_k:(a + 1) * d_k])
    tiny = backend.lib.split_heads(backend.array(np.arange(6).reshape(3, 2)), 2)
    assert backend.numpy(tiny).tolist() == [[[0], [2], [4]], [[1], [3], [5]]]


def test_merge_heads_puts_the_heads_side_by_side(backend):
    heads = draw(B, h, n, d_v)
    merged = backend.numpy(backend.lib.merge_heads(backend.array(heads)))
    np.testing.assert_array_equal(merged, np.concatenate([heads[:, a] for a in range(h)], axis=-1))


# ---- properties

def test_an_output_lies_between_the_values_of_its_column(backend):
    Q, K, V = qkv()
    output = backend.numpy(backend.lib.attention(*map(backend.array, (Q, K, V)))[0])
    assert (output < V.max(axis=-2, keepdims=True)).all() and (output > V.min(axis=-2, keepdims=True)).all()


def test_moving_a_token_moves_no_earlier_output_and_every_later_one(backend):
    X, projections, mask = draw(B, n, d), backend.projections(SUBLAYER), backend.array(SQUARE)
    before = backend.numpy(backend.lib.multi_head_attention(backend.array(X), projections, h, mask).output)
    for j in range(n):
        moved = X.copy()
        moved[0, j] += 1
        after = backend.numpy(backend.lib.multi_head_attention(backend.array(moved), projections, h, mask).output)
        moves = (np.abs(after - before) > 1e-6).any(axis=-1)    # (B, n)
        assert moves[0].tolist() == [i >= j for i in range(n)]
        assert not moves[1].any()                               # the other sequence knows nothing of it


def test_permuting_the_tokens_permutes_the_outputs(backend):
    X, order, projections = draw(B, n, d), [3, 0, 4, 1, 2], backend.projections(SUBLAYER)
    output, permuted = (backend.numpy(backend.lib.multi_head_attention(backend.array(x), projections, h).output)
                        for x in (X, X[:, order]))
    agree(permuted, output[:, order])


def test_each_head_is_an_attention_of_its_own(backend):
    X, projections = draw(B, n, d), backend.projections(SUBLAYER)
    stages = backend.lib.multi_head_attention(backend.array(X), projections, h)
    Q, K, V = (backend.numpy(part) for part in projections.project(backend.array(X)))
    for a in range(h):
        columns = slice(a * d_k, (a + 1) * d_k)
        head, weights = backend.lib.attention(*(backend.array(x[..., columns]) for x in (Q, K, V)))
        agree(backend.numpy(stages.heads)[:, a], backend.numpy(head))
        agree(backend.numpy(stages.weights)[:, a], backend.numpy(weights))


def test_the_output_is_the_sum_of_what_each_head_writes(backend):
    X = draw(B, n, d)
    stages = backend.lib.multi_head_attention(backend.array(X), backend.projections(SUBLAYER), h)
    heads = backend.numpy(stages.heads)
    written = sum(heads[:, a] @ SUBLAYER.W_O[a * d_k:(a + 1) * d_k] for a in range(h))
    agree(backend.numpy(stages.output), written + SUBLAYER.b_O)


def test_stages_fit_together(backend):
    X, mask, scale = draw(B, n, d), backend.array(SQUARE), 0.2
    stages = backend.lib.multi_head_attention(backend.array(X), backend.projections(SUBLAYER), h, mask, scale)
    shapes = {name: tuple(stage.shape) for name, stage in stages._asdict().items()}
    narrow, square, wide = (B, h, n, d_k), (B, h, n, n), (B, n, d)
    assert shapes == dict(Q=narrow, K=narrow, V=narrow, scores=square, weights=square,
                          heads=narrow, concat=wide, output=wide)
    Q, K = backend.numpy(stages.Q), backend.numpy(stages.K)
    agree(backend.numpy(stages.scores), 0.2 * Q @ K.swapaxes(-1, -2))       # scaled, and not yet masked


def test_leading_axes_broadcast(backend):
    Q, K, V = qkv()
    shared = [backend.numpy(x) for x in backend.lib.attention(*map(backend.array, (Q, K[0, 0], V[:, :1])))]
    expected = oracles.batched_attention(Q, np.broadcast_to(K[0, 0], K.shape), np.broadcast_to(V[:, :1], V.shape))
    for actual, wanted in zip(shared, expected, strict=True):
        agree(actual, wanted)
    X, projections = draw(4, B, n, d), backend.projections(SUBLAYER)
    many = backend.numpy(backend.lib.multi_head_attention(backend.array(X), projections, h).output)
    one = backend.numpy(backend.lib.multi_head_attention(backend.array(X[3, 1]), projections, h).output)
    agree(many[3, 1], one)


def test_the_dtype_follows_the_input(backend):
    for dtype in ("float32", "float16", *(["bfloat16"] if backend.name == "torch" else [])):
        Q, K, V = (backend.array(x, dtype) for x in qkv())
        X, projections = backend.array(draw(n, d), dtype), backend.projections(SUBLAYER, dtype)
        mask = backend.array(CAUSAL)                            # float64, as causal_mask makes it
        made = [*backend.lib.attention(Q, K, V, mask), *backend.lib.attention(Q, K, V, mask, np.float64(0.5)),
                backend.lib.fast_attention(Q, K, V, causal=True),
                *backend.lib.multi_head_attention(X, projections, h, mask[:, m - n:])]
        assert {backend.dtype(x) for x in made} == {dtype}


def test_float16_scores_are_scaled_before_they_overflow(backend):
    Q = backend.array(np.full((3, 64), 40), "float16")          # q . k = 102400, above float16's 65504
    output, weights = backend.lib.attention(Q, Q, Q)
    assert backend.numpy(weights) == pytest.approx(1 / 3, abs=1e-3)
    assert (backend.numpy(backend.lib.fast_attention(Q, Q, Q)) == 40).all()


def test_nothing_is_changed_in_place(backend):
    Q, K, V = given = [backend.array(x) for x in qkv(n=n, m=m, d_v=d_k)]
    X, mask, projections = backend.array(draw(B, n, d)), backend.array(CAUSAL), backend.projections(SUBLAYER)
    given += [X, mask, *vars(projections).values()]
    copies = [backend.numpy(x).copy() for x in given]
    backend.lib.attention(Q, K, V, mask)
    backend.lib.softmax(mask)
    backend.lib.fast_attention(Q, K, V, causal=True)
    backend.lib.multi_head_attention(X, projections, h, mask[:, m - n:])
    backend.lib.fast_multi_head_attention(X, projections, h, causal=True)
    for x, copy in zip(given, copies, strict=True):
        np.testing.assert_array_equal(backend.numpy(x), copy)


def test_nan_passes_through_and_stays_in_its_sequence(backend):
    X, projections = draw(B, n, d), backend.projections(SUBLAYER)
    X[0, 2, 1] = np.nan
    explicit = backend.lib.multi_head_attention(backend.array(X), projections, h)
    fast = backend.lib.fast_multi_head_attention(backend.array(X), projections, h)
    for output in (explicit.output, fast):
        assert np.isnan(backend.numpy(output)[0]).all() and np.isfinite(backend.numpy(output)[1]).all()
    assert np.isnan(backend.numpy(explicit.weights)[0]).all()


# ---- gradients (torch)

def with_gradient(backend, *arrays):
    return [backend.array(x).requires_grad_() for x in arrays]


def test_gradients_equal_torchs(torch_backend):
    visible = torch.tensor(CAUSAL == 0, device=torch_backend.device)
    ours, theirs = (with_gradient(torch_backend, *qkv()) for _ in range(2))
    weighing = torch_backend.array(draw(B, h, n, d_v))          # a loss that cares about every output differently
    (torch_backend.lib.attention(*ours, torch_backend.array(CAUSAL))[0] * weighing).sum().backward()
    (F.scaled_dot_product_attention(*theirs, attn_mask=visible) * weighing).sum().backward()
    assert all(x.grad is not None for x in ours)
    for a, b in zip(ours, theirs, strict=True):
        agree(torch_backend.numpy(a.grad), torch_backend.numpy(b.grad))


def test_gradients_equal_finite_differences(torch_backend):
    Q, K, V = with_gradient(torch_backend, *(x[0, 0] for x in qkv(n=2, m=3)))
    mask = torch_backend.lib.causal_mask(2, 3, device=torch_backend.device)
    assert torch.autograd.gradcheck(lambda *x: torch_backend.lib.attention(*x, mask), (Q, K, V))
    assert torch.autograd.gradcheck(lambda *x: torch_backend.lib.fast_attention(*x, causal=True), (Q, K, V))


def test_a_query_that_sees_nothing_leaves_all_gradients_finite(torch_backend):
    Q, K, V = with_gradient(torch_backend, *qkv())
    mask = torch_backend.array(CAUSAL)
    mask[2] = -torch.inf
    torch_backend.lib.attention(Q, K, V, mask)[0].square().sum().backward()
    for x in (Q, K, V):
        assert x.grad.isfinite().all() and x.grad.any()
    assert not Q.grad[:, :, 2].any()                            # nothing seen, nothing to learn


def test_the_fast_path_has_the_same_gradients(torch_backend):
    explicit, fast = (with_gradient(torch_backend, *qkv()) for _ in range(2))
    mask = torch_backend.array(CAUSAL)
    torch_backend.lib.attention(*explicit, mask)[0].square().sum().backward()
    torch_backend.lib.fast_attention(*fast, causal=True).square().sum().backward()
    for a, b in zip(explicit, fast, strict=True):
        agree(torch_backend.numpy(b.grad), torch_backend.numpy(a.grad), 1e-11)


def test_the_module_trains_every_weight_and_equals_the_functions(torch_backend):
    torch.manual_seed(0)
    module = torch_attention.MultiHeadAttention(d, h, causal=True, bias=True, dtype=torch.float64)
    module.to(torch_backend.device)
    X = torch_backend.array(draw(B, n, d))
    output = module(X)
    stages = torch_backend.lib.multi_head_attention(X, module.projections, h, torch_backend.array(SQUARE))
    agree(torch_backend.numpy(output), torch_backend.numpy(stages.output))
    output.square().sum().backward()
    trained = {name for name, p in module.named_parameters() if p.grad is not None and p.grad.any()}
    assert trained == {"W_QKV", "W_O", "b_QKV", "b_O"}
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == dict(
        W_QKV=(d, 3 * d), W_O=(d, d), b_QKV=(3 * d,), b_O=(d,))
    assert module.W_QKV.detach().var().item() == pytest.approx(1 / d, rel=0.2)
    assert set(torch_backend.lib.MultiHeadAttention(d, h).state_dict()) == {"W_QKV", "W_O"}


def test_a_module_from_projections_copies_them(torch_backend):
    given = Projections.draw(d, bias=True)
    module = torch_backend.lib.MultiHeadAttention.from_projections(given, h, causal=True)
    expected = numpy_attention.fast_multi_head_attention(draw(n, d), given, h, causal=True)
    agree(module(torch.tensor(draw(n, d))).detach().numpy(), expected)
    with torch.no_grad():
        module.W_O.zero_()
    assert given.W_O.any()
    assert len(list(torch_backend.lib.MultiHeadAttention.from_projections(Projections.draw(d), h).parameters())) == 2


# ---- the fast path

BLOCK = numpy_attention.BLOCK


@pytest.mark.parametrize("n, m", [(1, 1), (1, m), (n, m), (n, n), (BLOCK, BLOCK + 1), (BLOCK + 1, BLOCK + 1),
                                  (2 * BLOCK + 3, 3 * BLOCK)])
@pytest.mark.parametrize("causal", [False, True])
def test_the_fast_path_equals_the_explicit_one(backend, n, m, causal):
    for width in (d_v, d_k):                                    # d_v equal to d_k takes torch's fused kernel
        for dtype, tolerance in backend.tolerances.items():
            Q, K, V = qkv(n, m, width)
            mask = np.triu(np.full((n, m), -np.inf), m - n + 1) if causal else np.zeros((n, m))
            oracle = F.scaled_dot_product_attention(*map(torch.tensor, (Q, K, V)), attn_mask=torch.tensor(mask))
            expected = oracle.numpy()
            Q, K, V = (backend.array(x, dtype) for x in (Q, K, V))
            agree(backend.numpy(backend.lib.fast_attention(Q, K, V, causal)), expected, tolerance)
            agree(backend.numpy(backend.lib.attention(Q, K, V, backend.array(mask))[0]), expected, tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_the_fast_path_broadcasts_and_takes_any_memory_layout(backend, causal):
    Q, K, V = qkv(d_v=d_k)
    mask = CAUSAL if causal else None
    shared = backend.lib.fast_attention(*map(backend.array, (Q, K[:, :1], V[0, 0])), causal)       # one K for all heads
    expected, _ = oracles.batched_attention(Q, *(np.broadcast_to(x, K.shape) for x in (K[:, :1], V[0, 0])), mask)
    agree(backend.numpy(shared), expected)
    turned = [backend.array(x.swapaxes(-1, -2).copy()).swapaxes(-1, -2) for x in (Q, K, V)]     # columns before rows
    agree(backend.numpy(backend.lib.fast_attention(*turned, causal)), oracles.batched_attention(Q, K, V, mask)[0])
    single = backend.lib.fast_attention(*(backend.array(x[0, 0]) for x in (Q, K, V)), causal)
    agree(backend.numpy(single), oracles.batched_attention(Q, K, V, mask)[0][0, 0])
    deep = backend.lib.fast_attention(*(backend.array(np.stack([x, 2 * x])) for x in (Q, K, V)), causal)
    agree(backend.numpy(deep)[1], oracles.batched_attention(2 * Q, 2 * K, 2 * V, mask)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_the_fast_sublayer_equals_the_explicit_one(backend, causal):
    X, projections = backend.array(draw(B, n, d)), backend.projections(SUBLAYER)
    mask = backend.array(SQUARE) if causal else None
    stages = backend.lib.multi_head_attention(X, projections, h, mask)
    fast = backend.lib.fast_multi_head_attention(X, projections, h, causal)
    agree(backend.numpy(fast), backend.numpy(stages.output))
    one = backend.lib.fast_multi_head_attention(X[0], projections, h, causal)
    agree(backend.numpy(one), backend.numpy(stages.output)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_many_scores_are_worked_through_head_by_head(causal):
    Q, K, V = qkv()
    expected = oracles.batched_attention(Q, K, V, CAUSAL if causal else None)[0]
    for limit in (0, n * m, h * n * m, B * h * n * m):          # one head at a time, ..., everything at once
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(numpy_attention, "IN_CACHE", limit)
            agree(numpy_attention.fast_attention(Q, K, V, causal), expected)
            agree(numpy_attention.fast_attention(Q[0, 0], K[0, 0], V[0, 0], causal), expected[0, 0])


def test_many_short_sequences_are_taken_in_large_parts(monkeypatch):
    parts = []
    attend = numpy_attention._attend
    monkeypatch.setattr(numpy_attention, "_attend", lambda Q, *rest: parts.append(Q.shape) or attend(Q, *rest))
    monkeypatch.setattr(numpy_attention, "IN_CACHE", 50)
    Q = draw(30, 2, d_k)                                        # 4 scores each: 12 of them fit
    agree(numpy_attention.fast_attention(Q, Q, Q), oracles.batched_attention(*[Q[:, None]] * 3)[0][:, 0])
    assert parts == [(30, 2, d_k), (12, 2, d_k), (12, 2, d_k), (6, 2, d_k)]


@pytest.mark.parametrize("causal", [False, True])
def test_memory_of_the_fast_path_grows_with_n_and_not_with_n_squared(causal):
    peaks = []
    for length in (1024, 4096):
        Q = draw(length, 8)
        tracemalloc.start()
        numpy_attention.fast_attention(Q, Q, Q, causal)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert np.log(peaks[1] / peaks[0]) / np.log(4) < 1.2        # the exponent of n: the explicit path has 2


@pytest.mark.parametrize("shape", [(300, 8), (3, 300, 8), (2, 3, 300, 8), (2, 2, 3, 300, 8)])
@pytest.mark.parametrize("rows", [300, 200], ids=["m = n", "m > n"])
@pytest.mark.parametrize("causal", [False, True])
def test_torchs_fused_kernel_really_runs_on_the_cpu(shape, rows, causal):
    X = torch.tensor(draw(*shape), dtype=torch.float32)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch_attention.fast_attention(X[..., :rows, :], X, X, causal)
    names = {event.key for event in profile.key_averages()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert "aten::_scaled_dot_product_attention_math" not in names


@pytest.mark.parametrize("rows", [4096, 3000], ids=["m = n", "m > n"])
def test_the_fast_path_never_holds_the_score_matrix_on_the_gpu(gpu, rows):
    X = torch.randn(2, 3, 4096, 64, device="cuda", dtype=torch.float32)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch_attention.fast_attention(X[..., :rows, :], X, X, causal=True)
    assert torch.cuda.max_memory_allocated() - before < 2 * 3 * rows * 4096 * 4 / 4     # a quarter of the scores


# ---- one contract for both libraries

def public(module):
    return {name: x for name, x in vars(module).items()
            if getattr(x, "__module__", "") == module.__name__ and name[0] != "_"}


def arguments(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values() if p.name != "device"]


def test_both_libraries_have_the_same_names_arguments_and_defaults():
    ours, theirs = public(numpy_attention), public(torch_attention)
    assert set(theirs) - set(ours) == {"MultiHeadAttention"} and set(ours) <= set(theirs)
    in_torch = {np.float64: torch.float64}
    for name in set(ours) - {"Stages", "KVCache"}:
        assert arguments(theirs[name]) == [(a, kind, in_torch.get(x, x)) for a, kind, x in arguments(ours[name])], name
        assert inspect.getdoc(ours[name]) and inspect.getdoc(theirs[name])
    assert ours["Stages"]._fields == theirs["Stages"]._fields
    assert arguments(ours["KVCache"].append) == arguments(theirs["KVCache"].append)
    # the one default that differs: each library's own working dtype, so that a cache fits the module beside it
    assert arguments(ours["KVCache"])[:-1] == arguments(theirs["KVCache"])[:-1]
    assert (arguments(ours["KVCache"])[-1][2], arguments(theirs["KVCache"])[-1][2]) == (np.float64, torch.float32)
    assert numpy_attention.BLOCK == torch_attention.BLOCK


def test_both_libraries_give_the_same_numbers_at_every_stage():
    X, mask = draw(B, n, d), SQUARE
    ours = numpy_attention.multi_head_attention(X, SUBLAYER, h, mask, 0.2)
    theirs = torch_attention.multi_head_attention(torch.tensor(X), SUBLAYER.to_torch(), h, torch.tensor(mask), 0.2)
    for name in ours._fields:
        agree(getattr(theirs, name).numpy(), getattr(ours, name))
