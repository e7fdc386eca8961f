"""What a wrong result shows by itself, without a list of wrong functions: its shape, its sums, its factors.

A diagnosis looks at a Trial and returns False or None, True, or the values for the braces of its message. Diagnoses
stand in dicts, id -> diagnosis, and are asked in order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mha_lib.numpy_attention import softmax

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2}      # relative, by what came back


class Seen(NamedTuple):
    """The inside of an attention: what Q K^T was, and what the answer made of it."""

    raw: np.ndarray             # (..., n, m) Q K^T, unscaled
    scores: Any = None          # (..., n, m) where the answer returns them
    weights: Any = None         # (..., n, m) returned, or worked back from the output; None where that is impossible
    divisor: Any = None         # where the answer is the scale itself
    reshaped: Any = None        # (..., n, m) what Q K^T becomes when a reshape turns the keys


class Trial(NamedTuple):
    """One call of the answer, beside what was right."""

    args: dict                  # name -> argument, NumPy
    sizes: dict                 # axis -> length
    got: dict                   # part -> array
    want: dict | None           # part -> array, or None where an error was right
    returns: dict               # part -> axes, "n, m"
    ask: Callable               # args -> parts, or None where the answer fails
    due: Callable               # args -> the right parts
    seen: Seen | None
    large: bool                 # scores far from 0, where exp overflows

    @property
    def result(self):
        """The first part, or the only one."""
        return next(iter(self.got.values()))


def same(got, want):
    """Equal up to rounding, infinities and all; NaN equals NaN, for wrong answers that fail in the same places."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return False
    size = np.abs(want[np.isfinite(want)]).max(initial=1) if want.dtype.kind == "f" else 1
    return np.allclose(got, want, rtol=0, atol=TOLERANCE.get(str(got.dtype), 1e-9) * size, equal_nan=True)


def right(got, want):
    """Every part is what was asked; a mask of True and False is not one of 1 and 0, nor a width a float."""
    return all(same(got[part], x) and (got[part].dtype == bool) == (x.dtype == bool)
               and (got[part].dtype.kind != "f" or x.dtype.kind == "f") for part, x in want.items())


def earliest_first(parts):
    """The names of the parts in the order in which they are made: weights before the output."""
    return sorted(parts, key=lambda part: part != "weights")


# ------------------------------------------------------------------ shapes, axis by axis

def name_axes(shape, sizes, asked=()):
    """(7, 5) -> "(m, n)": lengths by the names they have here, products of two included; those of `asked` first."""
    names = {length * other: f"{a}*{b}" for a, length in sizes.items() for b, other in sizes.items()}
    names |= {1: "1"} | {length: name for name, length in reversed(sizes.items())} | dict(asked)
    return "(" + ", ".join(names.get(length, str(length)) for length in shape) + ")"


def _shape_is(fits):
    def diagnosis(trial):
        for part, axes in trial.returns.items():
            got, want = trial.got[part].shape, trial.want[part].shape
            if got != want:     # the first wrong part decides
                asked = [pair for pair in zip(want, axes.split(", "), strict=True) if not pair[1].isdigit()]
                reads = name_axes(got, trial.sizes, asked)
                return fits(got, want) and dict(part=part, got=got, want=want, axes=axes, reads=reads)
    return diagnosis


SHAPES = {
    "swapped-axes": _shape_is(lambda got, want: sorted(got) == sorted(want)),
    "missing-axis": _shape_is(lambda got, want: len(got) < len(want)),
    "extra-axis": _shape_is(lambda got, want: len(got) > len(want)),
    "wrong-length": _shape_is(lambda got, want: len(got) == len(want) and sorted(got) != sorted(want)),
}


def not_one_number(trial):
    return trial.result.ndim > 0 and {"got": trial.result.shape}


def parts_swapped(trial):
    """The right arrays, in another order."""
    found = [next((b for b in trial.want if same(trial.got[a], trial.want[b])), None) for a in trial.want]
    if None not in found and len(set(found)) == len(found) and found != list(trial.want):
        return {"found": ", ".join(found), "parts": ", ".join(trial.want)}


