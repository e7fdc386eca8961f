"""The exercise checkers: every wrong answer gets its own name, every right one passes, and nothing else happens."""

import math
import re
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch

from mha_lib import checks, numpy_attention
from mha_lib.checks import EXERCISES, MESSAGES, PREDICTIONS, check, names
from mha_lib.checks.errors import CRASHES, TYPES
from tests.right_answers import RIGHT
from tests.wrong_answers import WRONG, as_attention, as_masked, attend, head_of, soft

every_exercise = pytest.mark.parametrize("name", EXERCISES)


def as_torch(answer):
    """The same answer for tensors."""
    def there(x):
        return [there(part) for part in x] if isinstance(x, (list, tuple)) else torch.tensor(np.array(x))

    def wrapped(*args):
        return there(answer(*(x.detach().numpy() if torch.is_tensor(x) else x for x in args)))
    return wrapped


def is_well_said(verdict):
    lines = verdict.message.splitlines()
    return 1 <= len(lines) <= 4 and all(len(line) <= 88 for line in lines) and "{" not in verdict.message


# ------------------------------------------------------------------ right and wrong

@every_exercise
def test_right_answers_pass_however_they_are_written(name):
    for library, answers in zip(("numpy", "torch"), RIGHT[name], strict=True):
        for answer in answers:
            verdict = check(name, answer, library)
            assert (verdict.status, verdict.mistake) == ("correct", None), verdict.message
            assert verdict.example is None


def test_right_answers_are_many():
    assert sum(len(answers) for pair in RIGHT.values() for answers in pair) >= 60


@pytest.mark.parametrize("library", ["numpy", "torch"])
@every_exercise
def test_wrong_answers_are_named(name, library):
    for mistake, answers in WRONG[name].items():
        for answer in answers:
            verdict = check(name, answer if library == "numpy" else as_torch(answer), library)
            assert (verdict.status, verdict.mistake) == ("mistake", mistake), verdict.message
            assert is_well_said(verdict), verdict.message
            assert check(name, answer if library == "numpy" else as_torch(answer), library).message == verdict.message


@every_exercise
def test_every_diagnosis_is_needed(name, monkeypatch):
    """Each has a wrong answer here that gets another name without it."""
    assert set(WRONG[name]) == set(EXERCISES[name].diagnoses)
    for mistake, answers in WRONG[name].items():
        with monkeypatch.context() as patch:
            others = {id: ask for id, ask in EXERCISES[name].diagnoses.items() if id != mistake}
            patch.setitem(EXERCISES, name, EXERCISES[name]._replace(diagnoses=others))
            verdict = check(name, answers[0])
            assert verdict.status == "mistake" and verdict.mistake != mistake


@every_exercise
def test_the_example_is_small_and_shows_the_mistake(name):
    for answers in WRONG[name].values():
        example = check(name, answers[0]).example
        assert example is not None and list(example.arguments) and "yours" in repr(example)
        assert sum(x.size for x in example.arguments.values() if isinstance(x, np.ndarray)) < 250
        assert repr(example.yours) != repr(example.right)


def test_the_last_resort_says_what_is_right():
    verdict = check("split_heads", lambda X, h: np.array([head * (a + 1) for a, head in enumerate(np.hsplit(X, h))]))
    assert verdict.mistake == "different" and "Along the axis h, 0 is right and 1, 2 wrong." in verdict.message.replace(
        "\n", " ")
    verdict = check("project_qkv", lambda X, *Ws: [X ** 2 @ W for W in Ws])
    assert verdict.mistake == "different" and "difference is in your Q" in verdict.message       # the first one made


def test_the_smallest_example_is_taken():
    example = check("attention_scores", lambda Q, K: Q @ K.T).example
    assert example.arguments["Q"].shape == (1, 2) and example.arguments["K"].shape == (1, 2)
    assert example.yours == pytest.approx(example.right * 2 ** 0.5)
    assert repr(example).splitlines()[0].startswith("Q ")


