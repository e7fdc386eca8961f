"""What learners do and where they do it: each gets a message that says what to do, or it works.

More of it elsewhere: every cell twice, and from an empty folder (test_notebooks.py); ipywidgets 7 or none
(test_plots.py); the folder moved, no room, no rights, a stopped or half-made installation, learners' files in the way
(test_commands.py); a missing, old or broken package and short memory in preflight (test_layers_ledger_runtime.py);
shapes, dtypes and devices (test_errors.py).
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel

from mha_lib import decoder, runtime
from tests.ways.numpy_cells import NEED_TORCH, NOTEBOOKS, numpy_cells, run
from tools import check, lab, notebooks

ROOT = check.ROOT
QUICK = ("00", "02", "05")      # their NumPy cells take seconds, forwards and backwards


def read(path):
    return path.read_text(encoding="utf-8")


def source(cell):
    return "".join(cell["source"])


def is_quick(cell):
    return "measured" not in cell["metadata"]["tags"]       # those train, or repeat what they time


# -- cells in another order than the author's

def alone_faults(cells):
    """Each cell right after a restart of the kernel: it works, or Python names what a cell above it defines."""
    for at, cell in enumerate(cells):
        above = "\n".join(map(source, cells[:at]))
        if not is_quick(cell):
            continue
        try:
            exec(compile(source(cell), cell["id"], "exec"), {})
        except NameError as error:
            if not re.search(rf"\b{error.name}\b", above):
                yield f"{cell['id']}: {error}, and no cell above defines it"
        except Exception as error:
            yield f"{cell['id']}: {type(error).__name__}: {error}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_cell_alone_after_a_restart_works_or_names_what_it_misses(path):
    assert list(alone_faults(numpy_cells(json.loads(read(path))))) == []


def test_a_cell_alone_can_fail():
    texts = ["x = 1", "x", "y", "max + 1"]
    cells = [{"id": str(at), "source": [text], "metadata": {"tags": []}} for at, text in enumerate(texts)]
    assert [fault.split(":")[0] for fault in alone_faults(cells)] == ["2", "3"]


def test_the_course_says_what_to_do_after_a_restart():
    assert "Restart Kernel and Run All Cells" in read(notebooks.FOLDER / "00_start_here.ipynb")


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.name[:2] in QUICK], ids=lambda path: path.stem)
def test_the_numpy_cells_run_from_top_to_bottom_and_then_upwards_without_torch(path, monkeypatch):
    for module in NEED_TORCH:
        monkeypatch.setitem(sys.modules, module, None)
    cells = [*filter(is_quick, numpy_cells(json.loads(read(path))))]
    run(cells + cells[::-1])


def test_without_torch_it_is_torch_that_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="torch"):
        exec(pathlib.Path(decoder.__file__).read_text(encoding="utf-8"), {"__name__": "decoder"})


@pytest.mark.parametrize(("missing", "last"), [
    ("torch", "Not yet: torch. The NumPy cells run without it."),
    ("ipywidgets", "Not yet: ipywidgets."),             # the cells with sliders import it
])
def test_preflight_promises_no_more_than_runs(monkeypatch, capsys, missing, last):
    real = runtime.importlib.metadata.version
    monkeypatch.setattr(runtime.importlib.metadata, "version", lambda name: "0.1" if name == missing else real(name))
    monkeypatch.setattr(runtime, "memory_limit", lambda: None)
    runtime.preflight()
    assert capsys.readouterr().out.splitlines()[-1] == last


# -- where nothing may be written

def powerless():
    """What to put before a command so that a folder without write permission stops it: root may write anywhere."""
    if os.name == "nt":
        pytest.skip("Windows has other permissions")
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root may write everywhere here, and there is no setpriv to take that away")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@contextlib.contextmanager
def read_only(folder):
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        yield folder
    finally:                    # else pytest cannot remove it
        for path in folders:
            path.chmod(0o755)


@pytest.fixture
def course(tmp_path):
    """As much of a checkout as `make lab` reads, in a folder with a space and an accent."""
    folder = tmp_path / "mon cours à moi"
    for name in ("tools", "notebooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


def call(*words, **variables):
    return subprocess.run([*powerless(), sys.executable, *words], env={**os.environ, **variables}, encoding="utf-8",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.parametrize(("tool", "words"), [
    ("environment.py", "Nothing can be written in"), ("lab.py", "Your copies of the notebooks cannot be written to")])
def test_a_read_only_checkout_says_where_to_go(course, tool, words):
    with read_only(course):
        done = call(course / "tools" / tool, *(["--allow-root"] if tool == "lab.py" else []))
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert words in done.stdout and re.search("copy (it|the course) (there|to a folder of your own)", done.stdout, re.I)
    assert not (course / ".venv").exists() and not (course / "my_notebooks").exists()


def test_the_lab_starts_in_a_folder_with_a_space_where_home_cannot_be_written(course, tmp_path):
    home, mine = tmp_path / "home", course / "my_notebooks"
    home.mkdir()
    with read_only(home):
        # --show-config: JupyterLab ends when it has its settings and its folders
        done = call(course / "tools" / "lab.py", "--allow-root", "--show-config", HOME=str(home))
    said = re.sub(r"'\s+'", "", done.stdout)            # long paths are shown in two parts
    assert done.returncode == 0 and f"'{mine}'" in said, done.stdout
    assert f"Jupyter keeps its settings in {mine / '.home'}" in done.stdout
    assert (mine / ".home" / ".local" / "share" / "jupyter").is_dir() and (mine / lab.FIRST).is_file()


def test_a_home_that_can_be_written_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))        # Windows
    assert lab.home_elsewhere(tmp_path / "mine") == {}


def test_a_home_that_is_no_folder_is_left(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "file"))
    assert lab.home_elsewhere(tmp_path / "mine") == {"HOME": str(tmp_path / "mine" / ".home")}


def test_without_a_place_for_caches_figures_are_drawn_and_matplotlib_says_what_to_set(tmp_path):
    draw = "from mha_lib import plots; print(plots.plot_shapes(('X', (5, 12))).words)"
    variables = {"HOME": str(tmp_path), "MPLCONFIGDIR": "", "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": ""}
    with read_only(tmp_path):
        done = call("-c", draw, **variables)
    assert done.returncode == 0 and "Shapes drawn to scale" in done.stdout and "Traceback" not in done.stdout
    assert "set the MPLCONFIGDIR environment variable to a writable directory" in done.stdout


# -- no network, little memory

def test_the_set_up_cell_without_network_says_what_it_could_not_reach(tmp_path):
    if not shutil.which("git"):
        pytest.skip("git is not installed, so pip does not come to ask the network")
    (setup,) = [cell for cell in json.loads(read(notebooks.FOLDER / lab.FIRST))["cells"]
                if "setup" in cell["metadata"]["tags"]]
    nowhere = {name: "http://127.0.0.1:9" for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")}
    manager, client = start_new_kernel(env={**os.environ, **nowhere, "IPYTHONDIR": str(tmp_path)})
    said = []
    try:
        client.execute_interactive("import sys; sys.modules['mha_lib'] = None", timeout=120)
        reply = client.execute_interactive(source(setup), timeout=120,
                                           output_hook=lambda message: said.append(message["content"].get("text", "")))
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    assert re.search(r"unable to access 'https://github.com/\S+'", "".join(said))
    assert reply["content"]["ename"] == "ModuleNotFoundError" and "mha_lib" in reply["content"]["evalue"]


TOO_LARGE = """
import resource
import numpy as np, torch
from mha_lib import numpy_attention, torch_attention
resource.setrlimit(resource.RLIMIT_AS, (8 * 10**9, 8 * 10**9))
for library, x in ((numpy_attention, np.ones((50_000, 2))), (torch_attention, torch.ones(50_000, 2))):
    try:
        library.attention(x, x, x)
    except (MemoryError, RuntimeError) as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a process within a limit of memory")
