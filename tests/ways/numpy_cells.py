"""The NumPy cells of every notebook, run without Jupyter and without torch: their asserts must hold.

Tests for pytest, called by versions.py. Left out are the sections in torch and *Further*, what is `measured` (training
and timing: slow, and different on every machine), and what builds on that.
"""
import ast
import json
import pathlib
import sys

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
NEED_TORCH = ("torch", "mha_lib.torch_attention", "mha_lib.decoder")


def numpy_cells(book):
    return [cell for cell in book["cells"]
            if cell["cell_type"] == "code" and not {"torch", "further", "setup"} & set(cell["metadata"]["tags"])]


def run(cells):
    """Run the cells in one namespace -> the ids of those that were left out."""
    names, left_out, missing = {"__name__": "__main__"}, [], set()
    for cell in cells:
        source = "".join(cell["source"])
        leave = "measured" in cell["metadata"]["tags"]
        try:
            if not leave:
                exec(compile(source, cell["id"], "exec"), names)
        except Exception as error:
            leave = isinstance(error, NameError) and error.name in missing
            if not leave:
                pytest.fail(f"{cell['id']}: {type(error).__name__}: {error}")
        if leave:
            left_out.append(cell["id"])
            stored = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Name, ast.FunctionDef))]
            missing |= {getattr(node, "name", None) or node.id for node in stored}
    return left_out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_numpy_cells_run(path, monkeypatch):
    for name in NEED_TORCH:
        monkeypatch.setitem(sys.modules, name, None)        # an import now fails as if it were not there
    cells = numpy_cells(json.loads(path.read_text(encoding="utf-8")))
    left_out = run(cells)
    print("left out:", *left_out)
    assert len(cells) - len(left_out) >= 5
