"""The KV cache: one pass and many small ones give the same, and what cannot be stored is refused whole."""

import numpy as np
import pytest
import torch

from mha_lib import torch_attention
from mha_lib.layers import layer_norm, sublayer
from mha_lib.projections import Projections
from tests.backends import BACKENDS

B, h, d_k, n = 2, 3, 9, 11
d = h * d_k
LAYERS = [Projections.draw(d, seed=1, bias=True), Projections.draw(d, seed=2)]


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def new_cache(backend, capacity=n, dtype="float64"):
    extra = dict(device=backend.device) if backend.name == "torch" else {}
    library = np if backend.name == "numpy" else torch
    return backend.lib.KVCache(B, h, capacity, d_k, getattr(library, dtype), **extra)


def run_layers(backend, X, caches=(None, None), dtype="float64"):
    """X through two pre-norm attention layers -> the stream after each, as NumPy."""
    stream, after = backend.array(X, dtype), []
    for given, cache in zip(LAYERS, caches, strict=True):
        projections = backend.projections(given, dtype)

        def attend(normed, projections=projections, cache=cache):
            return backend.lib.fast_multi_head_attention(normed, projections, h, causal=True, cache=cache)

        stream = sublayer(stream, attend, layer_norm)
        after.append(backend.numpy(stream))
    return after


def test_prefill_chunk_and_steps_equal_one_uncached_pass(backend):
    X = draw(B, n, d)
    for dtype, tolerance in backend.tolerances.items():
        whole = run_layers(backend, X, dtype=dtype)
        caches = [new_cache(backend, dtype=dtype) for _ in LAYERS]
        pieces = []
        for start, stop in ((0, 5), (5, 8), (8, 9), (9, 10), (10, 11)):     # prompt, chunk, three single tokens
            pieces.append(run_layers(backend, X[:, start:stop], caches, dtype))
            assert [cache.length for cache in caches] == [stop, stop]
        for layer, expected in enumerate(whole):
            cached = np.concatenate([piece[layer] for piece in pieces], axis=1)
            np.testing.assert_allclose(cached, expected, rtol=0, atol=3 * tolerance * np.abs(expected).max())


def test_a_second_sequence_gets_a_cache_of_its_own(backend):
    first, second = draw(B, n, d, seed=1), draw(B, 6, d, seed=2)
    run_layers(backend, first, [new_cache(backend) for _ in LAYERS])
    caches = [new_cache(backend) for _ in LAYERS]
    pieces = [run_layers(backend, second[:, i:i + 1], caches)[1] for i in range(6)]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), run_layers(backend, second)[1], rtol=0, atol=1e-12)


def test_append_returns_all_that_is_stored_and_nothing_else(backend):
    K, V, cache = draw(B, h, 5, d_k, seed=1), draw(B, h, 5, d_k, seed=2), new_cache(backend)
    assert cache.length == 0
    for start, stop in ((0, 3), (3, 4), (4, 5)):
        keys, values = cache.append(backend.array(K[:, :, start:stop]), backend.array(V[:, :, start:stop]))
        assert cache.length == stop
        np.testing.assert_array_equal(backend.numpy(keys), K[:, :, :stop])
        np.testing.assert_array_equal(backend.numpy(values), V[:, :, :stop])


def test_append_copies_nothing_of_the_past(backend):
    cache, token = new_cache(backend), backend.array(draw(B, h, 1, d_k))
    keys, values = cache.append(token, token)
    later_keys, later_values = cache.append(token, token)
    for before, after in ((keys, later_keys), (values, later_values)):
        before[:] = 7                                           # views of one store: the later one sees it
        assert (backend.numpy(after)[:, :, 0] == 7).all()


def test_a_full_cache_takes_the_last_token_and_refuses_the_next(backend):
    cache, K = new_cache(backend, capacity=3), draw(B, h, 3, d_k)
    cache.append(backend.array(K), backend.array(K))
    with pytest.raises(ValueError, match="the cache is full: 3 of 3 tokens are stored, 1 more do not fit"):
        cache.append(backend.array(K[:, :, :1]), backend.array(K[:, :, :1]))
    assert cache.length == 3
    np.testing.assert_array_equal(backend.numpy(cache.keys), K)


