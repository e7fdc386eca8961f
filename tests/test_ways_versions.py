"""The checks of tests/ways/versions.py can fail. (make test-versions runs them on every Python of the machine.)"""
import os
import re
import subprocess
import sys

import pytest

from mha_lib import runtime
from tests.ways import numpy_cells, versions

WITHOUT_TORCH = """
import numpy as np
import torch
import torch.nn.functional as F

from mha_lib import numpy_attention, torch_attention
from mha_lib.projections import Projections

def test_that_is_numpy_and_holds():
    assert numpy_attention.softmax(np.zeros((1, 2))).tolist() == [[0.5, 0.5]]

def test_that_is_numpy_and_fails():
    assert numpy_attention.softmax(np.zeros((1, 2))).tolist() == [[0, 1]]

def test_that_fails_in_numpy_before_it_comes_to_torch():
    assert numpy_attention.softmax(np.zeros((1, 2))).tolist() == [[0, 1]]
    torch.zeros(1)

def test_that_uses_torch():
    assert F.softmax(torch.zeros(1), -1) == 1

def test_that_uses_the_torch_half():
    torch_attention.softmax(3)

def test_whose_library_function_wants_torch():
    Projections.draw(4).to_torch()
"""


def test_without_torch_the_numpy_half_is_judged_and_the_rest_skipped(tmp_path):
    (tmp_path / "test_halves.py").write_text(WITHOUT_TORCH, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.ways.without_torch", "-v", "-p", "no:cacheprovider",
               "--rootdir", tmp_path, "-c", os.devnull, tmp_path]
    env = {**os.environ, "PYTHONPATH": str(versions.ROOT), "COLUMNS": "200"}
    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True).stdout
    assert re.findall(r"::test_(\w+) (PASSED|FAILED|SKIPPED)", said) == [
        ("that_is_numpy_and_holds", "PASSED"),
        ("that_is_numpy_and_fails", "FAILED"),
        ("that_fails_in_numpy_before_it_comes_to_torch", "FAILED"),
        ("that_uses_torch", "SKIPPED"),
        ("that_uses_the_torch_half", "SKIPPED"),
        ("whose_library_function_wants_torch", "SKIPPED"),
    ], said


def test_the_oldest_are_those_that_the_package_allows():
    first = versions.OLDEST[versions.PYTHONS[0]]
    for name, version in zip(("numpy", "matplotlib"), first, strict=True):
        assert version == "{}.{}.0".format(*runtime.NEEDS[name])
    assert list(versions.OLDEST) == versions.PYTHONS


def test_a_python_that_is_not_here_is_not_found():
    assert versions.find_python("3.99") is None
    here = "{}.{}".format(*sys.version_info)
    if found := versions.find_python(here):         # an environment need not have python3.N in the PATH
        said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        assert said.startswith(f"Python {here}")


def cell(id, source, *tags):
    return {"id": id, "cell_type": "code", "source": [source], "metadata": {"tags": list(tags)}}


def test_numpy_cells_leave_out_what_is_not_theirs():
    cells = [cell("setup", "%pip", "frame", "setup"), cell("a", "", "core"), cell("t", "", "torch"),
             cell("f", "", "further"), {"cell_type": "markdown", "source": [], "metadata": {"tags": ["core"]}}]
    assert [c["id"] for c in numpy_cells.numpy_cells({"cells": cells})] == ["a"]


def test_what_builds_on_a_measured_cell_is_left_out_with_it():
    assert numpy_cells.run([
        cell("trained", "fast = 1", "core", "measured"),
        cell("shown", "table = fast + 1", "core"),
        cell("told", "table", "core"),
        cell("other", "assert 1 + 1 == 2", "core"),
    ]) == ["trained", "shown", "told"]


@pytest.mark.parametrize("source", ["assert 1 == 2", "import torch_of_old", "unknown", "1 / 0"])
def test_a_numpy_cell_that_fails_is_told(source):
    with pytest.raises(pytest.fail.Exception, match="the-cell: "):
        numpy_cells.run([cell("trained", "fast = 1", "core", "measured"), cell("the-cell", source, "core")])