def not_boolean(trial):
    return trial.result.dtype != bool and {"dtype": trial.result.dtype}


# ------------------------------------------------------------------ numbers that say nothing, or should not be there

def constant(trial):
    for part, x in trial.got.items():
        if x.size > 1 and np.isfinite(x).all() and np.ptp(x.astype(float)) == 0:
            return {"part": part}


def identity(trial):
    for name, x in trial.args.items():
        if isinstance(x, np.ndarray) and same(trial.result, x):
            return {"name": name}


def not_a_number(trial):
    for part, x in trial.got.items():
        if np.isnan(x).any():
            rows = sorted(set(np.nonzero(np.isnan(x).any(axis=-1))[-1].tolist())) if x.ndim > 1 else []
            return {"part": part, "where": "rows " + ", ".join(map(str, rows)) if rows else "entries"}


def overflow(trial):
    return trial.large and not all(np.isfinite(x).all() for x in trial.got.values())


def flattened(trial):
    return trial.large and all(np.isfinite(x).all() for x in trial.got.values())


def cut_to_integers(trial):
    """Whole numbers, each next to the right one."""
    for part, want in trial.want.items():
        got = trial.got[part]
        if (got == np.round(got)).all() and (np.abs(got - want) <= 1).all() and not same(got, want):
            return {"part": part}


def rounded(trial):
    """All entries nearly right, in the first stage that differs."""
    for part in earliest_first(trial.want):
        off = np.abs(trial.got[part] - trial.want[part]).max()
        if not same(trial.got[part], trial.want[part]):
            return off < 0.01 and {"part": part, "off": off}


def off_by_a_factor(trial):
    """The first stage that differs is the right one times a number, or plus one."""
    for part in earliest_first(trial.want):
        got, want = trial.got[part], trial.want[part]
        if not same(got, want):
            factor = (got * want).sum() / (want * want).sum()
            if want.size > 1 and abs(factor) > 1e-9 and same(got, factor * want):
                return {"part": part, "how": f"times {factor:.4g}{reading(factor, trial.sizes)}"}
            off = (got - want).mean()
            return same(got, want + off) and {"part": part, "how": f"plus {off:.4g}"}


# ------------------------------------------------------------------ what moves what

def _moved(trial, name):
    """(part, moved, should move) for every part, when the argument `name` changes a little."""
    x = trial.args[name]
    args = trial.args | {name: x + 0.1 * np.cos(np.arange(x.size)).reshape(x.shape)}
    mine, due = trial.ask(args), trial.due(args)
    return [(part, not same(mine[part], trial.got[part]), not same(due[part], trial.want[part])) for part in due]


def _by_moving(fits):
    def diagnosis(trial):
        found = [(part, name) for name, x in trial.args.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f"
                 for part, moves, should in _moved(trial, name) if fits(moves, should)]
        if found:
            first = found[0][0]
            return {"part": first, "name": ", ".join(name for part, name in found if part == first)}
    return diagnosis


IGNORES = {"ignores": _by_moving(lambda moves, should: should and not moves)}
LISTENS = {"listens": _by_moving(lambda moves, should: moves and not should)}


NUMBERS = {"nan": not_a_number, "cut-to-integers": cut_to_integers, "constant": constant}


# ------------------------------------------------------------------ the scale

