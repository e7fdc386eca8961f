"""What breaks notebook courses, and is caught nowhere else: installs, pins, imports, saved state, dead kernels.

CONTRIBUTING.md has the table of all kinds, each with the test that catches it; the last test here reads it. Each rule
is a function that yields faults, and is tried on a broken input as well.
"""
import ast
import json
import re
import subprocess
import sys
import tomllib

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.notebook_rules import Book, is_normalised, outputs_are_clean, tags, text_of
from tools import check, notebooks

pytestmark = pytest.mark.filterwarnings("default")      # Jupyter's own, which differ between systems

ROOT = check.ROOT
BOOKS = [Book(path) for path in sorted(notebooks.FOLDER.glob("*.ipynb"))]
SOURCES = sorted(path for folder in ("mha_lib", "tools", "tests", "docs") for path in (ROOT / folder).rglob("*.py"))
SCRIPTS = [ROOT / name for name in ("Makefile", ".ci/run", "binder/postBuild", "binder/start")]
# what the course may import beside Python itself: what pyproject.toml names, and IPython, which every kernel has
DECLARED = {"mha_lib", "numpy", "matplotlib", "PIL", "torch", "ipywidgets", "IPython"}


def read(path):
    return path.read_text(encoding="utf-8")


def cells(*sources, **metadata):
    return [new_code_cell(source, id=f"00-{i}", metadata={"tags": [], **metadata}) for i, source in enumerate(sources)]


def parsed(cell):
    """The code of a cell, without its % lines."""
    return ast.parse(re.sub(r"^(\s*)%.*$", r"\1pass", cell.source, flags=re.M))


# ------------------------------------------------------------------ what is installed, where and by whom

def installing(code):
    """Only the set-up cell may install, one package without its dependencies: Colab's own stay as they are."""
    for cell in code:
        for line in re.findall(r"^.*\b(?:pip|conda|mamba|uv)3?\s+(?:install|add)\b.*$|^\s*!.*$", cell.source, re.M):
            if "setup" not in tags(cell):
                yield f"{cell.id} installs: {line.strip()}"
            elif not re.fullmatch(r"%pip install -q --no-deps git\+https://\S+@v[\d.]+", line.strip()):
                yield f"{cell.id}: one package, from a tag, with --no-deps; this is: {line.strip()}"


def test_only_the_set_up_cell_installs():
    assert [fault for book in BOOKS for fault in installing(book.code)] == []
    assert any("%pip install" in cell.source for cell in BOOKS[0].code)
    assert len(list(installing(cells("%pip install torch", "!nvidia-smi", "import os\n  !pip install x")))) == 3
    for line in ("%pip install -q git+https://github.com/a/b@v1", "%pip install -q --no-deps mha_lib==9",
                 "%pip install -q --no-deps git+https://github.com/a/b@main",
                 "%pip install -q --no-deps git+https://github.com/a/b@v1 numpy==1.26"):
        assert list(installing(cells(line, tags=["setup"]))), line


def capped(project):
    """Upper or exact pins of the package: they break as soon as Colab moves on."""
    wanted = sum(project["optional-dependencies"].values(), [*project["dependencies"]])
    wanted.append("python" + project["requires-python"])
    yield from (line for line in wanted if re.search(r"[<~!]|(?<!>)=", line))


def test_the_package_has_no_upper_pins():
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    assert list(capped(project)) == []
    for line in ("numpy==2.0", "numpy<3", "numpy~=2.0", "numpy>=2,<3", "numpy!=2.1"):
        assert list(capped({**project, "dependencies": [line]})) == [line]
    assert re.search(r"^  schedule:\n    - cron:", read(ROOT / ".github" / "workflows" / "ci.yml"), re.M)


def undeclared(tree):
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
            [node.module] if isinstance(node, ast.ImportFrom) else [])
        yield from ({name.split(".")[0] for name in names} - DECLARED - sys.stdlib_module_names)


def test_everything_imported_is_declared():
    trees = {path.name: ast.parse(read(path)) for path in SOURCES if "mha_lib" in path.parts}
    trees |= {cell.id: parsed(cell) for book in BOOKS for cell in book.code}
    assert {name: found for name, tree in trees.items() if (found := list(undeclared(tree)))} == {}
    hidden = ast.parse("def f():\n    import matplotlib_inline.x\nfrom scipy import x\nimport os, torch.nn")
    assert set(undeclared(hidden)) == {"scipy", "matplotlib_inline"}
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    named = " ".join(sum(project["optional-dependencies"].values(), project["dependencies"])).replace("pillow", "PIL")
    assert {name for name in DECLARED if name not in named} == {"mha_lib", "IPython"}


