"""Open notebooks in JupyterLab as `make lab` serves them, in a real headless Chromium, and use them.

python tests/ui_run.py NOTEBOOK OUTDIR [--shots]

Run All; then there must be no error, nothing on stderr, no formula that MathJax could not set; the keyboard must
move every slider, and its picture and words must follow; every folded text must open. Screenshots go to OUTDIR;
--shots adds the whole executed notebook, page by page, for reading.
Needs, beside the course environment: pip install playwright, and Chromium (apt-get install chromium).
"""
import argparse
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools import lab  # noqa: E402

COURSE_PYTHON = ROOT / ".venv" / "bin" / "python"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WIDTH, HEIGHT = 1280, 1600
RUN_SECONDS = 180
# the circle beside the kernel's name says idle before there is a kernel; the status bar does not
IDLE = r"() => [...document.querySelectorAll('.jp-StatusBar-TextItem')].some(e => /\| Idle$/.test(e.textContent))"
TEXTS = "elements => elements.map(element => element.textContent.trim())"
PROMPTS = ".jp-Notebook .jp-CodeCell .jp-InputArea-prompt"
SCROLLER = ".jp-WindowedPanel-outer"


def chromium():
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)   # None: the one that playwright installed


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def copy_without_counts(notebook, folder):
    """The learner's copy. Stored execution counts would look like a finished run."""
    book = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            cell["execution_count"] = None
    folder.mkdir()
    (folder / notebook.name).write_text(json.dumps(book), encoding="utf-8")


def server_environment(folder):
    """That of `make lab`, with settings of nobody, and every cell kept in the page (else those off screen are not)."""
    settings = folder / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"windowingMode": "none"}', encoding="utf-8")
    own = {name: str(folder / name.lower()) for name in
           ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")}
    return {**lab.server_environment(), **own, "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}


def wait_for(url, server):
    for _ in range(240):
        if server.poll() is not None:
            sys.exit("JupyterLab ended; its words are in server.log")
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            time.sleep(0.25)
    sys.exit("JupyterLab did not answer within a minute; its words are in server.log")


def run_all(page):
    """Until the kernel stays calm: an error stops Run All, so numbers alone would be waited for in vain."""
    page.click("#jp-MainMenu >> text=Run")
    page.click("li[data-command='runmenu:run-all']")
    calm, deadline = 0, time.time() + RUN_SECONDS
    while calm < 4:
        if time.time() > deadline:
            sys.exit(f"still running after {RUN_SECONDS} s")
        page.wait_for_timeout(300)
        busy = "[*]:" in page.eval_on_selector_all(PROMPTS, TEXTS)
        calm = calm + 1 if page.evaluate(IDLE) and not busy else 0


def problems_after_run(page):
    # JupyterLab shows tracebacks and stderr under this one type
    for text in page.locator("[data-mime-type='application/vnd.jupyter.stderr']").all_inner_texts():
        yield "error or stderr: " + re.sub(r"\s+", " ", text)[-300:]
    prompts = page.eval_on_selector_all(PROMPTS, TEXTS)
    if not prompts or not all(re.fullmatch(r"\[\d+\]:", prompt) for prompt in prompts):
        yield f"not every cell ran: {prompts}"
    # MathJax prints an unknown macro in red, as if it were text
    for formula in page.locator("mjx-merror, mjx-container:has([mathcolor='red'])").all():
        yield "formula not set: " + formula.text_content()


def picture_and_words(output):
    image = output.locator(".widget-html img").first
    return image.get_attribute("src"), image.get_attribute("alt")


def move_sliders(page, out):
    outputs = page.locator(".jp-OutputArea-child:has(.widget-slider)")
    for number in range(outputs.count()):
        output = outputs.nth(number)
        handles = output.locator(".noUi-handle")
        for which in range(handles.count()):
            name = f"slider {which + 1} of figure {number + 1}"
            before = picture_and_words(output)
            for key in ("ArrowRight", "ArrowLeft"):     # at its end it moves only one way
                handles.nth(which).focus()
                page.keyboard.press(key)
                deadline = time.time() + 5
                while (after := picture_and_words(output))[0] == before[0] and time.time() < deadline:
                    page.wait_for_timeout(100)
                if after[0] != before[0]:
                    break
            if after[0] == before[0]:
                yield f"{name}: the picture stayed"
            elif after[1] == before[1]:
                yield f"{name}: the picture changed, its words did not"
            else:
                print(f"  {name} moved: {after[1][:60]} ...", flush=True)
        output.scroll_into_view_if_needed()
        page.screenshot(path=out / f"slider_{number + 1}.png")


def open_folded(page):
    """Unfold every <details> with the keyboard; in the end all must be open."""
    summaries = page.locator(".jp-Notebook summary")
    for number in range(summaries.count()):
        summaries.nth(number).focus()
        page.keyboard.press("Enter")
    still = page.locator(".jp-Notebook details:not([open])").count()
    if still:
        yield f"{still} of {summaries.count()} folded texts did not open"


def shoot_pages(page, out):
    """The notebook from top to bottom, one screenshot for each screen."""
    panel = page.locator(SCROLLER).first
    height, visible = panel.evaluate("e => [e.scrollHeight, e.clientHeight]")
    for number, top in enumerate(range(0, height, visible - 60)):
        panel.evaluate("(e, top) => e.scrollTo(0, top)", top)
        page.wait_for_timeout(200)
        panel.screenshot(path=out / f"page_{number + 1:02d}.png")


def use(page, out, shots):
    """Everything that is wrong with the notebook in this page."""
    page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell", timeout=60_000)
    page.wait_for_function(IDLE, timeout=60_000)
    page.screenshot(path=out / "opened.png")
    if page.locator(".jp-Dialog").count():
        yield "a dialog is in the way: " + page.locator(".jp-Dialog").first.inner_text()
        return
    run_all(page)
    page.screenshot(path=out / "ran.png")
    if shots:
        shoot_pages(page, out)
    yield from problems_after_run(page)
    yield from move_sliders(page, out)
    yield from open_folded(page)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shots", action="store_true")
    options = parser.parse_args()
    notebook, out = options.notebook.resolve(), options.out
    out.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lab-"))
    learner = folder / "my_notebooks"
    copy_without_counts(notebook, learner)
    port, token, start = free_port(), secrets.token_hex(16), time.time()
    command = lab.server_command(learner, [
        "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}"])
    if COURSE_PYTHON.exists():      # playwright may live elsewhere, and so this script
        command[0] = str(COURSE_PYTHON)
    with (out / "server.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(command, env=server_environment(folder), stdout=log, stderr=subprocess.STDOUT,
                                  start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/api?token={token}", server)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(f"http://127.0.0.1:{port}/lab/tree/{notebook.name}?token={token}&reset")
            problems = list(use(page, out, options.shots))
            browser.close()
    finally:
        os.killpg(server.pid, signal.SIGTERM)       # the server and its kernels
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    print(*problems, f"{notebook.stem}: {'FAILED' if problems else 'ok'}, {time.time() - start:.0f} s", sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