def divisor(seen):
    """The one number that Q K^T was divided by, read from scores or weights; None where no one number fits."""
    if seen.divisor is not None:
        return None if np.isnan(seen.divisor) else seen.divisor
    mine = seen.weights if seen.scores is None else seen.scores
    if mine is None or np.isnan(mine).any():
        return None
    if seen.scores is None:
        if (mine < -1e-9).any() or not sum_to_one(mine):
            return None
        mine = np.log(np.where(mine < 1e-6, 0, mine))   # smaller shares are too uncertain to read a score from
    used = np.isfinite(mine)
    mine, raw = np.where(used, mine, 0), np.where(used, seen.raw, 0)
    if seen.scores is None:     # softmax forgets what is added to a whole row, so compare without the rows' means
        count = np.maximum(used.sum(axis=-1, keepdims=True), 1)
        mine, raw = ((x - x.sum(axis=-1, keepdims=True) / count) * used for x in (mine, raw))
    factor = (mine * raw).sum() / (raw * raw).sum()
    return 1 / factor if abs(factor) > 1e-6 and np.allclose(mine, factor * raw, rtol=0, atol=1e-6) else None


def _divided_by(value):
    def diagnosis(trial):
        found = divisor(trial.seen) if trial.seen else None
        return found is not None and np.isclose(found, value(**trial.sizes), rtol=1e-6)
    return diagnosis


def _precedence(trial):
    """d_k ** 1 / 2, with and without brackets around it."""
    found, d_k = divisor(trial.seen) if trial.seen else None, trial.sizes["d_k"]
    for how, value in (("divided by d_k / 2", d_k / 2), ("divided by 2 d_k", 2 * d_k),
                       ("multiplied by d_k / 2", 2 / d_k)):
        if found is not None and np.isclose(found, value, rtol=1e-6):
            return {"how": how}


COINCIDENCES = {                # numbers that a wrong scale may come from
    "sqrt(d_k)": lambda d_k, **_: d_k ** 0.5,
    "d_k": lambda d_k, **_: d_k,
    "sqrt(n)": lambda n, **_: n ** 0.5,
    "sqrt(m)": lambda m, **_: m ** 0.5,
    "sqrt(h)": lambda h, **_: h ** 0.5,
    "n": lambda n, **_: n,
    "m": lambda m, **_: m,
    "h": lambda h, **_: h,
    "d": lambda d, **_: d,
    "sqrt(d)": lambda d, **_: d ** 0.5,
    "sqrt(d_v)": lambda d_v, **_: d_v ** 0.5,
    "half of d": lambda d, **_: d / 2,
    "half of d_k": lambda d_k, **_: d_k / 2,
    "d h": lambda d, h, **_: d * h,
    "sqrt(d h)": lambda d, h, **_: (d * h) ** 0.5,
    "d / sqrt(h)": lambda d, h, **_: d / h ** 0.5,
    "the logarithm of d_k": lambda d_k, **_: np.log(d_k),
    "sqrt(2 d_k)": lambda d_k, **_: (2 * d_k) ** 0.5,
    "d_k squared": lambda d_k, **_: d_k ** 2,
    "the fourth root of d_k": lambda d_k, **_: d_k ** 0.25,
    "the whole part of sqrt(d_k)": lambda d_k, **_: int(d_k ** 0.5) if d_k ** 0.5 % 1 else np.nan,
}


def reading(number, sizes):
    """", which is sqrt(n) here", where the number is one that these sizes give, or one over it; else nothing."""
    found = []
    for name, value in COINCIDENCES.items():
        try:
            known = value(**sizes)
        except TypeError:       # this exercise has no such size
            continue
        found += [words for words, x in ((name, known), (f"1 / {name}", 1 / known)) if np.isclose(number, x, rtol=1e-6)]
    return f", which is {' or '.join(found[:2])} here" if found and number != 1 else ""


def how_scaled(found, sizes):
    """A divisor in words: "divided by 2.236, which is sqrt(n) here", or "multiplied by" where it is below 1."""
    how, number = ("divided", found) if abs(found) >= 1 else ("multiplied", 1 / found)
    return f"{how} by {number:.4g}{reading(number, sizes)}"


def _minus(trial):
    found = divisor(trial.seen) if trial.seen else None
    return found is not None and found < 0 and {"how": how_scaled(found, trial.sizes)}


def _wrong_scale(trial):
    found, d_k = divisor(trial.seen) if trial.seen else None, trial.sizes["d_k"]
    if found is None or np.isclose(found, d_k ** 0.5, rtol=1e-6):
        return False
    return {"how": how_scaled(found, trial.sizes), "d_k": d_k}


