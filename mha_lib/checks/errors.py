"""What an answer says before its numbers are looked at: the error it stops with, or the kind of thing it returns."""

import re
import textwrap
import traceback

import numpy as np

from mha_lib.checks.structure import name_axes

# ------------------------------------------------------------------ errors


def _own_frames(error):
    """The lines of the answer that were being run, from its call down to where it left its own file."""
    frames = traceback.extract_tb(error.__traceback__)[1:]                  # the first one is ours
    return [frame for frame in frames if frame.filename == frames[0].filename]


def where(error):
    """" in `scores @ V`": the line of the answer that stopped, or nothing where its source is not to be had."""
    lines = [frame.line for frame in _own_frames(error) if frame.line]
    return f" in `{textwrap.shorten(lines[-1], 60, placeholder=' ...')}`" if lines else ""


def _says(*words):
    return lambda error: any(word in str(error).lower() for word in words)


def _wants_others(error):
    return isinstance(error, TypeError) and "()" in str(error) and "argument" in str(error)


def _raised_by_answer(error):
    own = _own_frames(error)
    return bool(own) and own[-1] == traceback.extract_tb(error.__traceback__)[-1] and "raise " in (own[-1].line or "")


def _shapes(error):
    return [[int(x) for x in shape.split(",") if x] for shape in re.findall(r"\(([\d,]+)\)", str(error))]


def _star(error):
    """Entry by entry does not fit, but a matrix product would."""
    shapes = _shapes(error)
    return "broadcast" in str(error) and len(shapes) == 2 and all(len(x) > 1 for x in shapes) and (
        shapes[0][-1] == shapes[1][-2])


CRASHES = {                     # id -> does it fit the exception?
    "undefined-name": lambda error: isinstance(error, NameError),
    "refuses": _raised_by_answer,
    "other-library": _says("must be tensor, not", "invalid combination of arguments", "'numpy.ndarray' object has no",
                           "'tensor' object has no", "call numpy() on tensor"),
    "arguments": lambda error: _wants_others(error) and error.__traceback__.tb_next is None,    # it never began
    "inner-arguments": lambda error: _wants_others(error),
    "endless": lambda error: isinstance(error, RecursionError),
    "quits": lambda error: isinstance(error, SystemExit),
    "other-dtype": _says("same dtype", "expected scalar type"),
    "operator": _says("unsupported operand", "not supported for the input types", "boolean negative",
                      "does not have enough dimensions"),
    "truth-value": _says("truth value", "boolean value of tensor"),
    "single-number": _says("converted to python scalar", "converted to a python scalar", "converted to scalar"),
    "whole-numbers": _says("interpreted as an integer", "slice indices must be", "infinity to integer",
                           "nan to integer"),
    "no-such-axis": _says("for array of dimension", "dimension out of range", "tuple index out of range",
                          "axes don't match", "must match the number of dimensions"),
    "unpacking": _says("values to unpack", "'tuple' object has no", "is a tuple, not"),
    "zero-division": lambda error: isinstance(error, ZeroDivisionError),
    "product-does-not-fit": _says("matmul", "mat1 and mat2", "not aligned", "expected size for first two dimensions"),
    "star-for-product": _star,
    "does-not-join": _says("must match exactly", "must have same number of dimensions",
                           "must match except in dimension"),
    "does-not-broadcast": _says("broadcast", "must match the size"),
    "uneven-pieces": _says("must have the same shape", "equal size", "equal division", "inhomogeneous"),
    "empty-slice": lambda error: what_is_empty(error, {}),
    "reshape-does-not-fit": _says("cannot reshape", "invalid for input of size"),
    "view-of-moved-axes": _says("view size is not compatible"),
    "raises": lambda error: True,
}

