"""The small decoder: shapes, no leak from the future, learning, and the same numbers for the same seed."""

from functools import partial

import numpy as np
import pytest
import torch

from mha_lib import decoder, runtime
from mha_lib.decoder import Decoder, copy_task, position_losses, train
from mha_lib.projections import running_example

SMALL = dict(tokens=11, n=7, d=24, h=3, blocks=2)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(runtime, "progress", lambda *_: None)


@pytest.fixture
def tokens():
    return torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(3))


def moved_positions(model, tokens, place):
    """Which positions of the output change when the token at `place` does."""
    other = tokens.clone()
    other[:, place] = (other[:, place] + 1) % 11
    with torch.no_grad():
        return (model(tokens) != model(other)).any(dim=-1)              # (batch, n)


@pytest.mark.parametrize("parts", [{}, {"mlp": False}, {"norm": False}, {"causal": False}, {"scale": 1.0}])
def test_shapes(parts, tokens):
    model = Decoder(**SMALL, **parts)
    assert model(tokens).shape == (5, 7, 11)
    assert model(tokens[:, :4]).shape == (5, 4, 11)
    assert [stage.weights.shape for stage in model.look(tokens)] == [(5, 3, 7, 7)] * 2
    assert position_losses(model, tokens).shape == (5, 6)


@pytest.mark.parametrize("scale", [None, 1.0])
def test_a_causal_decoder_sees_no_future(scale, tokens):
    moved = moved_positions(Decoder(**SMALL, scale=scale), tokens, place=4)
    assert not moved[:, :4].any() and moved[:, 4:].all()


def test_without_the_mask_it_sees_the_future(tokens):
    assert moved_positions(Decoder(**SMALL, causal=False), tokens, place=4).all()


def test_a_scale_of_its_own_is_used(tokens):
    fast, same, unscaled = (Decoder(**SMALL, scale=scale)(tokens) for scale in (None, 8 ** -0.5, 1.0))
    assert torch.allclose(fast, same, atol=1e-5) and not torch.allclose(fast, unscaled, atol=1e-2)


def test_gain_is_the_spread_that_W_Q_W_K_and_W_V_start_with():
    for gain in (1.0, 0.5):
        part = Decoder(**SMALL | {"d": 96}, gain=gain).blocks[0].attention
        assert part.W_QKV.std().item() == pytest.approx(gain * 96 ** -0.5, rel=0.05)
        assert part.W_O.std().item() == pytest.approx(96 ** -0.5, rel=0.05)


def test_look_shows_the_weights_that_the_output_came_from(tokens):
    model = Decoder(**SMALL, mlp=False, scale=1.0)
    with torch.no_grad():
        X = model.embed(tokens)
        for stage in model.look(tokens):
            X = X + stage.output
        assert torch.allclose(model.read_out(model.norm(X)), model(tokens), atol=1e-6)


def test_losses_are_minus_log_of_the_probability_of_the_next_token(tokens):
    model = Decoder(**SMALL)
    with torch.no_grad():
        odds = torch.softmax(model(tokens[:, :-1]).double(), dim=-1)
        losses = position_losses(model, tokens)
    for row, place in ((0, 0), (4, 5)):
        right = odds[row, place, tokens[row, place + 1]]
        assert losses[row, place].item() == pytest.approx(-right.log().item(), abs=1e-5)


def test_copy_task_repeats_and_counts_the_repeat_alone():
    batch, counts = copy_task(torch.Generator().manual_seed(0), tokens=12, batch=40)
    assert batch.shape == (40, 12) and counts.shape == (40, 11)
    cuts = [12 - int(row.sum()) for row in counts]
    assert min(cuts) >= 6 and max(cuts) <= 9 and len(set(cuts)) > 1
    for row, marked, cut in zip(batch.tolist(), counts.tolist(), cuts, strict=True):
        assert len(set(row[:cut])) == cut and row[cut:] == row[:12 - cut]
        assert marked == [place >= cut for place in range(1, 12)]


def test_two_blocks_learn_to_copy():
    model = Decoder(tokens=8, n=8, d=64, h=2, blocks=2, mlp=False)
    losses = train(model, partial(copy_task, tokens=8), 120)
    assert np.mean(losses[:5]) > 1.7 and np.mean(losses[-10:]) < 0.5    # guessing costs ln 8 = 2.08


def test_the_loss_counts_only_where_it_should():
    def only_the_first(generator):
        batch, counts = copy_task(generator, tokens=8)
        return batch, torch.arange(7).expand(counts.shape) == 0

    model = Decoder(tokens=8, n=8, d=16, h=1, blocks=1)
    train(model, only_the_first, 3)
    assert model.places.grad[0].any() and not model.places.grad[1:].any()


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def run(seed):
        return train(Decoder(tokens=8, n=8, d=16, h=2, blocks=1, seed=seed), partial(copy_task, tokens=8), 4, seed=seed)

    assert run(0) == run(0) != run(1)


def test_the_training_text_is_plain_and_not_boilerplate():
    text = decoder.training_text()
    assert 50_000 <= len(text) <= 60_000 and len(set(text)) < 64 and text.isascii()
    lines = [line for line in text.split("\n") if line]
    assert len(set(lines)) == len(lines)
    windows = {text[i:i + 20] for i in range(len(text) - 20)}
    assert len(windows) > 0.98 * len(text)


def test_text_windows_are_stretches_of_the_text():
    text = decoder.training_text()[:300]
    alphabet = sorted(set(text))
    batch, counts = decoder.text_windows(decoder.encode(text, alphabet), n=20)(torch.Generator().manual_seed(0))
    assert batch.shape == (32, 21) and counts is None
    assert all("".join(alphabet[i] for i in row) in text for row in batch.tolist())


def test_generation_continues_the_prompt_and_repeats_for_a_seed(tokens):
    model = Decoder(**SMALL)
    first, again, other = (decoder.generate(model, tokens[0], 30, seed=seed) for seed in (0, 0, 1))
    assert first.shape == (37,) and torch.equal(first[:7], tokens[0])
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("seed", [0, 1])
def test_one_head_finds_the_word_before(seed):
    W_Q, W_K, W_V, W_O, losses = decoder.learn_one_head(seed)
    _, X, _ = running_example()
    scores = X @ W_Q @ (X @ W_K).T / 2                  # (n, n)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    assert np.diagonal(weights, -1).min() > 0.9 and losses[-1] < 0.1
    assert (W_V.shape, W_O.shape) == ((12, 4), (4, 7))
