"""What stands around attention: layers, the ledger of shapes, and the machine."""

import doctest
import importlib.metadata
import os
import pathlib
import sys
import time
import types

import numpy as np
import pytest
import torch

from mha_lib import layers, ledger, numpy_attention, runtime
from mha_lib.projections import Projections

B, n, d, h = 2, 5, 27, 3


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


# ---- layers

@pytest.mark.parametrize("affine", [False, True])
def test_norms_equal_torchs(backend, affine):
    X, gain, bias = 3 * draw(B, n, d) + 2, draw(d, seed=1), draw(d, seed=2)
    g, b = (torch.tensor(gain), torch.tensor(bias)) if affine else (None, None)
    expected_layer = torch.nn.functional.layer_norm(torch.tensor(X), (d,), g, b)
    expected_rms = torch.nn.functional.rms_norm(torch.tensor(X), (d,), g, eps=1e-5)
    for dtype, tolerance in backend.tolerances.items():
        x, gain_, bias_ = (backend.array(v, dtype) for v in (X, gain, bias))
        gain_, bias_ = (gain_, bias_) if affine else (None, None)
        normed = layers.layer_norm(x, gain_, bias_), layers.rms_norm(x, gain_)
        for actual, expected in zip(normed, (expected_layer, expected_rms), strict=True):
            assert backend.dtype(actual) == dtype
            np.testing.assert_allclose(backend.numpy(actual), expected, rtol=0, atol=tolerance * expected.abs().max())
        np.testing.assert_array_equal(backend.numpy(x), backend.numpy(backend.array(X, dtype)))


def test_norms_are_differentiable(torch_backend):
    X, gain, bias = (torch_backend.array(v).requires_grad_() for v in (draw(2, 4), draw(4), draw(4, seed=1)))
    assert torch.autograd.gradcheck(layers.layer_norm, (X, gain, bias))
    assert torch.autograd.gradcheck(layers.rms_norm, (X, gain))


def test_a_constant_row_is_normed_to_zeros(backend):
    assert not backend.numpy(layers.layer_norm(backend.array(np.full((n, d), 3)))).any()


