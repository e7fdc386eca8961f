"""Colab, Binder and continuous integration: the ways to the course that nobody walks every day."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from tools import links

ROOT = pathlib.Path(__file__).resolve().parents[1]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


# -- links

def test_every_link_agrees_with_pyproject():
    assert links.wrong() == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_file_it_leads_to_is_there(name):
    files = re.findall(r"\]\((?!https?://)([^)#]+)", read(name))
    assert files or name != "README.md"
    assert [file for file in files if not (ROOT / file).exists()] == []


SETUP = "%pip install -q --no-deps git+https://github.com/{}@{}"


@pytest.fixture
def course(tmp_path):
    """Links of every kind: one notebook (Windows line ends, as Git may hand out) and a README."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    home = links.Home.read(tmp_path)
    name = "01_a.ipynb"
    title = f"# A é\n[![Colab](c.svg)]({home.colab(name)}) [![Binder](b.svg)]({home.binder(name)})"
    book = {"cells": [{"source": title.splitlines(keepends=True)}, {"source": [SETUP.format(*home)]}]}
    text = json.dumps(book, indent=1, ensure_ascii=False).replace("\n", "\r\n")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / name).write_bytes(text.encode("utf-8"))
    (tmp_path / "README.md").write_text(
        f"git clone https://github.com/{home.repo}.git\n{home.colab(name)}\n"
        "like https://github.com/karpathy/nanoGPT\n",
        encoding="utf-8",
    )
    assert links.wrong(tmp_path) == []
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_links_are_stamped_everywhere_and_nothing_else_changes(course, capsys):
    old, before = links.Home.read(course).repo, contents(course)
    assert links.main(["ada/heads.up"], root=course) == 0
    assert "every link leads to ada/heads.up" in capsys.readouterr().out
    after = contents(course)
    for name in before:
        assert after[name] == before[name].replace(old.encode(), b"ada/heads.up"), name
        assert after[name] != before[name]
    assert links.restamp(course, "ada/heads.up") == []
    links.restamp(course, old)
    assert contents(course) == before


def test_a_new_version_is_stamped(course):
    pyproject = course / "pyproject.toml"
    version = links.Home.read(course).tag.removeprefix("v")
    old = f'version = "{version}"'
    pyproject.write_bytes(pyproject.read_bytes().replace(old.encode(), b'version = "7.8.9"'))
    assert len(links.wrong(course)) >= 4
    links.restamp(course)
    assert links.wrong(course) == []
    assert contents(course)["01_a.ipynb"].count(b"v7.8.9") == 3


@pytest.mark.parametrize(("good", "bad"), [
    ("github/{repo}/blob", "github/eve/{name}/blob"),
    ("blob/{tag}", "blob/main"),
    ("v2/gh/{repo}", "v2/gh/{owner}/other"),
    ("{repo}/{tag}?urlpath", "{repo}/v0.0.9?urlpath"),
    ("{repo}@{tag}", "{repo}@main"),
    ("git+https://github.com/{repo}", "git+https://github.com/eve/{name}"),
    ("notebooks/01_a", "notebooks/02_b"),
    ("notebooks%2F01_a", "notebooks%2F02_b"),
])
def test_a_wrong_link_in_a_notebook_is_found(course, good, bad):
    repo, tag = links.Home.read(course)
    owner, name = repo.split("/")
    words = {"repo": repo, "tag": tag, "owner": owner, "name": name}
    path = course / "notebooks" / "01_a.ipynb"
    old = path.read_bytes()
    new = old.replace(good.format(**words).encode(), bad.format(**words).encode())
    assert new != old
    path.write_bytes(new)
    assert any("01_a.ipynb" in line for line in links.wrong(course))
    assert links.main(["--check"], root=course) == 1
    assert path.read_bytes() == new
    links.restamp(course)
    if good.startswith("notebooks"):  # which notebook a badge opens is the author's to mend
        assert path.read_bytes() == new
    else:
        assert path.read_bytes() == old


def test_a_wrong_clone_line_in_the_readme_is_found(course):
    path = course / "README.md"
    owner = links.Home.read(course).repo.split("/")[0]
    path.write_bytes(path.read_bytes().replace(f".com/{owner}/".encode(), b".com/eve/", 1))
    (line,) = links.wrong(course)
    assert line.startswith("README.md, line 1: git clone https://github.com/eve/")


def test_a_notebook_that_cannot_be_read_is_named(course, capsys):
    (course / "notebooks" / "01_a.ipynb").write_text("<<<<<<< HEAD\n", encoding="utf-8")
    assert links.main([], root=course) == 1
    assert "01_a.ipynb: cannot be read as a notebook" in capsys.readouterr().out


def test_the_repository_it_runs_in_is_compared(course, capsys):
    links.restamp(course, f"{links.PLACEHOLDER}/heads")
    assert links.main(["--check", "ada/heads"], root=course) == 0
    assert "not compared with ada/heads" in capsys.readouterr().out
    links.restamp(course, "ada/heads")
    assert links.main(["--check", "ada/heads"], root=course) == 0
    assert links.main(["--check", "eve/heads"], root=course) == 1
    assert "pyproject.toml names ada/heads, this is eve/heads" in capsys.readouterr().out


@pytest.mark.parametrize("repo", ["ada", "https://github.com/ada/heads", "ada/he ads", "a/b/c"])
def test_what_is_no_repository_is_refused(course, repo):
    before = contents(course)
    with pytest.raises(SystemExit, match="write owner/name"):
        links.main([repo], root=course)
    assert contents(course) == before


# -- Binder and continuous integration

@pytest.mark.parametrize("name", ["binder/postBuild", "binder/start", ".ci/run"])
def test_script_is_executable_and_sound(name):
    script = ROOT / name
    assert read(name).startswith("#!") and "set -euo pipefail" in read(name)
    assert b"\r" not in script.read_bytes()
    if os.name == "nt":
        pytest.skip("Windows knows no executable files")
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)


def test_binder_start_hands_over(tmp_path):
    if os.name == "nt":
        pytest.skip("Binder runs on Linux")
    told = ["sh", "-c", 'echo "$1: $OMP_NUM_THREADS, $JUPYTER_CONFIG_PATH"', "sh", "a b"]
    command = [ROOT / "binder" / "start", *told]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert done.stdout == f"a b: 1, {ROOT}/tools/jupyter\n"


def test_continuous_integration_runs_the_readme_command():
    assert re.search(r"^make ci$", read(".ci/run"), re.M)
    assert re.search(r"^ci: test\b", read("Makefile"), re.M)
    assert "run: bash .ci/run" in read(".github/workflows/ci.yml")
