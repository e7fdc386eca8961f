"""One notebook open in JupyterLab in a real browser, and what a learner does there with the keyboard.

Functions ending in _faults judge; they yield one line for each thing that is wrong.
"""
import json
import re
import time
from typing import NamedTuple

OPEN_SECONDS, RUN_SECONDS = 90, 240
# the circle beside the kernel's name says idle before there is a kernel; the status bar does not
IDLE = "[...document.querySelectorAll('.jp-StatusBar-TextItem')].some(e => /\\| Idle$/.test(e.textContent))"
CALM = IDLE + " && ![...document.querySelectorAll('.jp-InputArea-prompt')].some(e => e.textContent.includes('*'))"
# JupyterLab shows tracebacks and stderr under one type; MathJax prints an unknown macro in red, as if it were text
CELLS = """() => [...document.querySelectorAll('.jp-Notebook .jp-Cell')].map(cell => {
    const texts = what => [...cell.querySelectorAll(what)].map(e => e.textContent.trim());
    return {
        prompt: texts('.jp-InputArea-prompt')[0] ?? '',
        outputs: cell.querySelectorAll('.jp-OutputArea-child').length,
        folded: cell.querySelectorAll('.jp-OutputPlaceholder').length,
        text: texts('.jp-OutputArea-output').join(' '),
        errors: texts('[data-mime-type="application/vnd.jupyter.stderr"]'),
        maths: texts('mjx-merror, mjx-container:has([mathcolor=red])'),
        wide: [...cell.querySelectorAll('.cm-scroller, img, p, pre, svg, table')].filter(e =>
            e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != 'visible'
            || e.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1).map(e => e.tagName),
    };
})"""
# what has the keyboard: which slider, which box, which folded text (-1: none); null outside of the notebook
FOCUS = """() => {
    const e = document.activeElement, which = x => [...document.querySelectorAll('.jp-Notebook ' + x)].indexOf(e);
    return e.closest('.jp-Notebook') && [which('.noUi-handle'), which('input[type=checkbox]'), which('summary')];
}"""
ACTIVE = "() => [...document.querySelectorAll('.jp-Notebook .jp-Cell')].findIndex(e => e.matches('.jp-mod-active'))"


class Exercise(NamedTuple):
    """What is typed into a stub and, where `check` is given, into the check cell below it."""

    name: str
    wrong: str
    diagnosis: str                      # a part of the verdict on the wrong answer
    right: str
    check: str | None = None


def tags(cell):
    return cell["metadata"].get("tags", [])


def opened_faults(book, cells):
    """What is on the page before anything was run."""
    for cell, seen in zip(book["cells"], cells, strict=True):
        if "predict" in tags(cell) and (seen["outputs"] or seen["folded"]):
            yield f"{cell['id']}: an output to be predicted is there before the cell was run"


def ran_faults(book, cells, first):
    """After Run All, whose first code cell got the number `first`."""
    number = first
    for cell, seen in zip(book["cells"], cells, strict=True):
        for text in seen["errors"]:
            yield f"{cell['id']}: error or stderr: " + re.sub(r"\s+", " ", text)[-200:]
        for formula in seen["maths"]:
            yield f"{cell['id']}: formula not set: {formula}"
        for part in seen["wide"]:
            yield f"{cell['id']}: wider than the page: {part}"
        if cell["cell_type"] != "code":
            continue
        if seen["prompt"] != f"[{number}]:":
            yield f"{cell['id']}: not run in its turn: {seen['prompt']} in place of [{number}]:"
        if "predict" in tags(cell) and not seen["outputs"]:
            yield f"{cell['id']}: nothing to compare the prediction with"
        number += 1
    said = " ".join(seen["text"] for seen in cells)
    for cell in book["cells"]:
        for name in (tag.removeprefix("exercise-") for tag in tags(cell) if tag.startswith("exercise-")):
            if f"{name}: not attempted yet" not in said:
                yield f"{cell['id']}: the empty stub is not called not attempted"


def verdict_faults(step, wanted, verdict):
    if wanted not in " ".join(verdict.split()):         # verdicts are wrapped at a width
        yield f"{step}: the verdict should say {wanted!r}; it is {verdict!r}"


