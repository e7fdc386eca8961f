"""Open the course in JupyterLab, on the learner's own copy of the notebooks: my_notebooks/.

    python tools/lab.py [any option of JupyterLab]

What the learner changed is never overwritten: a newer version of a changed notebook arrives beside it.
"""
import hashlib
import itertools
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
STATE = ".shipped.json"
FIRST = "00_start_here.ipynb"


def fingerprint(path):
    """Of the cells' sources, as running and saving changes the rest. None: unreadable."""
    try:
        data = path.read_bytes()
        if path.suffix == ".ipynb":
            cells = json.loads(data)["cells"]
            data = json.dumps([(cell["cell_type"], "".join(cell["source"])) for cell in cells]).encode()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return hashlib.sha256(data).hexdigest()


def read_state(folder):
    """{name: what was delivered under it}. Without a readable state every file counts as the learner's."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return {name: {"cells": was["cells"], "file": was["file"]} for name, was in state.items()}
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return {}


def write(path, data):
    """All of it or nothing, even if the computer stops in between."""
    half = path.with_name(f".{path.name}.part")
    half.write_bytes(data)
    os.replace(half, path)


def learners_copy(data):
    """Without the outputs to be predicted: of a folded output, JupyterLab still shows the first line."""
    book = json.loads(data)
    for cell in book["cells"]:
        if "predict" in cell["metadata"].get("tags", []):
            cell["outputs"], cell["execution_count"] = [], None
            cell["metadata"].pop("jupyter", None)  # nothing left to fold
    return json.dumps(book, indent=1, ensure_ascii=False).encode()


def leave_out_predictions(folder):
    """The same for notebooks that are the visitor's own copy where they lie, as on Binder."""
    for path in sorted(folder.glob("*.ipynb")):
        write(path, learners_copy(path.read_bytes()))


def deliver(shipped, folder, state):
    """Bring one file up to date in the learner's folder -> a line to tell the learner, or None."""
    data = shipped.read_bytes()
    delivered = {"cells": fingerprint(shipped), "file": hashlib.sha256(data).hexdigest()}
    if delivered["cells"] is None:
        return (f"{shipped.name}: not copied, as the course's own cannot be read (a merge left half done?). "
                "git status says more.")
    if state.get(shipped.name) == delivered and os.path.lexists(folder / shipped.name):
        return None
    for k in itertools.count():  # NAME, NAME.new, NAME.new2, ...: the first that is free or as we left it
        target = folder / f"{shipped.stem}{['', '.new'][k] if k < 2 else f'.new{k}'}{shipped.suffix}"
        free = not os.path.lexists(target)
        cells = None if target.is_symlink() else fingerprint(target)  # a link is the learner's, wherever it leads
        was = state.get(target.name, {}).get("cells")
        if free or (cells and cells in (was, delivered["cells"])):
            break
    if free or cells == was:
        write(target, learners_copy(data) if shipped.suffix == ".ipynb" else data)
    state[target.name] = state[shipped.name] = delivered
    if k == 0:
        return None
    return f"{shipped.name}: you changed yours, so it stays. The newer version is beside it: {target.name}"


def deliver_all(source, folder):
    """Copy what the course ships into the learner's folder -> the lines to tell the learner."""
    folder.mkdir(exist_ok=True)
    state = read_state(folder)
    shipped = sorted([*source.glob("*.ipynb"), *source.glob("*.md")])
    lines = [deliver(path, folder, state) for path in shipped]
    write(folder / STATE, json.dumps(state, indent=1).encode())
    return [line for line in lines if line]


def server_command(folder, options):
    return [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}",
            f"--LabApp.default_url=/lab/tree/{FIRST}", *options]


def server_environment():
    """A default of ours (no question about news), below the learner's own settings."""
    paths = [str(ROOT / "tools" / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH")]
    return {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}


def home_elsewhere(folder):
    """Jupyter and matplotlib write at home. Where nothing can be written there: a home in the learner's folder."""
    home = os.path.expanduser("~")
    fine = os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK)
    return {} if fine else {"HOME": str(folder / ".home")}


def main(options, folder=ROOT / "my_notebooks"):
    if hasattr(os, "geteuid") and os.geteuid() == 0 and not any("allow" in option for option in options):
        arguments = " ".join(["--allow-root", *options])
        sys.exit(f'You are root, and JupyterLab starts for root only if told so: make lab ARGS="{arguments}"')
    try:
        lines = deliver_all(ROOT / "notebooks", folder)
    except FileExistsError:
        sys.exit(f"Your copies of the notebooks belong into the folder {folder}, but something of that name "
                 "is there\nand is no folder, or a link that leads nowhere. Rename it and run the same command again.")
    except OSError as error:
        sys.exit(
            f"Your copies of the notebooks cannot be written to {folder}:\n{error}\n"
            "The course needs a folder of yours with some room: copy it there and run the same command again."
        )
    if home := home_elsewhere(folder):
        lines.append("Nothing can be written in your home folder, so Jupyter keeps its settings in " + home["HOME"])
    print(*lines, f"Your copies of the notebooks: {folder}", sep="\n", flush=True)
    command, variables = server_command(folder, options), {**server_environment(), **home}
    if os.name == "nt":  # there, exec gives the console back while the server still runs
        server = subprocess.Popen(command, env=variables)
        while True:
            try:
                sys.exit(server.wait())
            except KeyboardInterrupt:  # Ctrl-C is for the server, which asks back
                pass
    os.execve(command[0], command, variables)


if __name__ == "__main__":
    main(sys.argv[1:])