PRODUCTS = [                    # how a product says which lengths should have met, and which of the two is the left one
    (r"size (\d+) is different from (\d+)", 1), (r"(\d+) \(dim \d+\) != (\d+) \(dim \d+\)", 0),
    (r"\(\d+x(\d+) and (\d+)x\d+\)", 0), (r"\[\d+, (\d+)\] but got: \[\d+, (\d+)\]", 0)]


def what_met(error, sizes):
    """", with 9 (d) on its left and 5 (n) on its right" from the text of an error, or nothing."""
    for pattern, left in PRODUCTS:
        if found := re.search(pattern, str(error)):
            a, b = (f"{length} {name_axes([int(length)], sizes)}" for length in found.groups()[::-1 if left else 1])
            return f", with {a} on its left and {b} on its right"
    return ""


def what_lined_up(error, sizes):
    """The shapes in the text of an error, each with the names of its axes."""
    return " and ".join(f"{tuple(shape)}, which reads {name_axes(shape, sizes)}," for shape in _shapes(error))


def came_out_empty(part, shape, args):
    """"Q came out as (6, 0) for head a = 2: no columns were taken"."""
    head = f" for head a = {args['a']}" if "a" in args else ""
    return f"{part} came out as {shape}{head}: {'nothing was' if shape[-1] else 'no columns were'} taken"


def what_is_empty(error, args):
    """The same from the package's refusal of an empty array, or nothing."""
    found = re.match(r"(\w+) .*none of them empty: got shape \((\d[\d, ]*)\)", str(error))
    return came_out_empty(found[1], tuple(int(x) for x in found[2].split(",") if x), args) if found else ""


# ------------------------------------------------------------------ what came back

def _kind(x):
    name = f"NumPy array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def leaves(result):
    """What stands in nested tuples and lists."""
    return [leaf for x in result for leaf in leaves(x)] if isinstance(result, (tuple, list)) else [result]


def _lazy(result, returns, library):
    return hasattr(result, "__next__") and {"kind": type(result).__name__}


def _not_called(result, returns, library):
    found = [x for x in leaves(result) if callable(x) and hasattr(x, "__name__")]
    return bool(found) and {"name": found[0].__name__}


def _too_few(result, returns, library):
    several = hasattr(result, "__len__") and hasattr(result, "__getitem__") and getattr(result, "ndim", 1)
    several = several and not isinstance(result, dict)
    if len(returns) == 1 or several and len(result) == len(returns):
        return False
    kind = f"{len(result)} things" if isinstance(result, (tuple, list)) else f"one thing, {_kind(result)}"
    return {"kind": kind, "count": len(returns), "parts": ", ".join(returns)}


def _other_library(result, returns, library):
    wrong = [x for x in (result if isinstance(result, (tuple, list)) else [result])
             if (isinstance(x, np.ndarray) if library == "torch" else hasattr(x, "detach"))]
    return bool(wrong) and {"kind": _kind(wrong[0]), "library": library}


def _no_array(result, returns, library):
    for x in result if len(returns) > 1 else [result]:
        try:
            fine = np.asarray(plain(x)).dtype.kind in "bfiu"
        except Exception:       # whatever a strange object does when it is asked for its numbers
            fine = False
        if not fine:
            shapes = ", ".join(str(tuple(part.shape)) for part in leaves(x) if hasattr(part, "shape"))
            return {"kind": _kind(x) + (f" of shapes {shapes}" if shapes else ""), "parts": ", ".join(returns)}


TYPES = {"generator": _lazy, "not-called": _not_called, "parts-missing": _too_few, "wrong-library": _other_library,
         "no-array": _no_array}


def plain(x):
    """Tensors as arrays, in lists too."""
    if isinstance(x, (list, tuple)):
        return [plain(part) for part in x]
    if not hasattr(x, "detach"):
        return x
    x = x.detach().cpu()
    return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()       # NumPy has no bfloat16


def read(result, returns):
    """What the answer returned -> part -> array."""
    parts = result if len(returns) > 1 else [result]
    return {part: np.asarray(plain(x)) for part, x in zip(returns, parts, strict=True)}
