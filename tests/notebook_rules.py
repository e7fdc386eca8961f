"""What holds for every notebook of the course. A rule takes a Book and yields what is wrong, line by line."""
import ast
import re
import statistics

from tools import links, notebooks

SECTIONS = ("core", "torch", "further")
# nbval-ignore-output: for the cell that reports on the reader's own machine, together with measured
TAGS = {*SECTIONS, "frame", "setup", "measured", "poll", "predict", "nbval-ignore-output"}
CORE_CELLS, CORE_WORDS, CORE_MINUTES = 35, 900, 45
CODE_MEDIAN, CODE_MOST = 4, 20
LINE_WIDTH = 92
MAX_BYTES = 500_000
CLOSING = ("takeaways", "glossary", "exit", "transfer", "bridge")   # the frame cells NN-takeaways, ...

BANNED_WORDS = re.compile(r"\b(simply|just|obviously|of course|easy|trivial|let[’']s dive)\b", re.I)
BANNED_CODE = {     # pattern: what to do instead
    r"\binteract(ive|_manual|ive_output)?\(|\bOutput\(": "sliders: mha_lib.plots.explore",
    r"\bclear_output\b|\bdisplay_id\b": "show one output after the other",
    r"\btqdm\b": "progress: one \\r line",
    r"^\s*%%?time": "time: mha_lib.runtime",
    r"%matplotlib|\bplt\.|\bpyplot\b|(?i:\bsvg\b)": "figures: mha_lib.plots",
    r"^\s*from \S+ import \*": "name what you import",
    r"""["']cuda\b""": "device: mha_lib.runtime",
    r"\bnp\.(NINF|PINF|Inf|Infinity|infty|NaN)\b": "-np.inf, np.inf or np.nan (NumPy 2)",
    r"\bopen\((?!.*encoding=)|\b(read|write)_text\((?!.*encoding=)": 'add encoding="utf-8" (Windows)',
    r"(?i)#\s*nbval": "use the tag measured",
}
FENCE = re.compile(r"^```.*?^```[ \t]*$", re.S | re.M)
FOLDED = re.compile(r"<details>.*?</details>", re.S)
NUMBER = re.compile(r"(?<![\w.])(\d+(?:,\d{3})*\.?\d*|\.\d+)((?:e[+-]?\d+)?)(\s?%)?")
# what a sentence can claim: numbers, but no versions (3.11.2) and no powers of ten (1e-5)
CLAIM = re.compile(r"(?<![\w.,])(\d*\.?\d+)(\s?%)?(?!\.?\d|,\d|[a-wyz_])")


class Book:
    def __init__(self, path, text=None):
        self.path, self.number = path, path.name[:2]
        self.text = path.read_text(encoding="utf-8") if text is None else text
        self.cells = notebooks.loads(self.text).cells
        self.code = [cell for cell in self.cells if cell.cell_type == "code"]
        self.markdown = [cell for cell in self.cells if cell.cell_type == "markdown"]


def tags(cell):
    return cell.metadata.get("tags", [])


def section(cell):
    return next((tag for tag in tags(cell) if tag in (*SECTIONS, "frame")), None)


def folded(cell):
    return cell.metadata.get("jupyter", {}).get("outputs_hidden", False)


def unfenced(cell):
    """Markdown without its code fences."""
    return FENCE.sub("", cell.source)


def prose(cell):
    """The words to read: no code fences, link addresses, HTML tags, table rules, folded parts."""
    text = FOLDED.sub("", unfenced(cell))
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"<[^>]+>", " ", text)
    return re.sub(r"^[ |:-]+$", "", text, flags=re.M)


def words(text):
    return [word for word in text.split() if re.search(r"\w", word)]


def headings(cell):
    """(level, text) of each."""
    return [(len(marks), text) for marks, text in re.findall(r"^(#+) (.+)$", unfenced(cell), re.M)]


def code_lines(cell):
    """Lines that do something: neither blank nor comment alone."""
    return [line for line in cell.source.split("\n") if line.strip() and not line.strip().startswith("#")]


