"""The machine the course runs on: its device, seeds, time, memory, and a progress line."""

import importlib.metadata
import os
import pathlib
import platform
import re
import sys
import time
import tracemalloc

import numpy as np


def best_device():
    """-> "cuda", "mps" (Apple) or "cpu": the fastest device that torch finds here."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def widest_float(device):
    """The most exact dtype that the device holds: torch.float64, on MPS torch.float32."""
    import torch

    return torch.float32 if torch.device(device).type == "mps" else torch.float64


def seed_all(seed):
    """Seed torch, where it is loaded, and -> a NumPy generator with the same seed."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    return np.random.default_rng(seed)


def best_seconds(work, repeats=5):
    """Seconds of the fastest of several calls of work(), after one to warm up. A GPU is waited for."""
    wait = _gpu_wait()
    work()
    times = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(work):
    """The most bytes that work() held at once beyond what was there before: NumPy arrays, or memory of the CUDA device.

    torch's own memory on the CPU is not seen: nothing but the whole process can be measured there.
    """
    torch = sys.modules.get("torch")
    cuda = torch.cuda if torch and torch.cuda.is_available() else None
    if cuda:
        cuda.synchronize()
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
    tracemalloc.start()
    try:
        work()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if cuda:
        cuda.synchronize()
        peak = max(peak, cuda.max_memory_allocated() - before)
    return peak


def progress(step, steps, text=""):
    """One line that counts up in place: "step 40 of 200  loss 2.31". Call it with step = 1 to steps."""
    line = f"step {step} of {steps}  {text}"
    print(f"\r{line:<60}", end="\n" if step == steps else "", flush=True)


NEEDS = {"numpy": (2, 0), "matplotlib": (3, 10), "torch": (2, 9), "ipywidgets": (7, 7)}       # as in pyproject.toml
MEMORY_NEEDED = 10 ** 9                                                         # bytes; each notebook stays below


def preflight():
    """Print what the course needs and what is here, and what to do where something is off. Never raises."""
    lines = [("Python", platform.python_version(), sys.version_info >= (3, 11), "install Python 3.11 or newer")]
    for package, least in NEEDS.items():
        try:
            found = importlib.metadata.version(package) or "broken"
        except importlib.metadata.PackageNotFoundError:
            found = "missing"
        fine = tuple(map(int, re.findall(r"\d+", found)[:2])) >= least
        wanted = ".".join(map(str, least))
        lines.append((package, found, fine, f"run: pip install '{package}>={wanted}', then restart the kernel"))
    memory = memory_limit()
    found = "unknown" if memory is None else f"{memory / 1e9:.1f} GB"
    lines.append(("memory", found, memory is None or memory >= MEMORY_NEEDED,
                  "shut down other kernels (Kernel menu) before the next notebook"))
    if "torch" in {name for name, _, fine, _ in lines if fine}:
        try:
            lines.append(("device", best_device(), True, ""))
        except Exception as error:                      # installed and broken
            remedy = f"torch does not import ({type(error).__name__}): install it anew"
            lines.append(("device", "unknown", False, remedy))
    for name, found, fine, remedy in lines:
        print(f"{name:<11}{found:<12}" + ("fine" if fine else f"-> {remedy}"))
    missing = [name for name, _, fine, _ in lines if not fine]
    rest = " The NumPy cells run without it." if missing in (["torch"], ["device"]) else ""
    print("All set." if not missing else f"Not yet: {', '.join(missing)}.{rest}")


def memory_limit():
    """Bytes of memory this process may use, container limits included; None where the system does not say."""
    limits = []
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):       # Windows has no sysconf
        pass
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(pathlib.Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError):                   # no container, or "max"
            pass
    return min(limits, default=None)


def _gpu_wait():
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        return torch.cuda.synchronize
    if torch and torch.backends.mps.is_available():
        return torch.mps.synchronize
    return lambda: None
