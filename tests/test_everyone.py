"""Everyone can read the figures: low vision, no colour vision, a grey printer, a screen reader, a keyboard alone.

What is asked, and where it comes from:
- text has a contrast of 4.5 to what is behind it, lines and markers 3 to white (WCAG 2.2, 1.4.3 and 1.4.11);
- colours are told apart with each of the three colour-vision deficiencies: CIE Lab distance at least 15 after the
  simulation of Machado, Oliveira and Fernandes (2009), severity 1;
- without any colour a second cue does the same: a marker and a dash, a number in the cell, light and dark;
- the smallest letter is 8 screen pixels high in font size where a figure is fitted into a column of 800. At 200 % zoom
  the column keeps its screen pixels: a figure that fills it stays as it is, and a narrower one grows up to twice.
"""
import ast
import base64
import functools
import io
import itertools
import re

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image

from mha_lib import plots
from tests.notebook_rules import FOLDED, Book, text_of
from tests.test_plots import drawings
from tools import notebooks

pytestmark = pytest.mark.filterwarnings("default")      # Jupyter's own, which differ between systems

BOOKS = [Book(path) for path in sorted(notebooks.FOLDER.glob("*.ipynb"))]
every_notebook = pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.path.stem)

TEXT, LINE, APART = 4.5, 3, 15
COLUMN, LETTER = 800, 8         # screen pixels
LEAD, WHOLE = 150, 1500         # characters of alternative text

# linear RGB -> linear RGB: Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", IEEE TVCG 15(6), 2009, the authors' table for severity 1.0
SIGHTS = {
    "all colours": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                            [0.004733, 0.691367, 0.303900]]),
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],      # of linear sRGB, D65
                [0.0193339, 0.1191920, 0.9503041]])
every_sight = pytest.mark.parametrize("sight", SIGHTS)


