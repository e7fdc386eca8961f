"""The notebooks keep the rules of notebook_rules.py; and every rule can fail, as faulty copies of a sample show."""
import ast
import base64
import copy
import linecache
import pathlib
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from mha_lib import checks
from tests.notebook_rules import CLOSING, RULES, Book, section, tags
from tools import links, notebooks

# Jupyter's own warnings, which differ between systems, are no fault of the course
pytestmark = pytest.mark.filterwarnings("default")

PATHS = sorted(notebooks.FOLDER.glob("*.ipynb"))
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def test_notebooks_are_numbered_without_gaps():
    assert PATHS
    assert [path.name[:3] for path in PATHS] == [f"{number:02d}_" for number in range(len(PATHS))]


@every_notebook
@every_rule
def test_rule(path, rule):
    problems = list(rule(Book(path)))
    assert not problems, "\n".join(problems)


def test_set_up_cell_is_the_same_everywhere():
    cells = [cell.source for path in PATHS for cell in Book(path).code if "setup" in tags(cell)]
    assert len(set(cells)) == 1


def test_exercises_have_checkers():
    names = {tag.removeprefix("exercise-") for path in PATHS for cell in Book(path).cells for tag in tags(cell)
             if tag.startswith("exercise-")}
    assert names == set(checks.names())


# ------------------------------------------------------------------ exercises: the stub and the folded solution

def exercises():
    """(path, the source of the stub, that of the check cell below it, the code of the folded solution)"""
    for path in PATHS:
        cells = Book(path).cells
        for at, stub in enumerate(cells):
            if names := [tag for tag in tags(stub) if tag.startswith("exercise-")]:
                check, solution = (next((cell.source for cell in cells[at + 1:] if fits(cell)), "") for fits in (
                    lambda cell: cell.cell_type == "code" and "check(" in cell.source,
                    lambda cell, name=names[0]: name.replace("exercise", "solution") in tags(cell)))
                code = "\n".join(re.findall(r"```python\n(.+?)```", solution, re.S))
                yield pytest.param(path, stub.source, check, code, id=stub.id)


def run_with_source(source, name, namespace):
    """Run a cell so that inspect finds its source, as it does in Jupyter."""
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(source, name, "exec"), namespace)


def verdicts(path, answer, check, monkeypatch):
    """What check says when the imports of the notebook, the answer and the check cell have run."""
    said, namespace = [], {}
    for cell in Book(path).code:
        if "import " in cell.source and "setup" not in tags(cell):
            lines = [line for line in ast.parse(cell.source).body if isinstance(line, (ast.Import, ast.ImportFrom))]
            exec(compile(ast.Module(lines, []), str(path), "exec"), namespace)
    real = checks.check
    namespace["check"] = lambda *args, **how: said.append(real(*args, **how))
    run_with_source(answer, "<answer>", namespace)
    with monkeypatch.context() as patch:
        patch.setattr(checks, "check", namespace["check"])          # for a check cell that imports it
        run_with_source(check, "<check>", namespace)
    return {verdict.status for verdict in said}


@pytest.mark.parametrize(("path", "stub", "check", "solution"), [*exercises()])
def test_a_stub_is_not_attempted_and_its_solution_correct(path, stub, check, solution, monkeypatch):
    assert verdicts(path, stub, check, monkeypatch) == {"not attempted"}
    assert verdicts(path, solution, check, monkeypatch) == {"correct"}


# ------------------------------------------------------------------ from an empty folder, every cell twice

def run_twice(book, folder):
    """What is wrong when every cell runs twice in a row, in an empty folder (cells tagged measured: once)."""
    double = copy.copy(book)
    double.cells = []
    for cell in book.cells:
        double.cells.append(cell)
        if cell.cell_type == "code" and "measured" not in tags(cell):
            double.cells.append(new_code_cell(cell.source, id=cell.id + "-again"))
    notebooks.execute(double, folder)
    for first, second in zip(double.cells, double.cells[1:], strict=False):
        if second.id == first.id + "-again" and said(first) != said(second):
            yield f"{first.id} says something else the second time: {said(second)}"
    for path in folder.iterdir():
        yield f"a cell wrote the file {path.name}"