FITS = (B, h, 1, d_k)
WRONG = {                                                       # shape of K, of V, dtype, error, message
    "head count": ((B, 2, 1, d_k), FITS, "float64", ValueError, r"K must be \(2, 3, n, 9\).*got \(2, 2, 1, 9\)"),
    "batch": ((3, h, 1, d_k), FITS, "float64", ValueError, r"batch=2, .*got \(3, 3, 1, 9\)"),
    "no batch axis": ((h, 1, d_k), FITS, "float64", ValueError, r"from X \(2, n, 27\): got \(3, 1, 9\)"),
    "width of V": (FITS, (B, h, 1, 4), "float64", ValueError, r"V must be .*got \(2, 3, 1, 4\)"),
    "lengths": ((B, h, 2, d_k), FITS, "float64", ValueError, r"length n.*\(2, 3, 2, 9\) and V \(2, 3, 1, 9\)"),
    "dtype": (FITS, FITS, "float32", TypeError, "cache is .*float64 and K is .*float32: give both the same"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_refused_and_nothing_is_stored(backend, wrong):
    K_shape, V_shape, dtype, error, message = WRONG[wrong]
    cache, past = new_cache(backend), draw(B, h, 2, d_k)
    cache.append(backend.array(past), backend.array(past))
    with pytest.raises(error, match=message):
        cache.append(backend.array(draw(*K_shape), dtype), backend.array(draw(*V_shape), dtype))
    assert cache.length == 2
    np.testing.assert_array_equal(backend.numpy(cache.keys[:, :, :2]), past)
    np.testing.assert_array_equal(backend.numpy(cache.values[:, :, :2]), past)


def test_a_cache_of_the_other_library_is_refused(backend):
    other = BACKENDS["torch" if backend.name == "numpy" else "numpy"]
    X, projections, cache = backend.array(draw(B, n, d)), backend.projections(LAYERS[0]), new_cache(other)
    with pytest.raises(TypeError, match="these functions take"):
        backend.lib.fast_multi_head_attention(X, projections, h, causal=True, cache=cache)
    assert cache.length == 0


def test_a_cache_without_the_causal_mask_is_refused(backend):
    X, projections, cache = backend.array(draw(B, n, d)), backend.projections(LAYERS[0]), new_cache(backend)
    with pytest.raises(ValueError, match="causal=True"):
        backend.lib.fast_multi_head_attention(X, projections, h, cache=cache)
    assert cache.length == 0


@pytest.mark.parametrize("sizes, error", [
    ((B, h, 0, d_k), ValueError), ((0, h, n, d_k), ValueError), ((B, h, n, -1), ValueError),
    ((B, h, 4.0, d_k), TypeError), ((B, True, n, d_k), TypeError)])
def test_a_cache_has_room_for_something(backend, sizes, error):
    with pytest.raises(error, match="must be"):
        backend.lib.KVCache(*sizes)


def test_a_cache_keeps_no_gradients(torch_backend):
    cache, K = new_cache(torch_backend), torch_backend.array(draw(B, h, 2, d_k))
    for given in ((K.clone().requires_grad_(), K), (K, K.clone().requires_grad_())):
        with pytest.raises(ValueError, match="torch.no_grad"):
            cache.append(*given)
    assert cache.length == 0
    module = torch_backend.lib.MultiHeadAttention(d, h, causal=True, device=torch_backend.device, dtype=torch.float64)
    X = torch_backend.array(draw(B, 4, d))
    with torch.no_grad():
        cached = torch.cat([module(X[:, :3], cache), module(X[:, 3:], cache)], dim=1)
        np.testing.assert_allclose(torch_backend.numpy(cached), torch_backend.numpy(module(X)), rtol=0, atol=1e-12)


def test_a_cache_on_another_device_is_refused():
    cache = torch_attention.KVCache(B, h, n, d_k, torch.float64, device="meta")
    K = torch.tensor(draw(B, h, 1, d_k))
    with pytest.raises(ValueError, match="cache is on meta and K on cpu: move both to one device"):
        cache.append(K, K)
    assert cache.length == 0


# ---- "the past is fixed": what is true of it

def keys_and_values(backend, X, dtype):
    """K and V of both layers, (2 layers, 2, B, h, n, d_k)."""
    caches = [new_cache(backend, X.shape[1], dtype) for _ in LAYERS]
    run_layers(backend, X, caches, dtype)
    return np.array([[backend.numpy(cache.keys), backend.numpy(cache.values)] for cache in caches])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_changing_a_token_leaves_every_earlier_key_and_value_bit_identical(backend, dtype):
    X = draw(B, n, d)
    before = keys_and_values(backend, X, dtype)
    for j in range(1, n):
        moved = X.copy()
        moved[:, j] += 1
        after = keys_and_values(backend, moved, dtype)
        np.testing.assert_array_equal(after[..., :j, :], before[..., :j, :])
        second_layer = np.abs(after - before)[1].max(axis=(0, 1, 2, 4))             # (n,) it notices, from j on
        assert (second_layer[j:] > 0).all()


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-13), ("float32", 1e-5)])
def test_appending_a_token_leaves_the_past_the_same_but_for_rounding(backend, dtype, tolerance):
    X = draw(B, n, d)
    whole = keys_and_values(backend, X, dtype)
    for length in range(1, n):
        shorter = keys_and_values(backend, X[:, :length], dtype)
        np.testing.assert_allclose(shorter, whole[..., :length, :], rtol=0, atol=tolerance)
