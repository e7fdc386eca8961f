"""The course as on Binder, without Docker: the image that would be built, and what its visitors get.

    .venv/bin/python tests/ways/binder.py [NB...]

What it proves:
- the Dockerfile that repo2docker prints has the Python of binder/runtime.txt, installs binder/requirements.txt before
  it copies the course (or every commit would fetch torch anew), runs postBuild, and starts everything by binder/start;
- binder/postBuild installs the package into an environment, and leaves out of the notebooks what is to be predicted;
- JupyterLab, started by binder/start, has the notebook that each badge asks for, asks no question about news, and its
  kernels keep to one thread and import the installed package;
- every notebook runs there, with less memory than Binder gives.

Not Binder: Python and the packages are those of .venv (with the same pins), and nothing limits memory or processors.
The Dockerfile, the copy of the course and the server's log stay in build/binder/. No test can open the badge of a
repository on GitHub: do it once.
"""
import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from jupyter_client import BlockingKernelClient

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.ways.shared import BUILD, COURSE_PYTHON, ROOT, copy_of_course, environment, free_port, say  # noqa: E402
from tools import check, notebooks  # noqa: E402

WORK = BUILD / "binder"
REPO2DOCKER = "jupyter-repo2docker==2026.4.0"
CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"
LIMIT = 180             # seconds to wait for a server or a kernel, on a machine that has other things to do
STEPS = {               # of the Dockerfile, in this order
    "the Python of binder/runtime.txt": "conda environment for python={python}\n",
    "the packages": 'pip install --no-cache-dir -r "binder/requirements.txt"',
    "the copy of the course": " src/ ${REPO_DIR}/\n",
    "postBuild": "\nRUN ./binder/postBuild\n",
    "start": '\nENV R2D_ENTRYPOINT="${REPO_DIR}/binder/start"\n',
}
REPORT = """
import json, os, mha_lib, torch
threads = {name: value for name, value in os.environ.items() if name.endswith("NUM_THREADS")}
print(json.dumps([mha_lib.__file__, torch.get_num_threads(), threads]))
"""


# -- the image

def requirement_faults(course):
    text, tested = (read(course / name) for name in ("binder/requirements.txt", "requirements.txt"))
    pins, tested = check.pins(text), check.pins(tested)
    for name in sorted({"torch", "numpy", "matplotlib", "ipywidgets"} | set(pins)):
        if pins.get(name) != tested.get(name):
            yield f"binder/requirements.txt has {name} {pins.get(name)}, requirements.txt has {tested.get(name)}"
    if CPU_INDEX not in text.splitlines() or not re.search(r"^torch==\S+\+cpu$", text, re.M):
        yield f"binder/requirements.txt: torch would bring CUDA along; it needs torch==...+cpu and {CPU_INDEX}"
    for line in re.findall(r"^(?:-[rce]|--requirement|--constraint|--editable|\.).*", text, re.M):
        yield f"binder/requirements.txt: with {line!r}, every commit would install everything anew"


def dockerfile_faults(text, python):
    at = 0
    for name, step in STEPS.items():
        at = text.find(step.format(python=python) if "{python}" in step else step, at)
        if at < 0:
            yield f"the Dockerfile lacks {name}, or has it too early: {step.strip()}"
            return


def image_faults(course):
    repo2docker = environment("binder-env", [REPO2DOCKER]).with_name("jupyter-repo2docker")
    who = ["--user-id", "1000", "--user-name", "jovyan"]    # as on Binder; root may not
    done = subprocess.run([repo2docker, "--no-build", "--debug", *who, course], capture_output=True, text=True)
    text = done.stderr + done.stdout
    (WORK / "Dockerfile").write_text(text, encoding="utf-8")
    if done.returncode:
        yield f"repo2docker refuses the course:\n{text[-2000:]}"
    yield from requirement_faults(course)
    yield from dockerfile_faults(text, read(course / "binder" / "runtime.txt").strip().removeprefix("python-"))


# -- postBuild

