"""What stands around attention in a transformer: normalisation, the residual stream. NumPy or torch, as the argument.

NumPy and torch share the words used here (mean, axis, keepdims), so one text serves both, and torch differentiates it.
"""

from mha_lib import rules


def layer_norm(X, gain=None, bias=None, eps=1e-5):
    """(x - mean) / sqrt(var + eps) * gain + bias, each row of X (..., d) for itself -> (..., d).

    gain (d,) and bias (d,); None means 1 and 0. Ba, Kiros and Hinton 2016.
    """
    _check(X, gain=gain, bias=bias)
    centred = X - X.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)         # (..., 1)
    return _affine(centred / (variance + eps) ** 0.5, gain, bias)


def rms_norm(X, gain=None, eps=1e-5):
    """x / sqrt(mean of x^2 + eps) * gain, each row of X (..., d) for itself -> (..., d). Zhang and Sennrich 2019."""
    _check(X, gain=gain)
    return _affine(X / ((X * X).mean(axis=-1, keepdims=True) + eps) ** 0.5, gain, None)


def sublayer(X, f, norm=layer_norm):
    """X + f(norm(X)): f reads the normalised stream, its result is added (pre-norm). X (..., d) -> (..., d)."""
    _check(X)
    update = f(norm(X))
    rules.same_kind(X=X, update=update)
    if tuple(update.shape) != tuple(X.shape):
        raise ValueError(f"the sublayer must return the shape of X {tuple(X.shape)} to be added to it: "
                         f"got {tuple(update.shape)}")
    return X + update


def _check(X, **vectors):
    given = {name: x for name, x in vectors.items() if x is not None}
    rules.same_kind(X=X, **given)
    rules.has_axes("d", X=X)
    for name, x in given.items():
        if tuple(x.shape) != (X.shape[-1],):
            raise ValueError(f"{name} must be ({X.shape[-1]},), the last axis of X {tuple(X.shape)}: "
                             f"got {tuple(x.shape)}")


def _affine(X, gain, bias):
    X = X if gain is None else X * gain
    return X if bias is None else X + bias
