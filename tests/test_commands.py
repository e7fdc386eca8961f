"""The commands: make's targets, the environment, the learner's copy, strict or loose."""
import ast
import builtins
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import nbclient
import nbformat
import pytest

from tools import check, environment, lab, notebooks

ROOT = pathlib.Path(__file__).resolve().parents[1]


# -- Makefile

def needs_make():
    if not shutil.which("make") or os.name == "nt":
        pytest.skip("needs make and a POSIX shell")


def test_make_help_lists_every_target_and_no_other():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.M))
    assert set(re.search(r"^\.PHONY: (.*)", makefile, re.M).group(1).split()) == targets
    needs_make()
    done = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in done.stdout.splitlines()} == targets


def test_make_runs_only_tools_that_exist():
    tools = re.findall(r"tools/\w+\.py", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert len(tools) >= 5
    assert [tool for tool in tools if not (ROOT / tool).is_file()] == []


def make_sees(tmp_path, **pythons):
    """What `make environment` says on a machine that has these `python`s and nothing else."""
    needs_make()
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in pythons.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    make = [shutil.which("make"), "environment", "SHELL=" + shutil.which("sh")]
    done = subprocess.run(make, cwd=tmp_path, env={"PATH": str(programs)}, capture_output=True, text=True)
    return done.stdout + done.stderr


MISSING = 'echo "command not found" >&2; exit 127'  # what a pyenv shim without its version does
CANNOT = 'case "$2" in *ensurepip*) exit 1;; pass) exit 0;; esac; echo "$0 runs $1"'
CAN = 'case "$1" in -c) exit 0;; esac; echo "$0 runs $1"'


def test_make_takes_the_first_python_that_can_carry_the_course(tmp_path):
    said = make_sees(tmp_path, **{"python3.13": MISSING, "python3.12": CANNOT, "python3": CAN})
    assert "bin/python3 runs tools/environment.py" in said


def test_make_lets_an_unfit_python_say_what_it_lacks(tmp_path):
    said = make_sees(tmp_path, **{"python3.13": MISSING, "python3": CANNOT})
    assert "bin/python3 runs tools/environment.py" in said


def test_make_without_any_python(tmp_path):
    assert "No Python found. Install Python 3.11" in make_sees(tmp_path)


# -- environment

def test_environment_has_no_syntax_that_old_pythons_reject():
    new = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Nonlocal, ast.YieldFrom,
           ast.Starred, ast.Match)
    source = (ROOT / "tools" / "environment.py").read_text(encoding="ascii")
    allowed = "*OLDEST"
    tree = ast.parse(source)
    found = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, new)]
    assert [text for text in found if text != allowed] == []
    assert not any(node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg))


@pytest.mark.parametrize("python", ["python2.7", "python2", "python3.6", "python3.8", "python3.10"])
def test_an_old_python_says_that_it_is_too_old(python):
    if not shutil.which(python):
        pytest.skip(f"{python} is not installed")
    if subprocess.run([python, "-c", "pass"], capture_output=True).returncode:
        pytest.skip(f"{python} is there, but does not run")
    done = subprocess.run([python, "tools/environment.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "is too old: the course needs 3.11 or newer" in done.stderr


def test_environment_too_old(tmp_path):
    assert environment.obstacle((3, 10, 9), True, tmp_path).startswith("Python 3.10 is too old")
    assert environment.obstacle((3, 11, 0), False, tmp_path) == ""


@pytest.mark.parametrize("part", ["venv", "ensurepip"])
def test_environment_without_venv_module(monkeypatch, tmp_path, part):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name == part:
            raise ImportError(f"No module named '{part}'")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    said = environment.obstacle((3, 12), True, tmp_path)
    assert f"No module named '{part}'" in said and "apt install python3-venv" in said


def test_environment_without_room(monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=2 * 10**9))
    assert "about 3 GB, 2.0 GB are free" in environment.obstacle((3, 12), True, tmp_path)
    assert environment.obstacle((3, 12), False, tmp_path) == ""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=4 * 10**9))
    assert environment.obstacle((3, 12), True, tmp_path) == ""


