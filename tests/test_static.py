"""The stored notebooks as GitHub and nbviewer show them: rendered by nbconvert, without a kernel, scripts or styles."""
import re

import bleach
import nbformat
import pytest
from bs4 import BeautifulSoup
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.notebook_rules import FENCE, text_of
from tools import notebooks

# Jupyter's own warnings, which differ between systems, are no fault of the course
pytestmark = pytest.mark.filterwarnings("default")

PATHS = sorted(notebooks.FOLDER.glob("*.ipynb"))
FORMULA = re.compile(r"(?<![\\$])(\$\$?)(?=[^\s$])[^$]+?\1(?!\d)|\\\(.+?\\\)|\\\[.+?\\\]", re.S)
GHOST = re.compile(r"\b\w*(Slider|Box|Dropdown|HTML)\(|Error creating widget|application/vnd\.jupyter\.widget")
# of those that GitHub's sanitiser lets through, those that a text needs; classes, styles and scripts it takes away
GITHUB = {"p", "em", "strong", "code", "pre", "br", "ul", "ol", "li", "details", "summary", "sub", "sup",
          "table", "thead", "tbody", "tr", "th", "td"}


def structure(html):
    return [(part.name, part.get_text(" ", strip=True)) for part in BeautifulSoup(html, "html.parser").find_all(True)]


def faults(book, template):
    """What a reader would miss on the rendered page."""
    page = BeautifulSoup(HTMLExporter(template_name=template).from_notebook_node(book)[0], "html.parser")
    text = " ".join(page.get_text(" ").split())
    images = {image["src"].partition("base64,")[2].strip(): image for image in page.find_all("img")}
    for cell in book.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"`[^`\n]+`", "", FENCE.sub("", cell.source))
            for formula in FORMULA.finditer(prose):
                if " ".join(formula[0].split()) not in text:
                    yield f"{cell.id}: the formula {formula[0]!r} does not survive"
            for tag in re.findall(r"</?([a-z]\w*)[^<>]*>", prose):
                if tag not in GITHUB:
                    yield f"{cell.id}: GitHub takes away <{tag}>"
            continue
        for output in cell.outputs:
            data = output.get("data", {})
            if ghost := GHOST.search(text_of(output) + " ".join(data)):
                yield f"{cell.id}: a widget leaves {ghost[0]!r}"
            html = data.get("text/html", "")
            if structure(bleach.clean(html, tags=GITHUB, attributes=[], strip=True)) != structure(html):
                yield f"{cell.id}: GitHub's sanitiser changes {html[:80]!r}"
            if "image/png" not in data:
                continue
            words = " ".join(output.metadata["image/png"]["alt"].split())
            image = images.get(data["image/png"].strip())
            if image is None:
                yield f"{cell.id}: a picture is missing"
            elif template == "classic" and image["alt"] != words:
                yield f"{cell.id}: the picture says {image['alt']!r}"
            elif words not in " ".join(" ".join(part.get_text(" ") for part in image.find_all_next("details")).split()):
                yield f"{cell.id}: the words of the picture do not follow it"   # lab's template drops the others
    if text.count("$$") % 2:
        yield "a $$ without its partner"
    folds = sum(cell.source.count("<details>") for cell in book.cells if cell.cell_type == "markdown")
    folds += sum(text_of(output).count("<details>") for cell in book.cells for output in cell.get("outputs", []))
    if len(page.find_all("details")) != folds:
        yield f"{folds} folds stored, {len(page.find_all('details'))} shown"


@pytest.mark.parametrize("template", ["classic", "lab"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_shows_all_it_has(path, template):
    problems = list(faults(nbformat.read(path, 4), template))
    assert not problems, "\n".join(problems)


# ------------------------------------------------------------------ each fault is seen

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WORDS = "One pixel, red."
CAPTION = f"<p>Look.</p><details><summary>In words</summary><p>{WORDS}</p></details>"


def shown(data, metadata=None):
    return new_output("display_data", data=data, metadata=metadata or {})


def sample():
    picture = shown({"image/png": PIXEL, "text/plain": WORDS}, {"image/png": {"alt": WORDS}})
    text = "$x_i * y_j$ and $z$\n\n$$\na_i * b_i < 3\n$$\n\n<details><summary>Answer</summary>\n\n`<b>$`\n\n</details>"
    return new_notebook(cells=[new_markdown_cell(text), new_code_cell("show()", outputs=[
        picture, shown({"text/html": CAPTION})])])


@pytest.mark.parametrize("template", ["classic", "lab"])
def test_sound_sample_has_no_fault(template):
    assert list(faults(sample(), template)) == []


@pytest.mark.parametrize(("add", "fault"), [
    (new_markdown_cell(r"so \(x_i\) is"), r"formula '\\(x_i\\)' does not survive"),
    (new_markdown_cell("<div>a</div>"), "takes away <div>"),
    (new_markdown_cell("So:\n\n    <details><summary>indented</summary></details>"), "3 folds stored, 2 shown"),
    (new_code_cell("s", outputs=[shown({"text/plain": "IntSlider(value=3)"})]), "leaves 'IntSlider("),
    (new_code_cell("s", outputs=[shown({"application/vnd.jupyter.widget-view+json": {"model_id": "a"}})]),
     "leaves 'application/vnd.jupyter.widget"),
    (new_code_cell("h", outputs=[shown({"text/html": "<button>go</button>"})]), "sanitiser changes '<button>"),
    (new_code_cell("h", outputs=[shown({"text/html": "<p>a</p><script>go()</script>"})]), "sanitiser changes '<p>a"),
    (new_code_cell("p", outputs=[shown({"image/png": PIXEL[:-4] + "AAAA", "text/plain": "Other."},
                                       {"image/png": {"alt": "Other."}})]), "do not follow it"),
], ids=lambda part: part if isinstance(part, str) else "")
def test_fault_is_seen(add, fault):
    book = sample()
    book.cells.append(add)
    assert fault in "\n".join(faults(book, "classic"))


def test_a_picture_hidden_by_its_html_is_missed():
    book = sample()
    book.cells[1].outputs[0].data["text/html"] = "<p>instead</p>"       # a viewer shows the richest form alone
    assert "a picture is missing" in "\n".join(faults(book, "classic"))


def test_widgets_without_state_stop_the_rendering():
    """What GitHub calls an invalid notebook; the notebook rules keep such metadata out."""
    book = sample()
    book.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"a": 1}}
    with pytest.raises(KeyError, match="state"):
        list(faults(book, "classic"))
    assert "widgets" not in notebooks.normalise(book, "00_a").metadata
