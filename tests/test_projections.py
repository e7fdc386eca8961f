"""Projections, their other layouts, and the running example."""

import re

import numpy as np
import pytest
import torch

from mha_lib import numpy_attention, torch_attention
from mha_lib.projections import Projections, running_example

n, d, h = 5, 27, 3


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def same(ours, theirs):
    for x, other in zip(vars(ours).values(), vars(theirs).values(), strict=True):
        assert type(x) is type(other) and getattr(x, "dtype", None) == getattr(other, "dtype", None)
    for x, other in zip(vars(ours.to_numpy()).values(), vars(theirs.to_numpy()).values(), strict=True):
        np.testing.assert_array_equal(x, other)


# ---- the packed matrix

def test_the_three_matrices_stand_side_by_side(backend):
    W_Q, W_K, W_V, W_O = (draw(d, d, seed=i) for i in range(4))
    projections = Projections.from_matrices(*map(backend.array, (W_Q, W_K, W_V, W_O)))
    X = draw(2, n, d)
    Q, K, V = projections.project(backend.array(X))
    for W, named, part in ((W_Q, projections.W_Q, Q), (W_K, projections.W_K, K), (W_V, projections.W_V, V)):
        np.testing.assert_array_equal(backend.numpy(named), W)
        np.testing.assert_allclose(backend.numpy(part), X @ W, rtol=0, atol=1e-12)
    np.testing.assert_allclose(backend.numpy(projections.mix(backend.array(X))), X @ W_O, rtol=0, atol=1e-12)
    assert projections.d == d and projections.b_QKV is None and projections.b_O is None


def test_biases_are_added(backend):
    projections = Projections.draw(d, bias=True)
    X = draw(n, d)
    Q, K, V = backend.projections(projections).project(backend.array(X))
    for part, W, b in ((Q, projections.W_Q, 0), (K, projections.W_K, 1), (V, projections.W_V, 2)):
        expected = X @ W + projections.b_QKV[b * d:(b + 1) * d]
        np.testing.assert_allclose(backend.numpy(part), expected, rtol=0, atol=1e-12)
    mixed = backend.projections(projections).mix(backend.array(X))
    np.testing.assert_allclose(backend.numpy(mixed), X @ projections.W_O + projections.b_O, rtol=0, atol=1e-12)


def test_the_three_matrices_are_views(backend):
    projections = backend.projections(Projections.draw(d))
    for third, W in enumerate((projections.W_Q, projections.W_K, projections.W_V)):
        W[0, 0] = 100 + third
        assert projections.W_QKV[0, third * d] == 100 + third


def test_drawn_weights_keep_unit_variance_and_follow_the_seed():
    projections = Projections.draw(300, seed=1, bias=True)
    for W in (projections.W_QKV, projections.W_O):
        assert W.var() == pytest.approx(1 / 300, rel=0.02)
    Q, K, V = Projections.draw(300, seed=1).project(draw(200, 300))
    assert [Q.var(), K.var(), V.var()] == pytest.approx([1, 1, 1], rel=0.05)
    same(projections, Projections.draw(300, seed=1, bias=True))
    assert (projections.W_O != Projections.draw(300, seed=2).W_O).all()
    assert Projections.draw(d, dtype=np.float32).W_QKV.dtype == np.float32
    assert Projections.draw(d).b_O is None


@pytest.mark.parametrize("W_QKV, W_O, b_QKV, b_O, message", [
    ((d, d), (d, d), None, None, "W_O (d, d) is (27, 27), so W_QKV must be (27, 81): got (27, 27)"),
    ((3 * d, d), (d, d), None, None, "W_QKV must be (27, 81): got (81, 27)"),
    ((d, 3 * d), (d, 9), None, None, "W_O must be (27, 27): got (27, 9)"),
    ((d, 3 * d), (d, d), (d,), None, "b_QKV must be (81,): got (27,)"),
    ((d, 3 * d), (d, d), None, (1, d), "b_O must be (27,): got (1, 27)"),
    ((d, 3 * d), (), None, None, "got (27, 81)")])
