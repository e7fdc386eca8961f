"""Wrong functions that people really write, and a few questions that only one exercise is asked.

Each table belongs to one exercise: id -> wrong functions with the same outputs or the same cause. A function stands
here only where the result alone, in structure.py, does not already give the mistake away.
"""

from itertools import combinations

import numpy as np

from mha_lib import layers
from mha_lib.checks.structure import divisor, how_scaled, lost_rows, proportional, same, sum_to_one
from mha_lib.numpy_attention import attention, attention_scores, softmax


def diagnoses(table):
    """Turn a table of wrong functions into diagnoses: does one of them return what the answer returned?"""
    return {name: _same_as(functions) for name, functions in table.items()}


def _same_as(functions):
    return lambda trial: any(returns(wrong, trial) for wrong in functions)


def returns(wrong, trial):
    try:
        result = wrong(*trial.args.values())
    except (ValueError, IndexError):                    # this wrong function stops on these sizes
        return False
    parts = result if len(trial.returns) > 1 else [result]
    return all(same(trial.got[name], part) for name, part in zip(trial.returns, parts, strict=True))


def _unit(X):
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def two_faults(build, faults):
    """A diagnosis: build(**parts) with two of its parts exchanged. faults: words -> {part: another}."""
    def diagnosis(trial):
        for (first, one), (second, other) in combinations(faults.items(), 2):
            if not one.keys() & other.keys() and returns(build(**one, **other), trial):
                return {"first": first, "second": second}
    return diagnosis


SCALES = {
    "scores are not scaled": {"scale": lambda d, h: 1},
    "scores are divided by d_k": {"scale": lambda d, h: h / d},
    "scores are divided by sqrt(d)": {"scale": lambda d, h: d ** -0.5},
}


# ------------------------------------------------------------------ 01 projections

def turn_one(Ws, i):
    return [W.T if j == i else W for j, W in enumerate(Ws)]


PROJECT = {
    "transposed-weight": [lambda X, *Ws: [X @ W.T for W in Ws],
                          *[lambda X, *Ws, i=i: [X @ W for W in turn_one(Ws, i)] for i in range(3)]],
    "no-projection": [lambda X, *Ws: [X, X, X]],
}


def reused_projection(trial):
    names = list(trial.got)
    for a, b in ((a, b) for a in names for b in names if a < b):
        if same(trial.got[a], trial.got[b]) and not same(trial.want[a], trial.want[b]):
            return {"a": a, "b": b}


LINEAR = {
    "not-transposed": [lambda weight: weight],
    "reshaped": [lambda weight: weight.reshape(weight.shape[::-1])],
}

