"""What the library's tests run on: NumPy, torch on the CPU, torch on a CUDA device."""

import numpy as np
import torch

from mha_lib import numpy_attention, torch_attention
from mha_lib.projections import Projections


class NumPy:
    """The NumPy version. `tolerances` are relative to the largest number of a float64 oracle."""

    name = "numpy"
    lib = numpy_attention
    tolerances = {"float64": 1e-12, "float32": 1e-5}

    def array(self, x, dtype="float64"):
        return np.array(x, dtype)

    def numpy(self, x):
        """The numbers, whatever the dtype, as float64."""
        return x.astype("float64")

    def projections(self, given, dtype="float64"):
        return Projections(*(None if x is None else self.array(x, dtype) for x in vars(given).values()))

    def dtype(self, x):
        return str(x.dtype)


class Torch(NumPy):
    """The torch version on one device."""

    name = "torch"
    lib = torch_attention
    tolerances = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 3e-2, "float16": 2e-3}

    def __init__(self, device):
        self.device = device

    def array(self, x, dtype="float64"):
        return torch.tensor(np.asarray(x), dtype=getattr(torch, dtype), device=self.device)

    def numpy(self, x):
        return x.detach().cpu().double().numpy()

    def dtype(self, x):
        return str(x.dtype).removeprefix("torch.")


BACKENDS = {"numpy": NumPy(), "torch": Torch("cpu"), "cuda": Torch("cuda")}