def text_of(output):
    """All that an output says in words."""
    if "text" in output:
        return output.text
    return "\n".join(str(v) for k, v in output.get("data", {}).items() if k in ("text/plain", "text/html"))


# ------------------------------------------------------------------ the file

def cells_ran_in_order(book):
    counts = [cell.execution_count for cell in book.code]
    if counts != list(range(1, len(counts) + 1)):
        yield f"execution counts {counts}: run make notebooks"
    if not any(cell.outputs for cell in book.code):
        yield "no outputs stored: run make notebooks"


def is_normalised(book):
    if notebooks.dumps(notebooks.normalise(notebooks.loads(book.text), book.path.stem)) != book.text:
        yield "not normalised: run python tools/notebooks.py fmt"


def is_small(book):
    if len(book.text.encode()) > MAX_BYTES:
        yield f"{len(book.text.encode())} bytes, {MAX_BYTES} allowed"


def ids_carry_the_number(book):
    for cell in book.cells:
        if not cell.id.startswith(book.number + "-"):
            yield f"cell id {cell.id}: name it {book.number}-what-it-is; without an id, fmt names it"


def outputs_are_clean(book):
    for cell in book.code:
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"{cell.id} stores an error; catch it in the cell and assert its type"
            if output.get("name") == "stderr":
                yield f"{cell.id} writes to stderr"
            if match := re.search(r"(?<![\w.:/])(/(home|root|Users|tmp|usr|opt|var|work|mnt)/|[A-Z]:\\)\S*",
                                  text_of(output)):
                yield f"{cell.id} prints a path of this machine: {match[0]}"
            if match := re.search(r"\b0x[0-9a-f]{6,}", text_of(output)):
                yield f"{cell.id} prints an address in memory: {match[0]}"


# ------------------------------------------------------------------ code

def code_survives_the_strict_comparison(book):
    for cell in book.code:
        if cell.source.rstrip().endswith(";"):      # nbval runs without history, where IPython ignores it
            yield f"{cell.id} ends with ';': assign to _ instead"
        for pattern, instead in BANNED_CODE.items():
            if match := re.search(pattern, cell.source, re.M):
                yield f"{cell.id} has {match[0].strip()!r}; {instead}"


def code_is_short(book):
    counts = {cell.id: len(code_lines(cell)) for cell in book.code if "setup" not in tags(cell)}
    if statistics.median(counts.values() or [0]) > CODE_MEDIAN:
        yield f"the median code cell has more than {CODE_MEDIAN} lines of code: {sorted(counts.values())}"
    for name, count in counts.items():
        if count > CODE_MOST:
            yield f"{name} has {count} lines of code, {CODE_MOST} allowed"


def code_lines_fit_the_page(book):
    for cell in book.code:
        for line in cell.source.split("\n") if "setup" not in tags(cell) else ():
            if len(line) > LINE_WIDTH:
                yield f"{cell.id}: a line of {len(line)} characters; JupyterLab and GitHub show {LINE_WIDTH}"


def core_asserts_its_claims(book):
    claims = [cell for cell in book.code if section(cell) == "core" and has_assert(cell.source)]
    if book.number != "00" and len(claims) < 6:
        yield f"{len(claims)} core cells assert something, at least 6 wanted"


def has_assert(source):
    try:
        return any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(source)))
    except SyntaxError:     # a cell with % or !
        return False


# ------------------------------------------------------------------ structure

def tags_are_known(book):
    for cell in book.cells:
        if len([tag for tag in tags(cell) if tag in (*SECTIONS, "frame")]) != 1:
            yield f"{cell.id} has tags {tags(cell)}; exactly one of core, torch, further, frame"
        for tag in tags(cell):
            if tag not in TAGS and not re.fullmatch(r"(exercise|solution)-[a-zA-Z0-9_]+", tag):
                yield f"{cell.id} has the unknown tag {tag}"
        if "nbval-ignore-output" in tags(cell) and not {"measured", "frame"} <= set(tags(cell)):
            yield f"{cell.id}: outputs are compared unless the cell is frame, measured and reports on the machine"


