"""Prove everything: ruff, the tests, every notebook against its stored outputs.

    python tools/check.py [--loose] [NN ...]

With numbers: only these notebooks.

Outputs and figures are compared strictly where the versions of requirements.txt run on Linux x86_64;
elsewhere (or with --loose) every cell must still run, and what it prints may differ.
"""
import argparse
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE_OUTPUTS = ["numpy", "matplotlib", "torch", "ipython", "ipywidgets"]


def pins(text):
    """{name: version} of the `name==version` lines; torch's 2.13.0+cpu is the 2.13.0 that is pinned."""
    return {name: version.split("+")[0] for name, version in re.findall(r"^([\w-]+)==(\S+)", text, re.M)}


def differences():
    """Why the stored outputs may differ on this machine, one reason each; none: compare strictly."""
    reasons = []
    machine = (platform.system(), platform.machine())
    if machine != ("Linux", "x86_64"):
        reasons.append("this is {} {}, the outputs were stored on Linux x86_64".format(*machine))
    pinned = pins((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    for name in SHAPE_OUTPUTS:
        try:
            installed = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            installed = "missing"
        if installed != pinned[name]:
            reasons.append(f"{name} is {installed}, the outputs were stored with {pinned[name]}")
    return reasons


def nbval_command(paths, strict):
    """The one command that runs notebooks against their stored outputs; it belongs into the folder ROOT."""
    return [
        sys.executable, "-m", "pytest", "-p", "tests.nbval_figures",
        "--nbval" if strict else "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", "120",
        "--nbval-sanitize-with", str(ROOT / "tests" / "nbval_sanitize.cfg"), "-p", "no:cacheprovider",
        "-W", "default",  # a warning of Jupyter's own, around the kernels, is no fault of the course
        *map(str, paths),
    ]


def plain_environment(folder):
    """For a run that depends on the course alone: its number of threads, no Jupyter settings of the user."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "2",  # another number of threads adds up in another order
        "JUPYTER_CONFIG_DIR": os.path.join(folder, "jupyter"),
        "IPYTHONDIR": os.path.join(folder, "ipython"),
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loose", action="store_true", help="let the outputs of the notebooks differ")
    parser.add_argument("numbers", nargs="*", metavar="NN", help="only these notebooks")
    options = parser.parse_args(arguments)
    reasons = ["asked for by --loose"] if options.loose else differences()
    notebooks = sorted(path for path in (ROOT / "notebooks").glob("*.ipynb")
                       if not options.numbers or path.name[:2] in options.numbers)
    if options.numbers and len(notebooks) < len(options.numbers):
        sys.exit(f"No such notebook: there are {len(notebooks)} of {', '.join(options.numbers)}.")
    tests = ["--cov=mha_lib", "tests"]
    if options.numbers:
        tests = ["tests/test_notebooks.py", "tests/test_static.py", "-k", " or ".join(path.stem for path in notebooks)]
    steps = {
        "ruff": [sys.executable, "-m", "ruff", "check", "."],
        "tests": [sys.executable, "-m", "pytest", "-rfEs", *tests],
        f"{len(notebooks)} notebooks, {'loose' if reasons else 'strict'}": nbval_command(
            notebooks or ["notebooks"],  # without one, fail
            strict=not reasons,
        ),
    }
    table = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name, command in steps.items():
            print(f"\n== {name}", flush=True)
            for reason in reasons if "notebooks" in name else []:
                print("outputs compared loosely here:", reason, flush=True)
            start = time.perf_counter()
            failed = subprocess.call(command, cwd=ROOT, env=plain_environment(folder))
            table.append((name, "FAILED" if failed else "passed", time.perf_counter() - start))
    print("\n" + "\n".join(f"{name:24}{result:8}{seconds:6.0f} s" for name, result, seconds in table))
    return int(any(result == "FAILED" for _, result, _ in table))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nStopped before the end: nothing is proved.")
