"""What a wrong result shows by itself, without a list of wrong functions: its type, its shape, its sums, its factors.

A diagnosis is a function that returns a message or None. They stand in dicts, id -> diagnosis, and are asked in order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}     # relative, by the dtype that came back


class Trial(NamedTuple):
    """One call of the answer, beside what was right."""

    args: dict                  # name -> argument, NumPy
    sizes: dict                 # axis -> length
    got: dict                   # part -> array
    want: dict | None           # part -> array, or None where an error was right
    returns: dict               # part -> axes, "n, m"
    ask: Callable               # args -> parts, or None where the answer fails
    seen: Any = None            # Seen, where there are scores or weights to look at
    spread: float = 1           # how many times larger than usual the numbers are


class Seen(NamedTuple):
    """The inside of an attention: what Q K^T was, and what became of it."""

    raw: np.ndarray             # (..., n, m) Q K^T, unscaled
    scores: Any = None          # (..., n, m) the answer's, where they are what it returns
    weights: Any = None         # (..., n, m) the answer's, returned or worked back from its output; None: not to be had
    divisor: Any = None         # where the answer is the scale itself


def same(got, want):
    """Equal up to rounding, infinities and all."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return False
    size = np.abs(want[np.isfinite(want)]).max(initial=0) if want.dtype != bool else 0
    return np.allclose(got, want, rtol=0, atol=TOLERANCE.get(str(got.dtype), 1e-9) * max(1, size))


def right(got, want):
    """Every part equals what was asked, masks of True and False included."""
    return all(same(got[part], want[part]) and (got[part].dtype == bool) == (want[part].dtype == bool) for part in want)


# ------------------------------------------------------------------ errors, in plain words

def _shapes(args):
    return ", ".join(f"{name} {x.shape}" for name, x in args.items() if isinstance(x, np.ndarray) and x.ndim)


def _error_says(*words):
    return lambda error: any(word in str(error).lower() for word in words)


CRASHES = {     # id: (does it fit the error?, what to say; {error}, {shapes}, {arguments} are filled in)
    "undefined-name": (lambda error: isinstance(error, NameError),
                       "It uses a name that has no value there: {error}. Look at the spelling, and give it a value first."),
    "arguments": (lambda error: isinstance(error, TypeError) and "argument" in str(error) and "()" in str(error),
                  "It cannot be called with the arguments {arguments}, in this order: {error}. Look at the first line, "
                  "or at a function you call inside."),
    "endless": (lambda error: isinstance(error, RecursionError),
                "It calls itself without end. Look for its own name inside it: another function may share the name."),
    "quits": (lambda error: isinstance(error, SystemExit), "It quits Python instead of returning. Leave out exit or quit."),
    "product-does-not-fit": (_error_says("matmul", "mat1 and mat2", "not aligned", "expected size for first two dimensions"),
                             "A matrix product stops, with {shapes}. The last axis of its left side must be as long as "
                             "the last but one of its right side. Write both shapes down, and see which axes should meet."),
    "does-not-broadcast": (_error_says("broadcast", "must match the size"),
                           "Two shapes do not meet in + - * or /, with {shapes}: {error}. A sum, mean or maximum along an "
                           "axis drops it; kept with length 1, it meets the array it came from."),
    "reshape-does-not-fit": (_error_says("cannot reshape", "invalid for input of size", "view size"),
                             "A reshape stops, with {shapes}: {error}. Multiply the lengths on both sides: they must "
                             "hold equally many numbers."),
    "raises": (lambda error: True, "It stops with {error}. The input was {shapes}. Call it on verdict.example.arguments, and "
                                   "look at the last line of the error that is yours."),
}


