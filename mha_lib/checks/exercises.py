"""Every exercise: the arguments it is tried on, the right result, and what a wrong result is asked, in order.

Sizes are all different where they can be, numbers are signed and W_O is no identity: h = 1, n = 1, d_k = 4, n = m and the
like each hide a mistake. Those stand under `friendly`, and a verdict says which of them would have hidden this one.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mha_lib import layers
from mha_lib import numpy_attention as ours
from mha_lib.checks import known
from mha_lib.checks.structure import (
    HEADS,
    MASKED,
    ROWS,
    SCALE,
    SHAPES,
    Seen,
    cut_to_integers,
    not_a_number,
    not_boolean,
    overflow,
    parts_swapped,
    row_sums,
)
from mha_lib.projections import Projections


class Exercise(NamedTuple):
    make: Callable              # sizes -> dict of arguments
    right: Callable             # arguments -> result
    returns: dict               # part -> axes
    cases: list                 # sizes to pass; the first is the one to learn from
    small: list                 # sizes for an example, smallest first
    diagnoses: dict             # id -> function of a Trial
    friendly: dict = {}         # noqa: RUF012  sentence -> sizes on which some mistakes stay hidden
    look: Callable | None = None    # arguments, parts -> Seen


# ------------------------------------------------------------------ arguments

def _draw():
    rng = np.random.default_rng(7)
    return lambda *shape: rng.normal(size=shape).round(2)


def _qkv(n, d_k, m=None, d_v=None, spread=1, lead=()):
    draw = _draw()
    m = n if m is None else m
    return {"Q": spread * draw(*lead, n, d_k), "K": draw(*lead, m, d_k), "V": draw(*lead, m, d_k if d_v is None else d_v)}


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


def _head(n, h, d_k, a=1, spread=1):
    given = _layer(n, h, d_k, spread=spread)
    return {name: given[name] for name in ("X", "W_Q", "W_K", "W_V")} | {"a": min(a, h - 1), "h": h}


def _numbered(*shape):
    return np.arange(np.prod(shape), dtype=float).reshape(shape)


def _stream(n, d, constant=False):
    X = 3 * _draw()(n, d) + 1
    if constant:
        X[0] = 2.0
    return {"X": X}


def _around(n, d):
    return _stream(n, d) | {"f": lambda Z: Z * Z - 0.5 * Z, "norm": layers.layer_norm}


def _real(B, n):
    return {"real": np.arange(n) < n - np.arange(B)[:, None] % n}      # sample b ends in b tokens of padding


def _visible(B, n, h):
    real, = _real(B, n).values()
    return {"visible": known._causal(n) & real[:, None, :], "h": h}


def _empty_rows(n, m):
    scores, = _scores(n, m).values()
    scores[0, 1:] = scores[-1] = -np.inf
    return {"scores": scores}


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


# ------------------------------------------------------------------ looking inside

def _look_at_weights(args, parts):
    return Seen(args["Q"] @ args["K"].swapaxes(-1, -2), weights=parts["weights"])


def _worked_back(heads, Q, K, V):
    """Weights from what they made of V: heads = weights @ V, solved for the weights where that is possible."""
    raw, weights = Q @ K.swapaxes(-1, -2), None
    if heads.shape == V.shape and np.isfinite(heads).all() and V.shape[-1] >= V.shape[-2]:
        weights = heads @ np.linalg.pinv(V)
        weights = weights if np.allclose(weights @ V, heads, atol=1e-8) else None
    return Seen(raw, weights=weights)


def _look_back_head(args, parts):
    Q, K, V = (ours.split_heads(args["X"] @ args[W], args["h"])[args["a"]] for W in ("W_Q", "W_K", "W_V"))
    return _worked_back(parts["output"], Q, K, V)


def _look_back_layer(args, parts):
    Q, K, V = (ours.split_heads(args["X"] @ args[W], args["h"]) for W in ("W_Q", "W_K", "W_V"))
    return _worked_back(ours.split_heads(parts["output"] @ np.linalg.inv(args["W_O"]), args["h"]), Q, K, V)


def _only(table, *names):
    return {name: table[name] for name in names}


def _but(table, *names):
    return {name: diagnosis for name, diagnosis in table.items() if name not in names}


NUMBERS = {"nan": not_a_number, "cut-to-integers": cut_to_integers}
BY_WEIGHTS = {**_but(ROWS, "causal-unasked", "no-exp", "softmax-over-everything"), **SCALE}
EVERY_WEIGHT = {**ROWS, **SCALE}
MASK = {"mask": "n, n"}

EXERCISES = {
    # 01
    "project_qkv": Exercise(
        lambda n, d: _head(n, 1, d) | {}, lambda X, W_Q, W_K, W_V: (X @ W_Q, X @ W_K, X @ W_V),
        {"Q": "n, d", "K": "n, d", "V": "n, d"}, [dict(n=5, d=9), dict(n=1, d=4)], [dict(n=1, d=2), dict(n=2, d=2)],
        {**SHAPES, "parts-swapped": parts_swapped, **known.diagnoses(known.PROJECT),
         "reused-projection": known.reused_projection, **NUMBERS}),
    "linear_weight_to_W": Exercise(
        lambda out, d: {"weight": _draw()(out, d)}, lambda weight: weight.T, {"W": "in, out"},
        [dict(out=5, d=9), dict(out=4, d=4)], [dict(out=2, d=2), dict(out=2, d=3)],
        {**known.diagnoses(known.LINEAR), **SHAPES}, {"a square weight": dict(out=3, d=3)}),
}
