"""The author's tool for notebooks: execute, normalise, measure, read as text.

python tools/notebooks.py run [--remeasure] [NB...]   execute in a fresh kernel, normalise, write
python tools/notebooks.py fmt [NB...]                 normalise only
python tools/notebooks.py check [NB...]               exit 1 if fmt would change a file
python tools/notebooks.py execute [NB...]             execute, write nothing, print seconds and peak memory
python tools/notebooks.py text NB...                  print as readable text (also git's textconv)

NB is a number (03), a name (03_scaling) or a path; none means all. `run` twice leaves no diff.
The outputs of cells tagged `measured` depend on the machine: `run` executes these cells but keeps what is
stored, unless --remeasure or REMEASURE=1 asks for new outputs.
"""
import argparse
import copy
import os
import pathlib
import re
import sys
import tempfile
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

FAILED = (CellExecutionError, CellTimeoutError, RuntimeError)   # RuntimeError: the kernel died
ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
MAX_SECONDS, MAX_MB = 60, 1024      # of one notebook, on 2 cores
CELL_TIMEOUT = 120                  # seconds

NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    # no version: it would differ between the authors' machines
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python",
                      "nbconvert_exporter": "python", "pygments_lexer": "ipython3"},
}
KEPT_CELL_METADATA = {"tags", "slideshow", "jupyter", "cellView", "alt"}
WIDGET = "application/vnd.jupyter.widget-view+json"

PEAK_MEMORY = """
import sys
try:
    import resource
except ModuleNotFoundError:  # Windows
    print("not measured")
else:
    unit = 1024 ** 2 if sys.platform == "darwin" else 1024
    print(round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit))
"""


def loads(text):
    """Read without nbformat.reads, which would give missing ids random names."""
    try:
        return nbformat.v4.reads(text)
    except (AttributeError, TypeError):
        raise ValueError("no notebook of format 4, which is what JupyterLab saves") from None
    except ValueError as error:
        raise ValueError(f"cannot be read as a notebook (a merge left half done?): {error}") from None


def dumps(book):
    return nbformat.writes(book).rstrip("\n") + "\n"


def tags(cell):
    return cell.metadata.get("tags", [])


def normalise(book, stem):
    """Bring it, in place, into the one form that is stored: nothing that differs from run to run."""
    book.nbformat, book.nbformat_minor = 4, 5
    book.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    name_cells(book.cells, stem)
    count = 0
    for cell in book.cells:
        for key in cell.metadata.keys() - KEPT_CELL_METADATA:
            del cell.metadata[key]
        cell.source = "\n".join(line.rstrip() for line in cell.source.strip("\n").split("\n"))
        if cell.get("attachments"):
            raise ValueError(f"cell {cell.id} has an attached picture, unseen on GitHub: draw it in code")
        cell.pop("attachments", None)
        if cell.cell_type != "code":
            continue
        cell.outputs = normal_outputs(cell.outputs)
        if cell.execution_count is not None:
            count += 1
            cell.execution_count = count
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count
    nbformat.validate(book)
    return book


def name_cells(cells, stem):
    """Name cells without an id, and all but the first of those that share one, after number and position."""
    taken, nameless = set(), []
    for position, cell in enumerate(cells):
        if cell.get("id") and cell.id not in taken:
            taken.add(cell.id)
        else:
            nameless.append((position, cell))
    for position, cell in nameless:
        name = f"{stem[:2]}-{position:03d}"
        while name in taken:
            name += "b"
        cell["id"] = name
        taken.add(name)


def normal_outputs(outputs):
    normal = []
    for output in outputs:
        output = copy.deepcopy(output)
        if output.output_type == "error":       # the frames hold paths of this machine
            output.traceback = [f"{output.ename}: {output.evalue}"]
        if output.output_type == "stream":
            if normal and normal[-1].output_type == "stream" and normal[-1].name == output.name:
                output.text = normal.pop().text + output.text
            # progress lines: what the screen shows in the end (nbval compares the same)
            output.text = re.sub(r"^.*\r(?=[^\n])", "", output.text, flags=re.M)
        if "data" in output:
            if WIDGET in output.data:           # random model ids; the picture beside it stays
                del output.data[WIDGET]
                if not output.data:
                    continue
            if "image/png" in output.data:
                output.data["image/png"] = output.data["image/png"].replace("\n", "")
        normal.append(output)
    return normal


def execute(book, folder):
    """Run all cells top to bottom in a fresh kernel that works in `folder`; sets the outputs in place."""
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(book, timeout=CELL_TIMEOUT, kernel_name="python3", record_timing=False,
                            store_widget_state=False, resources={"metadata": {"path": str(folder)}},
                            extra_arguments=["--log-level=ERROR"])  # else a line on its transport
    # an empty profile: the author's own start-up files stay out
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        client.execute(env={**os.environ, "OMP_NUM_THREADS": "2", "IPYTHONDIR": profile})


def execute_alone(book):
    """In an empty folder, so that nothing can depend on the checkout."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        execute(book, folder)


def keep_measured(book, stored):
    """Put the stored outputs of `measured` cells back; return the ids of these cells."""
    kept = []
    for cell, old in zip(book.cells, stored.cells, strict=True):
        if "measured" in tags(cell) and old.get("outputs"):
            cell.outputs = old.outputs
            kept.append(cell.id)
    return kept


def write(path, text):
    """All or nothing: a full disk must not leave half a notebook."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8", newline="\n")
    beside.replace(path)