def sections_are_in_order(book):
    order = [section(cell) for cell in book.cells]
    body = [name for name in order if name in SECTIONS]
    if body != sorted(body, key=SECTIONS.index):
        yield "sections out of order: core, then torch, then further"
    if "core" not in order:
        yield "no core cell"
    if "further" in order and "frame" in order[order.index("further"):]:
        yield "a frame cell stands below Further; takeaways to bridge come before it"
    for position, cell in enumerate(book.cells):
        if cell.id == f"{book.number}-takeaways" and {"core", "torch"} & set(order[position:]):
            yield f"{cell.id} stands above a core or torch cell"


def headings_do_not_skip(book):
    levels = [level for cell in book.markdown for level, _ in headings(cell)]
    if levels.count(1) != 1 or levels[0] != 1:
        yield f"one heading of level 1, the first, is wanted; levels are {levels}"
    for above, below in zip(levels, levels[1:], strict=False):
        if below > above + 1:
            yield f"a heading of level {below} follows one of level {above}"


def title_cell_opens_the_notebook(book):
    title = book.cells[0]
    if title.cell_type != "markdown" or "?" not in prose(title):
        yield "the first cell is markdown and asks the question"
    if not re.search(r"\d+ minutes", title.source):
        yield "the first cell says how long the core takes: NN minutes"
    if len([cell for cell in book.cells if "setup" in tags(cell)]) != 1:
        yield "one cell has the tag setup"


def badges_open_this_notebook(book):
    yield from links.missing_badges(book.path, book.text, links.Home.read())


def core_keeps_its_size(book):
    """Exercises and polls come on top: they are work, not reading, and the minutes count them."""
    core = [cell for cell in book.cells if section(cell) == "core" and not belongs_to_an_exercise(cell)]
    if len(core) > CORE_CELLS:
        yield f"{len(core)} core cells, {CORE_CELLS} allowed"
    count = sum(len(words(prose(cell))) for cell in core if cell.cell_type == "markdown")
    if count > CORE_WORDS:
        yield f"{count} words of core prose, {CORE_WORDS} allowed"


def belongs_to_an_exercise(cell):
    return (any(re.match("exercise-|solution-|poll", tag) for tag in tags(cell))
            or bool(re.match(r"### Exercise|check\(", cell.source)))


def minutes_add_up(book):
    promised = re.search(r"(\d+) minutes", book.cells[0].source)
    promised = int(promised[1]) if promised else 0
    total = 0
    for cell in book.markdown:
        for level, text in headings(cell):
            minutes = re.search(r"\((\d+) min\)", text)
            if section(cell) == "core" and level == 2:
                if not minutes:
                    yield f"{cell.id}: the heading {text!r} carries no (N min)"
                total += int(minutes[1]) if minutes else 0
    if total == 0:
        yield "no core heading of level 2 carries (N min)"
    if not total <= promised <= CORE_MINUTES:
        yield f"core headings: {total} minutes; the title: {promised}; at most {CORE_MINUTES}"


def predictions_are_folded(book):
    for above, cell in zip([None, *book.cells], book.cells, strict=False):
        if "predict" in tags(cell):
            if cell.cell_type != "code" or not folded(cell):
                yield f"{cell.id} is tagged predict, so its output is folded: metadata jupyter.outputs_hidden"
            if above is None or above.cell_type != "markdown" or "Commit first" not in above.source:
                yield f'{cell.id} is tagged predict, so the cell above says "Commit first"'
        elif folded(cell):
            yield f"{cell.id} has a folded output without the tag predict"


def notebook_opens_and_closes(book):
    """From 01 on: takeaways to bridge; from 02 on: three folded recall questions about those before."""
    frame = {cell.id for cell in book.cells if section(cell) == "frame"}
    for name in CLOSING if book.number > "00" else ():
        if f"{book.number}-{name}" not in frame:
            yield f"no frame cell {book.number}-{name}"
    recall = [cell for cell in book.cells if cell.id.startswith(f"{book.number}-recall")]
    questions = sum(cell.source.count("<details>") for cell in recall)
    if book.number > "01" and questions != 3:
        yield f"three folded recall questions in {book.number}-recall wanted, {questions} found"