class LabPage:
    """A notebook (`book`: its JSON) in a page of the browser; screenshots go to the folder `out`."""

    def __init__(self, page, url, path, out):
        self.page, self.out = page, out
        self.book = json.loads(path.read_text(encoding="utf-8"))
        page.goto(url, timeout=OPEN_SECONDS * 1000)
        page.wait_for_function(IDLE, timeout=OPEN_SECONDS * 1000)
        page.wait_for_function("n => document.querySelectorAll('.jp-Notebook .jp-Cell').length == n",
                               arg=len(self.book["cells"]), timeout=OPEN_SECONDS * 1000)

    def cells(self):
        return self.page.evaluate(CELLS)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def shoot(self, name):
        self.page.screenshot(path=self.out / f"{name}.png")

    def wait_calm(self):
        """Until the kernel stays calm: an error stops Run All, so numbers alone would be waited for in vain."""
        calm, deadline = 0, time.time() + RUN_SECONDS
        while calm < 3:
            if time.time() > deadline:
                raise TimeoutError(f"still running after {RUN_SECONDS} s")
            self.page.wait_for_timeout(200)
            calm = calm + 1 if self.page.evaluate(CALM) else 0

    def go_to(self, index):
        """Make cell `index` the active one, from wherever the notebook is in command mode."""
        for _ in range(2 * len(self.book["cells"])):
            at = self.page.evaluate(ACTIVE)
            if at == index:
                return
            self.press("ArrowDown" if at < index else "ArrowUp")
        raise LookupError(f"the arrow keys do not lead to cell {index}")

    def first_cell_faults(self):
        """Without a mouse from the loaded page: the first code cell, twice, so that its number tells."""
        first = next(i for i, cell in enumerate(self.book["cells"]) if cell["cell_type"] == "code")
        self.press("Escape")
        for _ in range(2):
            self.go_to(first)
            self.press("Shift+Enter")
            self.wait_calm()
        prompt = self.cells()[first]["prompt"]
        if prompt != "[2]:":
            yield f"run twice with the keyboard, the first code cell shows {prompt}"

    def run_all(self):
        self.page.click("#jp-MainMenu >> text=Run")
        self.page.click("li[data-command='runmenu:run-all']")
        self.wait_calm()

    def walk_faults(self):
        """With Tab through the whole notebook: move each slider, tick each box, open each folded text."""
        handles, boxes, folded = (self.page.locator(f".jp-Notebook {what}").count() for what in
                                  (".noUi-handle", "input[type=checkbox]", "details"))
        due = {f"slider {i}" for i in range(handles)} | {f"box {i}" for i in range(boxes)}
        self.page.locator(".jp-Notebook .jp-Cell").first.click(position={"x": 30, "y": 15})
        self.press("Escape", "Tab")
        while at := self.page.evaluate(FOCUS):
            handle, box, summary = at
            if handle >= 0 or box >= 0:
                name = f"slider {handle}" if handle >= 0 else f"box {box}"
                due.discard(name)
                yield from self.control_faults(name)
            elif summary >= 0:
                self.press("Enter")
            self.press("Tab")
        yield from (f"Tab does not lead to {control}" for control in sorted(due))
        if still := self.page.locator(".jp-Notebook details:not([open])").count():
            yield f"{still} of {folded} folded texts do not open by keyboard"

    def control_faults(self, name):
        """The control that has the keyboard: its picture and words must follow, the words below the picture too."""
        control, output = self.page.locator(":focus"), self.page.locator(".jp-OutputArea-child:has(:focus)")

        def picture_and_words():
            image = output.locator(".widget-html img").first
            return image.get_attribute("src"), image.get_attribute("alt")

        now, end = (control.get_attribute(f"aria-value{what}") for what in ("now", "max"))
        before = after = picture_and_words()
        self.press("Space" if now is None else "ArrowLeft" if now == end else "ArrowRight")
        deadline = time.time() + 10
        while after[0] == before[0] and time.time() < deadline:
            self.page.wait_for_timeout(50)
            after = picture_and_words()
        if after[0] == before[0]:
            yield f"{name}: the picture stayed"
        elif after[1] == before[1]:
            yield f"{name}: the picture changed, its words did not"
        elif output.locator(".widget-html p").first.text_content() != after[1]:
            yield f"{name}: the words in view are not those of the picture"
        self.shoot(name.replace(" ", "_"))

    def exercise_faults(self, exercise):
        """Type a wrong answer, the stub as it came, and the right answer; read each verdict from the page."""
        stub = next(i for i, cell in enumerate(self.book["cells"]) if f"exercise-{exercise.name}" in tags(cell))
        blank = "".join(self.book["cells"][stub]["source"])
        self.page.locator(".jp-Notebook .jp-Cell").nth(stub).locator(".jp-InputPrompt").click()
        for number, (source, wanted) in enumerate([(exercise.wrong, exercise.diagnosis),
                                                   (blank, "not attempted yet"), (exercise.right, "correct.")]):
            self.press("Escape")
            self.go_to(stub)
            self.type(source)
            if exercise.check and number == 0:
                self.go_to(stub + 1)
                self.type(exercise.check)
            else:
                self.press("Shift+Enter")
            self.wait_calm()
            verdict = self.cells()[stub + 1]["text"]
            yield from verdict_faults(f"{exercise.name}, typed answer {number + 1}", wanted, verdict)
            self.shoot(f"{exercise.name}_{number + 1}")

    def type(self, source):
        """In place of what stands in the active cell, key by key, and run it."""
        self.press("Enter", "Control+a", "Delete")
        for number, line in enumerate(source.splitlines()):
            if number:
                self.press("Enter", "Shift+Home")       # over the spaces that the editor put in
            self.page.keyboard.type(line)
        self.press("Shift+Enter")

    def unfold_faults(self):
        """As shipped, the outputs to be predicted are folded, and a click opens each."""
        for index, cell in enumerate(self.book["cells"]):
            if "predict" not in tags(cell):
                continue
            here = self.page.locator(".jp-Notebook .jp-Cell").nth(index)
            if here.locator(".jp-OutputArea-child").count():
                yield f"{cell['id']}: as shipped, an output to be predicted is not folded"
                continue
            here.locator(".jp-OutputPlaceholder .jp-Placeholder-content").click()
            if not here.locator(".jp-OutputArea-child").count():
                yield f"{cell['id']}: the folded output does not open"

    def shoot_pages(self):
        """The notebook from top to bottom, one screenshot for each screen."""
        panel = self.page.locator(".jp-WindowedPanel-outer").first
        last = self.page.locator(".jp-Notebook .jp-Cell").last
        for number in range(99):
            panel.evaluate("(e, n) => e.scrollTo(0, n * (e.clientHeight - 60))", number)
            self.page.wait_for_timeout(200)             # what comes into view is laid out only now
            panel.screenshot(path=self.out / f"page_{number + 1:02d}.png")
            area, end = panel.bounding_box(), last.bounding_box()
            if end["y"] + end["height"] <= area["y"] + area["height"]:
                return
