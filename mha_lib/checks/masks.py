"""Known wrong masks, and what a mask shows by itself: what it holds, and which entries it blocks (06)."""

import numpy as np

from mha_lib.checks.heads import as_by_T
from mha_lib.checks.known import mixing
from mha_lib.checks.structure import above, sum_to_one
from mha_lib.numpy_attention import attention, attention_scores, causal_mask, softmax


def _masked(change):
    """Causal attention whose scores pass through change(scores, visible) instead of the mask."""
    def wrong(Q, K, V):
        scores = attention_scores(Q, K)
        weights = softmax(change(scores, np.tril(np.ones(scores.shape[-2:]))))
        return weights @ V, weights
    return wrong


MASKED = {
    "blocked-at-zero": [_masked(lambda scores, visible: scores * visible),
                        _masked(lambda scores, visible: np.where(visible, scores, 1e-9)),
                        _masked(lambda scores, visible: np.where(visible, scores, -1e-9))],
    "mask-multiplied": [_masked(lambda scores, visible: scores * causal_mask(scores.shape[-1]))],
    "plus-infinity": [_masked(lambda scores, visible: scores - causal_mask(scores.shape[-1]))],
    "ones-added": [_masked(lambda scores, visible: scores + visible),
                   _masked(lambda scores, visible: scores - visible)],
    "keys-as-values": [mixing(lambda w, Q, K, V: w @ K, causal_mask)],
    "values-as-keys": [lambda Q, K, V: attention(Q, V, V, causal_mask(Q.shape[-2]))],
    "other-weights": [mixing(lambda w, Q, K, V: attention(Q, K, V)[0], causal_mask)],
    "summed-over-queries": [mixing(lambda w, Q, K, V: w.swapaxes(-1, -2) @ V, causal_mask)],
    "all-axes-turned": [lambda Q, K, V: attention(Q, as_by_T(K), V, causal_mask(Q.shape[-2]))],
}


def leaks_on_low_scores(trial):
    return trial.large and (above(trial.got["weights"]) > 1e-9).any()


def future_leaks(trial):
    share = above(trial.got["weights"]).max()
    return sum_to_one(trial.got["weights"]) and share > 1e-12 and {"share": share}


def _values(test):
    return lambda trial: test(trial.result)


CODING = {      # what stands in a mask that is added to the scores
    "boolean-mask": _values(lambda mask: mask.dtype == bool),
    "ones-and-zeros": _values(lambda mask: mask.any() and np.isin(mask, (-1, 0, 1)).all()),
    "zero-times-inf": _values(lambda mask: np.isnan(mask).any()),
    "plus-infinity": _values(lambda mask: np.isposinf(mask).any()),
    "tiny-mask": _values(lambda mask: 0 < np.abs(mask).max() < 1e-3),
    "finite-mask": _values(lambda mask: np.isfinite(mask).all() and mask.min() < -1),
}


def _blocks_where(*patterns):
    """A diagnosis from which entries are -inf: one of patterns(all True, m - n)."""
    def diagnosis(trial):
        n, m = trial.result.shape
        ones = np.ones((n, m), bool)
        return any(np.array_equal(np.isneginf(trial.result), blocked(ones, m - n)) for blocked in patterns)
    return diagnosis


PATTERN = {
    "everything-blocked": _blocks_where(lambda ones, past: ones),
    "no-mask": _blocks_where(lambda ones, past: ~ones),
    "diagonal-blocked": _blocks_where(lambda ones, past: np.triu(ones, past)),
    "one-future-token": _blocks_where(lambda ones, past: np.triu(ones, past + 2)),
    "past-blocked": _blocks_where(lambda ones, past: np.tril(ones, past - 1), lambda ones, past: np.tril(ones, past)),
}


def _entry(wrong):
    """A diagnosis: the first entry where wrong(mine blocks, the right one blocks) holds."""
    def diagnosis(trial):
        found = np.argwhere(wrong(np.isneginf(trial.result), np.isneginf(trial.want["mask"])))
        return len(found) > 0 and dict(zip("ij", found[0].tolist(), strict=True))
    return diagnosis


def adds_to_visible(trial):
    """Blocked where it should be, but what is added elsewhere is not 0."""
    seen = trial.result[np.isfinite(trial.result)]
    right = np.array_equal(np.isneginf(trial.result), np.isneginf(trial.want["mask"]))
    return right and seen.any() and {"value": seen[seen != 0][0]}


ENTRIES = {
    "adds-to-visible": adds_to_visible,
    "entry-open": _entry(lambda mine, right: right & ~mine),
    "entry-blocked": _entry(lambda mine, right: mine & ~right),
}
TOP_LEFT = {"top-left-aligned": _blocks_where(lambda ones, past: np.triu(ones, 1))}


def causal(n):
    return np.tril(np.ones((n, n), bool))


def visible_keys(real):
    """(B, n) -> (B, 1, n, n): padding hidden as keys, for every query."""
    return np.repeat(real[:, None, None, :], real.shape[1], axis=2)


COMBINE = {
    "inverted": [lambda real: ~(causal(real.shape[1]) & visible_keys(real))],
    "or-for-and": [lambda real: causal(real.shape[1]) | visible_keys(real)],
    "padding-lost": [lambda real: causal(real.shape[1]) | (visible_keys(real) & False)],
    "padding-on-queries": [lambda real: causal(real.shape[1]) & visible_keys(real).swapaxes(2, 3)],
    "padding-on-both": [lambda real: causal(real.shape[1]) & visible_keys(real) & visible_keys(real).swapaxes(2, 3)],
    "padding-shown": [lambda real: causal(real.shape[1]) & ~visible_keys(real)],
    "past-blocked": [lambda real: causal(real.shape[1]).T & visible_keys(real),
                     lambda real: ~causal(real.shape[1]) & visible_keys(real)],
    "diagonal-blocked": [lambda real: np.tril(causal(real.shape[1]), -1) & visible_keys(real)],
}


ONLY_PADDING = {"causal-lost": [visible_keys, lambda real: real[:, None, None, :]]}


def no_head_axis(trial):
    B, n = trial.args["real"].shape
    return trial.result.shape == (B, n, n)


TO_SDPA = {"inverted": [lambda mask: mask != 0], "all-true": [lambda mask: np.ones(mask.shape, bool)],
           "mask-turned": [lambda mask: mask.T == 0],
           "diagonal-blocked": [lambda mask: np.tril(causal(len(mask)), -1)],
           "one-future-token": [lambda mask: np.tril(np.ones(mask.shape, bool), 1)]}

TO_MHA = {
    "inverted": [lambda visible, h: np.repeat(visible, h, axis=0)],
    "heads-first": [lambda visible, h: np.concatenate([~visible] * h)],
    "inverted-and-heads-first": [lambda visible, h: np.concatenate([visible] * h)],
    "mask-turned": [lambda visible, h: ~np.repeat(visible.swapaxes(1, 2), h, axis=0)],
}


def _empty_rows(test):
    def diagnosis(trial):
        empty = np.isneginf(trial.args["scores"]).all(axis=-1)
        return test(trial.result[empty], trial.result[~empty])
    return diagnosis


EMPTY = {
    "empty-row-nan": _empty_rows(lambda empty, rest: np.isnan(empty).all()),
    "empty-row-uniform": _empty_rows(lambda empty, rest: np.allclose(empty, 1 / empty.shape[-1])),
    "all-rows-zero": _empty_rows(lambda empty, rest: not rest.any(axis=-1).all()),
}