def test_a_sublayer_adds_what_f_makes_of_the_normed_stream(backend):
    X, W = draw(B, n, d), draw(d, d)
    W_here = backend.array(W)
    for norm in (layers.layer_norm, layers.rms_norm):
        expected = X + backend.numpy(norm(backend.array(X))) @ W
        output = layers.sublayer(backend.array(X), lambda x: x @ W_here, norm)
        np.testing.assert_allclose(backend.numpy(output), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(backend.numpy(layers.sublayer(backend.array(X), lambda x: x)),
                               X + backend.numpy(layers.layer_norm(backend.array(X))), rtol=0, atol=1e-14)


def test_layers_refuse_what_does_not_fit(backend):
    X = backend.array(draw(n, d))
    with pytest.raises(ValueError, match=r"gain must be \(27,\), the last axis of X \(5, 27\): got \(5,\)"):
        layers.rms_norm(X, backend.array(draw(n)))
    with pytest.raises(ValueError, match=r"bias must be \(27,\)"):
        layers.layer_norm(X, None, backend.array(draw(1)))
    with pytest.raises(TypeError, match="X is .*float64 and gain is .*float32"):
        layers.layer_norm(X, backend.array(draw(d), "float32"))
    with pytest.raises(TypeError, match="X holds"):
        layers.layer_norm(backend.array(np.ones((n, d)), "int64"))
    with pytest.raises(ValueError, match=r"must return the shape of X \(5, 27\) to be added to it: got \(5, 9\)"):
        layers.sublayer(X, lambda x: x[:, :9])
    with pytest.raises(TypeError, match="update is a tuple, not an array"):
        layers.sublayer(X, lambda x: (x, x))                           # as torch's own module returns


# ---- ledger

@pytest.mark.parametrize("batch", [(), (B,)])
def test_the_ledger_names_the_shapes_that_attention_really_has(batch):
    stages = numpy_attention.multi_head_attention(draw(*batch, n, d), Projections.draw(d), h)
    shapes = {row.stage: row.shape for row in ledger.stages(n, d, h, batch)}
    assert shapes.pop("X") == shapes.pop("Q, K, V") == (*batch, n, d)
    assert shapes.pop("heads of Q, K, V") == stages.Q.shape == stages.K.shape == stages.V.shape
    assert shapes == {name: getattr(stages, name).shape for name in ("scores", "weights", "heads", "concat", "output")}


def test_the_ledger_reads_as_a_table_in_text_and_in_html():
    table = ledger.stages(n, d, h)
    lines = str(table).splitlines()
    assert repr(table) == str(table) and len(lines) == 2 + len(table)
    assert lines[0].split() == ["stage", "formula", "shape"] and set(lines[1]) == {"-"}
    for line, row in zip(lines[2:], table, strict=True):
        assert line.startswith(row.stage) and row.formula in line and line.endswith(str(row.shape))
    html = table._repr_html_()
    assert html.count("<tr>") == 1 + len(table) and "<td style=\"text-align:left\">(3, 5, 5)</td>" in html
    assert "&lt;b&gt;" in ledger.Table([ledger.Row("<b>", "", ())])._repr_html_()
    assert doctest.testmod(ledger, optionflags=doctest.ELLIPSIS).attempted == 1


@pytest.mark.parametrize("sizes, error, message", [
    ((5, 28, 3), ValueError, "d=28 does not divide"), ((0, 27, 3), ValueError, "n must be 1"),
    ((5, 27.0, 3), TypeError, "d must be a whole number")])
def test_the_ledger_keeps_the_rules(sizes, error, message):
    with pytest.raises(error, match=message):
        ledger.stages(*sizes)


# ---- runtime

def test_the_best_device_is_the_fastest_that_torch_finds(monkeypatch):
    for cuda, mps, best in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert runtime.best_device() == best


def test_apples_gpu_holds_no_float64():
    assert [runtime.widest_float(device) for device in ("cpu", "cuda:1", "mps", torch.device("mps"))] == [
        torch.float64, torch.float64, torch.float32, torch.float32]


def test_one_seed_seeds_both_libraries(monkeypatch):
    one, two = [(runtime.seed_all(7).normal(), torch.rand(1).item()) for _ in range(2)]
    assert one == two != (runtime.seed_all(8).normal(), torch.rand(1).item())
    monkeypatch.delitem(sys.modules, "torch")
    assert runtime.seed_all(7).normal() == one[0]


def test_best_seconds_is_the_fastest_call_after_a_warm_up(monkeypatch):
    now, takes = [0], iter([1, 30, 10, 20])                     # a clock that only the work moves

    def work():
        now[0] += next(takes)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    assert runtime.best_seconds(work, repeats=3) == 10
    assert not list(takes)


def test_peak_bytes_sees_what_was_held_at_once():
    assert 8e6 <= runtime.peak_bytes(lambda: np.ones(10 ** 6)) < 8.1e6
    assert 16e6 <= runtime.peak_bytes(lambda: np.ones(10 ** 6) + np.ones(10 ** 6)) < 24.1e6
    with pytest.raises(ZeroDivisionError):
        runtime.peak_bytes(lambda: 1 / 0)
    assert runtime.peak_bytes(lambda: None) < 1e5               # measuring stopped after the error, too


def pretend_gpu(monkeypatch, log, held=(10 ** 9, 35 * 10 ** 8)):
    """A stand-in for torch with a CUDA device that says what is asked of it."""
    cuda = types.SimpleNamespace(
        is_available=lambda: True, synchronize=lambda: log.append("wait"),
        reset_peak_memory_stats=lambda: log.append("reset"),
        memory_allocated=lambda: held[0], max_memory_allocated=lambda: held[1])
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))


def test_a_gpu_is_waited_for_before_and_after_the_work(monkeypatch):
    log = []
    pretend_gpu(monkeypatch, log)
    runtime.best_seconds(lambda: log.append("work"), repeats=2)
    assert log == ["work", "wait", "work", "wait", "wait", "work", "wait"]


def test_peak_bytes_of_a_gpu_are_counted_from_what_was_there_before(monkeypatch):
    log = []
    pretend_gpu(monkeypatch, log)
    assert runtime.peak_bytes(lambda: log.append("work")) == 25 * 10 ** 8
    assert log == ["wait", "reset", "work", "wait"]
    pretend_gpu(monkeypatch, log, held=(100, 100))              # nothing happened on the device: NumPy work
    assert 8e6 <= runtime.peak_bytes(lambda: np.ones(10 ** 6)) < 8.1e6