def paths_bent(code):
    for cell in code:
        if match := re.search(r"\bsys\.path\b|\bos\.chdir\b|%cd\b|__file__|\.\./", cell.source):
            yield f"{cell.id} depends on where it runs: {match[0]}"


def test_no_cell_depends_on_its_folder():
    assert [fault for book in BOOKS for fault in paths_bent(book.code)] == []
    for source in ("import sys; sys.path.append('.')", "%cd ..", "open('../x')", "os.chdir('/')"):
        assert list(paths_bent(cells(source))), source


def test_binder_takes_the_small_torch_and_keeps_no_wheels():
    text = read(ROOT / "binder" / "requirements.txt")
    assert re.search(r"^--extra-index-url https://download\.pytorch\.org/whl/cpu$", text, re.M)
    assert re.search(r"^torch==[\d.]+\+cpu$", text, re.M)
    installs = re.findall(r"pip install.*", read(ROOT / "binder" / "postBuild"))
    assert installs and all("--no-cache-dir" in line and "--no-deps" in line for line in installs)


# ------------------------------------------------------------------ code

MODES = {"rb", "wb", "ab", "rb+"}


def without_encoding(tree):
    """Text files opened with the encoding of the machine: on Windows not UTF-8."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or any(word.arg == "encoding" for word in node.keywords):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        of = getattr(getattr(node.func, "value", None), "id", "")
        given = [getattr(word, "value", "") for word in [*node.args, *(word.value for word in node.keywords)]]
        text = name == "open" and of not in ("Image", "webbrowser") and not any(str(word) in MODES for word in given)
        if text or name in ("read_text", "write_text"):
            yield node.lineno


def test_every_text_file_is_opened_as_utf_8():
    # environment.py also runs on Pythons whose open knows no encoding; it writes and reads ASCII
    lines = {str(path): list(without_encoding(ast.parse(read(path)))) for path in SOURCES if path.stem != "environment"}
    assert {path: found for path, found in lines.items() if found} == {}
    assert len(list(without_encoding(ast.parse("open('x')\np.read_text()\np.open('w')\np.write_text('√')")))) == 4
    assert not list(without_encoding(ast.parse("open('x', 'rb')\nopen('x', encoding='utf-8')\nImage.open('x')")))


def test_names_that_numpy_2_removed_are_seen():
    command = [sys.executable, "-m", "ruff", "check", "--stdin-filename", "mha_lib/x.py", "-"]
    code = "import numpy as np\n\nx = np.{}\n"
    for name, rc in (("NINF", 1), ("Inf", 1), ("infty", 1), ("inf", 0)):
        done = subprocess.run(command, input=code.format(name), cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, "NPY201" in done.stdout) == (rc, bool(rc)), name


def devices_named(tree):
    yield from (node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant)
                and re.match(r"(cuda|mps)(:\d)?$", str(node.value)))


def test_one_file_alone_names_devices():
    """best_device; all else asks it or follows its input. For the notebooks: BANNED_CODE of notebook_rules.py."""
    naming = {path.name for path in SOURCES if "mha_lib" in path.parts and list(devices_named(ast.parse(read(path))))}
    assert naming == {"runtime.py"}
    assert sorted(devices_named(ast.parse("x.to('cuda:0')\ndevice = 'mps'\n'no cuda here'"))) == [1, 2]


def own_types_asked(tree, own):
    """isinstance of a class of the course: after a reload, objects made before it are of another class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            named = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node.args[1])}
            yield from named & own


