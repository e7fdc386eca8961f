"""Sphinx: the course as web pages, from the stored notebooks. Nothing is executed, nothing is fetched by the reader.

    sphinx-build -c docs . build/html       (the packages: docs/requirements.txt)
"""
import json
import pathlib
import re
import shutil
import tomllib

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

ROOT = pathlib.Path(__file__).resolve().parents[1]
about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Attention, shape by shape"
version = release = about["version"]
language = "en"
extensions = ["myst_nb"]
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/benchmarks.md", "notebooks/README.md", "notebooks/[0-9]*"]
exclude_patterns = [".*", "build", "my_notebooks"]
nb_execution_mode = "off"
nb_code_prompt_show, nb_code_prompt_hide = "Show the {type}", "Hide the {type}"
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = project
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
html_static_path = ["static"]
html_css_files = ["course.css"]
html_copy_source = html_use_index = html_show_copyright = False
highlight_language = "none"                                     # for fences that name none
smartquotes = False

CONTENTS = """

```{toctree}
:hidden:
:caption: Notebooks
:glob:

notebooks/[0-9]*
```

```{toctree}
:hidden:
:caption: About

notebooks/README
docs/benchmarks
CONTRIBUTING
```
"""
FOLDS = {"predict": "hide-output", "setup": "hide-input"}       # the course's tags: those of myst-nb
BADGE = re.compile(r"\[!\[([^\]]*)\]\([^)]*\)\]")               # pictures on another host


def adapt(app, name, source):
    """The text of one page as Sphinx is to read it; the files stay as they are."""
    if name.startswith("notebooks/") and name != "notebooks/README":
        book = json.loads(source[0])
        for cell in book["cells"]:
            adapt_cell(cell)
        source[0] = json.dumps(book)
    else:
        source[0] = without_badges(source[0]) + (CONTENTS if name == root_doc else "")


def adapt_cell(cell):
    if cell["cell_type"] == "markdown":
        cell["source"] = without_badges("".join(cell["source"]))
        return
    tags = cell["metadata"].setdefault("tags", [])
    tags += [FOLDS[tag] for tag in tags if tag in FOLDS]
    for output in cell["outputs"]:
        if alt := output.get("metadata", {}).get("image/png", {}).get("alt"):
            cell["metadata"]["mystnb"] = {"image": {"alt": alt}}


def without_badges(text):
    return BADGE.sub(r"[\1]", text).replace(") [Open on", ") · [Open on")


def mathml(self, node):
    """Formulas are typeset here, and not by a script in the reader's browser."""
    try:
        self.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    except MathError as error:
        logging.getLogger(__name__).warning("formula %s: %s", node.astext(), error, location=node)
    raise nodes.SkipNode


def add_front_page(app, error):
    """README.html under the name that web servers look for; beside it, so that its links hold."""
    if not error:
        shutil.copy(app.outdir / "README.html", app.outdir / "index.html")


def setup(app):
    app.add_html_math_renderer("mathml", (mathml, None), (mathml, None))
    app.connect("source-read", adapt)
    app.connect("build-finished", add_front_page)
