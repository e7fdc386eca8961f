"""Every notebook as on Google Colab: alone in an empty folder, on Colab's versions, installed by its own set-up cell.

    .venv/bin/python tests/ways/colab.py [NB...]

What it proves, for the versions that Colab ships (`now`) and those it is moving to (`next`):
- the set-up cell fetches the package, at the tag it names, from the address it names; git itself redirects that
  address to a copy of this working tree. Nothing else in `pip freeze` changes;
- every cell runs, beside a `google.colab` that was there first;
- every slider is displayed, and moving it, as the browser would, changes the picture and its words.

Not Colab: torch and Python are the course's own, the output frame is nobody's, and the network is that of this machine.
The notebooks as they were run stay in build/colab/. No test can open the badge of a repository on GitHub: do it once.
"""
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.ways.shared import BUILD, ROOT, copy_of_course, environment, say  # noqa: E402
from tools import check, links, notebooks  # noqa: E402

PINS = check.pins((ROOT / "requirements.txt").read_text(encoding="utf-8"))
VERSIONS = {    # of Colab's images in 2026; their torch 2.11 is not this one
    "now": ["ipython==7.34.0", "ipykernel==6.17.1", "ipywidgets==7.7.1", "traitlets==5.7.1",
            "numpy==2.0.2", "matplotlib==3.10.0", f"torch=={PINS['torch']}"],
    "next": ["ipython>=9,<10", "ipykernel", "ipywidgets>=8,<9",
             "numpy==2.1.3", "matplotlib>=3.10,<3.11", f"torch=={PINS['torch']}"],
}
LIMIT = 300     # seconds for one cell, on a machine that has other things to do


class Fault(Exception):
    """What a reader on Colab would stumble over."""


# -- the world around a notebook

def git(folder, *words):
    who = ["-c", "user.name=course", "-c", "user.email=course@localhost"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def published(folder, tag):
    """A repository as it will be on GitHub: this working tree as one commit, with the tag -> the commit."""
    folder.mkdir()
    copy_of_course(folder)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "the course")
    git(folder, "tag", tag)
    return git(folder, "rev-parse", tag)


def redirected(home, repository):
    """The variables that let git read the address of the course from this repository."""
    return {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{repository.as_uri()}.insteadOf",
            "GIT_CONFIG_VALUE_0": f"https://github.com/{home.repo}"}


def kernel(folder, name, python, variables):
    """A kernel NAME that Jupyter finds through JUPYTER_PATH=folder: this Python, with google.colab loaded."""
    (folder / "google" / "colab").mkdir(parents=True, exist_ok=True)
    (folder / "google" / "colab" / "__init__.py").touch()
    profile = folder / "ipython" / "profile_default" / "startup"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "colab.py").write_text("import google.colab\n", encoding="utf-8")
    variables = {**variables, "PYTHONPATH": str(folder), "IPYTHONDIR": str(folder / "ipython"), "OMP_NUM_THREADS": "1"}
    # the two options keep remarks on the debugger and on the transport out of our lines
    command = [str(python), "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}",
               "--log-level=ERROR"]
    (folder / "kernels" / name).mkdir(parents=True)
    (folder / "kernels" / name / "kernel.json").write_text(
        json.dumps({"argv": command, "display_name": name, "language": "python", "env": variables}), encoding="utf-8")


def packages(python):
    pip = [python, "-m", "pip", "freeze", "--all", "--disable-pip-version-check"]
    return set(subprocess.run(pip, check=True, capture_output=True, text=True).stdout.splitlines())


def without_course(python):
    pip = [python, "-m", "pip", "uninstall", "-q", "-y", "mha_lib", "--disable-pip-version-check"]
    subprocess.run(pip, check=True, capture_output=True)


def only_the_course(before, after, home, commit):
    """Complain unless the one new line of `pip freeze` is the course, from the tagged commit."""
    wanted = f"mha_lib @ git+https://github.com/{home.repo}@{commit}"
    if after - before != {wanted} or before - after:
        raise Fault(f"the set-up cell should add this alone: {wanted}\n"
                    f"it added: {sorted(after - before)}, it removed: {sorted(before - after)}")


# -- a notebook, cell by cell

async def run(book, folder, name):
    """Run all cells in the kernel NAME, and move every slider."""
    client = NotebookClient(book, timeout=LIMIT, kernel_name=name, record_timing=False)
    async with client.async_setup_kernel(cwd=str(folder)):
        for index, cell in enumerate(book.cells):
            await client.async_execute_cell(cell, index)
            if cell.cell_type == "code" and "explore(" in cell.source:
                await try_sliders(client, cell)


