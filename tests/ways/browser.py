"""Every notebook in JupyterLab in a real browser, as `make lab` delivers it, used as a learner would.

    .venv/bin/python tests/ways/browser.py [NN ...] [--shots]

Before anything runs, nothing that is to be predicted may be in view. The first cell is run from the keyboard, then
Run All: each cell in its turn, no error, nothing on stderr, every formula set, nothing wider than the page. With Tab
through the notebook: every slider and box moves its picture and its words, every folded text opens. Some exercises
are typed, wrong and right, and their verdicts read. As shipped (so on Binder), folded outputs open with a click.
The browser can reach no other host; what it asks for all the same is a fault, the two badges excepted.
Screenshots: build/browser/NN/; --shots adds the whole notebook, page by page.
"""
import argparse
import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.ways import shared  # noqa: E402
from tests.ways.lab_page import Exercise, LabPage, opened_faults, ran_faults  # noqa: E402
from tools import lab  # noqa: E402

OUT = shared.BUILD / "browser"
# without a sandbox, as Chromium does not start as root with one; the last: no host but this one, not even by mistake
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
BADGES = {"https://colab.research.google.com/assets/colab-badge.svg", "https://mybinder.org/badge_logo.svg"}
EXERCISES = {
    "01": Exercise(
        "project_qkv",
        "def my_project(X, W_Q, W_K, W_V):\n    return X @ W_Q, X @ W_V, X @ W_K", "come back as Q, V, K",
        "def my_project(X, W_Q, W_K, W_V):\n    Q = X @ W_Q\n    K = X @ W_K\n    return Q, K, X @ W_V"),
    "02": Exercise(
        "attention",
        "def my_attention(Q, K, V):\n    weights = torch.softmax(Q @ K.T, dim=-1)\n    return weights @ V, weights",
        "divided by nothing",
        "def my_attention(Q, K, V):\n    scores = Q @ K.T / K.shape[1] ** 0.5\n"
        "    weights = torch.softmax(scores, dim=-1)\n    return weights @ V, weights",
        check='check("attention", my_attention, library="torch")'),
    "03": Exercise("predict_spread", "spread = 64", "That is the variance.", "spread = 8"),
}


def call(url, method="GET"):
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
        return answer.read()


@contextlib.contextmanager
def server(folder, log):
    """JupyterLab as `make lab` starts it, with the settings of nobody -> address of a path in it."""
    port, token = shared.free_port(), secrets.token_hex(16)
    command = lab.server_command(folder / "my_notebooks", [
        "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}"])
    command[0] = str(shared.COURSE_PYTHON)              # we run in another environment
    own = {name: str(folder / name.lower()) for name in (
        "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")}

    def url(path):
        return f"http://127.0.0.1:{port}/{path}?token={token}"

    process = subprocess.Popen(command, env={**lab.server_environment(), **own}, stdout=log,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        deadline = time.time() + 120
        while True:
            with contextlib.suppress(OSError):
                call(url("api"))
                break
            if process.poll() is not None or time.time() > deadline:
                sys.exit(f"JupyterLab does not answer; its words are in {log.name}")
            time.sleep(0.25)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)          # the server and its kernels
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def strange(request):
    """Does this request ask another host, for anything but the badges?"""
    address = urllib.parse.urlsplit(request)
    return address.scheme in ("http", "https", "ws", "wss") and address.hostname != "127.0.0.1" \
        and request not in BADGES


@contextlib.contextmanager
def watched_page(browser, url, out, faults):
    """A fresh page; what it asks of other hosts and complains of goes to faults. At the end no kernel is left."""
    page = browser.new_page(viewport={"width": 1280, "height": 1600})

    def note(text):
        faults.append(text)

    page.on("request", lambda request: strange(request.url) and note(f"asked the network for {request.url}"))
    page.on("websocket", lambda socket: strange(socket.url) and note(f"asked the network for {socket.url}"))
    page.on("pageerror", lambda error: note(f"error in the page: {error}"))
    page.on("console", lambda line: line.type == "error" and line.location["url"] not in BADGES
            and note(f"browser console: {line.text[:200]}"))
    try:
        yield page
    except Exception as error:                          # a fault of this notebook; the others still have their turn
        page.screenshot(path=out / "stopped.png")
        note(f"stopped: {error}")
    finally:
        page.close()
        for session in json.loads(call(url("api/sessions"))):
            call(url(f"api/sessions/{session['id']}"), "DELETE")


def use(page, url, path, out, shots):
    """Everything that is wrong with this notebook in the learner's folder."""
    notebook = LabPage(page, url(f"lab/tree/{path.name}") + "&reset", path, out)
    notebook.shoot("opened")
    yield from opened_faults(notebook.book, notebook.cells())
    yield from notebook.first_cell_faults()
    notebook.run_all()
    notebook.shoot("ran")
    yield from ran_faults(notebook.book, notebook.cells(), first=3)
    yield from notebook.walk_faults()
    if exercise := EXERCISES.get(path.name[:2]):
        yield from notebook.exercise_faults(exercise)
    if shots:
        notebook.shoot_pages()


def use_shipped(page, url, path, out):
    """The same of the notebook as it is in the repository, which is what Binder opens."""
    notebook = LabPage(page, url(f"lab/tree/{path.parent.name}/{path.name}") + "&reset", path, out)
    yield from notebook.unfold_faults()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("numbers", nargs="*", metavar="NN")
    parser.add_argument("--shots", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))       # so that the server is stopped as well
    shared.run_in("browser-env", pathlib.Path(__file__).with_name("requirements.txt"))
    from playwright.sync_api import sync_playwright

    shipped = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
               if not options.numbers or path.name[:2] in options.numbers]
    if not shipped:
        sys.exit(f"no notebook has the number {' or '.join(options.numbers)}")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    table = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        learner = folder / "my_notebooks"
        lab.deliver_all(ROOT / "notebooks", learner)
        log = stack.enter_context((OUT / "server.log").open("w", encoding="utf-8"))
        url = stack.enter_context(server(folder, log))
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=shared.chromium(), args=FLAGS)
        for path in shipped:
            start, faults, out = time.perf_counter(), [], OUT / path.name[:2]
            out.mkdir()
            with watched_page(browser, url, out, faults) as page:
                faults.extend(use(page, url, learner / path.name, out, options.shots))
            (learner / "as_shipped").mkdir(exist_ok=True)
            copy = pathlib.Path(shutil.copy(path, learner / "as_shipped"))
            with watched_page(browser, url, out, faults) as page:
                faults.extend(use_shipped(page, url, copy, out))
            table[path.stem] = len(faults), time.perf_counter() - start
            shared.say("\n".join([f"{path.stem}: {len(faults)} faults", *(f"  {fault}" for fault in faults)]))
        browser.close()
    shared.say("\n" + "\n".join(f"{name:28}{f'{faults} faults' if faults else 'ok':12}{seconds:5.0f} s"
                                for name, (faults, seconds) in table.items()))
    return int(any(faults for faults, _ in table.values()))


if __name__ == "__main__":
    sys.exit(main())
