"""The fixtures that run one test on every backend."""

import pytest
import torch

from tests.backends import BACKENDS

# without a GPU only the tests that need nothing else are skipped, aloud; the others run on the backends there are
CUDA = [pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else []


@pytest.fixture(params=["numpy", "torch", *CUDA])
def backend(request):
    return BACKENDS[request.param]


@pytest.fixture(params=["torch", *CUDA])
def torch_backend(request):
    """For what only torch has: gradients, its own modules."""
    return BACKENDS[request.param]


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu)])
def gpu(request):
    if not CUDA:
        pytest.skip("no CUDA device here, so nothing was run on one")
    return BACKENDS[request.param]
