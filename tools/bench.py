"""How fast attention is here and how much memory it takes, every goal measured -> docs/benchmarks.md.

    python tools/bench.py [--quick] [--device cuda]

All contestants of a case get the same weights and inputs, must agree with float64 first, and then take turns in one
process. Peak memory comes from a fresh process each. --quick tries fewer cases and only prints. Needs numpy and torch.
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # on a bare GPU machine the package is not installed

from mha_lib import numpy_attention  # noqa: E402
from mha_lib.projections import Projections  # noqa: E402
from mha_lib.runtime import peak_bytes  # noqa: E402

REPORT = ROOT / "docs" / "benchmarks.md"
GPU_HEADING = "## On a GPU"
PROC = pathlib.Path("/proc/self")
NUMPY, TORCH = "mha_lib, NumPy", "mha_lib, torch"
LIMIT, PRODUCTS, FUSED, MODULE = "half-GEMM limit", "products alone", "fused torch layer", "nn.MultiheadAttention"
TEXTBOOK, OWN_CACHE, RECOMPUTED = "textbook NumPy", "torch, own cache", "recomputed"
EINSUM, KERNEL, EXPLICIT = "einsum NumPy", "SDPA alone", "explicit torch"
SLACK = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 2e-3}  # of the largest number expected

# B, n, d, h, and how: True causal, False no mask, a number: so many tokens at a time, with a cache
CASES = {
    "n=8, d=64, h=4": ((1, 8, 64, 4), True),
    "n=64, d=64, h=4": ((1, 64, 64, 4), True),
    "n=512, d=512, h=8": ((1, 512, 512, 8), True),
    "the same, no mask": ((1, 512, 512, 8), False),
    "the same, in chunks of 128": ((1, 512, 512, 8), 128),
    "decode 512 tokens, d=512, h=8": ((1, 512, 512, 8), 1),
    "B=4, n=1024, d=768, h=12": ((4, 1024, 768, 12), True),  # a layer of GPT-2
    "n=4096, d=512, h=8": ((1, 4096, 512, 8), True),
}
QUICK = ["n=8, d=64, h=4", "n=64, d=64, h=4", "n=512, d=512, h=8", "decode 512 tokens, d=512, h=8"]
SIZES = [1024, 2048, 4096, 8192, 16384]  # n, for the exponents

# what is compared, ours, the other, the goal: ours / other at most
AS_FAST_AS_BY_HAND = ("time", TORCH, FUSED, 1.02)
GOALS = dict(zip(CASES, [
    [("time", NUMPY, MODULE, 1 / 2), ("time", NUMPY, FUSED, 1), AS_FAST_AS_BY_HAND],
    [("time", NUMPY, MODULE, 1 / 1.8), ("time", NUMPY, FUSED, 1), AS_FAST_AS_BY_HAND],
    [("time", NUMPY, LIMIT, 1.25), ("time", NUMPY, FUSED, 1), AS_FAST_AS_BY_HAND, ("memory", NUMPY, TEXTBOOK, 0.4)],
    [AS_FAST_AS_BY_HAND],
    [("time", TORCH, OWN_CACHE, 1.02)],
    [("time", NUMPY, RECOMPUTED, 1 / 80), ("time", NUMPY, PRODUCTS, 1.4), ("time", NUMPY, OWN_CACHE, 1 / 1.5),
     ("time", TORCH, OWN_CACHE, 1.02)],
    [("time", NUMPY, LIMIT, 1.25), ("time", NUMPY, FUSED, 1.1), ("time", NUMPY, MODULE, 0.65), AS_FAST_AS_BY_HAND,
     ("memory", NUMPY, TEXTBOOK, 0.2)],
    [("time", NUMPY, LIMIT, 1.35), AS_FAST_AS_BY_HAND, ("memory", NUMPY, TEXTBOOK, 1 / 15)],
], strict=True))

TITLE = """# Benchmarks

Made by `make bench`; `make bench QUICK=1` takes under two minutes and only prints. The goals are ours, no test asks for
a time. All contestants of a case get the same weights and inputs and agree with float64 before the clock starts. Then
they take turns in one process: below are the ratio of the fastest calls, and the median of the ratios round by round.

- **half-GEMM limit**: the matrix products alone, half of the query rows, no biases, into memory that is there already.
- **products alone**: the same for one token at a time. **SDPA alone**: torch's fused kernel without projections.
- **fused torch layer**, **torch, own cache**: what one writes by hand in torch around the fused kernel.
- **MB**: what the first call adds to the memory of a fresh process, one thread.
- Each process first allocates and frees one large array, so that freed memory is kept: without it a fresh process
  under Linux's default allocator spends thousands of page faults a call, whoever runs."""
