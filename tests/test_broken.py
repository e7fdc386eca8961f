"""The test of the tests: every broken implementation in broken.py is noticed by the test that it names."""

import importlib
import inspect

import numpy as np
import pytest

from tests.backends import BACKENDS
from tests.broken import BROKEN


def test_no_mistake_is_listed_twice():
    assert len({case.name for case in BROKEN}) == len(BROKEN) >= 35


@pytest.mark.parametrize("case", BROKEN, ids=[case.name for case in BROKEN])
def test_a_mistake_is_caught_by_the_test_that_it_names(case, monkeypatch):
    module, name = case.caught_by.split(".")
    test, arguments = getattr(importlib.import_module(module), name), dict(case.arguments)
    for fixture in inspect.signature(test).parameters.keys() & {"backend", "torch_backend"}:
        arguments[fixture] = BACKENDS["torch" if "torch" in case.replaces or fixture == "torch_backend" else "numpy"]
    test(**arguments)                                           # passes with the real function
    monkeypatch.setattr("mha_lib." + case.replaces, case.function)
    with np.errstate(all="ignore"), pytest.raises((AssertionError, pytest.fail.Exception)):
        test(**arguments)