def test_environment_in_a_read_only_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "Nothing can be written in" in environment.obstacle((3, 12), True, tmp_path)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout in which pip is counted instead of run; everything else is real, the venv without pip."""
    root = tmp_path / "course é"
    root.mkdir()
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    real_call, calls = subprocess.call, []

    def call(command):
        if "venv" in command:
            return real_call([*command, "--without-pip"])
        calls.append(command)
        return checkout.pip_fails

    class Checkout:
        pip_fails = 0
        folder = root / ".venv"

        def run(self):
            calls.clear()
            environment.main(str(root))
            return len(calls)

    checkout = Checkout()
    checkout.root, checkout.calls = root, calls
    monkeypatch.setattr(environment.subprocess, "call", call)
    monkeypatch.setattr(environment, "ROOM", 0)
    monkeypatch.setattr(environment.Environment, "is_broken", lambda self: not self.runs("-c", "print(1)"))
    return checkout


def test_environment_installs_once_and_again_when_stale(checkout, capsys):
    assert checkout.run() == 2
    assert "3 minutes and 1.4 GB" in capsys.readouterr().out
    assert checkout.run() == 0
    assert capsys.readouterr().out == ""
    for name in ("requirements.txt", "pyproject.toml"):
        with open(checkout.root / name, "a", encoding="utf-8") as file:
            file.write("# changed\n")
        kept = checkout.folder / "kept"
        kept.touch()
        assert checkout.run() == 2
        assert "up to date" in capsys.readouterr().out and kept.exists()
    assert checkout.run() == 0


def test_environment_is_stale_after_a_move(checkout):
    checkout.run()
    moved = checkout.root.with_name("moved")
    checkout.root.rename(moved)
    assert not environment.Environment(str(moved)).is_ready()


def test_environment_is_not_complete_when_pip_failed(checkout):
    checkout.pip_fails = 1
    with pytest.raises(SystemExit, match="did not finish"):
        checkout.run()
    checkout.pip_fails = 0
    assert checkout.run() == 2
    assert checkout.run() == 0


def test_environment_is_not_complete_when_an_update_failed_and_was_taken_back(checkout):
    checkout.run()
    requirements = checkout.root / "requirements.txt"
    before = requirements.read_bytes()
    requirements.write_bytes(before + b"# changed\n")
    checkout.pip_fails = 1
    with pytest.raises(SystemExit, match="did not finish"):
        checkout.run()
    requirements.write_bytes(before)
    checkout.pip_fails = 0
    assert checkout.run() == 2


def test_environment_half_made_is_made_anew(checkout, capsys):
    checkout.run()
    shutil.rmtree(checkout.folder / ("Scripts" if os.name == "nt" else "bin"))
    rest = checkout.folder / "rest"
    rest.touch()
    assert checkout.run() == 2
    assert not rest.exists()
    assert "making it anew" in capsys.readouterr().out


def test_environment_of_the_user_is_never_deleted(checkout, capsys):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout.folder], check=True)
    own = checkout.folder / "own"
    own.touch()
    assert checkout.run() == 2
    assert "did not make that .venv" in capsys.readouterr().out and own.exists()
    assert checkout.run() == 0
    shutil.rmtree(checkout.folder / ("Scripts" if os.name == "nt" else "bin"))
    with pytest.raises(SystemExit, match="Rename or delete it"):
        checkout.run()
    assert own.exists()


def test_environment_stopped_by_the_user_says_so_and_goes_on_later(checkout, monkeypatch):
    def stopped(self, made_here):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(environment.Environment, "install", stopped)
        with pytest.raises(SystemExit, match="Nothing is lost"):
            checkout.run()
    assert checkout.run() == 2
    assert checkout.run() == 0


def test_environment_that_cannot_be_written_says_so(checkout, monkeypatch):
    def full(self, made_here, complete_for):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(environment.Environment, "write_stamp", full)
    with pytest.raises(SystemExit, match="cannot be written:\n.*No space left on device"):
        checkout.run()


def test_environment_is_made_by_one_command_at_a_time(tmp_path):
    pytest.importorskip("fcntl", reason="Windows has no such locks")
    script = (f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tools import environment as e\n"
              f"with e.alone({str(tmp_path)!r}): print('in', flush=True); sys.stdin.read()")
    start = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **start) as first:
        assert first.stdout.readline() == "in\n"
        with subprocess.Popen([sys.executable, "-c", script], **start) as second:
            assert "waiting for it" in second.stdout.readline()
            first.kill()  # its lock goes with it
            assert second.communicate("", timeout=60)[0] == "in\n"


# -- the learner's copy

class Course:
    """A shipped notebook, the learner's folder beside it, and `make lab` as far as the copying goes."""

    def __init__(self, folder):
        self.source, self.mine = folder / "notebooks", folder / "my notebooks é"
        self.source.mkdir()
        self.ship("v1")

    def ship(self, text, output="", name="01_a.ipynb"):
        self.write(self.source / name, text, output)

    def write(self, path, text, output=""):
        cell = nbformat.v4.new_code_cell(text, id="a")
        cell.outputs = [nbformat.v4.new_output("stream", text=output)] if output else []
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)

    def learner(self, text, output="", name="01_a.ipynb"):
        self.write(self.mine / name, text, output)

    def lab(self):
        return lab.deliver_all(self.source, self.mine)

    def has(self):
        """{name: (source, output)} of the learner's notebooks."""
        cells = {p.name: nbformat.read(p, 4).cells[0] for p in sorted(self.mine.glob("*.ipynb"))}
        return {name: (c.source, c.outputs[0].text if c.outputs else "") for name, c in cells.items()}