def said(cell):
    return [(output.get("name"), output.get("text"), output.get("data"))
            for output in notebooks.normal_outputs(cell.outputs)]


@every_notebook
def test_every_cell_runs_twice_from_an_empty_folder(path, tmp_path):
    problems = list(run_twice(notebooks.loads(path.read_text(encoding="utf-8")), tmp_path))
    assert not problems, "\n".join(problems)


def test_running_twice_can_fail(tmp_path):
    sources = {
        "start": "import time\nx = [1, 2]",
        "fine": "x[:1]",
        "rebinds": "x = x + x[:1]\nx",
        "appends": "x.append(0)\nlen(x)",
        "writes": "open('note.txt', 'w').close()",
    }
    book = new_notebook(cells=[new_code_cell(source, id=name) for name, source in sources.items()])
    book.cells.append(new_code_cell("time.perf_counter()", id="clock", metadata={"tags": ["measured"]}))
    problems = list(run_twice(book, tmp_path))
    assert [problem.split()[0] for problem in problems] == ["rebinds", "appends", "a"]


# ------------------------------------------------------------------ the rules can fail

PATH = pathlib.Path("02_sample.ipynb")
PNG = base64.b64encode(b"\x89PNG").decode()
WORDS = "A heat map of two queries and two keys, .25 in every cell."


def code(name, tag, source, *outputs, **metadata):
    return new_code_cell(source, id=f"02-{name}", metadata={"tags": tag.split(), **metadata}, outputs=list(outputs))


def text(name, tag, source):
    return new_markdown_cell(source, id=f"02-{name}", metadata={"tags": tag.split()})


def sample():
    """A small notebook that keeps every rule, as {name: cell}."""
    home = links.Home.read()
    badges = f"[![Colab](c.svg)]({home.colab(PATH.name)}) [![Binder](b.svg)]({home.binder(PATH.name)})"
    figure = new_output("display_data", {"image/png": PNG, "text/plain": WORDS},
                        metadata={"image/png": {"alt": WORDS}})
    sentence = new_output("display_data", {"text/html": "<p>all cells the same</p><details>...</details>"})
    number = new_output("execute_result", {"text/plain": "0.2471"}, execution_count=1)
    cells = [
        text("title", "frame", f"# Sample\n\nWhat holds? 20 minutes.\n\n{badges}"),
        code("setup", "frame setup", "import mha_lib"),
        text("recall", "frame", "\n\n".join(["A question.\n\n<details>\n\nAn answer.\n\n</details>"] * 3)),
        text("weights", "core", "## Weights (8 min)\n\nEach is .25, or 25 %, and `n` is 2."),
        text("maths", "core", "$$\na + b\n$$\n\n| $a$ | $b$ |\n|---|---|"),
        text("guess", "core", "*Commit first:* is it .1 or .9?"),
        code("answer", "core predict", "0.2471 + 0", number, jupyter={"outputs_hidden": True}),
        code("figure", "core", "show(picture, 'all cells the same')", figure, sentence),
        *[code(f"claim-{i}", "core", "# why\n\nassert True") for i in range(6)],
        code("stub", "core exercise-softmax", "def softmax(x):\n    ..."),
        code("check", "core", 'check("softmax", softmax)', new_output("stream", text="not attempted\n")),
        text("solution", "core solution-softmax", "<details>\n\n```python\npass\n```\n\n</details>"),
        text("torch", "torch", "## The same in torch"),
        *[text(name, "frame", f"## {name.title()}") for name in CLOSING],
        text("more", "further", "## Further\n\n### More"),
    ]
    counts = iter(range(1, 100))
    for cell in cells:
        if cell.cell_type == "code":
            cell.execution_count = next(counts)
    return {cell.id[3:]: cell for cell in cells}


def problems(cells, rule):
    """What the rule says about the cells, written in normal form."""
    book = notebooks.normalise(nbformat.from_dict(new_notebook(cells=list(cells.values()))), PATH.stem)
    return list(rule(Book(PATH, notebooks.dumps(book))))