COUNT = {
    "W_O-forgotten": [lambda d, h: 3 * d * d],
    "times-h": [lambda d, h: 4 * d * d * h, lambda d, h: 3 * d * d * h, lambda d, h: 3 * d * d * h + d * d],
    "biases-counted": [lambda d, h: 4 * d * d + 4 * d, lambda d, h: 4 * d * d + 3 * d, lambda d, h: 4 * d * d + d],
    "one-matrix": [lambda d, h: d * d],
    "one-head-counted": [lambda d, h: 4 * d * (d // h), lambda d, h: 3 * d * (d // h)],
    "slices-counted": [lambda d, h: 4 * (d // h) ** 2, lambda d, h: 3 * (d // h) ** 2],
}


def other_matrices(trial):
    """A whole number of (d, d) matrices, or of rows of one."""
    count, d = trial.result, trial.args["d"]
    if count > 0 and count % d == 0:
        return {"count": f"{count / d ** 2:g} times d * d" if count % d ** 2 == 0 else f"{count / d:g} times d"}


def same_always(trial):
    """One number, for any d and h."""
    other, = trial.ask({"d": 6 * trial.args["d"], "h": 2 * trial.args["h"]}).values()
    return np.isfinite(trial.result) and same(other, trial.result) and {"got": trial.result.item()}


def zero(trial):
    return trial.result == 0


def not_whole(trial):
    return trial.result.dtype.kind == "f" and trial.result == np.round(trial.result) and {"got": float(trial.result)}


def silent_remainder(trial):
    """Asked was an error, and a number came."""
    return trial.want is None and trial.args


# ------------------------------------------------------------------ 02 scores

SAME_TWICE = {"one-array-twice": [lambda Q, K: attention_scores(Q, Q), lambda Q, K: attention_scores(K, K),
                                  lambda Q, K: Q @ Q.T, lambda Q, K: K @ K.T]}
SCORES = {
    "last-only": [lambda Q, K: np.outer(Q[:, -1], K[:, -1]) / Q.shape[-1] ** 0.5,
                  lambda Q, K: np.outer(Q[:, -1], K[:, -1])],
    "cosine": [lambda Q, K: _unit(Q) @ _unit(K).T, lambda Q, K: attention_scores(_unit(Q), _unit(K))],
    "softmax-included": [lambda Q, K: softmax(attention_scores(Q, K)), lambda Q, K: softmax(Q @ K.T)],
}


SOFTMAX = {
    "max-of-columns": [lambda s: softmax(s - s.max(axis=0)), lambda s: softmax(s - s.max(axis=-1))],
    "not-normalised": [np.exp, lambda s: np.exp(s - s.max(axis=-1, keepdims=True)), lambda s: np.exp(s - s.max())],
    "logarithm": [lambda s: np.log(softmax(s))],
    "one-by-one": [lambda s: 1 / (1 + np.exp(-s))],
}


def distance(trial):
    """Scores in proportion to the distance of query and key, or to its square."""
    Q, K = trial.args.values()
    apart = np.linalg.norm(Q[:, None] - K, axis=-1)
    return any(same(trial.result, (trial.result * x).sum() / (x * x).sum() * x) for x in (apart, apart ** 2))


def other_base(trial):
    found = divisor(trial.seen) if not trial.large else None
    return found is not None and not np.isclose(found, 1) and {"how": how_scaled(found, trial.sizes)}


def other_function(trial):
    """Positive, and each row sums to 1, but no power of one base gives such shares."""
    weights = trial.result
    return not trial.large and (weights >= 0).all() and sum_to_one(weights) and divisor(trial.seen) is None


def global_maximum(trial):
    """The large scores hold their maximum in row 0: only the other rows fail."""
    lost = lost_rows(trial)
    return lost.any() and not lost[0]


def mixing(product, mask_for=lambda n: None):
    """Attention whose last product is product(weights, Q, K, V)."""
    def wrong(Q, K, V):
        weights = attention(Q, K, V, mask_for(Q.shape[-2]))[1]
        return product(weights, Q, K, V), weights
    return wrong


ATTENTION = {
    "keys-as-values": [mixing(lambda w, Q, K, V: w @ K)],
    "queries-as-values": [mixing(lambda w, Q, K, V: w @ Q)],
    "scores-as-weights": [mixing(lambda w, Q, K, V: attention_scores(Q, K) @ V)],
    "summed-over-queries": [mixing(lambda w, Q, K, V: w.T @ V)],
    "only-the-best": [mixing(lambda w, Q, K, V: V[w.argmax(axis=-1)])],
    "last-only": [mixing(lambda w, Q, K, V: w[:, -1:] * V[-1])],
    "step-around": [mixing(lambda w, Q, K, V: w @ V + Q)],
    "keys-values-swapped": [lambda Q, K, V: attention(Q, V, K)],
    "values-as-keys": [lambda Q, K, V: attention(Q, V, V)],
    "one-array-twice": [lambda Q, K, V: attention(Q, Q, V)],
}


def scores_returned(trial):
    """The output is right, and beside it stand the scores."""
    return same(trial.got["output"], trial.want["output"]) and proportional(trial.got["weights"], trial)


def outside_the_values(trial):
    """A weighted mean stays between the smallest and the largest of what it is a mean of."""
    V = trial.args["V"]
    low, high = V.min(axis=-2, keepdims=True), V.max(axis=-2, keepdims=True)
    return (trial.got["output"] < low - 1e-6).any() or (trial.got["output"] > high + 1e-6).any()


# ------------------------------------------------------------------ 05 around the layer

def _normed(divide=lambda X, axis: np.sqrt(X.var(axis=axis, keepdims=True) + 1e-5), axis=-1):
    return lambda X: (X - X.mean(axis=axis, keepdims=True)) / divide(X, axis)


NORM = {
    "over-columns": [_normed(axis=0), _normed(lambda X, axis: X.std(axis=axis), axis=0)],
    "over-everything": [_normed(axis=(0, 1)), _normed(lambda X, axis: X.std(), axis=(0, 1))],
    "not-centred": [layers.rms_norm, lambda X: X / np.sqrt(X.var(axis=-1, keepdims=True) + 1e-5)],
    "not-divided": [_normed(lambda X, axis: 1)],
    "variance-not-root": [_normed(lambda X, axis: X.var(axis=axis, keepdims=True) + 1e-5),
                          _normed(lambda X, axis: X.var(axis=axis, keepdims=True))],
    "divided-by-d-minus-1": [_normed(lambda X, axis: np.sqrt(X.var(axis=axis, ddof=1, keepdims=True) + 1e-5)),
                             _normed(lambda X, axis: X.std(axis=axis, ddof=1, keepdims=True) + 1e-5),
                             _normed(lambda X, axis: X.std(axis=axis, ddof=1, keepdims=True))],
    "unit-length": [_unit, lambda X: _unit(X - X.mean(axis=-1, keepdims=True))],
    "eps-outside-the-root": [_normed(lambda X, axis: X.std(axis=axis, keepdims=True) + 1e-5)],
    "no-eps": [_normed(lambda X, axis: X.std(axis=axis, keepdims=True))],
}


def mean_not_0(trial):
    means = trial.result.mean(axis=-1)
    return not np.allclose(means, 0, atol=1e-6) and {"mean": means[0]}


def spread_not_1(trial):
    spreads = trial.result.std(axis=-1)
    return trial.args["X"].std(axis=-1).all() and not np.allclose(spreads, 1, atol=1e-3) and {"spread": spreads[0]}


SUBLAYER = {
    "post-norm": [lambda X, f, norm: norm(X + f(X)), lambda X, f, norm: norm(X + f(norm(X)))],
    "not-added": [lambda X, f, norm: X - f(norm(X)), lambda X, f, norm: f(norm(X)) - X,
                  lambda X, f, norm: X * f(norm(X))],
    "added-too-much": [lambda X, f, norm: 2 * X + f(norm(X)), lambda X, f, norm: X + norm(X) + f(norm(X))],
    "no-residual": [lambda X, f, norm: f(norm(X)), lambda X, f, norm: norm(f(X))],
    "normalised-stream": [lambda X, f, norm: norm(X) + f(norm(X)), lambda X, f, norm: norm(X) + f(X)],
    "no-norm": [lambda X, f, norm: X + f(X)],
    "norm-after-f": [lambda X, f, norm: X + norm(f(X)), lambda X, f, norm: X + norm(f(norm(X)))],
    "f-left-out": [lambda X, f, norm: X + norm(X), lambda X, f, norm: norm(X)],
    "f-twice": [lambda X, f, norm: X + f(f(norm(X)))],
    "f-of-the-sum": [lambda X, f, norm: f(X + norm(X))],
}


def own_norm(trial):
    """Right or nearly right with layer norm, whatever norm was given."""
    X, f, _ = trial.args.values()
    return np.allclose(trial.result, X + f(layers.layer_norm(X)), atol=0.01)