def test_apples_gpu_is_waited_for(monkeypatch):
    log = []
    fake = types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_available=lambda: False),
        mps=types.SimpleNamespace(synchronize=lambda: log.append("wait")),
        backends=types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: True)))
    monkeypatch.setitem(sys.modules, "torch", fake)
    runtime.best_seconds(lambda: log.append("work"), repeats=1)
    assert log == ["work", "wait", "work", "wait"]


def test_peak_bytes_sees_the_memory_of_a_real_gpu(gpu):
    assert 4e8 <= runtime.peak_bytes(lambda: torch.ones(10 ** 8, device="cuda")) < 4.1e8


def test_progress_is_one_line_that_ends_once(capsys):
    for step in (1, 2, 3):
        runtime.progress(step, 3, f"loss {step}")
    out = capsys.readouterr().out
    assert [line.rstrip() for line in out.split("\r")] == ["", *(f"step {i} of 3  loss {i}" for i in (1, 2, 3))]
    assert out.count("\n") == 1 and out.endswith("\n")


def test_the_memory_limit_is_the_smaller_of_machine_and_container(monkeypatch):
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10 ** 6}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__, raising=False)
    files = {"/sys/fs/cgroup/memory.max": "2000000000\n"}

    def read_text(path, encoding):
        if path.as_posix() not in files:
            raise FileNotFoundError(path)
        return files[path.as_posix()]

    monkeypatch.setattr(pathlib.Path, "read_text", read_text)
    assert runtime.memory_limit() == 2_000_000_000
    files["/sys/fs/cgroup/memory.max"] = "max\n"                # a container without a limit
    assert runtime.memory_limit() == 4_096_000_000
    monkeypatch.delattr(os, "sysconf")                          # Windows
    assert runtime.memory_limit() is None


def preflight_with(monkeypatch, capsys, **versions):
    """What preflight prints on a machine with these packages; None means not installed."""
    installed = dict(numpy="2.4.6", matplotlib="3.11.2", torch="2.13.0+cpu", ipywidgets="8.1.9") | versions

    def version(package):
        if installed[package] is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(runtime, "memory_limit", lambda: 8e9)
    runtime.preflight()
    return capsys.readouterr().out


def test_preflight_says_when_all_is_set(monkeypatch, capsys):
    out = preflight_with(monkeypatch, capsys)
    assert out.endswith("All set.\n") and "->" not in out
    assert [line.split()[0] for line in out.splitlines()[:-1]] == [
        "Python", "numpy", "matplotlib", "torch", "ipywidgets", "memory", "device"]


@pytest.mark.parametrize("version, line", [(None, "missing"), ("2.8.1", "2.8.1")])
def test_preflight_says_what_to_do_about_a_missing_or_old_package(monkeypatch, capsys, version, line):
    out = preflight_with(monkeypatch, capsys, torch=version)
    wrong = next(text for text in out.splitlines() if text.startswith("torch"))
    assert line in wrong and "pip install 'torch>=2.9'" in wrong
    assert "Not yet: torch." in out and "device" not in out     # an unusable torch is not asked for devices


@pytest.mark.parametrize("version", ["3.dev0", ""])
def test_preflight_does_not_stumble_over_an_odd_version(monkeypatch, capsys, version):
    out = preflight_with(monkeypatch, capsys, matplotlib=version)
    assert "matplotlib" in out and "Not yet: matplotlib." in out


def test_preflight_says_when_torch_is_installed_and_broken(monkeypatch, capsys):
    def broken():
        raise OSError("a library is missing")

    monkeypatch.setattr(runtime, "best_device", broken)
    out = preflight_with(monkeypatch, capsys)
    assert "torch does not import (OSError): install it anew" in out and "Not yet: device." in out


def test_preflight_says_when_memory_is_short_or_unknown(monkeypatch, capsys):
    monkeypatch.setattr(runtime, "memory_limit", lambda: 5e8)
    runtime.preflight()
    assert "0.5 GB      -> shut down other kernels" in capsys.readouterr().out
    monkeypatch.setattr(runtime, "memory_limit", lambda: None)
    runtime.preflight()
    assert "memory     unknown     fine" in capsys.readouterr().out