def test_weights_that_do_not_fit_together_are_refused(backend, W_QKV, W_O, b_QKV, b_O, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Projections(*(None if shape is None else backend.array(np.ones(shape)) for shape in (W_QKV, W_O, b_QKV, b_O)))


def test_weights_of_different_kinds_are_refused(backend):
    W_QKV, W_O = backend.array(draw(d, 3 * d)), backend.array(draw(d, d))
    for wrong, message in ((backend.array(draw(d, d), "float32"), "give both the same dtype"),
                           (backend.array(np.ones((d, d)), "int64"), "W_O holds"),
                           (draw(d, d).tolist(), "W_O is a list"), (None, "W_O is a NoneType")):
        with pytest.raises(TypeError, match=message):
            Projections(W_QKV, wrong)
    with pytest.raises(ValueError, match=re.escape("got W_K (27, 9) and W_O (27, 27)")):
        Projections.from_matrices(W_O, W_O[:, :9], W_O, W_O)
    with pytest.raises(TypeError, match="d must be a whole number"):
        Projections.draw(27.0)


# ---- between libraries and layouts

def test_numpy_to_torch_and_back_loses_nothing():
    for bias in (False, True):
        for dtype in (np.float64, np.float32):
            given = Projections.draw(d, bias=bias, dtype=dtype)
            same(given, given.to_torch().to_numpy())
            same(given, given.to_numpy())
            assert np.shares_memory(given.to_torch().to_numpy().W_O, given.W_O)
    there = Projections.draw(d, bias=True).to_torch(dtype=torch.bfloat16)
    assert {x.dtype for x in vars(there).values()} == {torch.bfloat16}
    assert there.to_numpy().W_O.dtype == np.float32             # NumPy has no bfloat16
    np.testing.assert_array_equal(there.to_numpy().W_O, there.W_O.float())
    assert Projections.draw(d).to_torch(device="meta").W_O.device.type == "meta"


def test_to_numpy_takes_weights_that_are_being_trained():
    module = torch_attention.MultiHeadAttention(d, h)
    np.testing.assert_array_equal(module.projections.to_numpy().W_QKV, module.W_QKV.detach())


@pytest.mark.parametrize("bias", [False, True])
def test_torchs_own_module_gives_the_same_output_with_our_weights(bias):
    given, X = Projections.draw(d, bias=bias), draw(2, n, d)
    module = given.to_multihead_attention(h)
    expected, _ = module(*[torch.tensor(X)] * 3)
    output = numpy_attention.multi_head_attention(X, given, h).output
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=0, atol=1e-12)
    same(given, Projections.from_multihead_attention(module).to_numpy())


def test_a_single_bias_becomes_a_pair_with_zeros():
    given = Projections.draw(d)
    only_output = Projections(given.W_QKV, given.W_O, None, draw(d))
    module = only_output.to_multihead_attention(h)
    assert not module.in_proj_bias.any()
    np.testing.assert_array_equal(module.out_proj.bias.detach(), only_output.b_O)


def test_copies_of_a_module_are_copies():
    module = torch.nn.MultiheadAttention(d, h)
    copied = Projections.from_multihead_attention(module)
    with torch.no_grad():
        module.in_proj_weight.zero_(), module.out_proj.weight.zero_(), module.in_proj_bias.fill_(7)
    assert copied.W_QKV.any() and copied.W_O.any() and not copied.b_QKV.any()
    assert not any(x.requires_grad for x in vars(copied).values())


@pytest.mark.parametrize("options", [dict(kdim=5, vdim=5), dict(add_bias_kv=True), dict(add_zero_attn=True)])
def test_a_module_that_is_more_than_self_attention_is_refused(options):
    with pytest.raises(ValueError, match="only self-attention can be copied"):
        Projections.from_multihead_attention(torch.nn.MultiheadAttention(d, h, **options))


def test_gpt2s_layout_is_ours_by_other_names(backend):
    given = backend.projections(Projections.draw(d, bias=True))
    weights = given.to_gpt2()
    assert {name: tuple(x.shape) for name, x in weights.items()} == {
        "c_attn.weight": (d, 3 * d), "c_attn.bias": (3 * d,), "c_proj.weight": (d, d), "c_proj.bias": (d,)}
    same(given, Projections.from_gpt2(weights))
    bare = backend.projections(Projections.draw(d)).to_gpt2()
    assert not bare["c_attn.bias"].any() and not bare["c_proj.bias"].any()


