"""Exercises that say which mistake was made.

    >>> from mha_lib.checks import check, names
    >>> check("softmax", my_softmax)                    # a function; for a prediction, the number or shape itself
    >>> check("softmax", my_softmax, library="torch")

    exercises     every exercise: its arguments, the right result, what a wrong one is asked
    errors        what an answer stops with, or what kind of thing it returns
    structure     what a wrong result shows by itself: shapes, sums, factors, what moves what
    known         wrong functions that people really write, compared on the same input
    heads, masks, costs   those of these subjects
    messages.txt  what the verdicts say
"""

import ast
import contextlib
import difflib
import importlib.resources
import importlib.util
import inspect
import io
import textwrap
import warnings
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from mha_lib.checks.errors import CRASHES, TYPES, leaves, plain, read, what_is_empty, what_lined_up, what_met, where
from mha_lib.checks.exercises import EXERCISES, PREDICTIONS
from mha_lib.checks.structure import Trial, earliest_first, right

LINES, WIDTH = 4, 88
MESSAGES = dict(line.split(": ", 1) for line in
                importlib.resources.files(__name__).joinpath("messages.txt").read_text(encoding="utf-8").splitlines()
                if line and not line.startswith("#"))


class Example(NamedTuple):
    """The smallest input that shows the mistake, and both results. Prints as a small table."""

    arguments: dict
    yours: Any
    right: Any

    def __repr__(self):
        rows = {**self.arguments, "yours": self.yours, "right": self.right}
        width = max(map(len, rows)) + 2
        return "\n".join(name.ljust(width) + _text(x).replace("\n", "\n" + " " * width) for name, x in rows.items())


class Verdict(NamedTuple):
    """What check found. status: "correct", "not attempted" or "mistake"; mistake: a short id, or None.

    Two ids come with a correct answer, where the numbers are right but their dtype did not stay: "float64", "float32".
    """

    status: str
    mistake: str | None
    message: str
    example: Example | None = None

    def __repr__(self):
        return f"Verdict({self.status!r}, {self.mistake!r})"

    def _ipython_display_(self):
        """Nothing: check has printed the message already."""


def names():
    """The exercises, in the order of the course; those that start with predict_ take a value."""
    return [*EXERCISES, *PREDICTIONS]


def check(name, answer, library="numpy"):
    """Try an answer, print what was found, -> Verdict. Nothing is raised but an interrupt by the user.

    An unknown name or library gives status "mistake" with the id "unknown-exercise" or "unknown-library", and
    library="torch" without torch "no-torch".
    """
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")                 # overflow and NaN are what the verdict is about
        try:
            verdict = _judge(name, answer, library)
        except Exception as error:                      # a gap of ours must not stop a notebook
            verdict = _mistake(name, "checker-failed", error=type(error).__name__)
    print(verdict.message)
    return verdict