@pytest.fixture
def course(tmp_path):
    return Course(tmp_path)


def test_lab_copies_and_leaves_alone(course):
    (course.source / "README.md").write_text("claims", encoding="utf-8")
    assert course.lab() == []
    assert course.has() == {"01_a.ipynb": ("v1", "")}
    assert (course.mine / "README.md").read_text(encoding="utf-8") == "claims"
    course.learner("v1", "ran")
    assert course.lab() == []
    assert course.has() == {"01_a.ipynb": ("v1", "ran")}


def test_lab_leaves_out_what_is_to_be_predicted(course):
    book = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell("1 + é", id=name, execution_count=1, metadata=metadata,
                                  outputs=[nbformat.v4.new_output("stream", text="2")])
        for name, metadata in [("a", {"tags": ["core"]}),
                               ("b", {"tags": ["core", "predict"], "jupyter": {"outputs_hidden": True}})]
    ])
    nbformat.write(book, course.source / "01_a.ipynb")
    course.lab()
    shown, predicted = nbformat.read(course.mine / "01_a.ipynb", 4).cells
    assert shown == book.cells[0]
    assert predicted.outputs == [] and predicted.execution_count is None
    assert predicted.metadata == {"tags": ["core", "predict"]} and predicted.source == "1 + é"
    course.ship("v2")  # nothing in the copy counts as a change by the learner
    assert course.lab() == []
    assert course.has() == {"01_a.ipynb": ("v2", "")}


def test_lab_updates_what_was_only_run(course):
    course.lab()
    course.learner("v1", "ran")
    course.ship("v2")
    assert course.lab() == []
    assert course.has() == {"01_a.ipynb": ("v2", "")}
    course.ship("v2", "a better output")
    assert course.lab() == []
    assert course.has() == {"01_a.ipynb": ("v2", "a better output")}


def test_lab_puts_the_newer_version_beside_a_changed_one(course):
    course.lab()
    course.learner("mine")
    assert course.lab() == []
    course.ship("v2")
    assert course.lab() == [
        "01_a.ipynb: you changed yours, so it stays. The newer version is beside it: 01_a.new.ipynb"
    ]
    assert course.has() == {"01_a.ipynb": ("mine", ""), "01_a.new.ipynb": ("v2", "")}
    assert course.lab() == []
    course.ship("v3")
    course.lab()
    assert course.has() == {"01_a.ipynb": ("mine", ""), "01_a.new.ipynb": ("v3", "")}
    course.learner("mine too", name="01_a.new.ipynb")
    for version in ("v4", "v5"):
        course.ship(version)
        assert "01_a.new2.ipynb" in course.lab()[0]
        assert course.has() == {"01_a.ipynb": ("mine", ""), "01_a.new.ipynb": ("mine too", ""),
                                "01_a.new2.ipynb": (version, "")}


def test_lab_does_not_bring_back_a_deleted_offer_and_notices_when_it_was_taken(course):
    course.lab()
    course.learner("mine")
    course.ship("v2")
    course.lab()
    (course.mine / "01_a.new.ipynb").unlink()
    assert course.lab() == []
    assert list(course.has()) == ["01_a.ipynb"]
    course.learner("v2", "ran")
    course.ship("v3")
    assert course.lab() == []
    assert course.has() == {"01_a.ipynb": ("v3", "")}


def test_lab_brings_back_a_deleted_notebook_and_leaves_other_files(course):
    course.lab()
    (course.mine / "01_a.ipynb").unlink()
    course.learner("notes", name="notes.ipynb")
    assert course.lab() == []
    assert course.has() == {"01_a.ipynb": ("v1", ""), "notes.ipynb": ("notes", "")}


def test_lab_keeps_a_file_of_the_learner_that_has_the_name_of_a_new_notebook(course):
    course.lab()
    course.learner("mine", name="02_b.ipynb")
    course.ship("v1", name="02_b.ipynb")
    assert len(course.lab()) == 1
    assert course.has()["02_b.ipynb"] == ("mine", "") and course.has()["02_b.new.ipynb"] == ("v1", "")