def linear(colour):
    rgb = np.asarray(to_rgb(colour) if isinstance(colour, str) else colour, dtype=float)[..., :3]
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    dark, light = sorted(float(linear(colour) @ XYZ[1]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour, sight):
    """CIE Lab (lightness first) of what a reader with this sight sees."""
    seen = np.clip(linear(colour) @ SIGHTS[sight].T, 0, 1)
    x, y, z = np.moveaxis(seen @ XYZ.T / XYZ.sum(axis=1), -1, 0)
    x, y, z = (np.where(v > (6 / 29) ** 3, np.cbrt(v), v / (3 * (6 / 29) ** 2) + 4 / 29) for v in (x, y, z))
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def distance(one, other, sight):
    return float(np.linalg.norm(lab(one, sight) - lab(other, sight)))


def test_the_measures_are_those_of_their_sources():
    assert contrast("black", "white") == pytest.approx(21) and contrast("#777777", "white") == pytest.approx(4.48, 0.01)
    np.testing.assert_allclose(lab("red", "all colours"), [53.24, 80.09, 67.20], atol=0.05)
    np.testing.assert_allclose([matrix.sum(axis=1) for matrix in SIGHTS.values()], 1, atol=1e-5)    # white stays white
    assert distance("#808080", "#808080", "tritanopia") == 0


# ------------------------------------------------------------------ colours

def not_told_apart(colours, sight):
    return [pair for pair in itertools.combinations(colours, 2) if distance(*pair, sight) < APART]


@every_sight
def test_lines_are_told_apart_by_colour(sight):
    colours = [colour for colour, _, _ in plots.LINES]
    assert not_told_apart(colours, sight) == []
    assert [colour for colour in [*colours, plots.INK, plots.MUTED] if contrast(colour, "white") < LINE] == []


def test_colours_that_look_alike_are_seen():
    blue_and_violet = ["#0072b2", "#7a4ea0"]
    assert [name for name in SIGHTS if not_told_apart(blue_and_violet, name)] == ["protanopia", "deuteranopia"]
    assert contrast("#f0e442", "white") < LINE


def darkens(colours, sight):
    """From the first to the last each is darker than the one before."""
    return bool((np.diff(lab(colours, sight)[:, 0]) < 0).all())


@every_sight
def test_more_is_darker(sight):
    weights, signed = (colormaps[name](np.linspace(0, 1, 101)) for name in (plots.WEIGHTS, plots.SIGNED))
    assert darkens(weights, sight)
    assert darkens(signed[50:], sight) and darkens(signed[50::-1], sight)
    assert not darkens(colormaps["jet"](np.linspace(0, 1, 101)), sight)
    for part in range(13, 51):      # from a quarter on the two signs differ; each number carries its minus as well
        assert distance(signed[50 - part], signed[50 + part], sight) >= APART
    assert contrast(colormaps[plots.WEIGHTS](0.75), "white") >= LINE        # a cell of plot_reach: it has no number


# ------------------------------------------------------------------ text in the figures

def texts(figure):
    return [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]


def text_problems(picture):
    """Text that is pale, small or written over other text, in the picture as a notebook stores it."""
    png = base64.b64decode(plots._image_data(picture)["image/png"])
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    height, width = pixels.shape[:2]
    boxes = {}
    for text in texts(picture.figure):
        box = text.get_window_extent()
        left, right, top, bottom = (int(v) for v in (box.x0, box.x1, height - box.y1, height - box.y0))
        part = pixels[max(top, 0):bottom + 1, max(left, 0):right + 1].reshape(-1, 3)
        if not len(part):
            continue                # a tick beyond the axis, which is not drawn
        shades, counts = np.unique(part, axis=0, return_counts=True)
        behind = shades[counts.argmax()] / 255
        if (found := contrast(text.get_color(), behind)) < TEXT:
            yield f"{text.get_text()!r} has the contrast {found:.2f}, {TEXT} wanted"
        letter = text.get_size() * plots.DPI / 72 * min(1, COLUMN / width)
        if letter < LETTER:
            yield f"{text.get_text()!r} has letters of {letter:.1f} pixels, {LETTER} wanted"
        if text.get_rotation() == 0:
            boxes[text.get_text(), box.x0, box.y0] = box.shrunk(0.98, 0.8).extents
    x0, y0, x1, y1 = np.array(list(boxes.values())).T
    over = (x0 < x1[:, None]) & (x0[:, None] < x1) & (y0 < y1[:, None]) & (y0[:, None] < y1)
    for one, other in np.argwhere(np.triu(over, k=1)):
        yield f"{list(boxes)[one][0]!r} is written over {list(boxes)[other][0]!r}"


SHADES = np.linspace(-1, 1, 144).reshape(12, 12)


@functools.cache
def pictures():
    """Every kind of figure: as tight as in the notebooks, and with every shade."""
    names = [f"p{i}" for i in range(12)]
    square = SHADES.round(1)
    return drawings() | {
        "every weight": plots.plot_weights(np.linspace(0, 1, 64).reshape(8, 8), names[:8], names[:8]),
        "every sign": plots.plot_matrix(SHADES, names, names),
        "three wide": plots.plot_matrices({"a": square[:5] * 9 // 1, "b": square[:5] * 8 // 1, "c": SHADES[:5] // 1},
                                          names[:5], range(12)),
        "two wide": plots.plot_matrices({"a": square[:3], "b": square[-3:]}, names[:3], range(12)),
        "four lines": plots.plot_lines([1, 2], {n: [1, i] for i, n in enumerate("abcd")}, xlabel="x", ylabel="y"),
        "four pairs": plots.plot_lines([1, 2], {n: [1, i] for i, n in enumerate("abcd")},
                                       {n: [1, i] for i, n in enumerate("abcd")}, xlabel="x", ylabel="y"),
    }


def test_text_can_be_read():
    problems = [f"{name}: {problem}" for name, picture in pictures().items() for problem in text_problems(picture)]
    assert not problems, "\n".join(problems)


def test_text_that_cannot_be_read_is_seen(monkeypatch):
    monkeypatch.setattr(plots, "ZERO", plots.MUTED)
    monkeypatch.setattr(plots, "_readable_on", lambda cell, first: first)       # white and black never asked
    problems = list(text_problems(plots.plot_matrix([[0, 1]], ["row"], ["x", "y"])))
    assert len(problems) == 2 and all("contrast" in problem for problem in problems)
    crowded = plots.plot_matrices({title: SHADES[:2].round(1) for title in "abcde"}, range(2), range(12))
    assert any("written over" in problem for problem in text_problems(crowded))
    small = plots.plot_passages({"a": "to be"}, "to be")
    texts(small.figure)[0].set_size(5)
    assert any("letters of" in problem for problem in text_problems(small))


def stored_figures(book):
    """(cell, alternative text, picture) of each figure that the notebook stores."""
    for cell in book.code:
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                png = base64.b64decode(output.data["image/png"])
                yield cell, output.metadata["image/png"].alt, Image.open(io.BytesIO(png))


@every_notebook
def test_stored_figures_stay_readable_in_the_column(book):
    smallest = min(text.get_size() for picture in pictures().values() for text in texts(picture.figure))
    widest = smallest * plots.DPI / 72 * COLUMN / LETTER
    for cell, _, image in stored_figures(book):
        assert image.width <= widest, f"{cell.id}: {image.width} pixels, at most {widest:.0f} with {smallest} pt text"


@every_notebook
def test_all_figures_come_from_the_plots_that_are_tested_here(book):
    """Only they are known to have contrast, a second cue and words."""
    for cell, _, _ in stored_figures(book):
        assert re.search(r"\b(show|explore)\(", cell.source), cell.id
    assert [cell.id for cell in book.code if re.search(r"\bmatplotlib\b|\bPIL\b|\bFigure\(", cell.source)] == []


# ------------------------------------------------------------------ no meaning by colour alone

def cue_problems(figure):
    """Two series of different colours that share a marker or a dash. The line of guessing is muted and named."""
    for ax in figure.axes:
        lines = [line for line in ax.get_lines() if line.get_color() != plots.MUTED]
        for one, other in itertools.combinations(lines, 2):
            if one.get_color() == other.get_color():
                continue
            for cue in ("marker", "linestyle"):
                a, b = (getattr(line, f"get_{cue}")() for line in (one, other))
                if a == b != "None":
                    yield f"{one.get_label()} and {other.get_label()} have the same {cue} {a}"
        if ax.get_images() and not ax.texts and len(np.unique(ax.get_images()[0].get_array())) > 2:
            rows, columns = ax.get_images()[0].get_array().shape
            if max(rows, columns) <= 8:     # a larger map shows light and dark, which grey print keeps
                yield "a map of shades without numbers"


def test_every_series_has_a_second_cue():
    assert [(name, found) for name, picture in pictures().items() for found in cue_problems(picture.figure)] == []


def test_a_series_without_a_second_cue_is_seen(monkeypatch):
    monkeypatch.setattr(plots, "LINES", [(colour, "o", "-") for colour, _, _ in plots.LINES])
    drawn = drawings()
    for name in ("lines", "panels", "losses", "positions"):
        assert list(cue_problems(drawn[name].figure)), name
    bare = plots.plot_weights(SHADES[:5, :5], "abcde", "abcde").figure
    for text in list(bare.axes[0].texts):
        text.remove()
    assert list(cue_problems(bare))


HUES = re.compile(r"\b(red|green|blue|orange|yellow|purple|violet|pink|colou?red)\b", re.I)


def sentences(book):
    """What is said about figures: all prose, all outputs, all strings in code."""
    for cell in book.cells:
        yield cell.id, cell.source
        for output in cell.get("outputs", []):
            yield cell.id, text_of(output)


@every_notebook
def test_no_sentence_needs_colours(book):
    assert [(name, match[0]) for name, text in sentences(book) if (match := HUES.search(text))] == []


def test_a_sentence_that_needs_colours_is_seen():
    assert HUES.search("Count the coloured cells") and HUES.search("the Blue line")
    assert not HUES.search("a reddish-free word: hundred, greenhouse")


# ------------------------------------------------------------------ alternative texts, controls, headings

def alt_problems(alt):
    lead = re.split(r"[.:;] ", alt)[0]
    if not 2 <= len(lead.split()) or len(lead) > LEAD:
        yield f"begins with {len(lead)} characters in one breath: 2 words to {LEAD} characters wanted: {lead}"
    if len(alt) > WHOLE:
        yield f"{len(alt)} characters, {WHOLE} allowed"
    if re.search(r"<-|->|\bnan\b|\[|\be[+-]\d\d\b", alt):
        yield f"a screen reader stumbles over it: {alt}"


@every_notebook
def test_alternative_texts_begin_with_what_the_figure_is(book):
    problems = [f"{cell.id} {problem}" for cell, alt, _ in stored_figures(book) for problem in alt_problems(alt)]
    assert not problems, "\n".join(problems)


def test_a_poor_alternative_text_is_seen():
    for alt in ("Map. " + "a 1, " * 20, "word " * 31, "A map of weights. " + "a 1, " * 300, "Each output <- a token."):
        assert list(alt_problems(alt)), alt


def nameless_controls(source):
    """Calls of ipywidgets classes without a description: nothing names them to the eye or to a screen reader."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            described = any(word.arg == "description" and getattr(word.value, "value", True) for word in node.keywords)
            if re.search(r"Slider$|Checkbox|Dropdown|Text$|Button", name) and not described:
                yield name


@every_notebook
def test_every_control_has_a_name(book):
    """That all are moved by keyboard is tested in a browser: tests/ways/browser.py."""
    cells = [cell for cell in book.code if "setup" not in cell.metadata.tags]
    assert [(cell.id, name) for cell in cells for name in nameless_controls(cell.source)] == []


def test_a_control_without_a_name_is_seen():
    assert list(nameless_controls("explore(f, 's', p=widgets.FloatSlider(value=1))")) == ["FloatSlider"]
    assert list(nameless_controls("IntSlider(description='')")) == ["IntSlider"]
    assert list(nameless_controls("IntSlider(description=f'head {a}')")) == []


def heading_problems(text):
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", FOLDED.sub("", text), flags=re.S | re.M)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.M)]
    if levels[:1] != [1] or levels.count(1) != 1:
        yield f"one heading of level 1, the first, is wanted: {levels}"
    if any(below > above + 1 for above, below in itertools.pairwise(levels)):
        yield f"a level is skipped: {levels}"
    if re.search(r"!\[\s*\]\(", text):
        yield "an image without alternative text"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "notebooks/README.md", "docs/benchmarks.md"])
def test_pages_have_headings_in_order_and_named_images(name):
    """For the notebooks: notebook_rules.py, headings_do_not_skip and figures_have_words."""
    assert list(heading_problems((notebooks.FOLDER.parent / name).read_text(encoding="utf-8"))) == []


def test_headings_out_of_order_are_seen():
    for text in ("# a\n### b\n", "## a\n", "# a\n# b\n", "# a\n![](b.png)\n"):
        assert list(heading_problems(text)), text
    assert list(heading_problems("# a\n## b\n```\n# a comment\n```\n### c\n## d\n")) == []