async def try_sliders(client, cell):
    """Move each control of the cell's slider figure: picture and words must follow."""
    boxes = [output.data[notebooks.WIDGET]["model_id"] for output in cell.outputs
             if notebooks.WIDGET in output.get("data", {})]
    if not boxes:
        raise Fault(f"{cell.id}: the slider is not displayed")
    *controls, view = [name.removeprefix("IPY_MODEL_") for name in client.widget_state[boxes[0]]["children"]]
    shown = picture_and_words(client.widget_state[view]["value"])
    for control in controls:
        state = client.widget_state[control]
        answer = await move(client, control, elsewhere(state))
        if view not in answer:
            raise Fault(f"{cell.id}: nothing follows the slider {state['description']!r}")
        before, shown = shown, picture_and_words(answer[view]["value"])
        for part, old, new in zip(("picture", "words"), before, shown, strict=True):
            if old == new:
                raise Fault(f"{cell.id}: the {part} stayed when the slider {state['description']!r} moved")


def elsewhere(state):
    """The state of a control after a move to another place."""
    if "index" in state:
        return {"index": 0 if state["index"] else len(state["_options_labels"]) - 1}
    if isinstance(state["value"], bool):
        return {"value": not state["value"]}
    return {"value": state["min"] if state["value"] == state["max"] else state["max"]}


def picture_and_words(value):
    return re.search(r'src="(.*?)"', value)[1], re.search(r"<p>(.*)</p>", value, re.S)[1]


async def move(client, control, state):
    """Send the message that the browser sends -> what changed in answer: {widget: state}."""
    content = {"comm_id": control, "data": {"method": "update", "state": state, "buffer_paths": []}}
    sent = client.kc.session.msg("comm_msg", content)
    client.kc.shell_channel.send(sent)
    changed = {}
    while True:
        message = await client.kc.get_iopub_msg(timeout=LIMIT)
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != sent["header"]["msg_id"]:
            continue
        if kind == "comm_msg":
            changed.setdefault(content["comm_id"], {}).update(content["data"].get("state", {}))
        elif kind in ("stream", "error"):
            raise Fault(f"moving a slider to {state} says: {content}")
        elif kind == "status" and content["execution_state"] == "idle":
            return changed


# -- all of it

def as_on_colab(name, paths, folder, home, commit):
    """Run the notebooks in one environment -> {path: (seconds, what went wrong or None)}."""
    python = environment(f"colab-{name}", VERSIONS[name])
    without_course(python)      # a run that was broken off may have left it
    before, results = packages(python), {}
    kernel(folder / "jupyter", f"colab-{name}", python, redirected(home, folder / "course"))
    (BUILD / "colab" / name).mkdir(parents=True, exist_ok=True)
    for path in paths:
        start, fault = time.perf_counter(), None
        book = nbformat.read(path, as_version=4)
        for cell in book.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
            try:
                asyncio.run(run(book, empty, f"colab-{name}"))
                only_the_course(before, packages(python), home, commit)
            except (Fault, *notebooks.FAILED) as error:
                fault = re.sub(r"\x1b\[[\d;]*m", "", str(error))        # colours
        results[path] = time.perf_counter() - start, fault
        say(f"{name:5} {path.stem:24}" + (f"FAILED\n{fault}" if fault else f"{results[path][0]:4.0f} s"))
        nbformat.write(book, BUILD / "colab" / name / path.name)
        without_course(python)
        if packages(python) != before:
            say(f"{name:5} {path.stem} changed the packages: stopped; the environment will be made anew")
            (BUILD / f"colab-{name}" / "stamp.json").unlink()
            break
    return results


def main(names):
    paths, home = notebooks.find(names), links.Home.read(ROOT)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        commit = published(folder / "course", home.tag)
        os.environ["JUPYTER_PATH"] = str(folder / "jupyter")
        with ThreadPoolExecutor() as pool:      # the environments side by side, their notebooks in turn
            jobs = {name: pool.submit(as_on_colab, name, paths, folder, home, commit) for name in VERSIONS}
    say(f"\n{'':24}" + "".join(f"{name:>8}" for name in VERSIONS))
    bad = 0
    for path in paths:
        row = [job.result().get(path, (0, "not run")) for job in jobs.values()]
        bad += any(fault for _, fault in row)
        say(f"{path.stem:24}" + "".join(f"{'FAILED' if fault else f'{seconds:.0f} s':>8}" for seconds, fault in row))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