def _judge(name, answer, library):
    if not isinstance(name, str) or name not in names():
        near = difflib.get_close_matches(str(name), names(), 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        text = f"There is no exercise {name!r}.{hint} There are: {', '.join(names())}."
        return Verdict("mistake", "unknown-exercise", textwrap.fill(text, WIDTH))
    if library not in ("numpy", "torch"):
        return Verdict("mistake", "unknown-library", f'{name}: library is "numpy" or "torch", not {library!r}.')
    if library == "torch" and importlib.util.find_spec("torch") is None:
        return Verdict("mistake", "no-torch", f"{name}: torch is not installed here; pip install torch brings it.")
    if answer is None or answer is ...:
        return _not_attempted(name)
    if name in PREDICTIONS:
        return _judge_value(name, answer)
    if not callable(answer):
        return _mistake(name, "no-function", kind=type(answer).__name__)
    return _Attempt(name, answer, library).verdict()


def _judge_value(name, answer):
    due, known = PREDICTIONS[name]
    if any(x is ... for x in leaves(answer)):
        return _not_attempted(name)
    try:
        given = np.asarray(plain(answer))
        given = given.tolist() if given.dtype.kind in "iuf" else given.item()
    except (TypeError, ValueError):
        given = None
    if not isinstance(given, (int, float, list)) or isinstance(given, bool):
        return _mistake(name, "no-value", kind=type(answer).__name__)
    given, due = (tuple(np.atleast_1d(x).tolist()) for x in (given, due))
    if given == due:
        return Verdict("correct", None, f"{name}: correct.")
    ids = [id for id, values in known.items() if given in [tuple(np.atleast_1d(x)) for x in values]]
    if not ids and (len(given) == 1) != (len(due) == 1):
        ids = ["asked-is-a-number" if len(due) == 1 else "asked-is-a-shape"]
    if not ids and len(given) == len(due) == 1 and np.isclose(given, due, rtol=0.05):
        ids = ["nearly"]
    return _mistake(name, *ids or ["different"])


# ------------------------------------------------------------------ functions

class _Call(NamedTuple):
    """One call of an answer: parts where all went well, else the error it raised or the fault of what it returned."""

    given: dict                         # the arguments, in the answer's library
    result: Any = None
    parts: dict | None = None           # part -> array
    error: BaseException | None = None
    fault: tuple | None = None          # id, values for its message

    @property
    def blank(self):
        """A stub: nothing or ... came back, or an error because a ... still stood in a line."""
        if self.error is None:
            return _holds_ellipsis(self.result)
        stub = isinstance(self.error, NotImplementedError) and "not implemented for" not in str(self.error)  # torch's
        return stub or "ellipsis" in str(self.error).lower()


def _holds_ellipsis(result):
    if isinstance(result, np.ndarray):
        return result.dtype == object and result.size < 1000 and _holds_ellipsis(result.ravel().tolist())
    return result is None or result is ... or isinstance(result, (tuple, list)) and any(x is ... for x in result)


def _tree(answer):
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(answer)))
    except (OSError, TypeError, SyntaxError):           # no source to be had, or a lambda cut from its line
        return ast.Module([], [])


def _forgets_return(answer):
    """Does the function work something out and have no return with a value?"""
    tree = _tree(answer)
    body = [line for function in tree.body if isinstance(function, ast.FunctionDef) for line in function.body]
    works = any(not isinstance(line, ast.Pass) and not isinstance(getattr(line, "value", None), ast.Constant)
                for line in body)
    return works and not any(isinstance(x, ast.Return) and x.value for x in ast.walk(tree))


def _has_blank(answer):
    """Does a ... still stand in the function, other than between the brackets of an index?"""
    tree = _tree(answer)
    in_index = {id(x) for index in ast.walk(tree) if isinstance(index, ast.Subscript) for x in ast.walk(index.slice)}
    return any(isinstance(x, ast.Constant) and x.value is ... and id(x) not in in_index for x in ast.walk(tree))