def test_a_reloaded_package_takes_objects_made_before():
    trees = [ast.parse(read(path)) for path in SOURCES if "mha_lib" in path.parts]
    own = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assert "Projections" in own
    assert [found for tree in trees for found in own_types_asked(tree, own)] == []
    assert list(own_types_asked(ast.parse("isinstance(x, (int, projections.Projections))"), own)) == ["Projections"]
    code = ("import importlib; from mha_lib import checks, numpy_attention, projections, rules\n"
            "words, X, made = projections.running_example()\n"
            "for module in (rules, projections, numpy_attention, checks): importlib.reload(module)\n"
            "result = numpy_attention.multi_head_attention(X, made, h=3)\n"
            "assert type(made) is not projections.Projections and result.output.shape == (5, 12)\n"
            "print(checks.check('softmax', numpy_attention.softmax).status)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.split()[-1] == "correct"


def drawn_by_torch(code):
    """Numbers of torch's generator in a compared output: they differ between devices and platforms. NumPy's do not."""
    for cell in code:
        if (re.search(r"\btorch\.(rand|normal|bernoulli|manual_seed|Generator)|\b[Dd]ropout\(", cell.source)
                and cell.outputs and "measured" not in tags(cell)):
            yield cell.id


def test_no_stored_output_hangs_on_the_generator_of_torch():
    assert [cell for book in BOOKS for cell in drawn_by_torch(book.code)] == []
    drawing, silent, measured = cells("torch.randn(3)", "torch.rand(3)", "torch.nn.Dropout(0.5)(x)")
    drawing.outputs = measured.outputs = [new_output("stream", text="1")]
    measured.metadata.tags = ["measured"]
    assert list(drawn_by_torch([drawing, silent, measured])) == ["00-0"]


# ------------------------------------------------------------------ what other programs save into a notebook

def saved_by_others(name):
    """A stored notebook as another program would leave it."""
    book = json.loads(BOOKS[0].text)
    cell = next(cell for cell in book["cells"] if cell["cell_type"] == "code" and cell["outputs"])
    if name == "widgets without state":
        book["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"abc": {"model_name": "Bar"}}}
    elif name == "another kernel":
        book["metadata"]["kernelspec"]["name"] = "my-env"
    elif name == "Python's version":
        book["metadata"]["language_info"]["version"] = "3.13.1"
    elif name == "times":
        cell["metadata"]["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}
    elif name == "Colab's ids":
        book["metadata"]["colab"], cell["metadata"]["id"] = {"provenance": []}, "x1"
    elif name == "a widget beside its picture":
        cell["outputs"].append({"output_type": "display_data", "metadata": {},
                                "data": {notebooks.WIDGET: {"model_id": "abc"}, "text/plain": "IntSlider(value=3)"}})
    elif name == "no id":
        del cell["id"]
    elif name == "output in pieces":
        cell["outputs"][:0] = [{"output_type": "stream", "name": "stdout", "text": [text]} for text in "ab"]
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def test_a_notebook_saved_by_us_is_in_normal_form():
    assert saved_by_others("us") == BOOKS[0].text and list(is_normalised(BOOKS[0])) == []


@pytest.mark.parametrize("name", ["widgets without state", "another kernel", "Python's version", "times", "Colab's ids",
                                  "a widget beside its picture", "no id", "output in pieces"])
def test_what_other_programs_save_is_seen_and_fmt_mends_it(name):
    text = saved_by_others(name)
    book = Book(BOOKS[0].path, text)
    assert list(is_normalised(book))
    mended = notebooks.normalise(notebooks.loads(text), book.path.stem)
    assert not mended.metadata.keys() - notebooks.NOTEBOOK_METADATA.keys() and all(cell.id for cell in mended.cells)
    assert list(is_normalised(Book(book.path, notebooks.dumps(mended)))) == []


def ghosts(code):
    """Sliders that a reader without a kernel sees as IntSlider(value=3), or not at all."""
    for cell in code:
        drawn = any("image/png" in output.get("data", {}) for output in cell.outputs)
        if re.search(r"^\s*explore\(", cell.source, re.M) and not drawn:
            yield f"{cell.id} stores no picture of its sliders"
        for output in cell.outputs:
            if match := re.search(r"\b(\w*Slider|Checkbox|[HV]Box|interactive)\(", text_of(output)):
                yield f"{cell.id} shows {match[0]}"


def test_every_slider_stores_a_picture():
    assert [fault for book in BOOKS for fault in ghosts(book.code)] == []
    assert sum("explore(" in cell.source for book in BOOKS for cell in book.code) >= 5
    bare, ghost = cells("explore(f, 's')", "IntSlider()")
    ghost.outputs = [new_output("display_data", {"text/plain": "IntSlider(value=3)"})]
    assert len(list(ghosts([bare, ghost]))) == 2


def bare_numbers(code):
    """NumPy 1 and 2, and torch on a device, write numbers in their own ways."""
    for cell in code:
        for output in cell.outputs:
            if match := re.search(r"\bnp\.(float|int|bool)\w*\(|device='|<[\w.]+ object", text_of(output)):
                yield f"{cell.id} stores {match[0]}"


def test_no_output_depends_on_how_a_version_writes_numbers():
    assert [fault for book in BOOKS for fault in bare_numbers(book.code)] == []
    for text in ("np.float32(0.5)", "[np.int64(3)]", "tensor([1.], device='cuda:0')", "<mha_lib.Ledger object>"):
        (cell,) = cells("x")
        cell.outputs = [new_output("stream", text=text)]
        assert list(bare_numbers([cell])), text


def test_no_output_of_a_notebook_is_an_error_or_a_warning():
    """What a tag raises-exception would let pass; and such a tag is unknown to notebook_rules.py."""
    assert [fault for book in BOOKS for fault in outputs_are_clean(book)] == []
    assert [cell.id for book in BOOKS for cell in book.cells if "raises-exception" in tags(cell)] == []


# ------------------------------------------------------------------ kernels

def test_warnings_are_no_errors_for_jupyter():
    """On Windows its event loop warns, and as an error that hangs; ours are errors in pytest alone."""
    command = check.nbval_command(["x.ipynb"], strict=True)
    assert command[command.index("-W") + 1] == "default" and command.count("-W") == 1
    scripts = [*SCRIPTS, *(ROOT / ".github" / "workflows").glob("*.yml"), *(ROOT / "tools").rglob("*.py")]
    assert [path.name for path in scripts if re.search(r"PYTHONWARNINGS|-W\s*error|simplefilter", read(path))] == []


@pytest.mark.parametrize(("source", "said"), [("import time\ntime.sleep(60)", "timed out"),
                                              ("import os\nos._exit(9)", "Kernel died")])
def test_a_cell_without_end_and_a_dead_kernel_are_told_with_the_name_of_the_notebook(tmp_path, monkeypatch, capsys,
                                                                                     source, said):
    """No second try: a test that is red now and then is to be mended."""
    path = tmp_path / "09_ends.ipynb"
    path.write_text(notebooks.dumps(new_notebook(cells=cells(source))), encoding="utf-8")
    before = path.read_bytes()
    monkeypatch.setattr(notebooks, "CELL_TIMEOUT", 2)
    assert notebooks.main(["execute", str(path)]) == 1
    out = capsys.readouterr().out
    assert "09_ends" in out and said in out
    assert path.read_bytes() == before
    command = check.nbval_command([path], strict=True)
    assert int(command[command.index("--nbval-cell-timeout") + 1]) == 120


def test_a_kernel_that_takes_too_much_memory_is_told(tmp_path, monkeypatch, capsys):
    """Here, in words, and not by a silent restart on a machine of 1 GB."""
    path = tmp_path / "09_large.ipynb"
    path.write_text(notebooks.dumps(new_notebook(cells=cells("1"))), encoding="utf-8")
    monkeypatch.setattr(notebooks, "MAX_MB", 1)
    code = notebooks.main(["execute", str(path)])
    out = capsys.readouterr().out
    if "not measured" in out:
        pytest.skip("Windows does not say how much memory a process took")
    assert code == 1 and "OVER THE LIMIT" in out


# ------------------------------------------------------------------ the table in CONTRIBUTING.md

def dead_citations(text):
    """`file::name` where the file has no function, class or constant of that name."""
    for file, name in re.findall(r"`([\w./-]+\.\w+)::(\w+)", text):
        path = ROOT / file
        tree = ast.parse(read(path)) if path.is_file() and path.suffix == ".py" else ast.parse("")
        defined = {getattr(node, "name", getattr(node, "id", "")) for node in ast.walk(tree)}
        if name not in defined:
            yield f"{file}::{name}"


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "README.md", "notebooks/README.md"])
def test_every_test_that_is_cited_exists(name):
    assert list(dead_citations(read(ROOT / name))) == []


def test_a_dead_citation_is_seen():
    good = "caught by `tests/test_faults.py::test_a_dead_citation_is_seen`"
    assert list(dead_citations(good)) == []
    assert list(dead_citations(good.replace("dead", "live"))) and list(dead_citations("`tests/none.py::test_x[3]`"))