@every_rule
def test_the_sample_keeps_the_rule(rule):
    assert problems(sample(), rule) == []


def edit(name, old, new):
    def fault(cells):
        assert old in cells[name].source
        cells[name].source = cells[name].source.replace(old, new)
    return fault


def source(name, new):
    return lambda cells: cells[name].update(source=new)


def retag(name, new):
    return lambda cells: cells[name].metadata.update(tags=new.split())


def prints(cell, output, **content):
    return lambda cells: cells[cell].outputs.append(new_output(output, **content))


def drop(*names):
    return lambda cells: [cells.pop(name) for name in names]


def move_to_end(name):
    return lambda cells: cells.update({name: cells.pop(name)})


def words_of_figure(alt, plain):
    def fault(cells):
        figure = cells["figure"].outputs[0]
        figure.metadata["image/png"].alt = alt
        figure.data["text/plain"] = plain
    return fault


def strip_outputs(cells):
    for cell in cells.values():
        if cell.cell_type == "code":
            cell.outputs = []


FAULTS = {
    "never run": ("cells_ran_in_order", lambda cells: cells["answer"].update(execution_count=None)),
    "outputs stripped": ("cells_ran_in_order", strip_outputs),
    "too large": ("is_small", prints("answer", "stream", text="x" * 500_000)),
    "id of another notebook": ("ids_carry_the_number", lambda cells: cells["more"].update(id="01-more")),
    "stored error": ("outputs_are_clean", prints("answer", "error", ename="ValueError", evalue="no")),
    "stderr": ("outputs_are_clean", prints("answer", "stream", name="stderr", text="a warning")),
    "path": ("outputs_are_clean", prints("answer", "stream", text="saved in /home/ada/x.png")),
    "Windows path": ("outputs_are_clean", prints("answer", "stream", text="saved in C:\\Users\\ada")),
    "address": ("outputs_are_clean", prints("answer", "stream", text="<object at 0x7f00aa11>")),
    "semicolon": ("code_survives_the_strict_comparison", source("answer", "0.2471;")),
    **{f"banned: {line}": ("code_survives_the_strict_comparison", source("answer", line)) for line in [
        "interact(f)", "widgets.interactive_output(f)", "with widgets.Output():\n    pass", "clear_output()",
        "from tqdm import tqdm", "%time f()", "%%timeit\nf()", "display(x, display_id='a')", "%matplotlib notebook",
        "plt.show()", "import matplotlib.pyplot as p", "set_formats('svg')", "from numpy import *",
        "open('x.txt')", "path.read_text()", "x.to('cuda')", 'device = "cuda:0"', "np.NINF", "# NBVAL_IGNORE_OUTPUT"]},
    "21 lines": ("code_is_short", source("answer", "x = 1\n" * 21)),
    "93 characters": ("code_lines_fit_the_page", source("answer", "x = 1  # " + "x" * 84)),
    "long median": ("code_is_short", lambda cells: [c.update(source="x = 1\n" * 5) for c in cells.values()]),
    "too few asserts": ("core_asserts_its_claims", source("claim-0", "# assert")),
    "no section": ("tags_are_known", retag("more", "")),
    "two sections": ("tags_are_known", retag("more", "core further")),
    "unknown tag": ("tags_are_known", retag("answer", "core raises-exception")),
    "outputs ignored": ("tags_are_known", retag("answer", "core measured nbval-ignore-output")),
    "core below torch": ("sections_are_in_order", retag("torch", "further")),
    "no core": ("sections_are_in_order",
                lambda cells: [cells.pop(name) for name, cell in list(cells.items()) if section(cell) == "core"]),
    "frame below further": ("sections_are_in_order", move_to_end("bridge")),
    "takeaways above torch": ("sections_are_in_order",
                              lambda cells: cells.update({n: cells.pop(n) for n in ["torch", "more"]})),
    "two titles": ("headings_do_not_skip", source("more", "# Further")),
    "skipped level": ("headings_do_not_skip", source("more", "#### Further")),
    "no question": ("title_cell_opens_the_notebook", edit("title", "holds?", "holds.")),
    "no minutes": ("title_cell_opens_the_notebook", edit("title", "20 minutes", "a while")),
    "no set-up": ("title_cell_opens_the_notebook", drop("setup")),
    "badge of another": ("badges_open_this_notebook", edit("title", PATH.name, "01_other.ipynb")),
    "36 core cells": ("core_keeps_its_size",
                      lambda cells: cells.update({f"c{i}": text(f"c{i}", "core", "x") for i in range(36)})),
    "901 words": ("core_keeps_its_size", source("guess", "word " * 900)),
    "heading without minutes": ("minutes_add_up", edit("weights", " (8 min)", "")),
    "more than promised": ("minutes_add_up", edit("weights", "(8 min)", "(21 min)")),
    "longer than a core may be": ("minutes_add_up", edit("title", "20 minutes", "46 minutes")),
    "prediction in the open": ("predictions_are_folded", lambda cells: cells["answer"].metadata.pop("jupyter")),
    "no word to commit": ("predictions_are_folded", source("guess", "What is it?")),
    "folded without tag": ("predictions_are_folded", retag("answer", "core")),
    "two recall questions": ("notebook_opens_and_closes", source("recall", "<details></details>" * 2)),
    **{f"no {name}": ("notebook_opens_and_closes", drop(name)) for name in CLOSING},
    "no solution": ("exercises_are_complete", drop("solution")),
    "solution in the open": ("exercises_are_complete", edit("solution", "<details>", "<p>")),
    "no check": ("exercises_are_complete", drop("check")),
    **{f"word: {word}": ("words_are_plain", source("more", f"This is {word} so.")) for word in
       ["simply", "Just", "obviously", "of course", "easy", "trivial", "let's dive"]},
    "bar in a table formula": ("maths_renders_everywhere", edit("maths", "| $a$ |", "| $|a|$ |")),
    "inline $$": ("maths_renders_everywhere", edit("maths", "$$\na + b\n$$", "$$a + b$$")),
    "few words": ("figures_have_words", words_of_figure("a map", "a map")),
    "other words": ("figures_have_words", words_of_figure(WORDS, WORDS + "!")),
    "no sentence": ("figures_have_words", lambda cells: cells["figure"].outputs.pop()),
    "wrong decimal": ("prose_numbers_were_computed", edit("weights", ".25", ".35")),
    "wrong rounding": ("prose_numbers_were_computed", edit("weights", ".25", ".246")),
    "wrong percentage": ("prose_numbers_were_computed", edit("weights", "25 %", "35 %")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_rule_can_fail(fault):
    rule, break_it = FAULTS[fault]
    cells = sample()
    break_it(cells)
    assert problems(cells, {rule.__name__: rule for rule in RULES}[rule])


def test_normal_form_can_fail():
    good = notebooks.dumps(notebooks.normalise(new_notebook(cells=list(sample().values())), PATH.stem))
    rule = next(rule for rule in RULES if rule.__name__ == "is_normalised")
    assert list(rule(Book(PATH, good))) == []
    for old, new in [("\n", "\r\n"), ('"nbformat_minor": 5', '"nbformat_minor": 4'), ("# Sample", "# Sample  "),
                     ('"execution_count": 3', '"execution_count": 7')]:
        assert old in good
        assert list(rule(Book(PATH, good.replace(old, new)))), new


def test_every_rule_was_broken():
    broken = {rule for rule, _ in FAULTS.values()} | {"is_normalised"}
    assert broken == {rule.__name__ for rule in RULES}


def test_readme_lists_every_notebook_with_its_minutes():
    readme = (notebooks.FOLDER.parent / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"\(notebooks/(\d\d_\w+\.ipynb)\) \| [^|]+ \| (\d+) \|", readme))
    minutes = {path.name: re.search(r"(\d+) minutes", Book(path).cells[0].source)[1] for path in PATHS}
    assert listed == minutes