@pytest.mark.parametrize(("name", "mistake", "words"), [
    ("attention", "precedence", "With d_k = 4"), ("attention", "no-scale", "With d_k = 1"),
    ("multi_head_attention", "no-W_O", "With W_O the identity"),
    ("multi_head_attention", "divided-by-sqrt-d", "With h = 1"),
    ("split_heads", "split-by-reshape", "With h = 1"), ("attention", "summed-over-queries", "runs with n = m"),
    ("linear_weight_to_W", "not-transposed", "square"), ("to_mha_mask", "heads-first", "a single sequence"),
    ("gqa_expand", "tiled", "With kv_heads = h"), ("cache_bytes", "kv-heads-ignored", "With kv_heads = h"),
    ("decode_step", "only-itself", "an empty cache"), ("kv_append", "joined-elsewhere", "runs with m = n")])
def test_a_verdict_says_what_would_have_hidden_the_mistake(name, mistake, words):
    assert words in check(name, WRONG[name][mistake][0]).message.replace("\n", " ")


@pytest.mark.parametrize(("name", "answer", "sizes"), [
    ("split_heads", lambda X, h: X.reshape(5, 3, 9).swapaxes(0, 1), "n = 5, h = 3, d_k = 9"),
    ("causal_mask", lambda n: np.triu(np.full((5, 5), -np.inf), 1), "n = 5"),
    ("attention_scores", lambda Q, K: Q @ K.T / 3, "d_k = 9"),
    ("attention", lambda Q, K, V: attend(Q, K, V, lambda *_: V.shape[1] ** -0.5), "d_v = d_k"),
    ("one_head", lambda X, *rest: head_of(X, *rest) * (rest[3] > 0), "a = 1")])
def test_a_size_written_as_a_number_is_found(name, answer, sizes):
    """And of the sizes of the first case, only those are named that matter."""
    verdict = check(name, answer)
    message = verdict.message.replace("\n", " ")
    assert verdict.status == "mistake" and is_well_said(verdict)
    assert re.search(f"with {sizes}( it comes out right|: look|\\.)", message, re.IGNORECASE), message


@pytest.mark.parametrize(("name", "mistake", "i", "words"), [
    ("masked_attention", "diagonal-blocked", 0, "Row 0 then has every key blocked by the same number"),
    ("masked_attention", "diagonal-blocked", 1, "Row 0 then has nothing left to see"),
    ("one_head", "empty-slice", 0, "Your output came out as (6, 0) for head a = 2: no columns were taken."),
    ("split_heads", "every-h-th-column", 1, "Look at the step of your slice, or at the order of h and d_k")])
def test_a_verdict_says_what_happened_in_this_answer(name, mistake, i, words):
    assert words in check(name, WRONG[name][mistake][i]).message.replace("\n", " ")


def test_a_diagonal_blocked_but_for_row_0():
    def mended(scores):
        return np.where(np.tri(scores.shape[-1], k=-1) + np.eye(1, scores.shape[-1]), scores, -np.inf)

    verdict = check("masked_attention", as_masked(mended))
    assert verdict.mistake == "diagonal-blocked" and "Row 0" not in verdict.message


# ------------------------------------------------------------------ errors and types

def endless(*args):
    return endless(*args)


def quits(*args):
    sys.exit("enough")


def raising(error):
    def answer(*args):
        raise error
    return answer


def head_from_nothing(X, W_Q, W_K, W_V, a, h):
    k = X.shape[1] // h
    return numpy_attention.attention(*((X @ W)[:, a * k:a + 1 * k] for W in (W_Q, W_K, W_V)))[0]


def refuses_all(d, h):
    raise ValueError(d, h)


