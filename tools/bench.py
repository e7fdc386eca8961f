"""How fast attention is here and how much memory it takes, every goal measured -> docs/benchmarks.md.

    python tools/bench.py [--quick] [--device cuda]

All contestants of a case get the same weights and inputs, must agree with float64 first, and then take turns in one
process. Peak memory comes from a fresh process each. --quick tries fewer cases and only prints. Needs numpy and torch.
"""
import argparse
import ctypes
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # on a bare GPU machine the package is not installed

from mha_lib import numpy_attention  # noqa: E402
from mha_lib.projections import Projections  # noqa: E402

REPORT = ROOT / "docs" / "benchmarks.md"
GPU_HEADING = "## On a GPU"
NUMPY, TORCH = "mha_lib, NumPy", "mha_lib, torch"
SLACK = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 3e-2, "float16": 2e-3}  # of the largest number expected


# -- contestants: each takes X (B, n, d), Projections with biases and h, and gives the work to be timed

def whole(X, p, h, causal):
    return lambda: numpy_attention.fast_multi_head_attention(X, p, h, causal)


def textbook(X, p, h, causal):
    """The formula as it stands in a book, all numbers at once."""
    def work():
        Q, K, V = (numpy_attention.split_heads(part, h) for part in np.split(X @ p.W_QKV + p.b_QKV, 3, axis=-1))
        scores = Q @ K.swapaxes(-1, -2) / float(Q.shape[-1]) ** 0.5  # (B, h, n, n)
        if causal:
            scores = scores + mask
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return numpy_attention.merge_heads(weights @ V) @ p.W_O + p.b_O

    mask = numpy_attention.causal_mask(X.shape[1], dtype=X.dtype)
    return work


