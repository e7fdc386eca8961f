"""Shapes and numbers drawn by Hypothesis: what holds for one size holds for every size."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mha_lib.projections import Projections
from tests import oracles
from tests.backends import BACKENDS

pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

few = settings(max_examples=40, deadline=None, derandomize=True)        # the same examples on every machine
sizes = st.integers(1, 5)
batches = st.lists(st.integers(1, 3), max_size=2).map(tuple)
backends = st.sampled_from([BACKENDS["numpy"], BACKENDS["torch"]])
seeds = st.integers(0, 2 ** 32 - 1)


def agree(actual, expected):
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * max(1, np.abs(expected).max()))


@few
@given(backends, batches, sizes, sizes, sizes, sizes, seeds)
def test_attention_of_any_shape(backend, batch, n, m, d_k, d_v, seed):
    rng = np.random.default_rng(seed)
    Q, K, V = (rng.normal(size=(*batch, *shape)) for shape in ((n, d_k), (m, d_k), (m, d_v)))
    mask = np.where(rng.random((n, m)) < 0.3, -np.inf, rng.normal(size=(n, m)))         # hides some, shifts the others
    output, weights = backend.lib.attention(*map(backend.array, (Q, K, V, mask)))
    expected_output, expected_weights = oracles.batched_attention(Q, K, V, mask)
    agree(backend.numpy(output), expected_output)
    agree(backend.numpy(weights), expected_weights)


@few
@given(backends, batches, sizes, st.integers(0, 4), sizes, sizes, st.booleans(), seeds)
def test_the_fast_path_of_any_shape(backend, batch, n, past, d_k, d_v, causal, seed):
    rng = np.random.default_rng(seed)
    Q, K, V = (rng.normal(size=(*batch, *shape)) for shape in ((n, d_k), (n + past, d_k), (n + past, d_v)))
    visible = np.tri(n, n + past, past if causal else n + past, dtype=bool)
    expected = F.scaled_dot_product_attention(*map(torch.tensor, (Q, K, V)), attn_mask=torch.tensor(visible)).numpy()
    agree(backend.numpy(backend.lib.fast_attention(*map(backend.array, (Q, K, V)), causal)), expected)


@few
@given(backends, batches, sizes, sizes, sizes, st.booleans(), seeds)
def test_multi_head_attention_of_any_shape(backend, batch, n, h, d_k, bias, seed):
    X = np.random.default_rng(seed).normal(size=(*batch, n, h * d_k))
    projections = Projections.draw(h * d_k, seed, bias)
    here = backend.array(X), backend.projections(projections), h
    output = backend.numpy(backend.lib.multi_head_attention(*here).output)
    fast = backend.numpy(backend.lib.fast_multi_head_attention(*here))
    for at in np.ndindex(batch):
        expected = oracles.multi_head(X[at], projections, h)["output"]
        agree(output[at], expected)
        agree(fast[at], expected)


@few
@given(backends, batches, sizes, sizes, sizes, seeds)
def test_splitting_and_merging_undo_each_other(backend, batch, n, h, d_k, seed):
    X = np.random.default_rng(seed).normal(size=(*batch, n, h * d_k))
    heads = backend.lib.split_heads(backend.array(X), h)
    assert tuple(heads.shape) == (*batch, h, n, d_k)
    np.testing.assert_array_equal(backend.numpy(backend.lib.merge_heads(heads)), X)


@few
@given(backends, sizes, sizes, st.floats(-1e6, 1e6), seeds)
def test_a_number_added_to_a_whole_row_of_scores_changes_no_weight(backend, n, m, shift, seed):
    scores = np.random.default_rng(seed).normal(size=(n, m)) * 10
    weights, shifted = (backend.numpy(backend.lib.softmax(backend.array(s))) for s in (scores, scores + shift))
    np.testing.assert_allclose(shifted, weights, rtol=0, atol=1e-8)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-13)