SCALE = {
    "no-scale": _divided_by(lambda **_: 1),
    "divided-by-d_k": _divided_by(lambda d_k, **_: d_k),
    "divided-by-sqrt-d": _divided_by(lambda d=0, **_: d ** 0.5),
    "upside-down": _divided_by(lambda d_k, **_: d_k ** -0.5),
    "precedence": _precedence,
    "minus": _minus,
    "wrong-scale": _wrong_scale,
}


def _keys_reshaped(trial):
    """Scores or weights that no scale of Q K^T explains, but one of Q with reshaped keys."""
    seen = trial.seen
    return seen and divisor(seen) is None and divisor(seen._replace(raw=seen.reshaped)) is not None


RESHAPED = {"reshaped": _keys_reshaped}


# ------------------------------------------------------------------ weights (..., n, m): sums

def on_weights(test):
    """A diagnosis from a test of (weights, trial), where weights are to be seen."""
    def diagnosis(trial):
        weights = trial.seen.weights if trial.seen else None
        return weights is not None and test(weights, trial)
    return diagnosis


def sum_to_one(weights, axis=-1):
    sums = weights.sum(axis=axis)
    return np.isfinite(sums).any() and np.allclose(sums[np.isfinite(sums)], 1, atol=1e-6)


def _only_over(axis):
    return on_weights(lambda w, trial: not trial.large and w.shape[-1] > 1 and not sum_to_one(w)
                      and sum_to_one(w, axis))


def above(weights, k=1):
    """The weights of keys that come k or more after the query."""
    return np.nan_to_num(weights[..., np.triu(np.ones(weights.shape[-2:], bool), k)])


def proportional(w, trial):
    """Are the weights the scores, but for a factor?"""
    factor = (w * trial.seen.raw).sum() / (trial.seen.raw ** 2).sum()
    return abs(factor) > 1e-6 and np.allclose(w, factor * trial.seen.raw, atol=1e-6)


def _hard(w, trial):
    return not trial.large and w.shape[-1] > 1 and sum_to_one(w) and np.isclose(w, w.round(), atol=1e-9).all()


def _keys_ask(w, trial):
    turned = trial.seen._replace(raw=trial.seen.raw.swapaxes(-1, -2), weights=w)
    square = w.shape[-1] == w.shape[-2] > 1
    return square and divisor(trial.seen) is None and divisor(turned) is not None


def _future_empty(w, trial):
    return np.isfinite(w).all() and w.shape[-1] > 1 and sum_to_one(w) and np.allclose(above(w), 0)


def _twice(w, trial):
    return any(np.allclose(w, softmax(softmax(trial.seen.raw * scale)), atol=1e-9)
               for scale in (1, trial.sizes.get("d_k", 1) ** -0.5))


def _sums_lie_along_columns(w, trial):
    """Square scores, where the sums of the rows (and perhaps their maxima) met the columns."""
    def shares(s):
        return np.exp(s) / np.exp(s).sum(axis=-1)

    s = trial.seen.raw * trial.sizes.get("d_k", 1) ** -0.5
    tops = (0, s.max(axis=-1, keepdims=True), s.max(axis=-1))
    return not trial.large and w.shape[-1] == w.shape[-2] > 1 and any(np.allclose(w, shares(s - t)) for t in tops)


def lost_rows(trial):
    """Which rows have no share left, or NaN, although they have keys to see; large scores only."""
    rows = trial.result.sum(axis=-1) if trial.seen.weights is None else trial.seen.weights.sum(axis=-1)
    return trial.large & ~(rows > 0.5) & np.isfinite(trial.seen.raw).any(axis=-1)


@on_weights
def nan_replaced(w, trial):
    """Large scores overflowed, and yet nothing is NaN."""
    return np.isfinite(w).all() and lost_rows(trial).any()