@pytest.mark.parametrize("state", [None, "", "{", "[]", '{"01_a.ipynb": 3}', '{"01_a.ipynb": {}}', "\udcff"])
@pytest.mark.parametrize("mine", ["mine", "v1", "v2"])
def test_lab_loses_nothing_without_its_state(course, state, mine):
    course.lab()
    course.learner(mine, "ran")
    if state is None:
        (course.mine / lab.STATE).unlink()
    else:
        (course.mine / lab.STATE).write_bytes(state.encode("utf-8", "surrogateescape"))
    course.ship("v2")
    told = course.lab()
    assert course.has()["01_a.ipynb"] == (mine, "ran")
    assert len(told) == (mine != "v2")
    if told:
        assert course.has()["01_a.new.ipynb"] == ("v2", "")
    assert course.lab() == []


@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize("broken", ["", "{", "[]", '{"cells": 3}', '{"cells": [{}]}'])
def test_lab_keeps_a_notebook_that_no_longer_parses(course, broken, with_state):
    course.lab()
    (course.mine / "01_a.ipynb").write_text(broken, encoding="utf-8")
    if not with_state:
        (course.mine / lab.STATE).unlink()
    course.ship("v2")
    assert len(course.lab()) == 1
    assert (course.mine / "01_a.ipynb").read_text(encoding="utf-8") == broken


@pytest.mark.parametrize("broken", ["", "{", '{"cells": 3}', "<<<<<<< HEAD"])
def test_lab_does_not_hand_out_a_notebook_that_cannot_be_read(course, broken):
    course.lab()
    course.learner("v1", "ran")
    (course.source / "01_a.ipynb").write_text(broken, encoding="utf-8")
    (told,) = course.lab()
    assert told.startswith("01_a.ipynb: not copied, as the course's own cannot be read")
    assert course.has() == {"01_a.ipynb": ("v1", "ran")}
    course.ship("v2")
    assert course.lab() == []
    assert course.has() == {"01_a.ipynb": ("v2", "")}


@pytest.mark.parametrize("there", [True, False])
def test_lab_leaves_a_link_of_the_learner_alone(course, there):
    course.lab()
    elsewhere, mine = course.mine.parent / "elsewhere.ipynb", course.mine / "01_a.ipynb"
    mine.rename(elsewhere)
    try:
        mine.symlink_to(elsewhere)
    except OSError:
        pytest.skip("links are not allowed here")
    if not there:  # on a disk that is not plugged in today
        elsewhere.unlink()
    assert course.lab() == []
    course.ship("v2")
    assert len(course.lab()) == 1
    assert mine.is_symlink() and elsewhere.exists() == there
    assert nbformat.read(course.mine / "01_a.new.ipynb", 4).cells[0].source == "v2"
    assert course.lab() == []


def test_lab_keeps_a_folder_of_the_learner_that_has_the_name_of_a_notebook(course):
    (course.mine / "01_a.ipynb").mkdir(parents=True)
    assert len(course.lab()) == 1
    assert (course.mine / "01_a.ipynb").is_dir() and (course.mine / "01_a.new.ipynb").is_file()


def test_lab_says_when_something_else_has_the_name_of_the_folder(tmp_path):
    (tmp_path / "my_notebooks").write_text("mine", encoding="utf-8")
    with pytest.raises(SystemExit, match="Rename it"):
        lab.main(["--allow-root"], folder=tmp_path / "my_notebooks")
    assert (tmp_path / "my_notebooks").read_text(encoding="utf-8") == "mine"


def test_lab_leaves_ctrl_c_to_the_server_where_it_stays_its_parent(monkeypatch, tmp_path):
    class Server:
        answers = iter([KeyboardInterrupt, 7])

        def __init__(self, command, env):
            pass

        def wait(self):
            answer = next(self.answers)
            if answer is KeyboardInterrupt:
                raise answer
            return answer

    monkeypatch.setattr(lab, "deliver_all", lambda source, folder: [])
    monkeypatch.setattr(lab.subprocess, "Popen", Server)
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(os, "name", "nt")
        lab.main(["--allow-root"], folder=tmp_path)
    assert ended.value.code == 7


def test_lab_says_when_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="cannot be written to"):
        lab.main(["--allow-root"], folder=tmp_path / "file" / "my_notebooks")


