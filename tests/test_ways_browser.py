"""What the browser test would say of broken pages, and what it types. The browser itself: make test-browser."""
import json
import pathlib

import nbformat
import numpy as np
import pytest
import torch

from mha_lib.checks import check
from tests.ways import browser, lab_page
from tools import lab

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
SEEN = {"prompt": "", "outputs": 0, "folded": 0, "text": "", "errors": [], "maths": [], "wide": []}


@pytest.fixture
def book():
    return {"cells": [
        {"id": "title", "cell_type": "markdown", "metadata": {}},
        {"id": "guess", "cell_type": "code", "metadata": {"tags": ["core", "predict"]}},
        {"id": "stub", "cell_type": "code", "metadata": {"tags": ["exercise-softmax"]}},
        {"id": "check", "cell_type": "code", "metadata": {}},
    ]}


@pytest.fixture
def ran():
    """The page after Run All, all well."""
    return [{**SEEN}, {**SEEN, "prompt": "[3]:", "outputs": 1, "text": "(3, 5)"}, {**SEEN, "prompt": "[4]:"},
            {**SEEN, "prompt": "[5]:", "outputs": 1, "text": "softmax: not attempted yet. Put your own"}]


def test_a_page_without_fault_has_none(book, ran):
    assert list(lab_page.ran_faults(book, ran, first=3)) == []
    assert list(lab_page.opened_faults(book, [SEEN] * 4)) == []


@pytest.mark.parametrize(("cell", "change", "says"), [
    (1, {"errors": ["NameError: W"]}, "guess: error or stderr: NameError: W"),
    (0, {"maths": [r"\lvart"]}, r"title: formula not set: \lvart"),
    (1, {"wide": ["cm-scroller"]}, "guess: wider than the page: cm-scroller"),
    (2, {"prompt": "[ ]:"}, "stub: not run in its turn: [ ]: in place of [4]:"),
    (2, {"prompt": "[2]:"}, "stub: not run in its turn: [2]: in place of [4]:"),
    (1, {"outputs": 0}, "guess: nothing to compare the prediction with"),
    (3, {"text": "softmax: correct."}, "stub: the empty stub is not called not attempted"),
])
def test_each_fault_is_named(book, ran, cell, change, says):
    ran[cell].update(change)
    assert list(lab_page.ran_faults(book, ran, first=3)) == [says]


@pytest.mark.parametrize("shows", [{"outputs": 1}, {"folded": 1}])
def test_an_answer_in_view_before_the_run_is_named(book, shows):
    cells = [SEEN, {**SEEN, **shows}, SEEN, SEEN]
    assert list(lab_page.opened_faults(book, cells)) == [
        "guess: an output to be predicted is there before the cell was run"]


def test_the_shipped_notebooks_would_show_answers_and_the_learners_copies_do_not():
    for path in NOTEBOOKS:
        for data, answers in ((path.read_bytes(), True), (lab.learners_copy(path.read_bytes()), False)):
            book = json.loads(data)
            cells = [{**SEEN, "outputs": len(cell.get("outputs", []))} for cell in book["cells"]]
            assert bool(list(lab_page.opened_faults(book, cells))) == answers, path.name


@pytest.mark.parametrize("url", [
    "https://cdn.jsdelivr.net/npm/mathjax", "http://192.168.0.1/x", "wss://example.org/", "http://127.0.0.1.nip.io/"])
def test_requests_to_other_hosts_are_strange(url):
    assert browser.strange(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8888/lab", "ws://127.0.0.1:8888/api", "data:image/png;base64,AA",
                                 "blob:http://127.0.0.1:8888/1", *browser.BADGES])
def test_requests_at_home_are_not(url):
    assert not browser.strange(url)


@pytest.mark.parametrize("number", browser.EXERCISES)
def test_what_is_typed_gets_the_verdict_that_is_awaited(number, capsys):
    """The same answers as in the browser, in a second; and a verdict of the other kind is noticed."""
    exercise = browser.EXERCISES[number]
    cells = nbformat.read(next(path for path in NOTEBOOKS if path.name.startswith(number)), 4).cells
    stub = next(i for i, cell in enumerate(cells) if f"exercise-{exercise.name}" in lab_page.tags(cell))
    answers = {exercise.wrong: exercise.diagnosis, cells[stub].source: "not attempted yet", exercise.right: "correct."}
    verdicts = []
    for source in answers:
        exec(source + "\n" + (exercise.check or cells[stub + 1].source), {"np": np, "torch": torch, "check": check})
        verdicts.append(capsys.readouterr().out)
    for i, wanted in enumerate(answers.values()):
        faults = [list(lab_page.verdict_faults("step", wanted, verdict)) for verdict in verdicts]
        assert [bool(each) for each in faults] == [k != i for k in range(3)]
