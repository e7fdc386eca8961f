"""The fixtures that run one test on every backend."""

import pytest
import torch

from tests.backends import BACKENDS


def on_gpu(name):
    return pytest.param(name, marks=pytest.mark.gpu)


@pytest.fixture(params=["numpy", "torch", on_gpu("cuda")])
def backend(request):
    return _backend(request.param)


@pytest.fixture(params=["torch", on_gpu("cuda")])
def torch_backend(request):
    """For what only torch has: gradients, its own modules."""
    return _backend(request.param)


@pytest.fixture(params=[on_gpu("cuda")])
def gpu(request):
    return _backend(request.param)


def _backend(name):
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")                      # one place, so that pytest -rs says it once
    return BACKENDS[name]
