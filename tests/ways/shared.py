"""What the tests of the ways into the course have in common: environments, a copy of the course, Chromium."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"              # git-ignored; everything that these tests make and keep
COURSE_PYTHON = ROOT / ".venv" / "bin" / "python"


def say(text):
    print(text, flush=True)         # between the lines of programs that we call


def environment(name, pip_arguments, python=sys.executable):
    """A virtual environment build/NAME with these packages, made anew when they change -> its Python."""
    folder = BUILD / name
    stamp, inside = folder / "stamp.json", folder / "bin" / "python"
    files = [pathlib.Path(word).read_text(encoding="utf-8") for word in pip_arguments if word.endswith(".txt")]
    wanted = [str(python), *pip_arguments, *files]
    if stamp.is_file() and json.loads(stamp.read_text(encoding="utf-8")) == wanted:
        return inside
    say(f"making build/{name} (once)")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    subprocess.run([inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", *pip_arguments], check=True)
    stamp.write_text(json.dumps(wanted), encoding="utf-8")
    return inside


def run_in(name, requirements):
    """Go on with this script in build/NAME, where the packages of the file `requirements` are."""
    if pathlib.Path(sys.prefix) != BUILD / name:
        python = environment(name, ["-r", str(requirements)])
        os.execv(python, [str(python), *sys.argv])


def copy_of_course(folder):
    """The files that a commit of this working tree would hold, in a new folder."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():             # not one that was deleted since
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    return folder


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def chromium():
    """The path of a Chromium. Where there is none, Debian's is installed, if we may."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    if found := next(filter(None, map(shutil.which, names)), None):
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say("installing Debian's chromium")
        quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-q"], check=True, **quiet)
        subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"], check=True, **quiet)
        return shutil.which("chromium")
    sys.exit("No Chromium found, and this user may not install one. "
             "On Debian and Ubuntu: sudo apt install chromium; elsewhere any Chrome in the PATH does.")
