"""Every exercise: the arguments it is tried on, the right result, and what a wrong result is asked, in order.

Sizes are all different where they can be, numbers are signed and W_O is no identity: h = 1, n = 1, d_k = 4, n = m and
the like each hide a mistake. Those stand under `friendly`, and a verdict says which of them would have hidden this one.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mha_lib import layers, ledger
from mha_lib import numpy_attention as ours
from mha_lib.checks import costs, heads, known, masks
from mha_lib.checks.structure import (
    FACTOR,
    HEADS,
    IGNORES,
    LISTENS,
    MASKED,
    NEARLY,
    NUMBERS,
    RESHAPED,
    ROW_SUMS,
    ROWS,
    ROWS_SCALED,
    SCALE,
    SHAPES,
    Seen,
    flattened,
    identity,
    nan_replaced,
    not_a_number,
    not_boolean,
    not_one_number,
    overflow,
    parts_swapped,
)
from mha_lib.projections import Projections


class Exercise(NamedTuple):
    make: Callable              # sizes -> dict of arguments
    right: Callable             # arguments -> result
    returns: dict               # part -> axes
    cases: list                 # sizes to pass; the first is the one to learn from
    small: list                 # sizes for an example, smallest first
    diagnoses: dict             # id -> function of a Trial
    friendly: dict = {}         # words -> sizes on which some mistakes stay hidden; read only
    look: Callable | None = None    # arguments, parts -> Seen
    extreme: dict | None = None     # sizes on which a mask that ends somewhere leaks; the rest need not be right there


# ------------------------------------------------------------------ arguments

def _draw():
    rng = np.random.default_rng(7)
    return lambda *shape: rng.normal(size=shape).round(2)


def _qkv(n, d_k, m=None, d_v=None, spread=1, low=None, lead=()):
    draw = _draw()
    m = n if m is None else m
    d_v = d_k if d_v is None else d_v
    Q, K, V = spread * draw(*lead, n, d_k), draw(*lead, m, d_k), draw(*lead, m, d_v)
    if low is not None:                 # all scores lie below -low ** 2 / sqrt(d_k), close together
        Q[..., 0], K[..., 0] = -low, low
    return {"Q": Q, "K": K, "V": V}


def _qk(**sizes):
    return {name: x for name, x in _qkv(**sizes).items() if name != "V"}


def _scores(n, m, spread=1):
    scores = _draw()(n, m)
    scores[0] += 2 * (spread > 1)       # far apart rows: the first holds the maximum, the last lies far below
    scores[-1] -= 2 * (spread > 1)
    return {"scores": spread * scores}


def _weights(d, draw, names):
    return {name: (draw(d, d) * d ** -0.5).round(3) for name in names}


def _layer(n, h, d_k, B=None, spread=1, W_O=None):
    draw, d = _draw(), h * d_k
    X = spread * draw(*(() if B is None else (B,)), n, d)
    given = {"X": X, **_weights(d, draw, ("W_Q", "W_K", "W_V", "W_O")), "h": h}
    return given if W_O is None else given | {"W_O": W_O(d)}


def _head(n, h, d_k, a=2, spread=1):
    given = _layer(n, h, d_k, spread=spread)
    return {name: given[name] for name in ("X", "W_Q", "W_K", "W_V")} | {"a": min(a, h - 1), "h": h}


def _project(n, d):
    draw = _draw()
    return {"X": draw(n, d), **_weights(d, draw, ("W_Q", "W_K", "W_V"))}


def _numbered(*shape):
    return np.arange(np.prod(shape), dtype=float).reshape(shape)


def _stream(n, d, constant=False):
    X = 3 * _draw()(n, d) + 1
    if constant:
        X[0] = 2.0
    return {"X": X}


def _around(n, d, norm=layers.layer_norm):
    return _stream(n, d) | {"f": lambda Z: Z * Z - 0.5 * Z, "norm": norm}


def _real(B, n):
    real = np.ones((B, n), bool)
    real[::2, -1] = real[1::2, 0] = False               # padding at the end and at the start, by turns
    return {"real": real}


def _visible(B, n, h):
    return {"visible": masks.causal(n) & _real(B, n)["real"][:, None, :], "h": h}


def _empty_rows(n, m, spread=1):
    scores = _scores(n, m, spread)["scores"]
    scores[0, 1:] = scores[1, 0] = scores[-1] = -np.inf
    return {"scores": scores}


def _sizes(**sizes):
    return sizes


def _append(B, h, m, n, d_k):
    draw = _draw()
    return {name: draw(B, h, length, d_k) for name, length in {"keys": m, "values": m, "K": n, "V": n}.items()}


def _step(B, h, m, d_k, spread=1):
    given, draw = _layer(1, h, d_k, B, spread), _draw()
    del given["h"]
    return {"x": given.pop("X"), **given, "keys": spread * draw(B, h, m, d_k), "values": draw(B, h, m, d_k)}


# ------------------------------------------------------------------ right results

def _right_layer(X, W_Q, W_K, W_V, W_O, h):
    return ours.multi_head_attention(X, Projections.from_matrices(W_Q, W_K, W_V, W_O), h)


def _right_head(X, W_Q, W_K, W_V, a, h):
    Q, K, V = (ours.split_heads(X @ W, h)[a] for W in (W_Q, W_K, W_V))
    return ours.attention(Q, K, V)[0]


def _right_parts(heads, W_O):
    h, _, d_k = heads.shape
    return np.stack([heads[a] @ W_O[a * d_k:(a + 1) * d_k] for a in range(h)])


def _right_width(d, h):
    if d % h:
        raise ValueError("d does not divide into h heads")
    return d // h


def _right_append(keys, values, K, V):
    return np.concatenate([keys, K], axis=2), np.concatenate([values, V], axis=2)


def _right_step(x, W_Q, W_K, W_V, W_O, keys, values):
    Q, K, V = (ours.split_heads(x @ W, keys.shape[1]) for W in (W_Q, W_K, W_V))
    keys, values = _right_append(keys, values, K, V)
    return ours.merge_heads(ours.attention(Q, keys, values)[0]) @ W_O, keys, values


# ------------------------------------------------------------------ looking inside

def _seen(Q, K, **made):
    return Seen(Q @ K.swapaxes(-1, -2), reshaped=Q @ K.reshape(K.swapaxes(-1, -2).shape), **made)


def _look_at_weights(args, parts):
    return _seen(args["Q"], args["K"], weights=parts["weights"])


def _worked_back(heads, Q, K, V):
    """Weights from what they made of V: heads = weights @ V, solved for the weights where that is possible."""
    weights = None
    if heads.shape == (*Q.shape[:-1], V.shape[-1]) and np.isfinite(heads).all() and V.shape[-1] >= V.shape[-2]:
        weights = heads @ np.linalg.pinv(V)
        weights = weights if np.allclose(weights @ V, heads, atol=1e-8) else None
    return _seen(Q, K, weights=weights)


def _look_at_shares(args, parts):
    return Seen(args["scores"], weights=parts["weights"])


def _look_at_scores(args, parts):
    return _seen(args["Q"], args["K"], scores=parts["scores"])


def _look_at_number(args, parts):
    return Seen(None, divisor=1 / parts["scale"])


def _look_back_head(args, parts):
    Q, K, V = (ours.split_heads(args["X"] @ args[W], args["h"])[args["a"]] for W in ("W_Q", "W_K", "W_V"))
    return _worked_back(parts["output"], Q, K, V)


def _look_back_layer(args, parts):
    Q, K, V = (ours.split_heads(args["X"] @ args[W], args["h"]) for W in ("W_Q", "W_K", "W_V"))
    return _worked_back(ours.split_heads(parts["output"] @ np.linalg.inv(args["W_O"]), args["h"]), Q, K, V)


def _look_back_step(args, parts):
    x, W_Q, *_, W_O, keys, _ = args.values()
    _, keys, values = _right_step(*args.values())
    Q, heads = (ours.split_heads(each, keys.shape[1]) for each in (x @ W_Q, parts["output"] @ np.linalg.inv(W_O)))
    return _worked_back(heads, Q, keys, values)


def _only(table, *names):
    return {name: table[name] for name in names}


def _but(table, name):
    return {other: diagnosis for other, diagnosis in table.items() if other != name}


PARTS = {"parts-swapped": parts_swapped}
INSIDE = {**ROWS, **SCALE, **RESHAPED}      # what weights give away, whether returned or worked back from the output
INSIDE_ONE = _but(INSIDE, "divided-by-sqrt-d")      # for one head alone, which has no d
LARGE = {"overflow": overflow, "nan-replaced": nan_replaced, "flattened": flattened}
LAST = {**LARGE, **NUMBERS, **FACTOR, **NEARLY, **ROWS_SCALED, **ROW_SUMS}
SIMPLE = _only(NUMBERS, "nan", "constant")
CONSTANT = _only(NUMBERS, "constant")
IDENTITY = {"identity": identity}
ONE_NUMBER = {"not-one-number": not_one_number}
SAME_ALWAYS = {"same-always": known.same_always}
SQUARE = _but(SHAPES, "swapped-axes")               # (n, n) reads the same both ways
BOOLEAN = {**SHAPES, "not-boolean": not_boolean}
SOME_ROWS = _only(ROWS, "softmax-over-queries", "softmax-over-everything", "hard-max")

EXERCISES = {
    # 01 projections
    "project_qkv": Exercise(
        _project, lambda X, W_Q, W_K, W_V: (X @ W_Q, X @ W_K, X @ W_V), {"Q": "n, d", "K": "n, d", "V": "n, d"},
        cases=[dict(n=5, d=9), dict(n=1, d=4)],
        small=[dict(n=1, d=2), dict(n=2, d=2)],
        diagnoses={**SHAPES, **PARTS, **known.diagnoses(known.PROJECT),
                   "reused-projection": known.reused_projection, **NUMBERS, **FACTOR, **NEARLY, **IGNORES,
                   **LISTENS}),
    "linear_weight_to_W": Exercise(
        lambda **sizes: {"weight": _numbered(*sizes.values()) - 7}, lambda weight: weight.T, {"W": "in, out"},
        cases=[{"out": 5, "in": 9}, {"out": 4, "in": 4}],
        small=[{"out": 2, "in": 2}, {"out": 2, "in": 3}],
        diagnoses={**known.diagnoses(known.LINEAR), **SHAPES, "scrambled": heads.scrambled, **SIMPLE}),
    # 02 scores
    "attention_scores": Exercise(
        _qk, ours.attention_scores, {"scores": "n, m"},
        cases=[dict(n=5, m=7, d_k=9), dict(n=3, m=6, d_k=8), dict(n=1, m=1, d_k=1)],
        small=[dict(n=1, m=1, d_k=2), dict(n=1, m=2, d_k=2), dict(n=2, m=2, d_k=2), dict(n=2, m=3, d_k=2)],
        diagnoses={**known.diagnoses(known.SAME_TWICE), **SHAPES, **_but(SCALE, "divided-by-sqrt-d"),
                   **known.diagnoses(known.SCORES), **RESHAPED, "distance": known.distance, **NUMBERS, **NEARLY},
        friendly={"d_k = 4": dict(n=5, m=7, d_k=4), "d_k = 1": dict(n=5, m=7, d_k=1), "n = m": dict(n=5, m=5, d_k=9)},
        look=_look_at_scores),
    "softmax": Exercise(
        _scores, ours.softmax, {"weights": "n, m"},
        cases=[dict(n=5, m=7), dict(n=4, m=4), dict(n=4, m=6, spread=2000), dict(n=1, m=1)],
        small=[dict(n=1, m=2), dict(n=2, m=2), dict(n=2, m=3), dict(n=1, m=2, spread=2000),
               dict(n=2, m=2, spread=2000)],
        diagnoses={**SHAPES, **SOME_ROWS, **_only(ROWS, "no-softmax", "no-exp", "uniform", "no-keepdims"),
                   **known.diagnoses(known.SOFTMAX), "other-base": known.other_base,
                   "global-maximum": known.global_maximum, "other-function": known.other_function, **ROWS_SCALED,
                   **_but(LAST, "off-by-a-factor")},
        friendly={"as many queries as keys": dict(n=5, m=5), "one query": dict(n=1, m=7)}, look=_look_at_shares),
    "attention": Exercise(
        _qkv, ours.attention, {"output": "n, d_v", "weights": "n, m"},
        cases=[dict(n=5, m=7, d_k=9), dict(n=3, m=6, d_k=8, d_v=5), dict(n=5, m=7, d_k=9, spread=3000),
               dict(n=1, m=1, d_k=1)],
        small=[dict(n=1, m=2, d_k=2), dict(n=2, m=2, d_k=2), dict(n=2, m=3, d_k=2), dict(n=1, m=2, d_k=2, spread=3000)],
        diagnoses={**PARTS, **SHAPES, **IDENTITY, "scores-returned": known.scores_returned, **INSIDE_ONE,
                   **known.diagnoses(known.ATTENTION), **ROWS_SCALED,
                   **LAST, "outside-the-values": known.outside_the_values, **IGNORES, **LISTENS},
        friendly={"d_k = 4": dict(n=5, m=7, d_k=4), "d_k = 1": dict(n=5, m=7, d_k=1), "n = m": dict(n=5, m=5, d_k=9)},
        look=_look_at_weights),
    # 03 the scale
    "pick_scale": Exercise(
        lambda d, h: {"d": d, "h": h}, lambda d, h: (d // h) ** -0.5, {"scale": ""},
        cases=[dict(d=60, h=5), dict(d=16, h=2), dict(d=64, h=1)],
        small=[dict(d=4, h=2), dict(d=6, h=2), dict(d=4, h=1)],
        diagnoses={**ONE_NUMBER, "zero-scale": known.zero, **NEARLY, **_only(SCALE, "no-scale"), **SAME_ALWAYS, **SCALE,
                   "nan": not_a_number},
        friendly={"d_k = 4": dict(d=12, h=3), "one head": dict(d=9, h=1), "d_k = 1": dict(d=3, h=3)},
        look=_look_at_number),
    # 04 heads
    "head_width": Exercise(
        lambda d, h: {"d": d, "h": h}, _right_width, {"d_k": ""},
        cases=[dict(d=60, h=5), dict(d=10, h=3)],
        small=[dict(d=4, h=2), dict(d=3, h=2)],
        diagnoses={"silent-remainder": known.silent_remainder, **ONE_NUMBER, "zero-width": known.zero, **SAME_ALWAYS,
                   "not-whole": known.not_whole}),
    "split_heads": Exercise(
        lambda n, h, d_k: {"X": _numbered(n, h * d_k), "h": h}, ours.split_heads, {"heads": "h, n, d_k"},
        cases=[dict(n=5, h=3, d_k=9), dict(n=4, h=2, d_k=5)],
        small=[dict(n=2, h=2, d_k=1), dict(n=2, h=2, d_k=2), dict(n=3, h=2, d_k=1)],
        diagnoses={**SHAPES, **known.diagnoses(heads.SPLIT), "other-columns": heads.other_columns_split,
                   "scrambled": heads.scrambled, **SIMPLE},
        friendly={"h = 1": dict(n=5, h=1, d_k=9), "n = 1": dict(n=1, h=3, d_k=9), "d_k = 1": dict(n=5, h=3, d_k=1)}),
    "merge_heads": Exercise(
        lambda n, h, d_k: {"heads": _numbered(h, n, d_k)}, ours.merge_heads, {"concat": "n, d"},
        cases=[dict(n=5, h=3, d_k=9), dict(n=4, h=2, d_k=5)],
        small=[dict(n=2, h=2, d_k=1), dict(n=2, h=2, d_k=2), dict(n=3, h=2, d_k=1)],
        diagnoses={**known.diagnoses(heads.TOGETHER), **SHAPES, **known.diagnoses(heads.MERGE),
                   "scrambled": heads.scrambled, **SIMPLE},
        friendly={"h = 1": dict(n=5, h=1, d_k=9), "n = 1": dict(n=1, h=3, d_k=9), "d_k = 1": dict(n=5, h=3, d_k=1)}),
    "one_head": Exercise(
        _head, _right_head, {"output": "n, d_k"},
        cases=[dict(n=6, h=5, d_k=7), dict(n=4, h=2, d_k=8, a=0), dict(n=6, h=5, d_k=7, spread=30)],
        small=[dict(n=2, h=2, d_k=1), dict(n=2, h=2, d_k=2), dict(n=3, h=2, d_k=2), dict(n=2, h=1, d_k=2, spread=1000),
               dict(n=3, h=1, d_k=2, spread=1000)],
        diagnoses={"empty-slice": heads.empty_slice, **SHAPES, "ignores-a": heads.ignores_a,
                   "other-columns": heads.other_columns, **known.diagnoses(heads.ONE_HEAD),
                   "reused-projection": heads.ONE_MATRIX_IN_HEAD, **INSIDE, "two-faults": heads.ONE_HEAD_TWICE,
                   **LAST, **IGNORES},
        friendly={"h = 1": dict(n=5, h=1, d_k=9), "d_k = 4": dict(n=5, h=3, d_k=4), "n = 1": dict(n=1, h=3, d_k=9)},
        look=_look_back_head),
    # 05 the whole layer
    "parameter_count": Exercise(
        lambda d, h: {"d": d, "h": h}, lambda d, h: 4.0 * d * d, {"count": ""},       # a count may be a float
        cases=[dict(d=30, h=5), dict(d=16, h=2)],
        small=[dict(d=2, h=2), dict(d=4, h=2)],
        diagnoses={**ONE_NUMBER, **SAME_ALWAYS, **known.diagnoses(known.COUNT), "other-matrices": known.other_matrices},
        friendly={"h = 1": dict(d=15, h=1)}),
    "multi_head_attention": Exercise(
        _layer, lambda *args: _right_layer(*args).output, {"output": "B, n, d"},
        cases=[dict(B=2, n=6, h=5, d_k=7), dict(B=3, n=4, h=2, d_k=8), dict(B=2, n=6, h=5, d_k=7, spread=30)],
        small=[dict(B=1, n=1, h=1, d_k=2), dict(B=1, n=2, h=2, d_k=1), dict(B=1, n=2, h=1, d_k=2),
               dict(B=1, n=2, h=2, d_k=2), dict(B=2, n=2, h=2, d_k=2), dict(B=1, n=2, h=1, d_k=2, spread=1000),
               dict(B=1, n=3, h=1, d_k=2, spread=1000)],
        diagnoses={**SHAPES, **IDENTITY, **known.diagnoses(heads.ALL_AXES), **_only(ROWS, "no-keepdims"),
                   "samples-mixed": heads.samples_mixed, "tokens-do-not-mix": heads.tokens_do_not_mix,
                   **known.diagnoses(heads.LAYER), "merged-astray": heads.merged_astray,
                   "reused-projection": heads.ONE_MATRIX_IN_LAYER, **INSIDE, **HEADS,
                   "other-columns": heads.other_columns_in_layer,
                   "two-faults": heads.LAYER_TWICE, **LAST, **IGNORES},
        friendly={"a single sequence": dict(B=1, n=5, h=3, d_k=9), "h = 1": dict(B=2, n=5, h=1, d_k=9),
                  "W_O the identity": dict(B=2, n=5, h=3, d_k=9, W_O=np.eye), "n = 1": dict(B=2, n=1, h=3, d_k=9),
                  "d_k = 4": dict(B=2, n=5, h=3, d_k=4), "B = h = n = d_k": dict(B=3, n=3, h=3, d_k=3)},
        look=_look_back_layer),
    "output_as_sum_over_heads": Exercise(
        lambda n, h, d_k: {"heads": _draw()(h, n, d_k), "W_O": _draw()(h * d_k, h * d_k)}, _right_parts,
        {"contributions": "h, n, d"},
        cases=[dict(n=5, h=3, d_k=9), dict(n=4, h=2, d_k=5)],
        small=[dict(n=1, h=2, d_k=1), dict(n=2, h=2, d_k=2)],
        diagnoses={"already-summed": heads.already_summed, **SHAPES, **known.diagnoses(heads.CONTRIBUTIONS),
                   "other-rows": heads.other_rows, **NUMBERS, **FACTOR},
        friendly={"h = 1": dict(n=5, h=1, d_k=9), "d_k = 1": dict(n=5, h=3, d_k=1)}),
    "layer_norm": Exercise(
        _stream, layers.layer_norm, {"normalised": "n, d"},
        cases=[dict(n=5, d=9), dict(n=4, d=4), dict(n=3, d=6, constant=True)],
        small=[dict(n=1, d=2), dict(n=2, d=2), dict(n=1, d=2, constant=True)],
        diagnoses={**SHAPES, **IDENTITY, **known.diagnoses(known.NORM), **NUMBERS, **NEARLY,
                   "mean-not-0": known.mean_not_0, "spread-not-1": known.spread_not_1}),
    "sublayer": Exercise(
        _around, layers.sublayer, {"stream": "n, d"},
        cases=[dict(n=5, d=9), dict(n=4, d=6, norm=layers.rms_norm)],
        small=[dict(n=1, d=2), dict(n=2, d=3), dict(n=1, d=2, norm=layers.rms_norm)],
        diagnoses={**SHAPES, **IDENTITY, **known.diagnoses(known.SUBLAYER), **NUMBERS, "own-norm": known.own_norm,
                   **FACTOR}),
    # 06 masks
    "causal_mask": Exercise(
        lambda n: {"n": n}, ours.causal_mask, {"mask": "n, n"},
        cases=[dict(n=5), dict(n=1), dict(n=8)],
        small=[dict(n=1), dict(n=2), dict(n=3)],
        diagnoses={**SQUARE, **masks.CODING, **masks.PATTERN, **masks.ENTRIES}),
    "shifted_causal_mask": Exercise(
        lambda n, m: {"n": n, "m": m}, ours.causal_mask, {"mask": "n, m"},
        cases=[dict(n=4, m=9), dict(n=1, m=6), dict(n=4, m=4)],
        small=[dict(n=1, m=1), dict(n=1, m=2), dict(n=2, m=3)],
        diagnoses={**SHAPES, **masks.CODING, **masks.PATTERN, **masks.TOP_LEFT, **masks.ENTRIES},
        friendly={"n = m": dict(n=4, m=4)}),
    "masked_attention": Exercise(
        lambda h, **sizes: _qkv(lead=(h,), **sizes),
        lambda Q, K, V: ours.attention(Q, K, V, ours.causal_mask(Q.shape[-2])),
        {"output": "h, n, d_k", "weights": "h, n, n"},
        cases=[dict(h=3, n=5, d_k=9), dict(h=2, n=4, d_k=8), dict(h=3, n=5, d_k=9, low=800)],
        small=[dict(h=1, n=1, d_k=2), dict(h=1, n=2, d_k=2), dict(h=2, n=2, d_k=2), dict(h=1, n=3, d_k=2),
               dict(h=1, n=2, d_k=2, low=800), dict(h=1, n=3, d_k=2, spread=3000)],
        diagnoses={**PARTS, **SHAPES, **IDENTITY, **SOME_ROWS, **ROWS_SCALED, **MASKED,
                   **_only(ROWS, "queries-keys-swapped"), **HEADS, **SCALE, **RESHAPED,
                   "finite-mask": masks.leaks_on_low_scores, **known.diagnoses(masks.MASKED),
                   "future-leaks": masks.future_leaks, **LAST, "outside-the-values": known.outside_the_values},
        friendly={"d_k = 4": dict(h=3, n=5, d_k=4), "h = n = d_k": dict(h=4, n=4, d_k=4)}, look=_look_at_weights,
        extreme=dict(h=3, n=5, d_k=9, spread=3000)),
    "guarded_softmax": Exercise(
        _empty_rows, ours.softmax, {"weights": "n, m"},
        cases=[dict(n=5, m=7), dict(n=4, m=4), dict(n=4, m=6, spread=2000)],
        small=[dict(n=2, m=2), dict(n=3, m=2), dict(n=3, m=2, spread=2000)],
        diagnoses={**SHAPES, "global-maximum": known.global_maximum, **masks.EMPTY,
                   **_only(ROWS, "softmax-over-queries"), **IDENTITY, "overflow": overflow, **SIMPLE, **NEARLY},
        look=_look_at_shares),
    "combine_masks": Exercise(
        _real, lambda real: masks.causal(real.shape[1]) & masks.visible_keys(real), {"visible": "B, 1, n, n"},
        cases=[dict(B=3, n=5), dict(B=2, n=4)],
        small=[dict(B=1, n=2), dict(B=1, n=3), dict(B=2, n=3)],
        diagnoses={"no-head-axis": masks.no_head_axis, **known.diagnoses(masks.ONLY_PADDING), **BOOLEAN,
                   **known.diagnoses(masks.COMBINE), **CONSTANT}),
    "to_sdpa_mask": Exercise(
        lambda n: {"mask": ours.causal_mask(n)}, lambda mask: mask == 0, {"visible": "n, n"},
        cases=[dict(n=5), dict(n=2)],
        small=[dict(n=1), dict(n=2)],
        diagnoses={**SQUARE, "not-boolean": not_boolean, **known.diagnoses(masks.TO_SDPA), **CONSTANT}),
    "to_mha_mask": Exercise(
        _visible, lambda visible, h: ~np.repeat(visible, h, axis=0), {"blocked": "B*h, n, n"},
        cases=[dict(B=2, n=5, h=3), dict(B=3, n=4, h=2)],
        small=[dict(B=1, n=2, h=2), dict(B=2, n=3, h=2)],
        diagnoses={**BOOLEAN, **known.diagnoses(masks.TO_MHA), **CONSTANT},
        friendly={"a single sequence": dict(B=1, n=5, h=3)}),
    # 07 costs
    "attention_flops": Exercise(
        _sizes, lambda n, d, h: float(ledger.costs(n, d, h).total.flops), {"flops": ""},     # a count may be a float
        cases=[dict(n=7, d=30, h=5), dict(n=50, d=20, h=5), dict(n=4096, d=512, h=8)],
        small=[dict(n=1, d=2, h=1), dict(n=3, d=2, h=2), dict(n=3, d=4, h=2)],
        diagnoses={**ONE_NUMBER, **costs.bills(costs.FLOPS), "softmax-added": costs.softmax_added, **costs.BILL,
                   "other-factors": costs.other_factors},
        friendly={"h = 1": dict(n=7, d=30, h=1), "n = 2 d": dict(n=60, d=30, h=5), "n = 1": dict(n=1, d=30, h=5)}),
    # 08 the cache
    "kv_append": Exercise(
        _append, _right_append, {"keys": "B, h, m+n, d_k", "values": "B, h, m+n, d_k"},
        cases=[dict(B=2, h=3, m=6, n=5, d_k=7), dict(B=2, h=3, m=0, n=4, d_k=7)],
        small=[dict(B=1, h=1, m=1, n=1, d_k=2), dict(B=1, h=2, m=2, n=1, d_k=2), dict(B=2, h=2, m=2, n=1, d_k=2)],
        diagnoses={**PARTS, **known.diagnoses(costs.APPEND), "joined-elsewhere": costs.joined_elsewhere,
                   "unused-slots": costs.unused_slots, **SHAPES, **NUMBERS, **FACTOR, **IGNORES, **LISTENS},
        friendly={"m = n": dict(B=2, h=3, m=5, n=5, d_k=7)}),
    "cache_bytes": Exercise(
        _sizes, costs.cache, {"bytes": ""},
        cases=[dict(n=7, d=90, h=15, layers=11, itemsize=4, kv_heads=5),
               dict(n=4096, d=4096, h=32, layers=32, itemsize=2, kv_heads=32)],
        small=[dict(n=1, d=2, h=1, layers=1, itemsize=2, kv_heads=1),
               dict(n=3, d=8, h=4, layers=2, itemsize=2, kv_heads=2)],
        diagnoses={**ONE_NUMBER, "not-whole": costs.not_whole, **costs.bills(costs.CACHE),
                   "other-unit": costs.other_unit, **_but(costs.BILL, "size-counted")},
        friendly={"kv_heads = h": dict(n=7, d=90, h=15, layers=11, itemsize=4, kv_heads=15),
                  "one layer": dict(n=7, d=90, h=15, layers=1, itemsize=4, kv_heads=5)}),
    "decode_step": Exercise(
        _step, _right_step, {"output": "B, 1, d", "keys": "B, h, m+1, d_k", "values": "B, h, m+1, d_k"},
        cases=[dict(B=2, h=3, m=5, d_k=7), dict(B=3, h=2, m=0, d_k=4), dict(B=2, h=3, m=5, d_k=7, spread=30)],
        small=[dict(B=1, h=1, m=1, d_k=2), dict(B=1, h=2, m=2, d_k=2), dict(B=1, h=1, m=1, d_k=2, spread=1000),
               dict(B=1, h=2, m=3, d_k=2, spread=1000)],
        diagnoses={**PARTS, **known.diagnoses(costs.STEP), "kept-wrong": costs.kept_wrong, **SHAPES,
                   **_only(ROWS, "softmax-over-queries", "no-softmax", "no-exp", "hard-max", "uniform",
                           "softmax-twice"),
                   **HEADS, **SCALE, **_but(LAST, "rows-scaled"), **IGNORES, **LISTENS},
        friendly={"an empty cache": dict(B=2, h=3, m=0, d_k=7), "d_k = 4": dict(B=2, h=3, m=3, d_k=4),
                  "one head": dict(B=2, h=1, m=5, d_k=7)},
        look=_look_back_step),
    "gqa_expand": Exercise(
        lambda B, kv_heads, h, n, d_k: {"K": _numbered(B, kv_heads, n, d_k), "h": h},
        lambda K, h: np.repeat(K, h // K.shape[1], axis=1), {"K": "B, h, n, d_k"},
        cases=[dict(B=2, kv_heads=3, h=6, n=5, d_k=7), dict(B=2, kv_heads=2, h=8, n=5, d_k=7),
               dict(B=2, kv_heads=4, h=4, n=5, d_k=7)],
        small=[dict(B=1, kv_heads=1, h=2, n=1, d_k=1), dict(B=1, kv_heads=2, h=4, n=1, d_k=1),
               dict(B=2, kv_heads=3, h=6, n=2, d_k=2)],
        diagnoses={**IDENTITY, **known.diagnoses(costs.EXPAND), "repeated-elsewhere": costs.repeated_elsewhere,
                   **SHAPES, "scrambled": heads.scrambled, **SIMPLE},
        friendly={"kv_heads = h": dict(B=2, kv_heads=6, h=6, n=5, d_k=7),
                  "kv_heads = 1": dict(B=2, kv_heads=1, h=6, n=5, d_k=7)}),
    "longest_context": Exercise(
        _sizes, costs.longest, {"words": ""},
        cases=[dict(memory=10**7, parameters=150_000, d=90, h=15, layers=7, itemsize=4, kv_heads=5, batch=11),
               dict(memory=10**5, parameters=150_000, d=90, h=15, layers=7, itemsize=4, kv_heads=5, batch=11),
               dict(memory=16 * 10**9, parameters=6_738_415_616, d=4096, h=32, layers=32, itemsize=2, kv_heads=32,
                    batch=1)],
        small=[dict(memory=1000, parameters=100, d=8, h=4, layers=2, itemsize=4, kv_heads=2, batch=3),
               dict(memory=100, parameters=100, d=8, h=4, layers=2, itemsize=4, kv_heads=2, batch=3)],
        diagnoses={**ONE_NUMBER, "negative": costs.negative, **costs.bills(costs.LONGEST),
                   "not-whole": costs.not_whole, **_only(costs.BILL, "size-ignored")},
        friendly={"one text": dict(memory=10**7, parameters=150_000, d=90, h=15, layers=7, itemsize=4, kv_heads=5,
                                   batch=1),
                  "kv_heads = h": dict(memory=10**7, parameters=150_000, d=90, h=15, layers=7, itemsize=4, kv_heads=15,
                                       batch=11)}),
}

# name -> the right value, and wrong ones that tell something; the question stands in the notebook
PREDICTIONS = {
    "predict_parameters": (432, {                                                       # d = 12, n = 5
        "one-matrix": [144], "W_O-counted": [576], "words-counted": [180, 2160], "biases-counted": [468],
        "widths-added": [36, 24], "times-h": [1296]}),
    "predict_spread": (8, {                                                             # d_k = 64
        "variance": [64], "already-scaled": [1], "half": [32], "upside-down": [0.125]}),
    "predict_scores_shape": ((2, 3, 5, 5), {                                            # X (2, 5, 27)
        "no-heads": [(2, 5, 5)], "heads-last": [(2, 5, 5, 3), (2, 5, 3, 5)], "heads-attend": [(2, 5, 3, 3)],
        "widths": [(2, 3, 5, 9), (2, 5, 27)], "columns-attend": [(2, 3, 9, 9), (2, 3, 27, 27), (2, 27, 27)],
        "no-batch": [(3, 5, 5)], "heads-before-batch": [(3, 2, 5, 5)], "no-keys": [(2, 3, 5)]}),
    "predict_zeros": (10, {                                                             # n = 5
        "diagonal-counted": [15], "one-future-token": [6], "half": [12.5, 12, 13], "past-counted-too": [20],
        "share": [0.4, 40]}),
    "predict_scores_bytes": (16_000_000, {                                              # X (2, 1000, 512), h = 4
        "no-batch": [8_000_000], "no-heads": [4_000_000], "float32": [32_000_000], "float64": [64_000_000],
        "width-counted": [16_000_000 * 128, 16_000_000 * 512], "stream-counted": [2_048_000],
        "causal-half": [8_008_000], "n-not-squared": [16_000]}),
}
