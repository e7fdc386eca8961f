"""The benchmark measures attention: its contestants agree with float64, and its report says what was measured.

No time is tested here.
"""
import json

import numpy as np
import pytest
import torch

from mha_lib import numpy_attention
from tests import oracles
from tools import bench

SHAPE = B, n, d, h = 2, 11, 12, 3


@pytest.fixture(autouse=True)
def gradients_come_back():
    with torch.no_grad():                                       # contestants switch them off for their process
        yield


# -- contestants

@pytest.mark.parametrize("how", [True, False, 1, 4])
def test_every_contestant_that_computes_attention_agrees_with_float64(how):
    group, limits = (bench.WHOLE, {bench.LIMIT, bench.KERNEL}) if isinstance(how, bool) else (
        bench.PIECES, {bench.PRODUCTS})
    checked = bench.check({name: bench.prepare(name, SHAPE, how) for name in group}, SHAPE, how)
    assert set(checked) == set(group) - limits


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_contestants_of_the_gpu_agree_in_its_dtypes(dtype):
    works = {name: bench.prepare(name, SHAPE, True, "cpu", dtype) for name in bench.ON_GPU}
    assert bench.check(works, SHAPE, True, dtype) == bench.ON_GPU


@pytest.mark.parametrize("how, work", {
    "no mask": (True, lambda X, p: numpy_attention.fast_multi_head_attention(X, p, h)),
    "a mask": (False, lambda X, p: numpy_attention.fast_multi_head_attention(X, p, h, causal=True)),
    "a thousandth off": (True, lambda X, p: 1.001 * numpy_attention.fast_multi_head_attention(X, p, h, causal=True)),
    "other heads": (True, lambda X, p: numpy_attention.fast_multi_head_attention(X, p, 2, causal=True)),
}.values())
def test_a_wrong_contestant_is_thrown_out(how, work):
    X, p = bench.draw(B, n, d)
    with pytest.raises(AssertionError, match="someone is wrong by"):
        bench.check({"someone": lambda: work(X, p)}, SHAPE, how)


@pytest.mark.parametrize("causal", [True, False])
def test_the_reference_is_the_formula(causal):
    X, p = bench.draw(B, n, d)
    mask = np.triu(np.full((n, n), -np.inf), 1) if causal else np.zeros((n, n))
    rows = np.array([0, 4, 10])
    expected = [oracles.multi_head(x, p, h, mask)["output"][rows] for x in X]
    np.testing.assert_allclose(bench.reference(SHAPE, causal, rows), expected, rtol=0, atol=1e-12)


def test_the_limits_multiply_and_nothing_else():
    for name, how in ((bench.LIMIT, True), (bench.LIMIT, False), (bench.PRODUCTS, 1), (bench.KERNEL, True)):
        assert bench.prepare(name, SHAPE, how)() is None


# -- measuring

def test_contestants_take_turns():
    names = [bench.NUMPY, bench.LIMIT, bench.FUSED]
    times = bench.race(names, SHAPE, True, seconds=0, least=4)
    assert list(times) == names and {len(seconds) for seconds in times.values()} == {4}
    assert all(second > 0 for seconds in times.values() for second in seconds)


def test_a_fresh_process_measures_memory():
    shape = (1, 1024, 64, 4)                                    # a matrix of 4 x 1024 x 1024 takes 17 MB
    runs = {name: bench.in_a_process(bench.alone, 1, name=name, shape=shape, how=True)
            for name in (bench.NUMPY, bench.TEXTBOOK)}
    assert runs[bench.TEXTBOOK]["added"] > 2 * 17e6 > 17e6 > runs[bench.NUMPY]["added"] > 0
    assert all(run["process"] > run["added"] for run in runs.values())


def test_numpys_contestants_leave_torch_out_of_their_process():
    code = ("import sys; from tools import bench; bench.prepare(bench.NUMPY, (1, 4, 4, 2), True); "
            "print('torch' in sys.modules)")
    assert bench.subprocess.run([bench.sys.executable, "-c", code], cwd=bench.ROOT, check=True,
                                stdout=bench.subprocess.PIPE, text=True).stdout == "False\n"


# -- the report

def test_ratios_are_of_the_minima_and_round_by_round():
    times = {"a": [4, 2, 9], "b": [1, 2, 3]}
    assert bench.ratios(times, "a", "b") == (2, 3)              # 2 / 1; the median of 4, 1, 3
    assert bench.columns(times, "a", "b", 1_500_000) == ["1000.000", "2000.000", "2.00", "3.00", "1.5"]


def test_a_verdict_says_by_how_much():
    assert bench.verdict(1.25, 1.25) == "met" and bench.verdict(1.3, 1.25) == "missed by 4 %"