def _same_in_all_heads(w, trial):
    return not trial.large and sum_to_one(w) and w.shape[-3] > 1 and np.allclose(w, w[..., :1, :, :], atol=1e-9)


def _one_row_sum(w, trial):
    total = w.sum(axis=-1).flat[0]
    fits = np.isfinite(w).all() and np.ptp(w) > 0 and w.shape[-2] > 1 and np.allclose(w.sum(axis=-1), total)
    wrong = abs(total) > 1e-6 and not np.isclose(total, 1, atol=1e-6)
    return fits and wrong and {"total": total, "equals": reading(total, trial.sizes)}


def _row_sums(w, trial):
    sums = w.sum(axis=-1)
    wrong = np.argwhere(~np.isclose(sums, 1, atol=1e-6))
    return np.isfinite(w).all() and len(wrong) > 0 and {"i": wrong[0][-1], "total": sums[tuple(wrong[0])]}


ROWS = {
    "softmax-over-queries": _only_over(-2),
    "softmax-over-everything": _only_over((-1, -2)),
    "no-softmax": on_weights(proportional),
    "no-exp": on_weights(lambda w, trial: sum_to_one(w) and (w < -1e-9).any()),
    "hard-max": on_weights(_hard),
    "uniform": on_weights(lambda w, trial: w.shape[-1] > 1 and np.allclose(w, 1 / w.shape[-1], atol=1e-6)),
    "queries-keys-swapped": on_weights(_keys_ask),
    "causal-unasked": on_weights(_future_empty),
    "softmax-twice": on_weights(_twice),
    "no-keepdims": on_weights(_sums_lie_along_columns),
}
HEADS = {"softmax-over-heads": _only_over(-3), "heads-averaged": on_weights(_same_in_all_heads)}
FACTOR = {"off-by-a-factor": off_by_a_factor}
NEARLY = {"rounded": rounded}
ROW_SUMS = {"row-sums": on_weights(_row_sums)}
ROWS_SCALED = {"rows-scaled": on_weights(_one_row_sum)}


# ------------------------------------------------------------------ weights under a causal mask

def _parts(w):
    """The weights of the past, of the word itself, and of the future, NaN counted as nothing."""
    past = np.nan_to_num(w[..., np.tril(np.ones(w.shape[-2:], bool), -1)])
    return past, np.nan_to_num(np.diagonal(w, 0, -2, -1)), above(w)


def _no_self(w, trial):
    """Seen from row 1 on: with all its keys blocked, row 0 holds whatever softmax makes of what blocks them."""
    first, rest = np.nan_to_num(w[..., 0, :]), np.nan_to_num(w[..., 1:, :])
    if not np.allclose(np.triu(rest, 1), 0) or not rest.any():
        return False
    if first[..., 1:].any():
        return {"row": " Row 0 then has every key blocked by the same number, so softmax spreads over the future."}
    return {"row": "" if first.any() else
            " Row 0 then has nothing left to see, and the softmax of an empty row is 0 / 0."}


def _no_past(w, trial):
    past, _, future = _parts(w)
    return np.allclose(past, 0) and future.any()


def _one_ahead(w, trial):
    return np.allclose(above(w, 2), 0) and (np.nan_to_num(np.diagonal(w, 1, -2, -1)) > 0).all()


def _after_softmax(w, trial):
    spent = not trial.large and np.allclose(above(w), 0) and not sum_to_one(w) and not sum_to_one(w, -2)
    return spent and (w.sum(axis=-1) < 1 + 1e-9).all() or (above(w) < -1e-9).any()


MASKED = {
    "diagonal-blocked": on_weights(_no_self),
    "past-blocked": on_weights(_no_past),
    "one-future-token": on_weights(_one_ahead),
    "zero-times-inf": on_weights(lambda w, trial: not trial.large and np.isnan(w).any(axis=-1).all()),
    "masked-after-softmax": on_weights(_after_softmax),
    "no-mask": on_weights(lambda w, trial: (above(w) > 0).all() and divisor(trial.seen) is not None),
}