def test_lab_as_root_says_what_to_add(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    with pytest.raises(SystemExit, match='ARGS="--allow-root --no-browser"'):
        lab.main(["--no-browser"], folder=tmp_path / "my_notebooks")
    assert not (tmp_path / "my_notebooks").exists()


def test_lab_asks_no_question_about_news():
    file = ROOT / "tools" / "jupyter" / "labconfig" / "default_setting_overrides.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    assert settings == {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}
    assert lab.server_environment()["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0] == str(file.parents[1])


# -- what goes wrong with other commands

@pytest.mark.parametrize(("tool", "words"), [
    (["check.py"], "nothing is proved"),
    (["notebooks.py", "run", "00"], "left as it was"),
])
def test_stopped_by_the_user(monkeypatch, tool, words):
    def stopped(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "call", stopped)
    monkeypatch.setattr(nbclient.NotebookClient, "execute", stopped)
    monkeypatch.setattr(sys, "argv", tool)
    with pytest.raises(SystemExit, match=words):
        runpy.run_path(str(ROOT / "tools" / tool[0]), run_name="__main__")


@pytest.mark.parametrize("broken", ["", "{", "<<<<<<< HEAD", '{"nbformat": 4, "cells": 3}', '{"nbformat": 4}'])
@pytest.mark.parametrize("command", ["run", "fmt", "check", "execute", "text"])
def test_a_notebook_that_cannot_be_read_is_left_alone(tmp_path, capsys, command, broken):
    path = tmp_path / "01_a.ipynb"
    path.write_text(broken, encoding="utf-8")
    assert notebooks.main([command, str(path)]) == 1
    said = capsys.readouterr().out
    assert "cannot be read as a notebook" in said or "no notebook of format 4" in said
    assert path.read_text(encoding="utf-8") == broken


# -- strict or loose

@pytest.fixture
def pinned_machine(monkeypatch):
    """Pretend to be where the outputs were stored -> the versions, to be changed."""
    versions = check.pins((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    monkeypatch.setattr(check.importlib.metadata, "version", lambda name: versions[name])
    monkeypatch.setattr(check.platform, "system", lambda: "Linux")
    monkeypatch.setattr(check.platform, "machine", lambda: "x86_64")
    return versions


def test_strict_where_the_outputs_were_stored(pinned_machine):
    assert check.differences() == []
    pinned_machine["torch"] += "+cpu"
    assert check.differences() == []


@pytest.mark.parametrize("name", check.SHAPE_OUTPUTS)
def test_loose_with_another_version(pinned_machine, name):
    stored = pinned_machine[name]
    pinned_machine[name] = "0.9"
    assert check.differences() == [f"{name} is 0.9, the outputs were stored with {stored}"]


def test_loose_on_another_platform_or_without_a_package(pinned_machine, monkeypatch):
    monkeypatch.setattr(check.platform, "machine", lambda: "arm64")

    def missing(name):
        raise check.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(check.importlib.metadata, "version", missing)
    reasons = check.differences()
    assert reasons[0] == "this is Linux arm64, the outputs were stored on Linux x86_64"
    assert len(reasons) == 1 + len(check.SHAPE_OUTPUTS) and "torch is missing" in reasons[3]


def test_the_notebook_command_is_strict_or_loose_and_never_both():
    strict, loose = (check.nbval_command(["a.ipynb"], strict) for strict in (True, False))
    assert "--nbval" in strict and "--nbval-lax" not in strict
    assert "--nbval-lax" in loose and "--nbval" not in loose
    assert strict[-1] == loose[-1] == "a.ipynb"


def test_check_of_one_notebook_leaves_the_others_alone(monkeypatch):
    commands = []
    monkeypatch.setattr(check.subprocess, "call", lambda command, **_: commands.append(" ".join(command)) or 0)
    assert check.main(["--loose", "03", "05"]) == 0
    assert len(commands) == 3 and "-k 03_scaling or 05_concat_and_output" in commands[1]
    assert re.findall(r"notebooks/(\d\d)_", commands[2]) == ["03", "05"]
    with pytest.raises(SystemExit, match="No such notebook"):
        check.main(["03", "77"])
    assert len(commands) == 3


@pytest.mark.parametrize("failing", ["ruff", "tests", "notebooks", None])
def test_check_runs_every_step_and_fails_if_one_does(monkeypatch, capsys, failing):
    ran = []

    def call(command, cwd, env):
        ran.append("ruff" if "ruff" in command else "notebooks" if "--nbval-lax" in command else "tests")
        assert env["OMP_NUM_THREADS"] == "2"
        assert ran[-1] != "tests" or "-rfEs" in command  # in the end, failures are named and skips explained
        return int(ran[-1] == failing)

    monkeypatch.setattr(check.subprocess, "call", call)
    assert check.main(["--loose"]) == (failing is not None)
    assert ran == ["ruff", "tests", "notebooks"]
    said = capsys.readouterr().out
    assert said.count("FAILED") == (failing is not None)
    assert "outputs compared loosely here: asked for by --loose" in said