def run(path, remeasure):
    stored = loads(path.read_text(encoding="utf-8"))
    name_cells(stored.cells, path.stem)
    book = copy.deepcopy(stored)
    start = time.perf_counter()
    execute_alone(book)
    kept = [] if remeasure else keep_measured(book, stored)
    changed = save(path, normalise(book, path.stem))
    note = f"; measured outputs kept: {', '.join(kept)}" if kept else ""
    print(f"{time.perf_counter() - start:5.1f} s, {'written' if changed else 'outputs as stored'}{note}", flush=True)


def save(path, book):
    text = dumps(book)
    if text == path.read_text(encoding="utf-8"):
        return False
    write(path, text)
    return True


def measure(path):
    """(seconds, peak memory of the kernel in MB or None), and nothing written."""
    book = loads(path.read_text(encoding="utf-8"))
    book.cells.append(nbformat.v4.new_code_cell(PEAK_MEMORY, id="peak-memory"))
    start = time.perf_counter()
    execute_alone(book)
    seconds = time.perf_counter() - start
    answer = book.cells[-1].outputs[0].text.strip()
    return seconds, int(answer) if answer.isdigit() else None


def execute_table(paths):
    """Print the table; return the number of notebooks that fail or pass a limit."""
    width = max(len(path.stem) for path in paths)
    print(f"{'notebook':{width}}  seconds (limit {MAX_SECONDS})  peak MB (limit {MAX_MB})", flush=True)
    total, bad = 0.0, 0
    for path in paths:
        try:
            seconds, peak = measure(path)
        except (*FAILED, ValueError) as error:
            print(f"{path.stem:{width}}  failed\n{error}", flush=True)
            bad += 1
            continue
        total += seconds
        over = seconds > MAX_SECONDS or (peak or 0) > MAX_MB
        bad += over
        memory = "not measured" if peak is None else peak
        mark = "  OVER THE LIMIT" if over else ""
        print(f"{path.stem:{width}}  {seconds:18.1f}  {memory:>20}{mark}", flush=True)
    print(f"{'total':{width}}  {total:18.1f}")
    return bad


def shorten(text, lines=12, width=120):
    rows = text.rstrip("\n").split("\n")
    rest = [f"... {len(rows) - lines} more lines"] if len(rows) > lines else []
    return [row if len(row) <= width else row[:width] + " ..." for row in rows[:lines]] + rest


def output_text(output):
    """What a reader of this output sees, as words."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    if "image/png" in output.data:
        return "[figure] " + output.data.get("text/plain", "")
    if "text/html" in output.data:
        return "[html] " + re.sub(r"<[^>]+>", "", output.data["text/html"])
    return output.data.get("text/plain", "")


def as_text(book):
    blocks = []
    for cell in book.cells:
        block = [f"---- {cell.get('id', 'no id')} | {cell.cell_type} | {' '.join(tags(cell))}", cell.source]
        for output in cell.get("outputs", []):
            block += ["    | " + row for row in shorten(output_text(output))]
        blocks.append("\n".join(block))
    return "\n\n".join(blocks)


def find(names):
    """Paths of the notebooks meant by numbers, names or paths; all when there is none."""
    everything = sorted(FOLDER.glob("*.ipynb"))
    if not everything and not names:
        sys.exit(f"There are no notebooks in {FOLDER}.")
    paths = []
    for name in names:
        if pathlib.Path(name).is_file():
            paths.append(pathlib.Path(name))
            continue
        wanted = name.removesuffix(".ipynb")
        match = [p for p in everything if p.stem == wanted or p.stem[:2] == wanted.zfill(2)]
        if not match:
            known = ", ".join(p.stem for p in everything)
            sys.exit(f"No notebook '{name}'. Give a path, or a number or name of: {known}")
        paths += match
    return paths or everything


def main(argv=None):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("command", choices=["run", "fmt", "check", "execute", "text"])
    parser.add_argument("notebooks", nargs="*", metavar="NB")
    parser.add_argument("--remeasure", action="store_true", help="measured cells too")
    options = parser.parse_intermixed_args(argv)     # NB may stand on both sides of --remeasure
    sys.stdout.reconfigure(errors="replace")     # a Windows console may lack characters of the notebooks
    paths = find(options.notebooks)
    remeasure = options.remeasure or os.environ.get("REMEASURE") == "1"

    if options.command == "execute":
        return int(execute_table(paths) > 0)
    bad = 0
    for path in paths:
        if options.command != "text":
            print(f"{path.stem}: ", end="", flush=True)
        try:
            if options.command == "run":
                run(path, remeasure)
                continue
            book = loads(path.read_text(encoding="utf-8"))
            if options.command == "text":
                print(as_text(book))
            elif options.command == "fmt":
                print("written" if save(path, normalise(book, path.stem)) else "unchanged")
            elif dumps(normalise(book, path.stem)) == path.read_text(encoding="utf-8"):
                print("ok")
            else:
                print("not normalised; run: python tools/notebooks.py fmt")
                bad += 1
        except FAILED as error:
            print(f"failed; the file is left as it was.\n{error}", flush=True)
            bad += 1
        except (ValueError, nbformat.ValidationError) as error:     # no notebook, or not to be normalised
            print(error, flush=True)
            bad += 1
    return int(bad > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nStopped; the notebook at hand is left as it was.")