def test_gpt2_weights_as_a_gpt2_layer_uses_them():
    weights = {name: torch.tensor(draw(*shape)) for name, shape in {
        "c_attn.weight": (d, 3 * d), "c_attn.bias": (3 * d,), "c_proj.weight": (d, d), "c_proj.bias": (d,)}.items()}
    X = torch.tensor(draw(n, d))
    q, k, v = torch.addmm(weights["c_attn.bias"], X, weights["c_attn.weight"]).split(d, dim=1)
    heads = [x.unflatten(1, (h, -1)).movedim(1, 0) for x in (q, k, v)]
    attended = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True).movedim(0, 1).flatten(1)
    expected = torch.addmm(weights["c_proj.bias"], attended, weights["c_proj.weight"])
    output = torch_attention.fast_multi_head_attention(X, Projections.from_gpt2(weights), h, causal=True)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-11)


def test_gpt2_weights_in_nn_linears_layout_are_refused():
    weights = Projections.draw(d, bias=True).to_gpt2()
    with pytest.raises(ValueError, match=r"c_attn.weight is \(81, 27\).*transpose c_attn.weight and c_proj"):
        Projections.from_gpt2({name: x.T for name, x in weights.items()})
    del weights["c_proj.bias"]
    with pytest.raises(ValueError, match="missing: c_proj.bias"):
        Projections.from_gpt2(weights)


# ---- the running example: what the course says about it

def example_weights(*sentence, **options):
    words, X, projections = running_example(*sentence, **options)
    return words, X, numpy_attention.multi_head_attention(X, projections, 3)


def test_every_head_of_the_example_does_what_its_name_says():
    words, X, stages = example_weights()
    assert words == "Ada with friends paints herself".split()
    assert X.shape == (5, 12) and stages.weights.shape == (3, 5, 5)
    agreement, reference, before = stages.weights
    found = {(0, 0, 3): agreement, (0, 3, 0): agreement, (1, 4, 0): reference,
             **{(2, i, max(i - 1, 0)): before for i in range(5)}}
    for (_, i, j), weights in found.items():
        assert weights[i, j] == pytest.approx(np.exp(4) / (np.exp(4) + 4), abs=1e-12)
    matched = {(a, i) for a, i, _ in found}
    for a, i in set(np.ndindex(3, 5)) - matched:
        np.testing.assert_allclose(stages.weights[a, i], 0.2, atol=1e-12)


def test_them_instead_of_herself_changes_one_row_of_weights_and_one_output():
    _, _, one = example_weights()
    _, _, other = example_weights("Ada with friends paints them")
    rows = np.argwhere((np.abs(one.weights - other.weights) > 1e-9).any(axis=-1))
    assert rows.tolist() == [[1, 4]] and other.weights[1, 4, 2] == pytest.approx(0.9317, abs=1e-4)
    assert np.flatnonzero((np.abs(one.output - other.output) > 1e-9).any(axis=-1)).tolist() == [4]


def test_without_positions_the_word_before_cannot_be_found():
    _, X, stages = example_weights(positions=False)
    assert not X[:, 7:].any()
    np.testing.assert_allclose(stages.weights[2], 0.2, atol=1e-12)


def test_the_examples_heads_have_the_ranks_that_the_course_names():
    _, _, projections = running_example()
    for a, rank in enumerate((4, 2, 4)):
        columns = slice(4 * a, 4 * a + 4)
        assert np.linalg.matrix_rank(projections.W_Q[:, columns] @ projections.W_K[:, columns].T) == rank


def test_the_example_is_written_in_round_numbers_and_writes_nothing_about_positions():
    _, _, stages = example_weights()
    _, X, projections = running_example()
    for W, entries in ((X, {0, 1}), (projections.W_Q, {0, 8}), (projections.W_K, {0, 1}), (projections.W_V, {0, 1}),
                       (projections.W_O, {0, 0.5, 1})):
        assert set(np.unique(W)) == entries
    assert stages.concat[:, 7:].any() and not stages.output[:, 7:].any()


@pytest.mark.parametrize("sentence", ["Ada sleeps", "", "Ada with friends paints herself Ada"])
def test_the_example_knows_its_words_and_no_others(sentence):
    with pytest.raises(ValueError, match="one to five of the words Ada, friends, paints"):
        running_example(sentence)