def throw_away_environment():
    """An environment that sees the packages of .venv, and not the course that is installed there -> its Python."""
    subprocess.run([COURSE_PYTHON, "-m", "venv", WORK / "env"], check=True)
    python = WORK / "env" / "bin" / "python"
    where = [subprocess.run([program, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                            capture_output=True, text=True).stdout.strip() for program in (COURSE_PYTHON, python)]
    Path(where[1], "packages.pth").write_text(where[0] + "\n", encoding="utf-8")
    return python


def post_build_faults(course, variables):
    done = subprocess.run(["binder/postBuild"], cwd=course, env=variables, capture_output=True, text=True)
    if done.returncode:
        yield f"postBuild fails:\n{(done.stdout + done.stderr)[-2000:]}"
    for path in sorted((course / "notebooks").glob("*.ipynb")):
        yield from copy_faults(path, ROOT / "notebooks" / path.name)


def copy_faults(path, original):
    cells, shipped = (notebooks.loads(read(file)).cells for file in (path, original))
    if [cell.source for cell in cells] != [cell.source for cell in shipped]:
        yield f"{path.name}: postBuild changed more than outputs"
    if shown := [cell.id for cell in cells if "predict" in notebooks.tags(cell) and cell.outputs]:
        yield f"{path.name} shows what is to be predicted in {', '.join(shown)}"


# -- the server

@contextlib.contextmanager
def server(course, python, variables):
    """JupyterLab as Binder starts it -> ask(path, data), what its HTTP API answers."""
    port, token = free_port(), secrets.token_hex(16)

    def ask(path, data=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", data, {"Authorization": f"token {token}"})
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.read().decode("utf-8")

    command = ["binder/start", python, "-m", "jupyterlab", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
               "--ServerApp.port_retries=0", "--no-browser", f"--IdentityProvider.token={token}"]
    with open(WORK / "server.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=course, env=variables, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + LIMIT
        while True:
            with contextlib.suppress(urllib.error.URLError):
                ask("api")
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("JupyterLab does not start:\n" + read(WORK / "server.log")[-2000:])
            time.sleep(0.5)
        yield ask
    finally:
        process.terminate()     # it ends its kernels
        process.wait(LIMIT)


def badge_faults(ask, path):
    """Follow the badge of a notebook: the page is there, and its notebook is this one."""
    badges = re.findall(r"mybinder\.org/\S+?\?urlpath=([^)\s]+)", notebooks.loads(read(path)).cells[0].source)
    if len(badges) != 1:
        yield f"{path.name}: {len(badges)} Binder badges in the first cell"
        return
    page = urllib.parse.unquote(badges[0])
    try:
        ask(urllib.parse.quote(page))
        book = json.loads(ask("api/contents/" + urllib.parse.quote(page.removeprefix("lab/tree/"))))
        if book["name"] != path.name or book["type"] != "notebook":
            yield f"{path.name}: its badge opens {book['path']}"
    except urllib.error.HTTPError as error:
        yield f"{path.name}: its badge opens {page}: {error}"


def news_faults(ask):
    setting = json.loads(ask("lab/api/settings/@jupyterlab/apputils-extension:notification"))
    if setting["schema"]["properties"]["fetchNews"]["default"] != "false":
        yield "JupyterLab asks each visitor whether it may fetch news: does binder/start lead to tools/jupyter?"


def kernel_faults(ask, runtime, path):
    """A kernel as it starts when this notebook is opened."""
    session = {"path": f"notebooks/{path.name}", "name": path.name, "type": "notebook", "kernel": {"name": "python3"}}
    kernel = json.loads(ask("api/sessions", json.dumps(session).encode()))["kernel"]["id"]
    client = BlockingKernelClient(connection_file=str(runtime / f"kernel-{kernel}.json"))
    client.load_connection_file()
    client.start_channels()
    said = []
    try:
        client.wait_for_ready(timeout=LIMIT)
        client.execute_interactive(REPORT, timeout=LIMIT, output_hook=lambda message: said.append(message["content"]))
    finally:
        client.stop_channels()
    text = "".join(part.get("text", part.get("evalue", "")) for part in said)
    yield from report_faults(text)


def report_faults(text):
    """What is wrong with what a kernel printed for REPORT."""
    try:
        package, used, threads = json.loads(text)
    except ValueError:
        yield f"a kernel cannot import the course: {text}"
        return
    if not Path(package).is_relative_to(WORK / "env"):
        yield f"a kernel imports {package}, not what postBuild installed"
    wanted = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if used != 1 or not wanted.items() <= threads.items():
        yield f"a kernel is to use 1 thread; torch uses {used}, and the environment says {threads}"


# -- the notebooks, with as much as Binder gives

def as_default_kernel(course, python, folder):
    """Make `python3` mean, in this process, a kernel of the throw-away environment that binder/start starts."""
    command = [str(course / "binder" / "start"), str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernels" / "python3").mkdir(parents=True)
    (folder / "kernels" / "python3" / "kernel.json").write_text(
        json.dumps({"argv": command, "display_name": "Binder", "language": "python"}), encoding="utf-8")
    os.environ["JUPYTER_PATH"] = str(folder)


def run_faults(path):
    try:
        seconds, peak = notebooks.measure(path)
    except (*notebooks.FAILED, ValueError) as error:
        yield f"{path.stem}: {error}"
        return
    say(f"  {path.stem:26}{seconds:6.1f} s{peak:7} MB")
    if peak > notebooks.MAX_MB:
        yield f"{path.stem}: {peak} MB, and Binder promises {notebooks.MAX_MB}"


def read(path):
    return path.read_text(encoding="utf-8")


def main(names):
    paths = notebooks.find(names)
    shutil.rmtree(WORK, ignore_errors=True)
    course, runtime = copy_of_course(WORK / "course"), WORK / "runtime"
    results = {}

    def step(name, faults):
        start = time.perf_counter()
        found = results[name] = list(faults)
        say(f"{name:28}{time.perf_counter() - start:6.1f} s  " + ("FAILED\n" + "\n".join(found) if found else "fine"))

    step("image", image_faults(course))
    python = throw_away_environment()
    variables = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
                 "JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(WORK / "config"),
                 "JUPYTER_DATA_DIR": str(WORK / "data"), "IPYTHONDIR": str(WORK / "ipython"),
                 "JUPYTERLAB_DIR": str(ROOT / ".venv" / "share" / "jupyter" / "lab")}
    step("postBuild", post_build_faults(course, variables))
    copies = [course / "notebooks" / path.name for path in paths]
    with server(course, python, variables) as ask:
        step("no question about news", news_faults(ask))
        for path in copies:
            step(f"badge {path.stem}", badge_faults(ask, path))
        step("kernel", kernel_faults(ask, runtime, copies[0]))
    as_default_kernel(course, python, WORK / "jupyter")
    step("notebooks", (fault for path in copies for fault in run_faults(path)))
    bad = [name for name, found in results.items() if found]
    say(f"\nBinder: {len(results)} steps, " + (f"FAILED: {', '.join(bad)}" if bad else "all fine"))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
