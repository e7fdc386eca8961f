"""What `make test-binder` would say to a broken image: each rule of tests/ways/binder.py on a wrong input."""
import json
import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from tests.ways import binder
from tools import check

ROOT = check.ROOT
DOCKERFILE = "".join(step.format(python="3.12") if "python=" in step else step for step in binder.STEPS.values())


@pytest.fixture
def course(tmp_path):
    shutil.copytree(ROOT / "binder", tmp_path / "binder")
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    return tmp_path


def test_binder_installs_what_was_tested(course):
    assert list(binder.requirement_faults(course)) == []


@pytest.mark.parametrize(("good", "bad", "words"), [
    ("numpy==", "numpy==9", "has numpy 9"),
    ("matplotlib==3.11.2\n", "", "has matplotlib None"),
    ("+cpu", "", "would bring CUDA along"),
    (binder.CPU_INDEX, "# no index", "would bring CUDA along"),
    ("ipywidgets==", "-r ../requirements.txt\nipywidgets==", "'-r ../requirements.txt', every commit"),
    ("ipywidgets==", ".\nipywidgets==", "'.', every commit"),
    ("ipywidgets==", "left-pad==1\nipywidgets==", "has left-pad 1, requirements.txt has None"),
])
def test_wrong_requirements_are_named(course, good, bad, words):
    path = course / "binder" / "requirements.txt"
    text = path.read_text(encoding="utf-8")
    assert good in text
    path.write_text(text.replace(good, bad), encoding="utf-8")
    faults = list(binder.requirement_faults(course))
    assert len(faults) == 1 and words in faults[0]


def test_a_dockerfile_in_another_order_is_refused():
    assert list(binder.dockerfile_faults(DOCKERFILE, "3.12")) == []
    (fault,) = binder.dockerfile_faults(DOCKERFILE, "3.13")
    assert "lacks the Python of binder/runtime.txt" in fault
    for name, step in list(binder.STEPS.items())[1:]:
        without = DOCKERFILE.replace(step, "")
        for text in (without, step + without):              # missing; too early
            (fault,) = binder.dockerfile_faults(text, "3.12")
            assert f"lacks {name}, or has it too early" in fault


def test_a_kernel_with_more_threads_or_another_package_is_refused():
    package, threads = str(binder.WORK / "env" / "mha_lib.py"), dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    assert list(binder.report_faults(json.dumps([package, 1, threads]))) == []
    for text, words in [("No module named 'mha_lib'", "cannot import"),
                        (json.dumps([str(ROOT / "mha_lib"), 1, threads]), "not what postBuild installed"),
                        (json.dumps([package, 2, threads]), "torch uses 2"),
                        (json.dumps([package, 1, {**threads, "MKL_NUM_THREADS": "8"}]), "is to use 1 thread")]:
        (fault,) = binder.report_faults(text)
        assert words in fault


# -- postBuild, with a `python3` whose pip does nothing

PYTHON = f"""#!/bin/sh
[ "$2" = pip ] || exec "{sys.executable}" "$@"
"""


def test_post_build_leaves_out_what_is_to_be_predicted(course):
    if os.name == "nt":
        pytest.skip("Binder runs on Linux")
    shutil.copytree(ROOT / "tools", course / "tools")
    (course / "notebooks").mkdir()
    (course / "bin").mkdir()
    (course / "bin" / "python3").write_text(PYTHON, encoding="utf-8")
    (course / "bin" / "python3").chmod(0o755)
    output = [nbformat.v4.new_output("stream", text="2 é")]
    book = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell("1 + 1", id="shown", outputs=output, metadata={"tags": ["core"]}),
        nbformat.v4.new_code_cell("2 + 2", id="folded", outputs=output,
                                  metadata={"tags": ["core", "predict"], "jupyter": {"outputs_hidden": True}})])
    copy, original = course / "notebooks" / "00_a.ipynb", course / "00_a.ipynb"
    for path in (copy, original):
        nbformat.write(book, path)
    assert list(binder.copy_faults(copy, original)) == ["00_a.ipynb shows what is to be predicted in folded"]
    path = f"{course / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["binder/postBuild"], cwd=course, env={**os.environ, "PATH": path}, check=True)
    assert list(binder.copy_faults(copy, original)) == []
    shown, folded = nbformat.read(copy, 4).cells
    assert shown == book.cells[0] and folded.outputs == [] and "jupyter" not in folded.metadata
    book.cells[0].source = "1 + 2"
    nbformat.write(book, original)
    assert list(binder.copy_faults(copy, original)) == ["00_a.ipynb: postBuild changed more than outputs"]


# -- the server

def test_a_badge_that_leads_elsewhere_is_found(tmp_path):
    def ask(path):
        return json.dumps({"name": path.rsplit("/", 1)[1], "path": path, "type": "notebook"})

    path = tmp_path / "01_a.ipynb"
    for title, words in [("lab%2Ftree%2Fnotebooks%2F01_a.ipynb", None),
                         ("lab%2Ftree%2Fnotebooks%2F02_b.ipynb", "its badge opens api/contents/notebooks/02_b.ipynb"),
                         (None, "0 Binder badges")]:
        source = f"[x](https://mybinder.org/v2/gh/a/b/v1?urlpath={title})" if title else "# Title"
        nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(source, id="a")]), path)
        assert [words in fault for fault in binder.badge_faults(ask, path)] == ([True] if words else [])


def test_a_notebook_that_needs_too_much_memory_is_found(monkeypatch, tmp_path):
    for peak, words in [(1024, []), (1025, ["1025 MB, and Binder promises 1024"])]:
        monkeypatch.setattr(binder.notebooks, "measure", lambda path, peak=peak: (1.0, peak))
        assert [fault.removeprefix("01_a: ") for fault in binder.run_faults(tmp_path / "01_a.ipynb")] == words