def einsum(X, p, h, causal):
    def work():
        QKV = (np.einsum("bnd,de->bne", X, p.W_QKV, optimize=True) + p.b_QKV).reshape(B, n, 3, h, d // h)
        Q, K, V = np.moveaxis(QKV, 2, 0)  # (B, n, h, d_k)
        scores = np.einsum("bihk,bjhk->bhij", Q, K, optimize=True) * (d // h) ** -0.5 + mask
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        heads = np.einsum("bhij,bjhk->bihk", weights, V, optimize=True).reshape(B, n, d)
        return np.einsum("bnd,de->bne", heads, p.W_O, optimize=True) + p.b_O

    B, n, d = X.shape
    mask = numpy_attention.causal_mask(n, dtype=X.dtype) if causal else X.dtype.type(0)
    return work


def gemm_limit(X, p, h, causal):
    """The matrix products and nothing else, into memory that is there: half the query rows stand for the causal half.

    Not attention, so its numbers are not checked.
    """
    def work():
        np.matmul(X, p.W_QKV, out=QKV)
        np.matmul(Q, K.swapaxes(-1, -2), out=scores)
        np.matmul(scores, V, out=heads)
        np.matmul(X, p.W_O, out=output)

    B, n, d = X.shape
    QKV, output = np.empty((B, n, 3 * d), X.dtype), np.empty_like(X)
    Q, K, V = (numpy_attention.split_heads(part, h) for part in np.split(QKV, 3, axis=-1))
    Q = Q[..., :(n + 1) // 2, :] if causal else Q
    scores, heads = np.empty((*Q.shape[:-1], n), X.dtype), np.empty_like(Q)
    return work


def whole_torch(X, p, h, causal):
    from mha_lib import torch_attention

    return lambda: torch_attention.fast_multi_head_attention(X, p, h, causal)


def explicit_torch(X, p, h, causal):
    """The (n, n) matrix built, every stage kept."""
    from mha_lib import torch_attention

    mask = torch_attention.causal_mask(X.shape[1], dtype=X.dtype, device=X.device) if causal else None
    return lambda: torch_attention.multi_head_attention(X, p, h, mask).output


def fused_torch(X, p, h, causal):
    """What one writes by hand in torch: two linear layers around the fused kernel."""
    from torch.nn.functional import linear, scaled_dot_product_attention

    def work():
        Q, K, V = linear(X, W_QKV, p.b_QKV).view(B, n, 3, h, d // h).permute(2, 0, 3, 1, 4)  # (B, h, n, d_k) each
        heads = scaled_dot_product_attention(Q, K, V, is_causal=causal)
        return linear(heads.transpose(1, 2).reshape(B, n, d), W_O, p.b_O)

    B, n, d = X.shape
    W_QKV, W_O = p.W_QKV.T.contiguous(), p.W_O.T.contiguous()  # as nn.Linear stores them
    return work


def kernel_torch(X, p, h, causal):
    """torch's fused kernel alone, without projections. Not the whole sublayer, so its numbers are not checked."""
    from torch.nn.functional import scaled_dot_product_attention

    def work():
        scaled_dot_product_attention(Q, Q, Q, is_causal=causal)

    Q = X.view(*X.shape[:2], h, -1).transpose(1, 2)
    return work


def module_torch(X, p, h, causal):
    import torch

    module = p.to_multihead_attention(h).eval()
    mask = torch.ones(X.shape[1], X.shape[1], dtype=torch.bool, device=X.device).triu(1) if causal else None
    return lambda: module(X, X, X, attn_mask=mask, is_causal=causal, need_weights=False)[0]


# -- contestants with a cache, always causal: `size` tokens at a time

def pieces(X, p, h, size):
    def work():
        cache = numpy_attention.KVCache(B, h, n, d // h, X.dtype)
        return [numpy_attention.fast_multi_head_attention(X[:, i:i + size], p, h, True, cache)
                for i in range(0, n, size)]

    B, n, d = X.shape
    return work


def pieces_torch(X, p, h, size):
    from mha_lib import torch_attention

    def work():
        cache = torch_attention.KVCache(B, h, n, d // h, X.dtype, X.device)
        return [torch_attention.fast_multi_head_attention(X[:, i:i + size], p, h, True, cache)
                for i in range(0, n, size)]

    B, n, d = X.shape
    return work


def own_cache_torch(X, p, h, size):
    """What one writes by hand in torch: the fused kernel on a cache that has its full size from the start."""
    import torch
    from torch.nn.functional import linear, scaled_dot_product_attention

    def work():
        return [step(i, min(i + size, n)) for i in range(0, n, size)]

    def step(start, stop):
        Q, K, V = linear(X[:, start:stop], W_QKV, p.b_QKV).view(B, -1, 3, h, d // h).permute(2, 0, 3, 1, 4)
        keys[:, :, start:stop], values[:, :, start:stop] = K, V
        mask = visible[start:stop, :stop] if stop - start > 1 else None
        heads = scaled_dot_product_attention(Q, keys[:, :, :stop], values[:, :, :stop], attn_mask=mask)
        return linear(heads.transpose(1, 2).reshape(B, -1, d), W_O, p.b_O)

    B, n, d = X.shape
    W_QKV, W_O = p.W_QKV.T.contiguous(), p.W_O.T.contiguous()
    keys, values = X.new_empty(2, B, h, n, d // h)
    visible = torch.ones(n, n, dtype=torch.bool, device=X.device).tril()
    return work


def recomputed(X, p, h, size):
    """No cache: every piece runs all tokens before it again."""
    return lambda: [numpy_attention.fast_multi_head_attention(X[:, :i + size], p, h, True)[:, i:i + size]
                    for i in range(0, X.shape[1], size)]


def product_limit(X, p, h, size):
    """The matrix products of every piece and nothing else. Not attention, so its numbers are not checked."""
    def work():
        for i in range(0, n, size):
            Q = (X[:, i:i + size] @ p.W_QKV)[..., :d].reshape(B, -1, h, d // h).swapaxes(1, 2)
            heads = (Q @ K[:, :, :i + size].swapaxes(2, 3)) @ V[:, :, :i + size]
            heads.swapaxes(1, 2).reshape(B, -1, d) @ p.W_O

    B, n, d = X.shape
    K, V = np.random.default_rng(1).normal(size=(2, B, h, n, d // h)).astype(X.dtype)
    return work


WHOLE = {NUMPY: whole, TORCH: whole_torch, "half-GEMM limit": gemm_limit, "textbook NumPy": textbook,
         "einsum NumPy": einsum, "nn.MultiheadAttention": module_torch, "fused torch layer": fused_torch,
         "SDPA alone": kernel_torch, "explicit torch": explicit_torch}
PIECES = {NUMPY: pieces, TORCH: pieces_torch, "products alone": product_limit, "torch, own cache": own_cache_torch,
          "recomputed": recomputed}
ON_GPU = [TORCH, "fused torch layer", "nn.MultiheadAttention", "explicit torch"]


# -- measuring, in a process of its own

def draw(B, n, d):
    X = np.random.default_rng(0).normal(size=(B, n, d)).astype(np.float32)
    return X, Projections.draw(d, bias=True, dtype=np.float32)


def prepare(name, shape, how, device="cpu", dtype="float32"):
    """-> the work of a contestant. how: causal or not for whole passes, a number of tokens for pieces."""
    B, n, d, h = shape
    X, p = draw(B, n, d)
    build = (WHOLE if isinstance(how, bool) else PIECES)[name]
    if build.__name__.endswith("torch"):
        import torch

        torch.set_grad_enabled(False)
        X, p = torch.as_tensor(X).to(device, getattr(torch, dtype)), p.to_torch(device, getattr(torch, dtype))
    return build(X, p, h, how)


def reference(shape, causal, rows, rounded=lambda x: x):
    """The formula in float64 for some query rows -> (B, rows, d). `rounded` gives inputs the precision of a dtype."""
    B, n, d, h = shape
    X, p = draw(B, n, d)
    X, W_QKV, W_O, b_QKV, b_O = (rounded(x).astype(float) for x in (X, *vars(p).values()))
    Q, K, V = np.split(X @ W_QKV + b_QKV, 3, axis=-1)
    heads = []
    for columns in np.split(np.arange(d), h):
        scores = Q[:, rows][..., columns] @ K[..., columns].swapaxes(1, 2) / np.sqrt(d // h)
        if causal:
            scores[:, np.arange(n) > rows[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(weights / weights.sum(axis=-1, keepdims=True) @ V[..., columns])
    return np.concatenate(heads, axis=-1) @ W_O + b_O


def check(works, shape, how, dtype="float32"):
    """Every contestant that computes attention agrees with float64, or AssertionError. -> who was checked."""
    rows = np.unique(np.linspace(0, shape[1] - 1, 16).astype(int))
    expected = reference(shape, bool(how), rows, lambda x: as_numpy([as_torch(x, dtype)]) if "16" in dtype else x)
    checked = []
    for name, work in works.items():
        output = work()
        if output is not None:
            output = as_numpy(output if isinstance(output, list) else [output])[:, rows]
            error = np.abs(output - expected).max() / np.abs(expected).max()
            assert error <= SLACK[dtype], f"{name} is wrong by {error:.1e} of the largest number, {shape}, {dtype}"
            checked.append(name)
    return checked


def as_torch(x, dtype):
    import torch

    return torch.as_tensor(x).to(getattr(torch, dtype))


def as_numpy(parts):
    """Pieces along the tokens, arrays of either library -> one array; float32, because NumPy has no bfloat16."""
    parts = [part if isinstance(part, np.ndarray) else part.float().cpu().numpy() for part in parts]
    return np.concatenate(parts, axis=1)


def race(names, shape, how, seconds, least=3, device="cpu", dtype="float32"):
    """Contestants take turns until the time is up -> {name: seconds of a call, one number for each round}."""
    # One large array allocated and freed makes glibc keep freed memory instead of returning it to the system; in a
    # fresh process thousands of page faults a call would drown the differences.
    np.empty(31 * 2 ** 20, np.uint8)
    works = {name: prepare(name, shape, how, device, dtype) for name in names}
    check(works, shape, how, dtype)
    wait = sys.modules["torch"].cuda.synchronize if device == "cuda" else lambda: None

    def clock(work, calls):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        return (time.perf_counter() - start) / calls

    calls = {name: max(1, int(0.002 / clock(work, 1))) for name, work in works.items()}  # at least 2 ms a turn
    times = {name: [] for name in names}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[names[0]]) < least:
        for name, work in works.items():
            times[name].append(clock(work, calls[name]))
    return times


def alone(name, shape, how, repeats=1):
    """One contestant in this process -> the bytes its first call added, the whole process's bytes, best seconds."""
    work = prepare(name, shape, how)
    before = peak_of_process()
    work()
    process = peak_of_process()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return {"added": process - before, "process": process, "seconds": min(times, default=None)}


def peak_of_process():
    """The most bytes that this process has held at once."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():  # Linux; there ru_maxrss would count the parent process, too
        return 1024 * int(status.read_text(encoding="utf-8").split("VmHWM:")[1].split()[0])
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_a_process(function, threads=None, **arguments):
    """function(**arguments) in a fresh Python; threads=None: as many as the libraries take."""
    pools = {} if threads is None else dict.fromkeys(
        ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"], str(threads))
    command = [sys.executable, __file__, "--child", json.dumps([function.__name__, arguments])]
    done = subprocess.run(command, env={**os.environ, **pools}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])

if __name__ == "__main__":
    if sys.argv[1] == "--child":
        n,a=json.loads(sys.argv[2])
        print(json.dumps(globals()[n](**a)))