def test_scores_that_do_not_fit_into_memory_are_named_with_their_size():
    done = subprocess.run([sys.executable, "-c", TOO_LARGE], capture_output=True, text=True, check=True)
    assert "Unable to allocate 18.6 GiB for an array with shape (50000, 50000)" in done.stdout
    assert "you tried to allocate 10000000000 bytes" in done.stdout         # torch: float32


# -- another system, another kernel

def test_windows_line_ends_change_nothing(tmp_path):
    original, windows = notebooks.FOLDER / lab.FIRST, tmp_path / lab.FIRST
    data = original.read_bytes()
    windows.write_bytes(data.replace(b"\n", b"\r\n"))
    assert windows.read_bytes() != data
    assert lab.fingerprint(windows) == lab.fingerprint(original)
    assert lab.learners_copy(windows.read_bytes()) == lab.learners_copy(data)
    assert notebooks.main(["check", str(windows)]) == 0
    text = tmp_path / "training_text.txt"
    shipped = pathlib.Path(decoder.__file__).with_name(text.name)
    text.write_bytes(shipped.read_bytes().replace(b"\n", b"\r\n"))
    assert read(text) == read(shipped)
    pins = read(ROOT / "requirements.txt")
    assert check.pins(pins.replace("\n", "\r\n")) == check.pins(pins)


def test_a_notebook_saved_by_a_kernel_of_another_name_is_checked_and_stored_under_the_usual_one(tmp_path):
    path = tmp_path / "01_a.ipynb"
    two = nbformat.v4.new_output("execute_result", data={"text/plain": "2"}, execution_count=1)
    cell = nbformat.v4.new_code_cell("1 + 1", id="01-a", execution_count=1, outputs=[two], metadata={"tags": ["core"]})
    book = nbformat.v4.new_notebook(cells=[cell])
    book.metadata.kernelspec = {"name": "my-env", "display_name": "My environment", "language": "python"}
    nbformat.write(book, path)
    done = subprocess.run(check.nbval_command([path], strict=True), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
    assert notebooks.main(["fmt", str(path)]) == 0
    assert nbformat.read(path, 4).metadata.kernelspec.name == "python3"
