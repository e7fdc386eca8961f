"""tools/notebooks.py: a second run changes nothing, measured outputs stay, a failed run leaves the file alone."""
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import notebooks

# Jupyter's own warnings, which differ between systems, are no fault of the course
pytestmark = pytest.mark.filterwarnings("default")

CLOCK = "import time\nprint(time.perf_counter())"


@pytest.fixture
def path(tmp_path):
    cells = [
        new_markdown_cell("# Hello  \n√d_k", id="04-title", metadata={"tags": ["frame"], "trusted": True}),
        new_code_cell("print('\\r1 of 2', end='')\nprint('\\r2 of 2')\n1 + 1", id="04-sum"),
        new_code_cell(CLOCK, id="04-clock", metadata={"tags": ["measured"]}),
    ]
    path = tmp_path / "04_hello.ipynb"
    path.write_text(notebooks.dumps(new_notebook(cells=cells)), encoding="utf-8")
    return path


def read(path):
    return notebooks.loads(path.read_text(encoding="utf-8"))


def tool(*arguments):
    return notebooks.main([str(argument) for argument in arguments])


def test_run_stores_what_a_second_run_leaves(path, monkeypatch, capsys):
    monkeypatch.delenv("REMEASURE", raising=False)
    assert tool("check", path) == 1
    assert tool("run", path) == 0
    first = path.read_bytes()
    title, total, clock = read(path).cells
    assert title.source == "# Hello\n√d_k" and title.metadata == {"tags": ["frame"]}
    assert [output.get("text") for output in total.outputs] == ["2 of 2\n", None]
    assert (total.execution_count, clock.execution_count) == (1, 2)

    assert tool("run", path) == 0
    assert path.read_bytes() == first
    assert "measured outputs kept: 04-clock" in capsys.readouterr().out
    assert tool("check", path) == 0

    assert tool("run", "--remeasure", path) == 0
    assert read(path).cells[2].outputs != clock.outputs
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_failed_run_leaves_the_file(path, capsys):
    book = read(path)
    book.cells[1].source = "1 / 0"
    path.write_text(notebooks.dumps(book), encoding="utf-8")
    before = path.read_bytes()
    for command in ("run", "execute"):
        assert tool(command, path) == 1
        said = capsys.readouterr().out
        assert "1 / 0" in said and "ZeroDivisionError" in said
    assert path.read_bytes() == before


def test_execute_measures_and_knows_its_limits(path, monkeypatch, capsys):
    before = path.read_bytes()
    assert tool("execute", path) == 0
    assert path.read_bytes() == before
    assert "04_hello" in capsys.readouterr().out
    monkeypatch.setattr(notebooks, "MAX_SECONDS", 0)
    assert tool("execute", path) == 1
    assert "OVER THE LIMIT" in capsys.readouterr().out


def test_cells_are_named_and_never_renamed():
    cells = [new_markdown_cell(str(i), id=name) for i, name in enumerate(["a", "a", "04-003", "x"])]
    del cells[3]["id"]
    notebooks.name_cells(cells, "04_hello")
    assert [cell.id for cell in cells] == ["a", "04-001", "04-003", "04-003b"]


def test_text_is_for_reading(path, capsys):
    tool("run", path)
    capsys.readouterr()
    assert tool("text", path) == 0
    said = capsys.readouterr().out
    assert "---- 04-clock | code | measured\n" + CLOCK in said and "    | 2 of 2" in said


def test_unreadable_files_and_unknown_names(path, capsys):
    path.write_text("{}", encoding="utf-8")
    assert tool("run", path) == 1
    assert "no notebook of format 4" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="No notebook '99'"):
        notebooks.find(["99"])


def test_attached_pictures_are_refused(path):
    book = read(path)
    book.cells[0]["attachments"] = {"x.png": {"image/png": "AA=="}}
    with pytest.raises(ValueError, match="04-title has an attached picture"):
        notebooks.normalise(book, path.stem)


def test_progress_lines_that_arrive_in_pieces_are_stored_as_they_end():
    pieces = [new_output("stream", name="stdout", text=text) for text in ("before\n", "\r1 of 2", "\r2 of 2\n")]
    assert [output.text for output in notebooks.normal_outputs(pieces)] == ["before\n2 of 2\n"]
