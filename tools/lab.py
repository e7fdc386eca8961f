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


def deliver(shipped, folder, state):
    """Bring one file up to date in the learner's folder -> a line to tell the learner, or None."""
    data = shipped.read_bytes()
    delivered = {"cells": fingerprint(shipped), "file": hashlib.sha256(data).hexdigest()}
    if state.get(shipped.name) == delivered and (folder / shipped.name).exists():
        return None
    for k in itertools.count():  # NAME, NAME.new, NAME.new2, ...: the first that is free or as we left it
        target = folder / f"{shipped.stem}{['', '.new'][k] if k < 2 else f'.new{k}'}{shipped.suffix}"
        cells = fingerprint(target)
        was = state.get(target.name, {}).get("cells")
        if not target.exists() or (cells and cells in (was, delivered["cells"])):
            break
    if not target.exists() or cells == was:
        write(target, data)
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


def main(options, folder=ROOT / "my_notebooks"):
    if hasattr(os, "geteuid") and os.geteuid() == 0 and not any("allow" in option for option in options):
        sys.exit('You are root, and JupyterLab starts for root only if told so: make lab ARGS="--allow-root"')
    try:
        lines = deliver_all(ROOT / "notebooks", folder)
    except OSError as error:
        sys.exit(
            f"Your copies of the notebooks cannot be written to {folder}:\n{error}\n"
            "The course needs a folder of yours with some room: copy it there and run the same command again."
        )
    print(*lines, f"Your copies of the notebooks: {folder}", sep="\n", flush=True)
    command = server_command(folder, options)
    if os.name == "nt":  # there, exec gives the console back while the server still runs
        sys.exit(subprocess.call(command, env=server_environment()))
    os.execve(command[0], command, server_environment())


if __name__ == "__main__":
    main(sys.argv[1:])
