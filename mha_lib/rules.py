"""The rules that inputs must keep, and the errors that name them: written once, for NumPy and torch.

Wrong shapes, lengths and devices raise ValueError, wrong kinds of thing TypeError. Every message names
the rule and what was given. Nothing here looks at values: NaN passes through the whole package unhidden.
"""

import sys

import numpy as np


def library_of(x):
    """"numpy" for an array, "torch" for a tensor, None for anything else. Never imports torch."""
    if type(x) is np.ndarray:                       # np.matrix and masked arrays give * and sums another meaning
        return "numpy"
    torch = sys.modules.get("torch")                # no tensor exists before torch is imported
    return "torch" if torch and isinstance(x, torch.Tensor) else None


def same_kind(library=None, **named):
    """Every argument is an array of one library, one float dtype and one device; `library` fixes which library."""
    first_name, first = None, None
    for name, x in named.items():
        kind = library_of(x)
        if kind is None:
            fix = f"np.asarray({name}, dtype=float)" if library != "torch" else f"torch.as_tensor({name})"
            raise TypeError(f"{name} is a {type(x).__name__}, not an array: convert it with {fix}")
        if library not in (None, kind):
            fix = "numpy_attention" if kind == "numpy" else "torch_attention"
            raise TypeError(f"{name} is a {kind} array, but these functions take {library}: use mha_lib.{fix} for it, "
                            "or convert it (torch.from_numpy(X), X.detach().cpu().numpy())")
        is_float = x.dtype.kind == "f" if kind == "numpy" else x.dtype.is_floating_point
        if not is_float:
            fix = ".astype(float)" if kind == "numpy" else ".to(torch.float32)"
            raise TypeError(f"{name} holds {x.dtype}, attention needs floats: use {name}{fix}")
        if first is None:
            library, first_name, first = kind, name, x
        elif x.dtype != first.dtype:
            raise TypeError(f"{first_name} is {first.dtype} and {name} is {x.dtype}: give both the same dtype")
        elif kind == "torch" and x.device != first.device:
            raise ValueError(f"{first_name} is on {first.device} and {name} on {x.device}: move both to one device")


def has_axes(names, **named):
    """Every argument ends in the named axes, e.g. "n, d", and none of its axes is empty."""
    for name, x in named.items():
        if x.ndim < len(names.split(", ")):
            raise ValueError(f"{name} must end in the axes ({names}), got shape {tuple(x.shape)}")
        if 0 in x.shape:
            raise ValueError(f"{name} must end in the axes ({names}), none of them empty: got shape {tuple(x.shape)}")


def whole(**named):
    """Every argument is a whole number, 1 or more."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}")


def heads_divide(d, h):
    """d = h * d_k with whole numbers."""
    whole(h=h)
    if d % h:
        raise ValueError(f"d={d} does not divide into h={h} heads: d must be h * d_k with a whole d_k")


def meets(X, W_QKV):
    """X (..., n, d) can be multiplied with W_QKV (d, 3d)."""
    d = W_QKV.shape[0]
    if X.shape[-1] != d:
        raise ValueError(f"the last axis of X is {X.shape[-1]}, but W_QKV {tuple(W_QKV.shape)} needs d={d}: "
                         f"got X of shape {tuple(X.shape)}")


def queries_meet_keys(library, Q, K, V=None):
    """Q (..., n, d_k), K (..., m, d_k), V (..., m, d_v); leading axes broadcast."""
    named = dict(Q=Q, K=K) if V is None else dict(Q=Q, K=K, V=V)
    same_kind(library, **named)
    has_axes("n, d_k", **named)
    if Q.shape[-1] != K.shape[-1]:
        raise ValueError("Q and K must share a width d_k, the last axis: "
                         f"got Q {tuple(Q.shape)} and K {tuple(K.shape)}")
    if V is not None and K.shape[-2] != V.shape[-2]:
        raise ValueError("K and V must share a length m, one value for each key: "
                         f"got K {tuple(K.shape)} and V {tuple(V.shape)}")
    if Q.shape[:-2] == K.shape[:-2] and (V is None or V.shape[:-2] == K.shape[:-2]):
        return                                          # the usual case, and short inputs feel every microsecond
    shapes = {name: tuple(x.shape) for name, x in named.items()}
    try:
        np.broadcast_shapes(*(shape[:-2] for shape in shapes.values()))
    except ValueError:
        raise ValueError("the leading (batch, head) axes must be equal or 1: got "
                         + ", ".join(f"{name} {shape}" for name, shape in shapes.items())) from None


def mask_fits(library, mask, scores):
    """An additive mask of floats (0 = may attend, -inf = may not) that broadcasts to the scores (..., n, m)."""
    where = "np.where(visible, 0.0, -np.inf)" if library == "numpy" else "torch.where(visible.bool(), 0.0, -torch.inf)"
    if library_of(mask) == library and "float" not in str(mask.dtype):
        raise TypeError(f"mask holds {mask.dtype}, but masks here are added to the scores: "
                        f"where visible says who may attend (True or 1), use {where}")
    same_kind(library, mask=mask)
    if library == "torch" and mask.device != scores.device:
        raise ValueError(f"mask is on {mask.device} and the scores on {scores.device}: move both to one device")
    try:
        fits = np.broadcast_shapes(tuple(mask.shape), tuple(scores.shape)) == tuple(scores.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"mask {tuple(mask.shape)} does not broadcast to the scores {tuple(scores.shape)}: "
                         "its last axes are (n, m), queries by keys; a mask for each sequence needs a head axis of 1")


def float_dtype(library, dtype):
    """dtype is a float type of the library."""
    is_float = np.issubdtype(dtype, np.floating) if library == "numpy" else getattr(dtype, "is_floating_point", False)
    if not is_float:
        raise TypeError(f"dtype must be a float type of {library}, got {dtype}: masks and caches hold floats")


def causal_lengths(n, m):
    """n queries are the last n of m tokens."""
    whole(n=n, m=m)
    if m < n:
        raise ValueError(f"n={n} queries are the last of m={m} keys, so m must be at least n")


def cache_takes(library, cache, K, V):
    """K and V (batch, h, n, d_k) are of the cache's kind and still fit in."""
    same_kind(library, cache=cache.keys, K=K, V=V)
    batch, h, capacity, d_k = cache.keys.shape
    for name, x in dict(K=K, V=V).items():
        if x.ndim != 4 or (x.shape[0], x.shape[1], x.shape[3]) != (batch, h, d_k):
            raise ValueError(f"the cache holds batch={batch}, h={h}, d_k={d_k}, so {name} must be "
                             f"({batch}, {h}, n, {d_k}), from X ({batch}, n, {h * d_k}): got {tuple(x.shape)}")
    if K.shape != V.shape:
        raise ValueError("K and V must share a length n, one value for each key: "
                         f"got K {tuple(K.shape)} and V {tuple(V.shape)}")
    if cache.length + K.shape[2] > capacity:
        raise ValueError(f"the cache is full: {cache.length} of {capacity} tokens are stored, "
                         f"{K.shape[2]} more do not fit")


def cache_is_causal(causal):
    """A cache keeps the past, and only a causal mask keeps the past fixed."""
    if not causal:
        raise ValueError("a KV cache needs causal=True: without the mask a new token would change the old ones")
