"""The command that compares notebooks with their stored outputs sees what it must see.

A small notebook is executed here and stored faithfully, then in copies with one fault to a cell. The command of
`make test` has to pass the faithful copy and to fail each fault, at its cell.
"""
import base64
import copy
import io
import itertools
import re
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from nbval.plugin import get_sanitize_patterns

from mha_lib import plots
from tests import nbval_figures
from tools import check, notebooks

# Jupyter's own warnings, which differ between systems, are no fault of the course
pytestmark = pytest.mark.filterwarnings("default")

NAMES = "Ada with friends paints herself".split()
WEIGHTS = np.full((5, 5), 0.2)
WEIGHTS[2] = 0.1, 0.2, 0.3, 0.2, 0.2
SWAPPED = WEIGHTS.copy()
SWAPPED[2] = 0.2, 0.1, 0.3, 0.2, 0.2        # two weights, .1 apart

CELLS = [
    "import numpy as np\n\nfrom mha_lib.plots import plot_lines, plot_weights, show",
    "np.random.default_rng(0).normal(size=3).round(3)",
    f"names = {NAMES}\nweights = np.full((5, 5), 0.2)\nweights[2] = 0.1, 0.2, 0.3, 0.2, 0.2\n"
    "show(plot_weights(weights, names, names), 'one row differs')",
    "show(plot_lines([1, 2], {'loss': [3, 1]}, xlabel='step', ylabel='loss'), 'it falls')",
]
IMPORTS, NUMBERS, MAP, MEASURED = range(4)


def png(picture):
    buffer = io.BytesIO()
    picture.figure.savefig(buffer, format="png", dpi=plots.DPI)
    return base64.b64encode(buffer.getvalue()).decode()


def weights_png(weights):
    return png(plots.plot_weights(weights, NAMES, NAMES))


def stored(cells, cell):
    """The first output of a cell: what it displays."""
    return cells[cell].outputs[0].data


def strip(cells, *which):
    for cell in which:
        cells[cell].update(outputs=[], execution_count=None)


def redraw(cell, image):
    return lambda cells: stored(cells, cell).update({"image/png": image})


def replace(cell, old, new):
    def fault(cells):
        assert old in stored(cells, cell)["text/plain"]
        stored(cells, cell)["text/plain"] = stored(cells, cell)["text/plain"].replace(old, new)
    return fault


FAULTS = {
    NUMBERS: {
        "digit": replace(NUMBERS, "0.126", "0.127"),
        "seed": lambda cells: cells[NUMBERS].update(source=CELLS[NUMBERS].replace("rng(0)", "rng(1)")),
        "outputs lost": lambda cells: cells[NUMBERS].update(outputs=[]),
        "never run": lambda cells: strip(cells, NUMBERS),
        "warning": lambda cells: cells[NUMBERS].update(
            source=f"import warnings\nwarnings.warn('new')\n{CELLS[NUMBERS]}"),
    },
    MAP: {
        "other plot": redraw(MAP, weights_png(WEIGHTS.T)),
        "two weights swapped": redraw(MAP, weights_png(SWAPPED)),
        "no picture": redraw(MAP, base64.b64encode(b"no picture").decode()),
        "figure lost": lambda cells: stored(cells, MAP).pop("image/png"),
        "words": replace(MAP, "friends most", "Ada most"),
    },
    MEASURED: {
        "measured words": replace(MEASURED, "loss", "gain"),
        "measured figure lost": lambda cells: stored(cells, MEASURED).pop("image/png"),
    },
}
# A copy costs a kernel, and cells are judged one by one: faulty copy k gets the k-th fault of each cell.
COPY_OF = {fault: f"faulty-{k}" for faults in FAULTS.values() for k, fault in enumerate(faults)}
CELL_OF = {fault: cell for cell, faults in FAULTS.items() for fault in faults}


def copies(book):
    """{name: notebook}: one that must pass, one stripped of all outputs, and the faulty ones."""
    names = ["faithful", "stripped", *dict.fromkeys(COPY_OF.values())]
    made = {name: copy.deepcopy(book) for name in names}
    redraw(MEASURED, weights_png(WEIGHTS))(made["faithful"].cells)      # pixels of a measured figure may differ
    strip(made["stripped"].cells, *range(len(CELLS)))
    for fault, name in COPY_OF.items():
        FAULTS[CELL_OF[fault]][fault](made[name].cells)
    return made


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """{copy: numbers of its failed cells}, from one run of the command over all copies."""
    folder = tmp_path_factory.mktemp("copies")
    book = new_notebook(cells=[new_code_cell(source, id=f"c{i}") for i, source in enumerate(CELLS)])
    book.cells[MEASURED].metadata["tags"] = ["measured"]
    notebooks.execute_alone(book)
    made = copies(notebooks.normalise(book, "00_copy"))
    paths = [folder / f"{name}.ipynb" for name in made]
    for path in paths:
        path.write_text(notebooks.dumps(made[path.stem]), encoding="utf-8")
    command = [*check.nbval_command(paths, strict=True), f"--junitxml={folder / 'report'}"]
    assert subprocess.call(command, cwd=check.ROOT, env=check.plain_environment(folder)) == 1

    cases = ElementTree.parse(folder / "report").findall(".//testcase")     # in the order of the paths
    cells = itertools.product(made, range(len(CELLS)))
    failed = {name: set() for name in made}
    for case, (name, cell) in zip(cases, cells, strict=True):
        assert case.get("name") == f"Cell {cell}"
        if len(case):       # it holds a failure or an error
            failed[name].add(cell)
    return failed


def test_faithful_copy_passes(failed):
    assert failed["faithful"] == set()


def test_copy_stripped_of_all_outputs_fails(failed):
    assert failed["stripped"] == {IMPORTS, NUMBERS, MAP, MEASURED}


@pytest.mark.parametrize("fault", COPY_OF)
def test_fault_fails_at_its_cell(failed, fault):
    assert CELL_OF[fault] in failed[COPY_OF[fault]]


def test_nothing_else_fails(failed):
    for name in set(COPY_OF.values()):
        assert failed[name] == {CELL_OF[fault] for fault in COPY_OF if COPY_OF[fault] == name}


def test_tolerance_lies_between_noise_and_meaning():
    """Noise: the last bit, a thousandth on a line. Meaning: one weight .02 off, in the numbers and the colour."""
    def lines(factor):
        x = np.array([1, 4, 16, 64, 256])
        return png(plots.plot_lines(x, {"a": x * factor}, {"a": x}, xlabel="d_k", ylabel="variance", log="xy"))

    nudged = WEIGHTS.copy()
    nudged[2, 1] += 0.02
    assert nbval_figures.difference(lines(1), lines(1 + 1e-12)) == 0
    assert nbval_figures.difference(lines(1), lines(1.001)) <= nbval_figures.LIMIT
    assert nbval_figures.difference(weights_png(WEIGHTS), weights_png(nudged)) > nbval_figures.LIMIT
    assert nbval_figures.difference(lines(1), weights_png(WEIGHTS)) == 255, "sizes differ"


def test_of_numbers_only_the_sign_of_zero_is_forgiven():
    cfg = (check.ROOT / "tests" / "nbval_sanitize.cfg").read_text(encoding="utf-8")
    ((pattern, replacement),) = get_sanitize_patterns(cfg)
    assert re.sub(pattern, replacement, "[-0. -0.00 -0.132 -0.005 -10.0]") == "[0. 0.00 -0.132 -0.005 -10.0]"