def say_error(error, args):
    """id, message for an exception that the answer raised."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    text = text if len(text) < 90 else text[:86] + " ..."
    for name, (fits, message) in CRASHES.items():
        if fits(error):
            return name, message.format(error=text, shapes=_shapes(args) or "plain numbers", arguments=", ".join(args))
    return "different", f"It stops with {text}."


# ------------------------------------------------------------------ what came back

def _kind(result):
    return type(result).__name__


def _lazy(result, returns, library):
    if hasattr(result, "__next__"):
        return f"It returns a {_kind(result)}, which makes its values only when asked. Return the numbers themselves."


def _too_few(result, returns, library):
    if len(returns) > 1 and not (hasattr(result, "__len__") and hasattr(result, "__getitem__") and len(result) == len(returns)):
        found = f"{len(result)} things" if isinstance(result, (tuple, list)) else f"one {_kind(result)}"
        return f"It returns {found}; asked are {len(returns)}, in this order: {', '.join(returns)}. Return all of them."


def _wrong_library(result, returns, library):
    parts = result if isinstance(result, (tuple, list)) else [result]
    if library == "torch" and any(axes for axes in returns.values()) and any(type(x) is np.ndarray for x in parts):
        return "It returns a NumPy array; the input was a torch tensor. Stay in torch from start to end, or gradients are lost."
    if library == "numpy" and any(hasattr(x, "detach") for x in parts):
        return 'It returns a torch tensor; the input was NumPy. Stay in NumPy, or check it with library="torch".'


def _no_array(result, returns, library):
    for x in result if len(returns) > 1 else [result]:
        try:
            if np.asarray(_plain(x)).dtype.kind not in "bfiu":
                return f"It returns {_kind(x)}, not numbers. Asked is: {', '.join(returns)}."
        except Exception:       # whatever a strange object does when it is asked for its numbers
            return f"It returns something that is no array: {_kind(x)}. All rows must be equally long and hold numbers."


TYPES = {"generator": _lazy, "parts-missing": _too_few, "wrong-library": _wrong_library, "no-array": _no_array}


def _plain(x):
    if isinstance(x, (list, tuple)) and any(hasattr(part, "detach") for part in x):
        return np.array([np.asarray(_plain(part)) for part in x])
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        return (x.double() if x.is_floating_point() else x).numpy()
    return x


def read(result, returns):
    """What the answer returned -> part -> NumPy array. Torch tensors become float64; their dtype is judged elsewhere."""
    return {part: np.asarray(_plain(x)) for part, x in zip(returns, result if len(returns) > 1 else [result], strict=True)}


# ------------------------------------------------------------------ shapes, axis by axis

def name_axes(shape, sizes):
    """(7, 5) -> "(m, n)": lengths by the names they have here, products of two names included."""
    names = {}
    for a, length in sizes.items():
        for b, other in sizes.items():
            names.setdefault(length * other, f"{a}*{b}")
    names |= {1: "1"} | {length: name for name, length in reversed(sizes.items())}
    return "(" + ", ".join(names.get(length, str(length)) for length in shape) + ("," if len(shape) == 1 else "") + ")"


def _shape_fault(trial):
    for part, axes in trial.returns.items():
        got, want = trial.got[part].shape, trial.want[part].shape
        if got == want:
            continue
        start = f"Your {part} has shape {got}, which reads {name_axes(got, trial.sizes)}; asked is ({axes}), here {want}. "
        if sorted(got) == sorted(want):
            return "swapped-axes", start + "The right axes in another order: see what each axis counts, and which one comes first."
        if len(got) < len(want):
            return "missing-axis", start + "An axis is missing: it was summed away, merged with another, or taken at one index."
        if len(got) > len(want):
            return "extra-axis", start + "There is an axis too many: it was kept, added or not merged."
        return "wrong-length", start + "An axis has the wrong length: see which product or slice sets it."
    return None


def _shape_is(kind):
    def diagnosis(trial):
        fault = _shape_fault(trial)
        return fault[1] if fault and fault[0] == kind else None
    return diagnosis


SHAPES = {kind: _shape_is(kind) for kind in ("swapped-axes", "missing-axis", "extra-axis", "wrong-length")}


def parts_swapped(trial):
    """The right arrays, in another order."""
    order = [next((b for b in trial.want if same(trial.got[a], trial.want[b])), None) for a in trial.want]
    if None not in order and len(set(order)) == len(order) and order != list(trial.want):
        return f"The arrays are right but come back as {', '.join(order)}; asked is {', '.join(trial.want)}. Look at the last line."


def not_boolean(trial):
    part, = trial.got.values()
    if part.dtype != bool:
        return (f"Your mask holds {part.dtype}; asked is True and False. Other libraries read 0 and 1, or -inf, as numbers to "
                "add to the scores, and ~ of an integer 1 is -2. Compare with == or < to get True and False.")


# ------------------------------------------------------------------ numbers that should not be there

def _rows_with_nan(x):
    rows = np.isnan(x).any(axis=-1)
    return sorted(set(np.nonzero(rows)[-1].tolist())) if rows.ndim else []


def not_a_number(trial):
    for part, x in trial.got.items():
        if np.isnan(x).any():
            rows = _rows_with_nan(x)
            where = f"in rows {', '.join(map(str, rows))} of" if rows else "in"
            return (f"There is NaN {where} your {part}. It comes from 0 / 0, inf / inf, inf - inf or 0 * inf: "
                    "look for the step that first makes one.")


def overflow(trial):
    if trial.spread > 1 and not all(np.isfinite(x).all() for x in trial.got.values()):
        return ("Right on small scores, NaN on large ones: exp(800) is inf, and inf / inf is NaN. Softmax only depends on "
                "differences within a row: what could you subtract from a whole row before exp?")


def cut_to_integers(trial):
    """Results that were written into an integer array."""
    for part, x in trial.got.items():
        want = trial.want[part]
        if want.dtype.kind == "f" and same(x, np.trunc(want)) and not same(want, np.trunc(want)):
            return (f"Your {part} is right up to the point and cut off behind it: the numbers were written into an array of "
                    "integers. Look at the dtype of the array you fill.")


# ------------------------------------------------------------------ scores: the factor

def divisor(seen):
    """The one number that Q K^T was divided by, read from scores or weights; None where no one number fits."""
    if seen.divisor is not None:
        return seen.divisor
    mine = seen.scores
    if mine is None:
        if seen.weights is None or not (np.nan_to_num(seen.weights) >= -1e-12).all():
            return None
        mine = np.log(np.where(seen.weights < 1e-12, 0, seen.weights))
    used = np.isfinite(mine)
    mine, raw = np.where(used, mine, 0), np.where(used, seen.raw, 0)
    if seen.scores is None:     # softmax forgets what is added to a whole row
        count = np.maximum(used.sum(axis=-1, keepdims=True), 1)
        mine, raw = ((x - x.sum(axis=-1, keepdims=True) / count) * used for x in (mine, raw))
    factor = (mine * raw).sum() / (raw * raw).sum()
    return 1 / factor if abs(factor) > 1e-6 and np.allclose(mine, factor * raw, rtol=0, atol=1e-6) else None


SCALES = {      # id: (what the scores were divided by, what to say)
    "no-scale": (lambda s: 1, "Your scores are Q K^T as it is, divided by nothing. Their spread grows with d_k, and softmax then "
                              "gives nearly all to one key. Which number brings the spread back to 1?"),
    "divided-by-d_k": (lambda s: s["d_k"], "Your scores are Q K^T divided by d_k. That is too much: the *variance* of a sum of "
                                           "d_k products is d_k, its spread is less. Softmax comes out too flat."),
    "divided-by-sqrt-d": (lambda s: s.get("d", 0) ** 0.5, "Your scores are divided by sqrt(d), the model width. But one head "
                          "sums over its own d_k columns only, so its spread does not know d. The weights come out too flat."),
    "upside-down": (lambda s: s["d_k"] ** -0.5, "Your scores are *multiplied* by sqrt(d_k), so they grow instead of shrinking and "
                    "softmax gives nearly all to one key. See whether a number that is already 1 / sqrt is divided by."),
    "half-of-d_k": (lambda s: s["d_k"] / 2, "Your scores are divided by d_k / 2, not by a root. Python works out ** before /, so "
                                            "a power of 1 / 2 without brackets is half of the first power."),
    "minus": (lambda s: -s["d_k"] ** 0.5, "Your scores have the right size and the wrong sign, so each query reads most from what "
                                          "fits least. Look for a minus."),
}
OTHERS = {"sqrt(n)": lambda s: s["n"] ** 0.5, "n": lambda s: s["n"], "sqrt(m)": lambda s: s["m"] ** 0.5, "m": lambda s: s["m"],
          "h": lambda s: s["h"], "sqrt(h)": lambda s: s["h"] ** 0.5, "d": lambda s: s["d"], "d_k squared": lambda s: s["d_k"] ** 2,
          "d / 2": lambda s: s["d"] / 2, "the integer part of sqrt(d_k)": lambda s: int(s["d_k"] ** 0.5),
          "the fourth root of d_k": lambda s: s["d_k"] ** 0.25}


def _scale_is(value, message):
    def diagnosis(trial):
        found = divisor(trial.seen) if trial.seen else None
        return message if found is not None and np.isclose(found, value(trial.sizes), rtol=1e-6) else None
    return diagnosis


def wrong_scale(trial):
    found = divisor(trial.seen) if trial.seen else None
    if found is None or np.isclose(found, trial.sizes["d_k"] ** 0.5, rtol=1e-6):
        return None
    names = [name for name, value in OTHERS.items() if _equals(value, trial.sizes, found)]
    equals = f", which is {names[0]} here" if names else ""
    return (f"Your scores are Q K^T divided by {found:.4g}{equals}. What sets their spread is the number of products in each "
            f"sum, d_k = {trial.sizes['d_k']}. Look at where your number comes from.")


def _equals(value, sizes, found):
    try:
        return np.isclose(value(sizes), found, rtol=1e-6)
    except KeyError:            # this exercise has no such size
        return False


SCALE = {name: _scale_is(*row) for name, row in SCALES.items()} | {"wrong-scale": wrong_scale}


# ------------------------------------------------------------------ weights: sums, diagonal

def on_weights(test, message):
    """A diagnosis from a test on the weights (..., n, m) that were seen."""
    def diagnosis(trial):
        weights = trial.seen.weights if trial.seen else None
        return message if weights is not None and test(weights, trial) else None
    return diagnosis


def sums_to_one(weights, axis):
    sums = weights.sum(axis=axis)
    return np.allclose(sums[np.isfinite(sums)], 1, atol=1e-6) and np.isfinite(sums).any()


def _only(axis):
    def test(weights, trial):
        enough = weights.ndim >= 3 or axis != -3
        return enough and not sums_to_one(weights, -1) and sums_to_one(weights, axis)
    return test


def _above(weights, k=1):
    """The weights of keys that come k or more after the query."""
    return weights[..., np.triu(np.ones(weights.shape[-2:], bool), k)]


def _linear_in_scores(weights, trial):
    raw = trial.seen.raw
    factor = (weights * raw).sum() / (raw * raw).sum()
    return np.allclose(weights, factor * raw, atol=1e-6)


def _hard(weights, trial):
    return np.isin(np.round(weights, 9), (0, 1)).all() and sums_to_one(weights, -1) and weights.shape[-1] > 1 and trial.spread == 1


def _from_transposed(weights, trial):
    n, m = weights.shape[-2:]
    return n == m > 1 and divisor(trial.seen) is None and divisor(Seen(trial.seen.raw.swapaxes(-1, -2), weights=weights)) is not None


def row_sums(trial):
    weights = trial.seen.weights if trial.seen else None
    if weights is not None and np.isfinite(weights).all() and not sums_to_one(weights, -1):
        first = weights.sum(axis=-1).flat[0]
        return (f"The shares of one query should sum to 1; your first row sums to {first:.4f}. Look at what you divide by: "
                "every row by its own sum, over all keys it may see.")


ROWS = {
    "softmax-over-queries": on_weights(_only(-2), "Your columns sum to 1 and your rows do not. So each word divides up who looks "
                                       "at *it*, instead of what *it* looks at. Query i is a row: look at the axis you normalise over."),
    "softmax-over-everything": on_weights(_only((-1, -2)), "All your weights together sum to 1, not each row. Then a query gets "
                                          "less the more queries there are. Look at the axis of the sum: each row has its own."),
    "no-softmax": on_weights(_linear_in_scores, "Your weights are the scores themselves: some are negative and rows do not sum to "
                                                "1. A step between the scores and the weighted sum is missing."),
    "no-exp": on_weights(lambda w, _: sums_to_one(w, -1) and (w < -1e-9).any(), "Your rows sum to 1, but some shares are negative. "
                         "Scores were divided by their sum as they are. Which function makes every score positive first?"),
    "hard-max": on_weights(_hard, "Each query gives everything to one key and nothing to the others. Softmax is softer: the second "
                                  "best keeps a share, and a small nudge of a score moves it a little."),
    "uniform": on_weights(lambda w, _: np.allclose(w, 1 / w.shape[-1], atol=1e-6) and w.shape[-1] > 1, "Every key gets the same "
                          "share, whatever Q and K are: your output is the plain mean of V. The scores do not reach the weights."),
    "queries-keys-swapped": on_weights(_from_transposed, "Your scores have keys as rows and queries as columns: entry (i, j) is "
                                       "key i against query j. Swap the roles: each *row* belongs to one query."),
    "causal-unasked": on_weights(lambda w, t: w.shape[-1] > 1 and sums_to_one(w, -1) and np.allclose(_above(w), 0, atol=1e-9),
                                 "Keys after the query get no share: there is a causal mask inside. Here every query may see all keys."),
}
HEADS = {"softmax-over-heads": on_weights(_only(-3), "Your weights sum to 1 over the *heads*, not over the keys, so the heads "
                                          "compete with each other. Count the axes (B, h, n, n) and see which one you normalise over.")}


# ------------------------------------------------------------------ weights under a causal mask

def _visible_future(weights, trial):
    return np.allclose(np.nan_to_num(_above(weights, 2)), 0) and (np.nan_to_num(np.diagonal(weights, 1, -2, -1)) > 0).all()


def _no_self(weights, trial):
    below = np.nan_to_num(np.tril(np.ones(weights.shape[-2:]), -1) * weights)
    diagonal = np.nan_to_num(np.diagonal(weights, 0, -2, -1))
    return np.allclose(diagonal, 0) and (below.sum((-1, -2)) > 0).all() and np.allclose(np.nan_to_num(_above(weights)), 0)


def _no_past(weights, trial):
    past = np.tril(np.ones(weights.shape[-2:], bool), -1)
    return np.allclose(np.nan_to_num(weights[..., past]), 0) and (np.nan_to_num(_above(weights)) > 0).any()


def _nan_everywhere(weights, trial):
    return np.isnan(weights).any(axis=-1).all() and trial.spread == 1


MASKED = {
    "diagonal-blocked": on_weights(_no_self, "A word cannot see itself in your answer: the diagonal is blocked too. Row 0 then has "
                                   "nothing left to see, and the softmax of an empty row is 0 / 0. Look where your triangle begins."),
    "past-blocked": on_weights(_no_past, "Your triangle is the wrong way round: the past is blocked and the future is visible. Row i "
                                         "is the query, column j the key: which of j > i and j < i has not been written yet?"),
    "one-future-token": on_weights(_visible_future, "Each query still sees one key too many, the token right after it. That is the "
                                   "very word it has to predict. Look at where your triangle begins: off by one."),
    "zero-times-inf": on_weights(_nan_everywhere, "Every row holds NaN. Probably 0 was multiplied by inf, which is not 0 but NaN. "
                                 "Pick one of two values for each entry instead of multiplying."),
    "masked-after-softmax": on_weights(lambda w, t: np.allclose(_above(w), 0) and not sums_to_one(w, -1) and not sums_to_one(w, -2)
                                       and (w.sum(-1) < 1 + 1e-9).all(), "The future gets no weight, but your rows no longer sum to 1: "
                                       "row 0 has lost most of its share. The softmax had already spent it on the future. Mask earlier."),
    "no-mask": on_weights(lambda w, t: (_above(w) > 0).all() and divisor(t.seen) is not None, "No key is blocked: every query still "
                          "reads the words after it, those it should predict. The mask does not reach the scores."),
}