def exercises_are_complete(book):
    for cell in book.cells:
        for name in [tag.removeprefix("exercise-") for tag in tags(cell) if tag.startswith("exercise-")]:
            after = book.cells[book.cells.index(cell):]
            solution = "\n".join(c.source for c in after if f"solution-{name}" in tags(c))
            if not re.search(r"<details>.*?```python\n.+?```.*?</details>", solution, re.S):
                yield f"exercise {name}: below it, no cell solution-{name} with a folded python fence"
            call = rf"""\bcheck\(["']{name}["']"""
            if not any(re.search(call, c.source) for c in after if c.cell_type == "code"):
                yield f'exercise {name}: no cell below it calls check("{name}", ...)'


# ------------------------------------------------------------------ text

def words_are_plain(book):
    for cell in book.markdown:
        if match := BANNED_WORDS.search(unfenced(cell)):
            yield f"{cell.id} says {match[0]!r}"


def maths_renders_everywhere(book):
    for cell in book.markdown:
        for line in unfenced(cell).split("\n"):
            columns = re.split(r"(?<!\\)\|", line) if line.lstrip().startswith("|") else []
            if any(column.count("$") % 2 for column in columns):
                yield f"{cell.id}: | inside $...$ breaks the table; use \\mid or \\lVert"
            if "$$" in line and line.strip() != "$$":
                yield f"{cell.id}: $$ stands alone on its line"


def figures_have_words(book):
    for cell in book.code:
        for output, after in zip(cell.outputs, [*cell.outputs[1:], None], strict=False):
            if "image/png" not in output.get("data", {}):
                continue
            alt = output.metadata.get("image/png", {}).get("alt", "")
            if len(alt) <= 40:
                yield f"{cell.id}: a figure has {len(alt)} characters of alternative text; use plots.show"
            if output.data.get("text/plain") != alt:
                yield f"{cell.id}: a figure's text/plain is not its alternative text"
            below = after.get("data", {}).get("text/html", "") if after else ""
            sentence = re.sub(r"<[^>]+>", "", FOLDED.sub("", below))
            if len(words(sentence)) < 3:
                yield f"{cell.id}: no visible sentence under a figure"


def prose_numbers_were_computed(book):
    """Each decimal and percentage of core prose is a rounded number of some output, or stands in code.

    Guesses offered for a prediction are no claims, so paragraphs with "Commit first" are left out.
    """
    known = set()
    for cell in book.code:
        for text in [cell.source, *map(text_of, cell.outputs)]:
            for number, power, percent in NUMBER.findall(text):
                known.add(float(number.replace(",", "") + power) / (100 if percent else 1))
    for cell in book.markdown:
        if section(cell) != "core":
            continue
        for paragraph in re.split(r"\n\s*\n", prose(cell)):
            for number, percent in CLAIM.findall(paragraph) if "Commit first" not in paragraph else ():
                if "." not in number and not percent:
                    continue    # a count or a size
                value = float(number) / (100 if percent else 1)
                places = len(number.partition(".")[2]) + (2 if percent else 0)
                if all(abs(abs(value) - other) > 0.5001 * 10 ** -places for other in known):
                    yield f"{cell.id} says {number}{percent}, which no output and no code here holds"


RULES = [
    cells_ran_in_order, is_normalised, is_small, ids_carry_the_number, outputs_are_clean,
    code_survives_the_strict_comparison, code_is_short, code_lines_fit_the_page, core_asserts_its_claims,
    tags_are_known, sections_are_in_order, headings_do_not_skip, title_cell_opens_the_notebook,
    badges_open_this_notebook, core_keeps_its_size, minutes_add_up, predictions_are_folded,
    notebook_opens_and_closes, exercises_are_complete,
    words_are_plain, maths_renders_everywhere, figures_have_words, prose_numbers_were_computed,
]
