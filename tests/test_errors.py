"""Every wrong input gets an error that names what is wrong, both sides of it, and what to do. It changes nothing."""

import re

import numpy as np
import pytest
import torch

from mha_lib import numpy_attention, rules, torch_attention
from mha_lib.projections import Projections
from tests.backends import BACKENDS

B, n, m, h, d_k, d_v = 2, 5, 7, 3, 9, 4
d = h * d_k
SUBLAYER = Projections.draw(d)


def draw(*shape):
    return np.random.default_rng(shape).normal(size=shape)


def qkv(backend):
    return [backend.array(x) for x in (draw(B, h, n, d_k), draw(B, h, m, d_k), draw(B, h, m, d_v))]


def refuses(error, *parts):
    """The error, with every part of its message in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, parts)))


# ---- shapes

def test_a_width_that_does_not_divide_into_heads_is_refused(backend):
    X, projections = backend.array(draw(n, d)), backend.projections(SUBLAYER)
    rule = "d=27 does not divide into h=4 heads: d must be h * d_k"
    for call in (backend.lib.multi_head_attention, backend.lib.fast_multi_head_attention):
        with refuses(ValueError, rule):
            call(X, projections, 4)
    with refuses(ValueError, rule):
        backend.lib.split_heads(X, 4)
    with refuses(ValueError, rule):
        torch_attention.MultiHeadAttention(27, 4)
    with refuses(ValueError, rule):
        SUBLAYER.to_multihead_attention(4)


@pytest.mark.parametrize("heads, error, message", [
    (0, ValueError, "h must be 1 or more, got 0"), (-3, ValueError, "h must be 1 or more, got -3"),
    (3.0, TypeError, "h must be a whole number, got 3.0"), (True, TypeError, "h must be a whole number, got True"),
    ("3", TypeError, "h must be a whole number, got '3'"), (None, TypeError, "h must be a whole number, got None")])
def test_a_head_count_is_a_whole_number(backend, heads, error, message):
    with refuses(error, message):
        backend.lib.split_heads(backend.array(draw(n, d)), heads)


def test_a_head_count_may_be_a_numpy_integer(backend):
    assert backend.lib.split_heads(backend.array(draw(n, d)), np.int64(h)).shape == (h, n, d_k)


def test_queries_and_keys_share_their_width(backend):
    Q, _, V = qkv(backend)
    for call in (backend.lib.attention, backend.lib.fast_attention):
        with refuses(ValueError, "Q and K must share a width d_k", "Q (2, 3, 5, 9)", "K (2, 3, 7, 8)"):
            call(Q, backend.array(draw(B, h, m, 8)), V)
    with refuses(ValueError, "Q and K must share a width d_k"):
        backend.lib.attention_scores(Q, V)


def test_keys_and_values_share_their_length(backend):
    Q, K, _ = qkv(backend)
    for call in (backend.lib.attention, backend.lib.fast_attention):
        with refuses(ValueError, "K and V must share a length m, one value", "K (2, 3, 7, 9)", "V (2, 3, 6, 4)"):
            call(Q, K, backend.array(draw(B, h, 6, d_v)))


def test_leading_axes_are_equal_or_one(backend):
    Q, K, V = qkv(backend)
    for call in (backend.lib.attention, backend.lib.fast_attention):
        with refuses(ValueError, "leading (batch, head) axes must be equal or 1", "K (2, 2, 7, 9)"):
            call(Q, K[:, :2], V)
    with refuses(ValueError, "leading (batch, head) axes must be equal or 1", "Q (2, 3, 5, 9), K (2, 2, 7, 9)"):
        backend.lib.attention_scores(Q, K[:, :2])


def test_a_wrong_model_width_names_the_weights(backend):
    for call in (backend.lib.multi_head_attention, backend.lib.fast_multi_head_attention):
        with refuses(ValueError, "the last axis of X is 26, but W_QKV (27, 81) needs d=27: got X of shape (2, 5, 26)"):
            call(backend.array(draw(B, n, 26)), backend.projections(SUBLAYER), h)


def test_one_token_alone_is_still_a_row(backend):
    for call in (backend.lib.multi_head_attention, backend.lib.fast_multi_head_attention):
        with refuses(ValueError, "X must end in the axes (n, d), got shape (27,)"):
            call(backend.array(draw(d)), backend.projections(SUBLAYER), h)
    with refuses(ValueError, "X must end in the axes (n, d), got shape (27,)"):
        backend.lib.split_heads(backend.array(draw(d)), h)
    with refuses(ValueError, "heads must end in the axes (h, n, d_k), got shape (5, 9)"):
        backend.lib.merge_heads(backend.array(draw(n, d_k)))
    with refuses(ValueError, "Q must end in the axes (n, d_k), got shape (9,)"):
        backend.lib.attention(*(backend.array(draw(d_k)) for _ in range(3)))
    with refuses(ValueError, "scores must end in the axes (m), got shape ()"):
        backend.lib.softmax(backend.array(0.5))


@pytest.mark.parametrize("shape", [(0, d), (B, 0, d), (0, n, d)])
def test_an_empty_sequence_is_refused(backend, shape):
    X = backend.array(np.empty(shape))
    for call in (backend.lib.multi_head_attention, backend.lib.fast_multi_head_attention):
        with refuses(ValueError, "X must end in the axes (n, d), none of them empty", f"got shape {shape}"):
            call(X, backend.projections(SUBLAYER), h)
    Q, _, _ = qkv(backend)
    with refuses(ValueError, "K must end in the axes (n, d_k), none of them empty"):
        backend.lib.attention(Q, Q[:, :, :0], Q[:, :, :0])


@pytest.mark.parametrize("lengths, error, message", [
    ((5, 3), ValueError, "n=5 queries are the last of m=3 keys, so m must be at least n"),
    ((0,), ValueError, "n must be 1 or more, got 0"), ((-2,), ValueError, "n must be 1 or more, got -2"),
    ((2, 0), ValueError, "m must be 1 or more, got 0"), ((2.0,), TypeError, "n must be a whole number, got 2.0"),
    ((True,), TypeError, "n must be a whole number, got True"),
    (((5, 5),), TypeError, "n must be a whole number, got (5, 5)")])
def test_a_causal_mask_has_at_least_as_many_keys_as_queries(backend, lengths, error, message):
    with refuses(error, message):
        backend.lib.causal_mask(*lengths)


def test_causal_fast_attention_has_at_least_as_many_keys_as_queries(backend):
    Q, K, V = qkv(backend)
    with refuses(ValueError, "n=7 queries are the last of m=5 keys"):
        backend.lib.fast_attention(K, Q, Q, causal=True)


# ---- masks

@pytest.mark.parametrize("shape", [(m, n), (n,), (n, n), (n, m, h), (B, n, m), (4, B, h, n, m)])
def test_a_mask_of_a_wrong_shape_is_refused(backend, shape):
    Q, K, V = qkv(backend)
    with refuses(ValueError, f"mask {shape} does not broadcast to the scores (2, 3, 5, 7)",
                 "(n, m), queries by keys", "needs a head axis of 1"):
        backend.lib.attention(Q, K, V, backend.array(np.zeros(shape)))
    assert backend.lib.attention(Q, K, V, backend.array(np.zeros((B, 1, n, m))))[0].shape == (B, h, n, d_v)


@pytest.mark.parametrize("dtype", ["bool", "int64"])
def test_a_mask_of_truth_values_is_refused_with_the_line_that_mends_it(backend, dtype):
    Q, K, V = qkv(backend)
    visible = backend.array(np.tri(n, m, m - n), dtype)
    mend = dict(numpy="np.where(visible, 0.0, -np.inf)",
                torch="torch.where(visible.bool(), 0.0, -torch.inf)")[backend.name]
    for call in (backend.lib.attention, lambda Q, K, V, mask: backend.lib.multi_head_attention(
            backend.array(draw(n, d)), backend.projections(SUBLAYER), h, mask[:, :n])):
        with refuses(TypeError, f"mask holds {visible.dtype}, but masks here are added to the scores", mend):
            call(Q, K, V, visible)
    mended = eval(mend, dict(np=np, torch=torch, visible=visible))
    np.testing.assert_array_equal(backend.numpy(mended), backend.numpy(backend.lib.causal_mask(n, m)))
    backend.lib.attention(Q, K, V, mended)


def test_a_mask_of_another_kind_is_refused(backend):
    Q, K, V = qkv(backend)
    with refuses(TypeError, "mask is a list, not an array"):
        backend.lib.attention(Q, K, V, [[0.0] * m] * n)
    other = BACKENDS["torch" if backend.name == "numpy" else "numpy"]
    with refuses(TypeError, f"mask is a {other.name} array, but these functions take {backend.name}"):
        backend.lib.attention(Q, K, V, other.array(np.zeros((n, m))))


# ---- kinds

class Frame:
    """Stands in for a table of pandas: it has a shape, but is no array."""

    shape = (n, d)


NOT_ARRAYS = {
    "list": [[1.0, 2.0]], "tuple": ((1.0, 2.0),), "float": 3.0, "NumPy scalar": np.float64(3), "None": None, "str": "X",
    "table": Frame(), "masked array": np.ma.array(np.ones((n, d)), mask=np.eye(n, d)),
}


@pytest.mark.parametrize("kind", NOT_ARRAYS)
def test_what_is_no_array_is_refused(backend, kind):
    X = NOT_ARRAYS[kind]
    convert = "np.asarray(" if backend.name == "numpy" else "torch.as_tensor("
    for name, call in (("X", lambda: backend.lib.multi_head_attention(X, backend.projections(SUBLAYER), h)),
                       ("X", lambda: backend.lib.fast_multi_head_attention(X, backend.projections(SUBLAYER), h)),
                       ("X", lambda: backend.lib.split_heads(X, h)), ("Q", lambda: backend.lib.attention(X, X, X)),
                       ("Q", lambda: backend.lib.fast_attention(X, X, X)),
                       ("scores", lambda: backend.lib.softmax(X)), ("heads", lambda: backend.lib.merge_heads(X))):
        with refuses(TypeError, f"{name} is a {type(X).__name__}, not an array: convert it with {convert}{name}"):
            call()


def test_a_numpy_matrix_is_refused_because_it_multiplies_otherwise():
    with pytest.warns(PendingDeprecationWarning):
        X = np.matrix(draw(n, d))
    with refuses(TypeError, "X is a matrix, not an array"):
        numpy_attention.multi_head_attention(X, SUBLAYER, h)


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool", "complex128"])
def test_only_floats_are_taken(backend, dtype):
    X = backend.array(np.ones((n, d)), dtype)
    convert = "X.astype(float)" if backend.name == "numpy" else "X.to(torch.float32)"
    with refuses(TypeError, f"X holds {X.dtype}, attention needs floats: use {convert}"):
        backend.lib.multi_head_attention(X, backend.projections(SUBLAYER), h)
    with refuses(TypeError, f"Q holds {X.dtype}, attention needs floats"):
        backend.lib.attention(X, X, X)


def test_an_array_of_objects_is_refused():
    X = np.full((n, d), 1.0, dtype=object)
    with refuses(TypeError, "X holds object, attention needs floats: use X.astype(float)"):
        numpy_attention.multi_head_attention(X, SUBLAYER, h)


def test_numpy_and_torch_are_not_mixed(backend):
    other = BACKENDS["torch" if backend.name == "numpy" else "numpy"]
    X, theirs = backend.array(draw(n, d)), other.array(draw(n, d))
    Q, K, V = qkv(backend)
    rule = f"is a {other.name} array, but these functions take {backend.name}: use mha_lib.{other.name}_attention"
    for name, call in (("X", lambda: backend.lib.multi_head_attention(theirs, backend.projections(SUBLAYER), h)),
                       ("X", lambda: backend.lib.fast_multi_head_attention(theirs, backend.projections(SUBLAYER), h)),
                       ("W_QKV", lambda: backend.lib.multi_head_attention(X, other.projections(SUBLAYER), h)),
                       ("V", lambda: backend.lib.attention(Q, K, other.array(draw(m, d_v)))),
                       ("scores", lambda: backend.lib.softmax(theirs))):
        with refuses(TypeError, f"{name} {rule}"):
            call()


def test_dtypes_are_not_mixed(backend):
    Q, K, V = qkv(backend)
    low = backend.array(draw(m, d_v), "float32")
    for call in (backend.lib.attention, backend.lib.fast_attention):
        with refuses(TypeError, f"Q is {Q.dtype} and V is {low.dtype}: give both the same dtype"):
            call(Q, K, low)
    with refuses(TypeError, f"X is {Q.dtype} and W_QKV is {low.dtype}: give both the same dtype"):
        backend.lib.multi_head_attention(backend.array(draw(n, d)), backend.projections(SUBLAYER, "float32"), h)


def test_devices_are_not_mixed():
    Q, K, V = qkv(BACKENDS["torch"])                            # "meta" stands in for a second device
    X, mask = torch.tensor(draw(n, d)), torch.zeros(n, m, device="meta")
    for call in (torch_attention.attention, torch_attention.fast_attention):
        with refuses(ValueError, "Q is on cpu and K on meta: move both to one device"):
            call(Q, K.to("meta"), V)
    with refuses(ValueError, "mask is on meta and the scores on cpu: move both to one device"):
        torch_attention.attention(Q, K, V, mask)
    with refuses(ValueError, "X is on cpu and W_QKV on meta: move both to one device"):
        torch_attention.multi_head_attention(X, SUBLAYER.to_torch(device="meta"), h)


def test_a_scale_may_be_an_array_without_axes():
    Q, K, V = (BACKENDS["numpy"].array(x, "float32") for x in qkv(BACKENDS["numpy"]))
    _, weights = numpy_attention.attention(Q, K, V, scale=np.array(0.5))
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(weights, numpy_attention.attention(Q, K, V, scale=0.5)[1])


def test_a_refused_call_changes_nothing(backend):
    Q, K, V = given = qkv(backend)
    copies = [backend.numpy(x).copy() for x in given]
    with refuses(TypeError, "mask holds"):
        backend.lib.attention(Q, K, V, backend.array(np.ones((n, m)), "bool"))
    with refuses(ValueError, "m must be at least n"):
        backend.lib.fast_attention(K, Q, Q, causal=True)
    for x, copy in zip(given, copies, strict=True):
        np.testing.assert_array_equal(backend.numpy(x), copy)


def test_library_of_knows_arrays_and_nothing_else():
    assert rules.library_of(np.ones(1)) == "numpy" and rules.library_of(torch.ones(1)) == "torch"
    assert rules.library_of(torch.nn.Parameter(torch.ones(1))) == "torch"
    assert rules.library_of([1.0]) is None and rules.library_of(np.float64(1)) is None


@pytest.mark.parametrize("kind", ["int64", "bool"])
def test_masks_and_caches_are_made_of_floats(backend, kind):
    dtype = np.dtype(kind) if backend.name == "numpy" else getattr(backend.lib.torch, kind)
    with refuses(TypeError, "dtype must be a float type"):
        backend.lib.causal_mask(n, dtype=dtype)
    with refuses(TypeError, "dtype must be a float type"):
        backend.lib.KVCache(2, 3, 7, 9, dtype=dtype)