def test_an_exponent_is_the_slope_on_log_axes():
    assert bench.exponent([10, 20, 40], [7 * size ** 2 for size in (10, 20, 40)]) == pytest.approx(2)


def test_every_goal_is_about_contestants_of_its_case():
    assert list(bench.GOALS) == list(bench.CASES) and set(bench.QUICK) < set(bench.CASES)
    for name, goals in bench.GOALS.items():
        group = bench.WHOLE if isinstance(bench.CASES[name][1], bool) else bench.PIECES
        assert goals and all({ours, other} <= set(group) for _, ours, other, _ in goals)


def pretend(function, threads=None, **given):
    """What a process would measure: every contestant takes 1, 2, 3 s, and everyone's memory grows with n."""
    if function is bench.race:
        return {name: [1 * given["shape"][1], 2, 3] for name in given["names"]}
    return {"added": given["shape"][1], "process": 123e6, "seconds": given["shape"][1]} if given else 0.5


@pytest.mark.parametrize("quick", [True, False])
def test_the_report_has_a_row_for_every_goal_and_contestant(monkeypatch, quick):
    monkeypatch.setattr(bench, "in_a_process", pretend)
    lines = bench.cpu_report(quick).splitlines()
    for name in bench.QUICK if quick else bench.CASES:
        threads = ["1"] if quick else ["1", "all"]
        group = bench.WHOLE if isinstance(bench.CASES[name][1], bool) else bench.PIECES
        for count in threads:
            for contestant in group:
                assert sum(line.startswith(f"| {name} | {count} | {contestant} | ") for line in lines) == 1
            for what, ours, other, _ in bench.GOALS[name]:
                label = f"memory of {ours}" if what == "memory" else ours
                found = [line for line in lines if line.startswith(f"| {name} | {count} | {label} / {other} |")]
                assert len(found) == (what == "time" or count == "1")
                assert all(line.endswith(("| met |", " % |")) for line in found)
    assert "| import mha_lib |  | seconds | 0.100 | 0.500 |  | missed by 400 % |" in lines
    assert quick != any(line.startswith("| n=16384, d=256, h=4 | 1 | MB of the whole process | 200 | 123.0 |  | met |")
                        for line in lines)
    assert len({line.count("|") for line in lines if line.startswith(("| work", "| n=8", "| import"))}) == 2
    assert any("kernels" in line and torch.__version__ in line for line in lines)


def test_the_report_on_a_device_has_a_row_for_every_contestant():
    lines = bench.gpu_report("cpu", sizes=(8, 16), longest=24, seconds=0, d=d, h=h).splitlines()
    for dtype in ("float32", "bfloat16", "float16"):
        for size in (8, 16):
            for name in bench.ON_GPU:
                assert sum(line.startswith(f"| {dtype} | {size} | {name} | ") for line in lines) == 1
    assert [line.split(" | ")[2] for line in lines if "| 24 |" in line] == bench.ON_GPU[:2]


def test_a_real_gpu_runs_the_report(gpu):
    text = bench.gpu_report(sizes=(128, 256), longest=1024, seconds=0)
    assert torch.cuda.get_device_name() in text


def test_each_half_of_the_report_is_written_without_touching_the_other(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "REPORT", tmp_path / "docs" / "benchmarks.md")
    bench.store("on the CPU", on_gpu=False)
    assert bench.REPORT.read_text(encoding="utf-8") == (
        f"{bench.TITLE}\n\non the CPU\n\n{bench.GPU_HEADING}\n\n{bench.NO_GPU}\n")
    bench.store("on the card", on_gpu=True)
    bench.store("again on the CPU", on_gpu=False)
    text = bench.REPORT.read_text(encoding="utf-8")
    assert text == f"{bench.TITLE}\n\nagain on the CPU\n\n{bench.GPU_HEADING}\n\non the card\n"
    bench.store("again on the card", on_gpu=True)
    assert bench.REPORT.read_text(encoding="utf-8") == text.replace("on the card", "again on the card")


def test_a_quick_run_prints_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "REPORT", tmp_path / "benchmarks.md")
    monkeypatch.setattr(bench, "cpu_report", lambda quick: f"quick: {quick}")
    bench.main(["--quick"])
    assert capsys.readouterr().out == "quick: True\n" and not bench.REPORT.exists()


def test_without_a_gpu_the_command_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="torch finds no CUDA device here"):
        bench.main(["--device", "cuda"])


def test_a_child_answers_in_json(capsys):
    bench.main(["--child", json.dumps(["verdict", {"measured": 1, "goal": 2}])])
    assert json.loads(capsys.readouterr().out) == "met"