class _Attempt:
    """An answer to one exercise."""

    def __init__(self, name, answer, library):
        self.name, self.answer, self.library = name, answer, library
        self.exercise = EXERCISES[name]

    def verdict(self):
        for sizes in self.exercise.cases:
            call = self.call(sizes)
            if not self.passes(call, sizes):
                if sizes is self.exercise.cases[0] and (call.blank or _has_blank(self.answer)):
                    forgets = call.error is None and not _has_blank(self.answer) and _forgets_return(self.answer)
                    return _mistake(self.name, "returns-nothing") if forgets else _not_attempted(self.name)
                id, values, hint = self.diagnose(call, sizes)
                return _mistake(self.name, id, self.smallest(sizes), hint, **values)
        return self.afterwards()

    def call(self, sizes, dtype="float64", gradients=False):
        return self.call_with(self.exercise.make(**sizes), dtype, gradients)

    def call_with(self, args, dtype="float64", gradients=False):
        given = {name: self.give(x, dtype, gradients) for name, x in args.items()}
        try:
            result = self.answer(*given.values())
        except KeyboardInterrupt:
            raise
        except BaseException as error:      # SystemExit and all the rest: a verdict, not the end of the notebook
            return _Call(given, error=error)
        for id, diagnosis in TYPES.items():
            if values := diagnosis(result, self.exercise.returns, self.library):
                return _Call(given, result, fault=(id, values))
        return _Call(given, result, read(result, self.exercise.returns))

    def give(self, x, dtype, gradients):
        """A copy of an argument, in the library and dtype asked for."""
        if not isinstance(x, np.ndarray):
            return x
        floats = x.dtype.kind == "f"
        if self.library == "numpy":
            return x.astype(dtype if floats else x.dtype)
        import torch

        return torch.tensor(x, dtype=getattr(torch, dtype) if floats else None, requires_grad=gradients and floats)

    def right(self, args):
        """Part -> array, or None where a ValueError is the right answer."""
        try:
            return read(self.exercise.right(*args.values()), self.exercise.returns)
        except ValueError:
            return None

    def passes(self, call, sizes):
        want = self.right(self.exercise.make(**sizes))
        if want is None:
            said = str(call.error)
            return isinstance(call.error, ValueError) and all(str(x) in said for x in call.given.values())
        return call.parts is not None and right(call.parts, want)

    def diagnose(self, call, sizes):
        """-> id, values for its message, and a sentence on where the mistake does not show."""
        if call.fault and self.right(self.exercise.make(**sizes)) is None:      # None or an error, handed back
            return "silent-remainder", call.given, ""
        if call.fault:
            return *call.fault, ""
        if call.error is not None:
            return self.diagnose_error(call, sizes)
        again = self.call(sizes).parts
        if again is None or not all(np.array_equal(again[part], x, equal_nan=True) for part, x in call.parts.items()):
            return "random", {}, ""
        trial = self.trial(call, sizes)
        found = self.ask(trial)
        hides = self.hidden_by(sizes)
        if found:
            return *found, f"With {hides} it comes out right, which hides it." if hides else ""
        hint = f"It is right with {hides}: look at what that leaves out." if hides else ""
        return "different", self.first_difference(trial), hint

    def diagnose_error(self, call, sizes):
        """Where the sizes of a friendlier case let it run, the result may say more than the error."""
        args = self.exercise.make(**sizes)
        if self.right(args) is None:        # an error was asked for, and this is another one
            id = "numbers-not-named" if isinstance(call.error, ValueError) else "other-error"
            return id, {**args, "kind": type(call.error).__name__}, ""
        for words, friendly in self.exercise.friendly.items():
            if 1 in friendly.values():      # there too many different mistakes look the same
                continue
            easier = self.call(friendly)
            if easier.parts is not None and not self.passes(easier, friendly):
                found = self.ask(self.trial(easier, friendly))
                if found:
                    return *found, f"(It stops with an error in general, and runs with {words}.)"
        id = next(id for id, fits in CRASHES.items() if fits(call.error))
        given = [f"{name} {x.shape}" if isinstance(x, np.ndarray) else f"{name} = {x}" for name, x in args.items()
                 if not callable(x)]
        values = dict(error=textwrap.shorten(f"{type(call.error).__name__}: {call.error}", 90), library=self.library,
                      given=", ".join(given), arguments=", ".join(args), line=where(call.error),
                      meeting=what_met(call.error, _lengths(sizes)), empty=what_is_empty(call.error, args),
                      shapes=what_lined_up(call.error, _lengths(sizes)))
        hides = self.hidden_by(sizes)
        return id, values, f"It runs and is right with {hides}." if hides else ""

    def trial(self, call, sizes):
        args = self.exercise.make(**sizes)
        want = self.right(args)
        fits = want is not None and all(call.parts[part].shape == want[part].shape for part in want)
        seen = self.exercise.look(args, call.parts) if self.exercise.look and fits else None
        return Trial(args, _lengths(sizes), call.parts, want, self.exercise.returns,
                     lambda args: self.call_with(args).parts, self.right, seen, bool({"spread", "low"} & set(sizes)))

    def ask(self, trial):
        """id, values of the first diagnosis that has something to say, or None."""
        for id, diagnosis in self.exercise.diagnoses.items():
            try:
                values = diagnosis(trial)
            except (ValueError, IndexError, TypeError, AttributeError, np.linalg.LinAlgError):
                continue                    # the result is too strange for this question
            if values:
                return id, values if isinstance(values, dict) else {}
        return None

    def hidden_by(self, failed):
        """The words for sizes on which the answer is right all the same, or None."""
        first = self.exercise.cases[0]
        if failed is not first:             # it passed that one: other lengths tell, or larger numbers
            numbers = {"spread", "low", "constant", "norm"} & set(failed)
            return None if numbers else self.fewest_sizes(failed, first)
        for words, sizes in self.exercise.friendly.items():
            if self.passes(self.call(sizes), sizes):
                return words

    def fewest_sizes(self, failed, first):
        """"d_k = 9": as few sizes as will do, taken from the first case, to make the answer pass; or None."""
        others = [name for name, x in failed.items() if x != first.get(name)]
        for names in (names for count in range(len(others)) for names in combinations(others, count + 1)):
            kept = {name: x for name, x in failed.items() if name not in names}
            sizes = kept | {name: first[name] for name in names if name in first}
            if self.passes(self.call(sizes), sizes):
                taken = first | self.exercise.make(**sizes)     # make sets a; without a d_v, V is as wide as K
                return ", ".join(f"{name} = {taken.get(name, 'd_k')}" for name in names)

    def first_difference(self, trial):
        """The earliest stage that differs, its first entry that does, and both values."""
        stages = [(part, trial.got[part], trial.want[part]) for part in earliest_first(trial.got)]
        if "weights" not in trial.got and trial.seen and trial.seen.weights is not None:
            stages.insert(0, ("weights (worked back from your output)", trial.seen.weights,
                              self.exercise.look(trial.args, trial.want).weights))
        part, got, want = next(stage for stage in stages if not right({"": stage[1]}, {"": stage[2]}))
        at = np.argwhere(~np.isclose(got.astype(float), want.astype(float), rtol=1e-9, atol=1e-9))
        at = tuple(at[0].tolist()) if len(at) else (0,) * got.ndim
        return dict(part=part, at=f" at {list(at)}" if at else "", **_two_numbers(got[at], want[at]),
                    along=_right_along(got, want, self.exercise.returns.get(part, "")))

    def smallest(self, sizes):
        """The smallest input on which the answer fails, as an Example."""
        for small in [*self.exercise.small, sizes]:
            call = self.call(small)
            if not self.passes(call, small):
                args = self.exercise.make(**small)
                yours = call.parts or (call.result if call.error is None else repr(call.error))
                return Example(args, _single(yours), _single(self.right(args) or "an error that says why"))

    # -------------------------------------------------------------- when all numbers are right

    def afterwards(self):
        """Inputs changed, float32 lost, gradients cut."""
        first = self.exercise.cases[0]
        args, call = self.exercise.make(**first), self.call(first)
        changed = [name for name, x in args.items()
                   if isinstance(x, np.ndarray) and not np.array_equal(plain(call.given[name]), x)]
        if changed:
            return _mistake(self.name, "in-place", names=", ".join(changed))
        if extreme := self.exercise.extreme:
            there = self.call(extreme)
            if there.parts and self.exercise.diagnoses["finite-mask"](self.trial(there, extreme)):
                return _mistake(self.name, "finite-mask", self.smallest(extreme))
        floats = any(isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in args.values())
        if not floats or any(x.dtype.kind != "f" for x in call.parts.values()):
            return Verdict("correct", None, f"{self.name}: correct.")
        single = self.call(first, "float32")
        if single.error is not None:
            return _mistake(self.name, "dtype-clash", error=type(single.error).__name__)
        if self.library == "torch" and (fault := self.gradient_fault(first)):
            return _mistake(self.name, fault)
        for id, result in (("float64", single.result), ("float32", call.result)):
            due = "float32" if id == "float64" else "float64"
            if any(str(getattr(x, "dtype", due)).removeprefix("torch.") != due for x in leaves(result)):
                return Verdict("correct", id, _wrap(f"{self.name}: correct. {MESSAGES[id]}"))
        return Verdict("correct", None, f"{self.name}: correct.")

    def gradient_fault(self, sizes):
        """The id of what keeps torch from learning through this answer, or None."""
        import torch

        call = self.call(sizes, gradients=True)
        if call.error is not None:              # x.numpy() is refused where gradients are asked for
            return "cut-from-autograd"
        tensors = leaves(call.result)
        if not all(x.requires_grad for x in tensors):
            return "cut-from-autograd"
        try:
            sum((x * torch.arange(1, x.numel() + 1).reshape(x.shape)).sum() for x in tensors).backward()
        except RuntimeError:
            return "breaks-autograd"
        gradients = [x.grad for x in call.given.values() if isinstance(x, torch.Tensor) and x.grad is not None]
        return None if all(x.isfinite().all() for x in gradients) else "nan-gradient"