NO_GPU = "No GPU was there. With one: `make bench DEVICE=cuda`, or without make `python tools/bench.py --device cuda`."
MISSED = """Where a goal is missed:

- At n=8 and n=64 a call takes 20 to 60 microseconds. One call of NumPy costs about one, and attention needs twenty;
  torch by hand makes six. Of ours, the checks behind readable errors take about two; in torch, views for any number
  of leading axes take about ten more. In longer inputs all of this is lost.
- The half-GEMM limit does no softmax, which reads and writes every score five times, and counts exactly half of the
  scores; blocks of 128 rows compute a quarter more of them at n=512. The faster the products (AVX-512), the more of
  the time this is.
- NumPy and torch bring different matrix products along. Where NumPy runs kernels for older processors than torch does
  (the line on the machine says which), no NumPy code reaches torch's time.
- A decoded token is four products of one row with a matrix, and the same twenty calls around them. How many times
  faster than recomputing it is depends as much on how fast recomputing is: that uses the same fast path."""


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

def pieces(X, p, h, size, library=numpy_attention, **device):
    def work():
        cache = library.KVCache(B, h, n, d // h, X.dtype, **device)
        return [library.fast_multi_head_attention(X[:, i:i + size], p, h, True, cache) for i in range(0, n, size)]

    B, n, d = X.shape
    return work


def pieces_torch(X, p, h, size):
    from mha_lib import torch_attention

    return pieces(X, p, h, size, torch_attention, device=X.device)


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


WHOLE = {NUMPY: whole, TORCH: whole_torch, LIMIT: gemm_limit, TEXTBOOK: textbook, EINSUM: einsum,
         MODULE: module_torch, FUSED: fused_torch, KERNEL: kernel_torch, EXPLICIT: explicit_torch}
PIECES = {NUMPY: pieces, TORCH: pieces_torch, PRODUCTS: product_limit, OWN_CACHE: own_cache_torch,
          RECOMPUTED: recomputed}
ON_GPU = [TORCH, FUSED, MODULE, EXPLICIT]


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


def reference(shape, causal, rows, dtype="float32"):
    """The formula in float64, for inputs that were rounded to dtype and for some query rows -> (B, rows, d)."""
    B, n, d, h = shape
    X, p = draw(B, n, d)
    X, W_QKV, W_O, b_QKV, b_O = (rounded(x, dtype).astype(float) for x in (X, *vars(p).values()))
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
    expected = reference(shape, bool(how), rows, dtype)
    checked = []
    for name, work in works.items():
        output = work()
        if output is not None:
            parts = output if isinstance(output, list) else [output]
            output = np.concatenate([as_numpy(part) for part in parts], axis=1)[:, rows]
            error = np.abs(output - expected).max() / np.abs(expected).max()
            assert error <= SLACK[dtype], f"{name} is wrong by {error:.1e} of the largest number, {shape}, {dtype}"
            checked.append(name)
    return checked


def rounded(x, dtype):
    if dtype == "float32":
        return x
    import torch

    return torch.as_tensor(x).to(getattr(torch, dtype)).float().numpy()  # float32: NumPy has no bfloat16


def as_numpy(x):
    return x if isinstance(x, np.ndarray) else x.float().cpu().numpy()


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
    if PROC.exists():
        (PROC / "clear_refs").write_text("5", encoding="utf-8")  # Linux: the peak of the preparations does not count
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
    if PROC.exists():  # Linux; there ru_maxrss would count the parent process, too
        return 1024 * int((PROC / "status").read_text(encoding="utf-8").split("VmHWM:")[1].split()[0])
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss



def in_a_process(function, threads=None, **arguments):
    """function(**arguments) in a fresh Python; threads=None: as many as the libraries take."""
    pools = {} if threads is None else dict.fromkeys(
        ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"], str(threads))
    command = [sys.executable, __file__, "--child", json.dumps([function.__name__, arguments])]
    done = subprocess.run(command, env={**os.environ, **pools}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


# -- the report

def ratios(times, ours, other):
    """-> ratio of the minima, median of the ratios round by round."""
    pairs = zip(times[ours], times[other], strict=True)
    return min(times[ours]) / min(times[other]), statistics.median(a / b for a, b in pairs)


def verdict(measured, goal):
    return "met" if measured <= goal else f"missed by {100 * (measured / goal - 1):.0f} %"


def exponent(sizes, values):
    """The slope of the line through the points on log axes."""
    return np.polyfit(np.log(sizes), np.log(values), 1)[0]


def table(head, rows, texts):
    """Markdown; the first columns are `texts`, numbers stand to the right."""
    lines = [head, ["---"] * texts + ["---:"] * (len(head) - texts), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def megabytes(count):
    return "" if count is None else f"{count / 1e6:.1f}"


COLUMNS = ["min ms", "median ms", "minima", "median", "MB"]


def columns(times, ours, other, peak):
    """The cells of one contestant under COLUMNS."""
    milliseconds = (1e3 * min(times[other]), 1e3 * statistics.median(times[other]))
    return [*(f"{t:.3f}" for t in milliseconds), *(f"{r:.2f}" for r in ratios(times, ours, other)), megabytes(peak)]


def machine():
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    names = re.findall("model name\\s*: (.*)", cpuinfo.read_text(encoding="utf-8")) if cpuinfo.exists() else []
    return f"{(names or [platform.processor() or platform.machine()])[0]}, {os.cpu_count()} cores, {platform.system()}"


def kernels():
    """Which of OpenBLAS's kernels NumPy runs: chosen at run time, so only the loaded library can tell."""
    asked = os.environ.get("OPENBLAS_CORETYPE")
    asked = f" (OPENBLAS_CORETYPE={asked} is set)" if asked else ""
    for path in pathlib.Path(np.__file__).parents[1].glob("numpy.libs/*openblas*"):
        core = ctypes.CDLL(str(path)).scipy_openblas_get_corename64_
        core.restype = ctypes.c_char_p
        return f"OpenBLAS {core().decode()} kernels{asked}"
    return np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]


def versions():
    import torch

    return (f"Python {platform.python_version()}, NumPy {np.__version__} with {kernels()}, torch {torch.__version__} "
            f"({torch.backends.cpu.get_cpu_capability()})")


def say(text):
    print(text, file=sys.stderr, flush=True)


def cpu_report(quick):
    """Run everything on the CPU -> Markdown."""
    cases = {name: case for name, case in CASES.items() if name in QUICK or not quick}
    goals, times_table = [], []
    for threads in [1] if quick else [1, None]:
        for name, (shape, how) in cases.items():
            say(f"{name}, {threads or 'all'} threads")
            contestants = [*(WHOLE if isinstance(how, bool) else PIECES)]
            times = in_a_process(race, threads, names=contestants, shape=shape, how=how, seconds=4 if quick else 12)
            peaks = {}
            if threads == 1 and shape[1] > 64 and how is True:
                peaks = {other: in_a_process(alone, 1, name=other, shape=shape, how=how)["added"]
                         for other in contestants}
            for other in contestants:
                times_table.append([name, threads or "all", other, *columns(times, NUMPY, other, peaks.get(other))])
            for what, ours, other, goal in GOALS[name]:
                if what == "memory" and peaks:
                    ratio = peaks[ours] / peaks[other]
                    goals.append([name, threads, f"memory of {ours} / {other}", f"{goal:.3f}", f"{ratio:.3f}", "",
                                  verdict(ratio, goal)])
                elif what == "time":
                    ratio, median_ratio = ratios(times, ours, other)
                    goals.append([name, threads or "all", f"{ours} / {other}", f"{goal:.3f}", f"{ratio:.3f}",
                                  f"{median_ratio:.3f}", verdict(ratio, goal)])
    exponents = [] if quick else growth(goals)
    seconds = in_a_process(import_seconds)
    goals.append(["import mha_lib", "", "seconds", "0.100", f"{seconds:.3f}", "", verdict(seconds, 0.1)])
    parts = [
        f"Machine: {machine()}. {versions()}. float32, biases, causal unless it says otherwise.",
        "## Goals",
        table(["work", "threads", "what", "at most", "minima", "median", "verdict"], goals, texts=3),
        MISSED,
        "## All contestants",
        "Ratios: `mha_lib` in NumPy to this one, so below 1 NumPy is faster.",
        table(["work", "threads", "contestant", *COLUMNS], times_table, texts=3)]
    if exponents:
        parts += ["## Growth with n", "The slope on log axes, one thread.",
                  table(["what", "n", "exponent"], exponents, texts=2)]
    return "\n\n".join(parts)



def growth(goals):
    """Exponents of time and memory -> rows; adds the goals about them."""
    rows = []
    for name, sizes in ((NUMPY, SIZES), (TORCH, SIZES), (TEXTBOOK, SIZES[:3])):
        say(f"growth with n, {name}")
        runs = [in_a_process(alone, 1, name=name, shape=(1, n, 256, 4), how=True, repeats=2) for n in sizes]
        memory = exponent(sizes, [run["added"] for run in runs])
        where = f"{sizes[0]} to {sizes[-1]}, d=256, h=4"
        rows += [[f"memory of {name}", where, f"{memory:.2f}"],
                 [f"time of {name}", where, f"{exponent(sizes, [run['seconds'] for run in runs]):.2f}"]]
        if name == NUMPY:
            process = runs[-1]["process"]
            work = f"n={sizes[-1]}, d=256, h=4"
            goals += [[work, 1, "MB of the whole process", "200", megabytes(process), "", verdict(process, 200e6)],
                      [work, 1, "memory exponent in n", "1.050", f"{memory:.3f}", "", verdict(memory, 1.05)]]
    say("growth with the number of tokens, with a cache and without")
    sizes, names = [64, 128, 256, 512], [NUMPY, RECOMPUTED]
    runs = [in_a_process(race, 1, names=names, shape=(1, n, 512, 8), how=1, seconds=0) for n in sizes]
    for name, label in zip(names, ["decode, with a cache", "decode, recomputed"], strict=True):
        slope = exponent(sizes, [min(times[name]) for times in runs])
        rows.append([f"time of {label}", f"{sizes[0]} to {sizes[-1]}, d=512, h=8", f"{slope:.2f}"])
    return rows


def import_seconds():
    """A fresh Python imports the package; NumPy, which is not ours, is there already."""
    code = "import time, numpy; t = time.perf_counter(); import mha_lib.numpy_attention; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


def gpu_report(device="cuda", sizes=(512, 2048, 8192), longest=65536, seconds=3, d=512, h=8):
    """Fused against explicit path on one device -> Markdown."""
    import torch

    rows, peaks = [], {}
    for dtype in ("float32", "bfloat16", "float16"):
        for n in (*sizes, *([longest] if dtype == "bfloat16" else [])):
            say(f"{device}, {dtype}, n={n}")
            names = ON_GPU[:2] if n == longest else ON_GPU  # a matrix of 8 x 65,536 x 65,536 fits on no card
            shape = (1, n, d, h)
            times = race(names, shape, True, seconds, device=device, dtype=dtype)
            for name in names:
                peaks[dtype, n, name] = peak_bytes(prepare(name, shape, True, device, dtype))
                rows.append([dtype, f"{n:,}", name, *columns(times, TORCH, name, peaks[dtype, n, name])])
    grown = {name: exponent(sizes, [peaks["bfloat16", n, name] + 1 for n in sizes]) for name in (TORCH, EXPLICIT)}
    card = torch.cuda.get_device_name() if device == "cuda" else device
    return "\n\n".join([
        f"{card}, torch {torch.__version__}, CUDA {torch.version.cuda}. d={d}, h={h}, causal, biases. Every contestant "
        "agreed with float64 within the rounding of its dtype. Ratios: `mha_lib` in torch to this one.",
        f"Memory of the device grows with n to the power {grown[TORCH]:.2f} on the fast path, {grown[EXPLICIT]:.2f} "
        f"where the (n, n) matrix is built (n={sizes[0]} to {sizes[-1]}, bfloat16).",
        table(["dtype", "n", "contestant", *COLUMNS], rows, texts=3)])



def store(text, on_gpu):
    """Put one half of the report into its place and leave the other as it is."""
    old = REPORT.read_text(encoding="utf-8") if REPORT.exists() else ""
    cpu, _, gpu = old.partition(GPU_HEADING)
    gpu = gpu.strip() or NO_GPU
    cpu, gpu = (cpu.strip() or TITLE, text) if on_gpu else (f"{TITLE}\n\n{text}", gpu)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(f"{cpu}\n\n{GPU_HEADING}\n\n{gpu}\n", encoding="utf-8")
    say(f"wrote {REPORT.relative_to(ROOT)}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under two minutes; prints and writes nothing")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        name, given = json.loads(options.child)
        print(json.dumps(globals()[name](**given)))
        return
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            sys.exit("torch finds no CUDA device here. On a machine that has one: python tools/bench.py --device cuda")
        text = gpu_report(sizes=(512, 2048) if options.quick else (512, 2048, 8192), seconds=1 if options.quick else 3)
    else:
        text = cpu_report(options.quick)
    print(text)
    if not options.quick:
        store(text, options.device == "cuda")


if __name__ == "__main__":
    main()