ERRORS = {
    "undefined-name": ("attention", lambda Q, K, V: sotfmax(Q)),        # noqa: F821
    "other-library": ("softmax", lambda scores: torch.softmax(scores, dim=1)),
    "arguments": ("attention", lambda Q, K: Q),
    "inner-arguments": ("softmax", lambda scores: scores.sum(dim=1)),
    "other-dtype": ("attention_scores", lambda Q, K: Q @ K.T.float(), "torch"),
    "endless": ("softmax", endless),
    "quits": ("softmax", quits),
    "refuses": ("head_width", refuses_all),
    "operator": ("attention_scores", lambda Q, K: Q @ K.T / Q.shape ** 0.5),
    "truth-value": ("to_sdpa_mask", lambda mask: not mask),
    "single-number": ("softmax", lambda scores: math.exp(scores)),
    "whole-numbers": ("split_heads", lambda X, h: X.reshape(len(X), h, X.shape[1] / h)),
    "no-such-axis": ("softmax", lambda scores: scores.sum(axis=2)),
    "unpacking": ("multi_head_attention", lambda X, *rest: [n for n, d in [X.shape]]),
    "zero-division": ("pick_scale", lambda d, h: (h // d) ** -0.5),
    "star-for-product": ("project_qkv", lambda X, *Ws: [X * W for W in Ws]),
    "does-not-join": ("kv_append", lambda keys, values, K, V: (np.concatenate([keys, K[0]], axis=1), values)),
    "uneven-pieces": ("split_heads", lambda X, h: np.stack([X[:, 9:18], X[:, 18:27], X[:, 27:36]])),
    "product-does-not-fit": ("attention_scores", lambda Q, K: Q @ K),
    "does-not-broadcast": ("layer_norm", lambda X: X - X.mean(axis=1)),
    "empty-slice": ("one_head", head_from_nothing),
    "reshape-does-not-fit": ("split_heads", lambda X, h: X.reshape(h, 4, 4)),
    "raises": ("softmax", lambda scores: scores[100]),
    "view-of-moved-axes": ("merge_heads", lambda heads: heads.transpose(0, 1).view(heads.shape[1], -1), "torch"),
}
KINDS = {
    "not-called": ("linear_weight_to_W", lambda weight: weight.transpose),
    "generator": ("softmax", lambda scores: (row for row in scores)),
    "parts-missing": ("attention", lambda Q, K, V: soft(Q @ K.T / 3) @ V),
    "wrong-library": ("softmax", lambda scores: torch.softmax(torch.tensor(scores), 1)),
    "no-array": ("softmax", lambda scores: "weights"),
}


@pytest.mark.parametrize("table", ["CRASHES", "TYPES"])
def test_errors_and_types_are_named(table, monkeypatch):
    kinds, cases = (CRASHES, ERRORS) if table == "CRASHES" else (TYPES, KINDS)
    assert set(kinds) == set(cases)
    for mistake, (name, answer, *library) in cases.items():
        library = (*library, "numpy")[0]
        verdict = check(name, answer, library)
        assert (verdict.status, verdict.mistake) == ("mistake", mistake), verdict.message
        assert is_well_said(verdict)
        if mistake == "raises":         # the last resort of its table
            continue
        with monkeypatch.context() as patch:
            patch.setattr(checks, table, {id: fits for id, fits in kinds.items() if id != mistake})
            assert check(name, answer, library).mistake != mistake


def stops_by_assert(d, h):
    assert d % h == 0, f"{d} columns, {h} heads"
    return d // h


def stops_without_the_numbers(d, h):
    if d % h:
        raise ValueError("d must be a multiple of h")
    return d // h


@pytest.mark.parametrize(("answer", "mistake"), [
    (lambda d, h: ValueError(d, h) if d % h else d // h, "silent-remainder"),
    (lambda d, h: None if d % h else d // h, "silent-remainder"),
    (stops_by_assert, "other-error"), (stops_without_the_numbers, "numbers-not-named"), (refuses_all, "refuses")])
def test_the_error_asked_for_is_another_one(answer, mistake):
    verdict = check("head_width", answer)
    assert (verdict.status, verdict.mistake) == ("mistake", mistake) and is_well_said(verdict)


@pytest.mark.parametrize(("name", "answer", "library", "words"), [
    ("project_qkv", lambda X, *Ws: [W @ X for W in Ws], "numpy", "9 (d) on its left and 5 (n) on its right"),
    ("project_qkv", lambda X, *Ws: [np.dot(W, X) for W in Ws], "numpy", "9 (d) on its left and 5 (n) on its right"),
    ("project_qkv", lambda X, *Ws: [W @ X for W in Ws], "torch", "9 (d) on its left and 5 (n) on its right"),
    ("multi_head_attention", lambda X, W, *rest: W @ X, "numpy", "35 (d) on its left and 6 (n) on its right"),
    ("multi_head_attention", lambda X, *rest: X @ X, "torch", "35 (d) on its left and 6 (n) on its right"),
    ("masked_attention", lambda Q, K, V: (Q @ K.swapaxes(1, 2) + np.ones((3, 3)), V), "numpy",
     "(3, 5, 5), which reads (h, n, n), and (3, 3), which reads (h, h),"),
    ("split_heads", lambda X, h: X.reshape(h, 4, 4), "numpy", "in `"),
    ("linear_weight_to_W", lambda weight: weight @ weight, "numpy", "9 (in) on its left and 5 (out) on its right"),
    ("one_head", head_from_nothing, "numpy", "Q came out as (6, 0) for head a = 2: no columns were taken."),
    ("head_width", refuses_all, "numpy", "d = 60, h = 5")])
def test_an_error_says_where_and_which_axes(name, answer, library, words):
    verdict = check(name, answer, library)
    assert words in verdict.message.replace("\n", " ") and is_well_said(verdict), verdict.message


@pytest.mark.parametrize("error", [
    ValueError("x" * 500), KeyError("q"), MemoryError(), ZeroDivisionError(), StopIteration(), GeneratorExit(),
    AssertionError(), SystemExit(1), RecursionError(), Exception("{brace}"),
    ValueError("Q (n, d_k), none of them empty: got shape (text)")])
def test_no_error_of_the_answer_gets_out(error):
    verdict = check("attention", raising(error))
    assert verdict.status == "mistake" and verdict.mistake != "checker-failed"
    assert len(verdict.message.splitlines()) <= 4


def test_an_interrupt_by_the_user_gets_out():
    with pytest.raises(KeyboardInterrupt):
        check("softmax", raising(KeyboardInterrupt()))


class Strange:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return self


ODD = ["text", 7, 7.5, True, [], {}, set(), object(), Strange(), np.nan, [[1.0], [1.0, 2.0]], np.array(["a"]),
       np.zeros(0), np.array(None), complex(1, 2), np.broadcast_to(0.0, (10**6, 10**6)), np.zeros((1,) * 20), lambda: 0,
       [None, 1], type, np.ma.masked_array([1.0]), b"bytes", range(5)]


@every_exercise
def test_any_result_gets_a_verdict(name):
    for result in ODD:
        verdict = check(name, lambda *args, result=result: result)
        assert verdict.status == "mistake" and verdict.mistake != "checker-failed", result
        assert len(verdict.message.splitlines()) <= 4


@pytest.mark.parametrize("answer", [5, "softmax", [1, 2], np.ones(3), object(), {}, True], ids=repr)
def test_an_answer_that_is_no_function(answer):
    assert check("softmax", answer).mistake == "no-function"


def test_odd_functions():
    rng = np.random.default_rng()
    assert check("softmax", lambda scores: rng.random(scores.shape)).mistake == "random"
    mean_of_V = check("attention", lambda Q, K, V: (Q * 0 + V.mean(0), np.full((len(Q), len(K)), 1 / len(K))))
    assert mean_of_V.mistake == "uniform"
    calls = []
    assert check("softmax", lambda scores: calls.append(1) or scores * len(calls)).mistake == "random"
    assert check("softmax", np.zeros_like).mistake == "cut-to-integers"
    assert check("softmax", soft).status == "correct"


def test_an_answer_may_print_and_is_not_heard(capsys):
    def talks(scores):
        print("scores", scores)
        return soft(scores)

    check("softmax", talks)
    assert capsys.readouterr().out == "softmax: correct.\n"


# ------------------------------------------------------------------ not attempted

def statement(scores):
    ...


def documented(scores):
    """Shares of each row."""


def forgotten(scores):
    """Shares of each row."""
    exps = np.exp(scores)
    exps = exps / exps.sum(axis=-1, keepdims=True)


def test_a_missing_return_is_no_stub():
    assert check("softmax", forgotten).mistake == "returns-nothing"


def blanks(scores):
    exps = np.exp(scores - scores.max(axis=..., keepdims=True))
    return exps / exps.sum(axis=..., keepdims=True)


def blank_product(Q, K):
    return Q @ ...


def blank_argument(scores):
    return np.exp(...)


def blank_in_where(scores):
    return np.where(scores > 0, scores, ...)


def finished_with_an_index(scores):
    return scores[..., 0] @ scores


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("stub", [None, ..., statement, documented, blanks, blank_argument, lambda scores: None,
                                  lambda scores: ..., lambda scores: (..., ...), raising(NotImplementedError())])
def test_a_stub_is_not_attempted(stub, library):
    verdict = check("softmax", stub, library)
    assert (verdict.status, verdict.mistake) == ("not attempted", None)
    assert len(verdict.message.splitlines()) == 1


def test_blanks_are_seen_where_numpy_does_not_complain():
    assert check("attention_scores", blank_product).status == "not attempted"
    assert check("softmax", blank_in_where).status == "not attempted"
    assert check("softmax", finished_with_an_index).status == "mistake"      # ... in an index is no blank


# ------------------------------------------------------------------ predictions

@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions(name):
    right, wrong = PREDICTIONS[name]
    is_shape = isinstance(right, tuple)
    for convert in (tuple, list, np.array, torch.Size) if is_shape else (int, float, np.int64):
        value = convert(right)
        assert check(name, value).status == "correct"
    for mistake, values in wrong.items():
        for value in values:
            assert check(name, value).mistake == mistake
    if is_shape:
        assert check(name, 150).mistake == "asked-is-a-shape"
    else:
        assert (check(name, (12, 36)).mistake, check(name, 1.01 * right).mistake) == ("asked-is-a-number", "nearly")
    for value in ("8", len, True, {}, [[1], [2, 3]], object()):
        assert check(name, value).mistake == "no-value"
    for value in ((9, 9, 9), ()) if is_shape else (10**9, np.nan):
        verdict = check(name, value)
        assert verdict.mistake == "different" and is_well_said(verdict)
    for stub in (None, ..., (2, ..., 5)):
        assert check(name, stub).status == "not attempted"


def test_the_predicted_numbers_are_right():
    assert PREDICTIONS["predict_parameters"][0] == sum(W.size for W in np.zeros((3, 12, 12)))
    spread = np.random.default_rng(0).normal(size=(2, 100_000, 64)).prod(axis=0).sum(axis=1).std()
    assert PREDICTIONS["predict_spread"][0] == pytest.approx(spread, rel=0.01)
    assert PREDICTIONS["predict_scores_bytes"][0] == np.empty((2, 4, 1000, 1000), np.float16).nbytes
    heads = np.zeros((2, 5, 27)).reshape(2, 5, 3, 9).swapaxes(1, 2)
    assert PREDICTIONS["predict_scores_shape"][0] == (heads @ heads.swapaxes(2, 3)).shape
    assert PREDICTIONS["predict_zeros"][0] == sum(j > i for i in range(5) for j in range(5))


# ------------------------------------------------------------------ right numbers, and yet

def changes_its_input(scores):
    scores -= scores.max(axis=-1, keepdims=True)
    return soft(scores)


def changes_its_tensor(scores):
    scores -= scores.max(-1, keepdim=True).values
    return scores.softmax(-1)


def fills_a_softmax_in_place(scores):
    weights = scores.softmax(-1)
    weights *= 1.0
    return weights


def zeroes_afterwards(scores):
    return torch.nan_to_num((scores - scores.amax(-1, keepdim=True)).softmax(-1))


def with_double_inside(scores):
    return torch.eye(len(scores), dtype=torch.float64) @ scores.softmax(-1)


@pytest.mark.parametrize(("name", "answer", "library", "mistake"), [
    ("softmax", changes_its_input, "numpy", "in-place"), ("softmax", changes_its_tensor, "torch", "in-place"),
    ("softmax", fills_a_softmax_in_place, "torch", "breaks-autograd"),
    ("softmax", lambda scores: scores.detach().softmax(-1), "torch", "cut-from-autograd"),
    ("softmax", lambda scores: torch.tensor(soft(scores.numpy())), "torch", "cut-from-autograd"),
    ("softmax", with_double_inside, "torch", "dtype-clash"),
    ("guarded_softmax", zeroes_afterwards, "torch", "nan-gradient")])
def test_right_numbers_with_a_fault(name, answer, library, mistake):
    verdict = check(name, answer, library)
    assert (verdict.status, verdict.mistake) == ("mistake", mistake), verdict.message
    assert is_well_said(verdict)


def test_a_lost_float32_is_a_remark():
    """np.sqrt(d_k) is what most people write; the numbers are right."""
    verdict = check("attention", lambda Q, K, V: (lambda w: (w @ V, w))(soft(Q @ K.T / np.sqrt(Q.shape[1]))))
    assert (verdict.status, verdict.mistake) == ("correct", "float64") and "float32" in verdict.message
    assert is_well_said(verdict)
    verdict = check("softmax", lambda scores: soft(scores.astype(np.float32)))
    assert (verdict.status, verdict.mistake) == ("correct", "float32") and is_well_said(verdict)


def test_the_learners_arrays_stay_as_they_are():
    mine = np.ones((5, 7))
    check("softmax", lambda scores: mine)
    assert (mine == 1).all()
    shape = [2, 3, 5, 5]
    check("predict_scores_shape", shape)
    assert shape == [2, 3, 5, 5]


# ------------------------------------------------------------------ the command itself

def test_names_and_unknown_names(capsys):
    assert names() == [*EXERCISES, *PREDICTIONS] and len(set(names())) == len(names()) >= 22
    for name in ("softmaxx", None, 3, np.ones(2), ["softmax"]):
        verdict = check(name, soft)
        assert (verdict.status, verdict.mistake) == ("mistake", "unknown-exercise")
        assert all(known in verdict.message for known in names())
    assert "Did you mean softmax?" in check("softmaxx", soft).message
    assert check("softmax", soft, library="jax").mistake == "unknown-library"


def test_without_torch_it_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert check("softmax", soft, library="torch").mistake == "no-torch"
    assert "torch is not installed" in capsys.readouterr().out


def test_a_verdict_is_printed_once_and_displays_nothing(capsys):
    verdict = check("softmax", soft)
    assert capsys.readouterr().out == verdict.message + "\n"
    assert verdict._ipython_display_() is None and capsys.readouterr().out == ""
    assert repr(verdict) == "Verdict('correct', None)"


@every_exercise
def test_our_own_work_takes_less_than_a_second(name):
    for answers in WRONG[name].values():
        start = time.perf_counter()
        check(name, answers[0])
        assert time.perf_counter() - start < 1


def test_importing_the_checkers_loads_neither_torch_nor_matplotlib():
    code = """
        import sys
        from mha_lib.checks import check
        assert check("causal_mask", lambda n: None).status == "not attempted"
        assert not {"torch", "matplotlib"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_every_message_is_used():
    ids = {*CRASHES, *TYPES, "no-function", "no-value", "random", "checker-failed", "different", "in-place",
           "returns-nothing", "other-error", "asked-is-a-number", "asked-is-a-shape", "nearly", "float32",
           "numbers-not-named", "dtype-clash", "float64", "cut-from-autograd", "breaks-autograd", "nan-gradient"}
    for name in EXERCISES:
        ids |= {f"{name}.{id}" if f"{name}.{id}" in MESSAGES else id for id in EXERCISES[name].diagnoses}
    for name, (_, known) in PREDICTIONS.items():
        ids |= {f"{name}.{id}" if f"{name}.{id}" in MESSAGES else id for id in [*known, "different"]}
    assert ids == set(MESSAGES)


# ------------------------------------------------------------------ real mistakes, and where they are named

def as_by_torch_is_causal(n, m):
    return np.where(np.tri(n, m), 0.0, -np.inf)


def dropout(x):
    return x * (np.random.default_rng().random(x.shape) > 0.5)


REAL = {
    "A01 heads cut by a reshape": ("split_heads", "split-by-reshape"),
    "A02 heads merged by a reshape": ("merge_heads", "merge-by-reshape"),
    "A04 folded and unfolded in different orders": ("multi_head_attention", "samples-mixed"),
    "A05 masks repeated sample by sample instead of head by head": ("to_mha_mask", "heads-first"),
    "A06 heads where a kernel wants words": ("multi_head_attention", "tokens-do-not-mix"),
    "A07 batch and words in the wrong order": ("multi_head_attention", "samples-mixed"),
    "A08 .T on more than two axes": ("multi_head_attention", "all-axes-turned"),
    "A10 weight stored the other way up": ("linear_weight_to_W", "not-transposed"),
    "A12 values summed over the query letter": ("attention", "summed-over-queries"),
    "A13 d does not divide into h": ("head_width", "silent-remainder"),
    "A14 projected after the split": ("one_head", "sliced-input"),
    "A15 every head of full width": ("parameter_count", "times-h"),
    "A17 no W_O": ("multi_head_attention", "no-W_O"),
    "A18 one projection used twice": ("project_qkv", "reused-projection"),
    "A22 shared key heads tiled": ("gqa_expand", "tiled"),
    "A23 softmax over another axis": ("softmax", "softmax-over-queries"),
    "A25 softmax without taking the maximum away": ("softmax", "overflow"),
    "A26 softmax without keepdims": ("softmax", "no-keepdims"),
    "A28 scale by the model width": ("multi_head_attention", "divided-by-sqrt-d"),
    "A29 scale upside down": ("pick_scale", "upside-down"),
    "A30 ** before /": ("attention", "precedence"),
    "A32 divided by d_k": ("attention_scores", "divided-by-d_k"),
    "A34 no scale": ("attention_scores", "no-scale"),
    "A37 float32 lost to np.sqrt": ("attention", "float64",
                                    lambda Q, K, V: attend(Q, K, V, lambda d_k, d: 1 / np.sqrt(d_k))),
    "A38 scale spread over q and k": "a right answer: among RIGHT['attention']",
    "A39 float16 overflows before the scale": "either order is right in float64 and float32; float16 is not tried",
    "A40 right answers compared bit by bit": "a fault of checkers; RIGHT holds ours to it",
    "A41 narrow test data": "a fault of checkers; WRONG holds ours to it",
    "A42 an expected answer that cannot be": ("attention", "outside-the-values"),
    "A44 blocked scores set to 0": ("masked_attention", "blocked-at-zero"),
    "A45 1e-9 for -1e9": ("causal_mask", "tiny-mask"),
    "A47 fill value above real scores": ("masked_attention", "finite-mask"),
    "A48 diagonal blocked": ("masked_attention", "diagonal-blocked"),
    "A49 one future word visible": ("masked_attention", "one-future-token"),
    "A50 tril for triu": ("causal_mask", "past-blocked"),
    "A51 True means the opposite": ("to_sdpa_mask", "inverted"),
    "A53 is_causal counts from the first query": ("shifted_causal_mask", "top-left-aligned", as_by_torch_is_causal),
    "A54 a row with nothing to see": ("guarded_softmax", "empty-row-nan"),
    "A55 a finite fill makes it uniform": ("guarded_softmax", "empty-row-uniform"),
    "A56 padding on rows and columns": ("combine_masks", "padding-on-both"),
    "A57 padding on the query axis": ("combine_masks", "padding-on-queries"),
    "A58 causal or padding": ("combine_masks", "or-for-and"),
    "A59 two lowest numbers added": "masks are combined as True and False here, so there is nothing to add",
    "A61 fill value too large for float16": "float16 is not tried; the mask itself is ('causal_mask', 'finite-mask')",
    "A63 masked in place": ("softmax", "in-place", changes_its_input),
    "A64 ~ of an integer": ("to_mha_mask", "not-boolean"),
    "A65 mask of integers": ("to_sdpa_mask", "not-boolean"),
    "A66 mask without a head axis": ("combine_masks", "no-head-axis"),
    "A67 padding guessed from embeddings": "combine_masks is given which words are real, not their embeddings",
    "A69 mask left on another device": "exercises are functions on the CPU, not modules",
    "A70 NaN in a masked place": "right answers let NaN through as well: 0 * NaN is NaN",
    "A71 results written into integers": ("attention", "cut-to-integers"),
    "A72 view after moving axes": ("merge_heads", "view-of-moved-axes", ERRORS["view-of-moved-axes"][1], "torch"),
    "A73 weights averaged over the heads": ("multi_head_attention", "heads-averaged"),
    "A74 nn.MultiheadAttention by hand, not transposed": ("project_qkv", "transposed-weight"),
    "A75 square weights load silently": ("linear_weight_to_W", "not-transposed"),
    "A76 columns interleaved by head": ("split_heads", "every-h-th-column"),
    "A77 dropout while evaluating": ("softmax", "random", lambda scores: dropout(soft(scores))),
    "A78 dropout before softmax": ("softmax", "random", lambda scores: soft(dropout(scores))),
    "A79 heads in a Python list": "what a module registers does not show in the outputs of a function",
    "A80 biases counted": ("parameter_count", "biases-counted"),
    "A81 float64 meets float32": ("softmax", "dtype-clash", with_double_inside, "torch"),
    "A82 padded rows differ between modes": "a property of torch's encoder, not of an answer",
    "A83 keys ask, queries answer": ("one_head", "queries-keys-swapped"),
    "A84 length of the queries used for the keys": ("attention", "reshape-does-not-fit",
                                                    lambda Q, K, V: attend(Q, K.reshape(len(Q), -1, 1)[..., 0], V)),
    "A85 width per head taken for the model width": ("parameter_count", "times-h"),
    "A86 mask not shifted by the past": ("decode_step", "top-left-aligned"),
    "A88 positions restarted": "no exercise adds positions",
    "A90 cache joined along the wrong axis": ("kv_append", "joined-elsewhere"),
    "A92 left padding": "combine_masks pads on the left too; positions are in no exercise",
    "A93 mask left out when generating": ("masked_attention", "no-mask"),
    "A94 cached compared bit by bit": "a fault of checkers; RIGHT['decode_step'] holds ours to rounding",
    "A95 rotated keys reused": "no exercise rotates keys",
    "A98 W_O applied, and its result not returned": ("multi_head_attention", "no-W_O"),
}


@pytest.mark.parametrize("case", REAL)
def test_real_mistakes_are_named_or_cannot_be(case):
    if isinstance(REAL[case], str):
        assert len(REAL[case].split()) > 3      # a reason in words
        return
    name, mistake, *given = REAL[case]
    answer, library = (*given, "numpy")[:2] if given else (WRONG[name][mistake][0], "numpy")
    assert check(name, answer, library).mistake == mistake


def test_real_mistakes_are_all_there():
    assert len(REAL) == 74 and sum(not isinstance(row, str) for row in REAL.values()) >= 55


# ------------------------------------------------------------------ the package's own functions

def test_solutions_of_the_package_pass():
    """The library itself solves what it has, in both libraries."""
    from mha_lib import layers, ledger, numpy_attention, torch_attention

    for library, ours in (("numpy", numpy_attention), ("torch", torch_attention)):
        for name in ("attention_scores", "softmax", "attention", "split_heads", "merge_heads", "causal_mask"):
            assert check(name, getattr(ours, name), library).mistake is None
        assert check("guarded_softmax", ours.softmax, library).mistake is None
        assert check("shifted_causal_mask", ours.causal_mask, library).mistake is None
        assert check("layer_norm", layers.layer_norm, library).mistake is None
        assert check("sublayer", layers.sublayer, library).mistake is None
    assert check("attention", as_attention()).status == "correct"
    dtypes = {2: "float16", 4: "float32", 8: "float64"}
    assert check("cache_bytes", lambda n, d, h, layers, itemsize, kv_heads: ledger.cache_bytes(
        n, d, h, layers, dtype=dtypes[itemsize], kv_heads=kv_heads)).status == "correct"
    assert checks.WIDTH == 88 and checks.LINES == 4