def _lengths(sizes):
    """Axis -> length, with d or d_k worked out."""
    axes = "B", "n", "m", "h", "kv_heads", "d", "d_k", "d_v", "in", "out"
    lengths = {name: x for name, x in sizes.items() if name in axes}
    h, d, d_k = (lengths.get(name) for name in ("h", "d", "d_k"))
    return lengths | ({"d": h * d_k} if h and d_k else {}) | ({"d_k": d // h} if h and d else {})


# ------------------------------------------------------------------ words

def _mistake(name, id, example=None, hint="", /, **values):
    message = MESSAGES.get(f"{name}.{id}") or MESSAGES[id]
    message = message.format(**values)
    return Verdict("mistake", id, _wrap(f"{name}: not yet. {message}", hint), example)


def _wrap(text, hint=""):
    """At most four lines; where there is no room, the hint goes first, then the last sentences."""
    lines = textwrap.wrap(f"{text} {hint}", WIDTH, break_on_hyphens=False)
    while len(lines) > LINES and (hint or ". " in text):
        text, hint = text if hint else text[:text.rfind(". ") + 1], ""
        lines = textwrap.wrap(text, WIDTH, break_on_hyphens=False)
    return "\n".join(lines[:LINES])


def _not_attempted(name):
    return Verdict("not attempted", None, f"{name}: not attempted yet. Put your own in place of ... and run it again.")


def _single(parts):
    return next(iter(parts.values())) if isinstance(parts, dict) and len(parts) == 1 else parts


def _two_numbers(got, want):
    """Both with as many digits as it takes to tell them apart."""
    for digits in range(4, 17):
        pair = [str(x) if isinstance(x, np.bool_) else np.format_float_positional(x, digits, trim="-")
                for x in (got, want)]
        if pair[0] != pair[1]:
            break
    return dict(zip(("got", "want"), pair, strict=True))


def _right_along(got, want, axes):
    """A sentence on the first axis along which some indices are right and some are not, or nothing."""
    wrong = ~np.isclose(got.astype(float), want.astype(float), rtol=1e-9, atol=1e-9)
    for i, axis in enumerate(axes.split(", ") if axes else []):
        there = wrong.any(axis=tuple(j for j in range(wrong.ndim) if j != i))
        if there.any() and not there.all():
            good, bad = (", ".join(map(str, np.flatnonzero(x))) for x in (~there, there))
            return f" Along the axis {axis}, {good} is right and {bad} wrong."
    return ""


def _text(x):
    if isinstance(x, dict):
        return "\n".join(f"{part}\n{_text(value)}" for part, value in x.items())
    if isinstance(x, np.ndarray):
        return np.array2string(x, precision=4, suppress_small=True, threshold=100)
    return getattr(x, "__name__", "") or textwrap.shorten(str(x), WIDTH)
