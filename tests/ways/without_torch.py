"""A pytest plugin for a Python without torch: the test files load all the same, tests that ask for torch are skipped.

    python -m pytest -p tests.ways.without_torch tests/test_attention.py

Most files of tests/ hold NumPy and torch to the same rules, so they import torch at their top. While they load, a
stand-in takes its place; when they run there is none, and mha_lib is on its own. A test that fails after it asked for
torch is skipped; a test that never asked fails as usual.
"""
import sys
from types import ModuleType, SimpleNamespace

import pytest

ABSENT = ["torch", "torch.nn", "torch.nn.functional", "torch.utils", "torch.utils.flop_counter",
          "mha_lib.torch_attention", "mha_lib.decoder"]
asked = []          # what the running test wanted of torch


class Absent(ModuleType):
    """The stand-in: every name is in it, and a call fails as the import would."""

    def __getattr__(self, name):
        if name.startswith("__"):       # what Python and pytest ask of any module
            raise AttributeError(name)
        asked.append(name)
        return Absent(name)

    def __call__(self, *_arguments, **_options):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")


class Watch:
    """Asked for torch, Python says what it says where there is none."""

    @staticmethod
    def find_spec(name, _path=None, _target=None):
        if name.split(".")[0] == "torch":
            asked.append(name)
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


sys.modules.update({name: Absent(name) for name in ABSENT})
sys.modules["torch"].cuda = SimpleNamespace(is_available=lambda: False)
sys.meta_path.insert(0, Watch)


def pytest_collection_finish():
    for name in ABSENT:
        del sys.modules[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    asked.clear()
    try:
        return (yield)
    except Exception:
        if not asked:
            raise
        pytest.skip("asks for torch")
