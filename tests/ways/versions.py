"""The library on every Python from 3.11 to 3.14 of this machine, with the oldest and the newest NumPy and matplotlib.

    .venv/bin/python tests/ways/versions.py

With the newest there is no torch: that is the NumPy half, which must not need it, the NumPy cells of the notebooks
included. With the oldest there is the oldest torch, or else the one of requirements.txt, where pip finds a build
without CUDA for that Python; where not, the NumPy half again. (The pinned versions are `make test`.)
The table at the end is for CONTRIBUTING.md; it stays in build/versions.md.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mha_lib import runtime  # noqa: E402
from tests.ways.shared import BUILD, ROOT, environment, say  # noqa: E402
from tools import check  # noqa: E402

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
# allowed by pyproject.toml; for the later Pythons the first that were built for them
OLDEST = {"3.11": ("2.0.0", "3.10.0"), "3.12": ("2.0.0", "3.10.0"),
          "3.13": ("2.1.0", "3.10.0"), "3.14": ("2.3.2", "3.10.5")}
OLDEST_TORCH = "{}.{}.0".format(*runtime.NEEDS["torch"])
TORCH = check.pins((ROOT / "requirements.txt").read_text(encoding="utf-8"))["torch"]
TOOLS = ["pytest", "hypothesis", "ipywidgets"]

FILES = [f"tests/test_{name}.py" for name in (
    "attention", "cache", "checks", "errors", "layers_ledger_runtime", "ledger", "plots", "projections", "shapes")]
COMMAND = [
    "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *FILES, "tests/ways/numpy_cells.py",
    # matplotlib 3.10.0 with today's pyparsing: remarks among other people's packages
    "-W", "default::DeprecationWarning",
    # its pixels belong to the pinned matplotlib
    "--deselect", "tests/test_plots.py::test_the_figure_in_the_readme_is_the_one_that_the_tool_draws",
    # a limit in seconds: not with two environments at work side by side
    "--deselect", "tests/test_checks.py::test_our_own_work_takes_less_than_a_second",
]
WITHOUT_TORCH = [
    "-p", "tests.ways.without_torch",
    # compares the two libraries name by name
    "--deselect", "tests/test_attention.py::test_both_libraries_have_the_same_names_arguments_and_defaults",
]


def find_python(version):
    """The path of a Python that can make environments, or None."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for python in filter(None, [shutil.which(f"python{version}"), *pyenv]):
        test = f"import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != ({version.replace('.', ', ')}))"
        if subprocess.run([python, "-c", test], capture_output=True).returncode == 0:
            return str(python)


def torch_at_hand(python):
    """The oldest torch that pip would install for this Python without CUDA, as an argument for pip; [] if none."""
    for version in (OLDEST_TORCH, TORCH):
        ask = [python, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-",
               f"torch=={version}"]
        said = subprocess.run(ask, capture_output=True, text=True)
        found = json.loads(said.stdout)["install"][0]["metadata"]["version"] if said.returncode == 0 else ""
        if found.endswith("+cpu") or (found and sys.platform != "linux"):
            return [f"torch=={version}"]
    return []


def installed(python):
    pip = [python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    packages = json.loads(subprocess.run(pip, check=True, capture_output=True, text=True).stdout)
    return {package["name"]: package["version"] for package in packages}


def prove(version, age, arguments):
    """Run the tests in one environment -> a row of the table."""
    python = environment(f"versions-{version}-{age}", arguments + TOOLS, find_python(version))
    found, start = installed(python), time.perf_counter()
    command = [python, *COMMAND, *([] if "torch" in found else WITHOUT_TORCH)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    (BUILD / f"versions-{version}-{age}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    count = {word: int(re.findall(rf"(\d+) {word}", f"0 {word}\n{done.stdout}")[-1]) for word in ("passed", "skipped")}
    result = "passed" if done.returncode == 0 and count["passed"] > count["skipped"] else "FAILED"
    say(f"Python {version}, {age}: {result} in {time.perf_counter() - start:.0f} s; "
        f"{count['passed']} passed, {count['skipped']} skipped: build/versions-{version}-{age}.txt")
    if result == "FAILED":
        say(done.stdout[-4000:] + done.stderr[-2000:])
    versions = [found["numpy"], found["matplotlib"], found.get("torch", "none")]
    return [version, *versions, f"{result}, {count['passed']} tests"]


def main():
    BUILD.mkdir(exist_ok=True)
    here = [version for version in PYTHONS if find_python(version)]
    with ThreadPoolExecutor(2) as pool:
        jobs = {}
        for version in here:
            numpy, matplotlib = OLDEST[version]
            oldest = [f"numpy=={numpy}", f"matplotlib=={matplotlib}", *torch_at_hand(find_python(version))]
            jobs[version] = [pool.submit(prove, version, "oldest", oldest),
                             pool.submit(prove, version, "newest", ["numpy", "matplotlib"])]
    rows = [["Python", "numpy", "matplotlib", "torch", "result"], ["---"] * 5]
    for version in PYTHONS:
        rows += [job.result() for job in jobs.get(version, [])] or [[version, "", "", "", "not here: nothing was run"]]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    say("\n" + table)
    (BUILD / "versions.md").write_text(table, encoding="utf-8")
    return int("FAILED" in table or not here)


if __name__ == "__main__":
    sys.exit(main())
