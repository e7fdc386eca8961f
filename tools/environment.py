"""Make .venv, or bring it up to date: the course environment, exactly as requirements.txt pins it.

    python3 tools/environment.py

The syntax stays readable to old Pythons (no f-strings), so that they can say that they are too old.
"""
import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (3, 11)
ROOM = 3 * 10**9  # bytes: 1.4 GB stay, the rest is the download and its unpacking


def say(text):
    print(text)
    sys.stdout.flush()  # pip writes to the same place


def obstacle(version, new, folder):
    """What stands in the way of making the environment, with what to do; "" if nothing does."""
    if version[:2] < OLDEST:
        return (
            "Python {}.{} is too old: the course needs {}.{} or newer.\n"
            "Install a newer one (python.org, or your system's packages); make finds it by itself,\n"
            "or say where it is: make PYTHON=/path/to/python3 ..."
        ).format(version[0], version[1], *OLDEST)
    if not new:
        return ""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        return (
            "This Python ({}) cannot make environments: {}.\n"
            "On Debian and Ubuntu that part is a package of its own: sudo apt install python3-venv"
        ).format(sys.executable, error)
    if not os.access(folder, os.W_OK):
        return (
            "Nothing can be written in {}.\n"
            "Copy the course to a folder of your own, and run the same command there."
        ).format(folder)
    free = shutil.disk_usage(folder).free
    if free < ROOM:
        return (
            "Not enough room on the disk: the environment needs about {:.0f} GB, {:.1f} GB are free in\n{}\n"
            "Free some room, or move the course to a bigger disk, and run the same command again."
        ).format(ROOM / 1e9, free / 1e9, folder)
    return ""


@contextlib.contextmanager
def alone(root):
    """Two commands at once would delete each other's half-made .venv. The lock ends with the process."""
    if fcntl is None:
        yield
        return
    folder = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except EnvironmentError as error:  # else: a disk without locks, such as NFS
            if error.errno == errno.EWOULDBLOCK:
                say("Another command is making the environment in this folder; waiting for it.")
                fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


class Environment:
    """The .venv of the course in `root`. Its stamp says whose it is and for which state it was completed."""

    def __init__(self, root):
        self.root = root
        self.folder = os.path.join(root, ".venv")
        self.stamp = os.path.join(self.folder, "course-stamp.json")
        inside = os.path.join("Scripts", "python.exe") if os.name == "nt" else os.path.join("bin", "python")
        self.python = os.path.join(self.folder, inside)

    def read_stamp(self):
        try:
            with open(self.stamp) as file:
                stamp = json.load(file)
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def write_stamp(self, made_here, complete_for):
        with open(self.stamp, "w") as file:
            json.dump({"made_here": made_here, "complete_for": complete_for}, file)

    def runs(self, *arguments):
        try:
            return subprocess.check_output((self.python,) + arguments, stderr=subprocess.DEVNULL).decode()
        except (OSError, subprocess.CalledProcessError):
            return ""

    def fingerprint(self):
        """Of all that the environment is made from; "" if its Python does not run."""
        version = self.runs("-c", "import sys; print(sys.version_info[:2])")
        if not version:
            return ""
        state = hashlib.sha256(version.encode())
        state.update(self.root.encode("utf-8", "surrogateescape"))  # moved: mha_lib points to the old folder
        for name in ("requirements.txt", "pyproject.toml"):
            with open(os.path.join(self.root, name), "rb") as file:
                state.update(file.read())
        return state.hexdigest()

    def is_ready(self):
        fingerprint = self.fingerprint()
        return bool(fingerprint) and self.read_stamp().get("complete_for") == fingerprint

    def is_broken(self):
        return not self.runs("-m", "pip", "--version")

    def make(self):
        os.mkdir(self.folder)
        self.write_stamp(True, "")  # first, so that a half-made one is known as ours
        if subprocess.call([sys.executable, "-m", "venv", self.folder]):
            shutil.rmtree(self.folder)
            sys.exit("Python could not make an environment in .venv; it says why above.")

    def install(self, made_here):
        """Install what requirements.txt says and mha_lib itself; only then the stamp says complete."""
        self.write_stamp(made_here, "")
        pip = [self.python, "-m", "pip", "install", "--disable-pip-version-check"]
        # -e: an edit in mha_lib/ counts at once; torch brings the setuptools that this needs, so no download
        package = ["--no-deps", "--no-build-isolation", "-e", self.root]
        requirements = ["-r", os.path.join(self.root, "requirements.txt")]
        if subprocess.call(pip + requirements) or subprocess.call(pip + package):
            sys.exit(
                "\nThe installation did not finish; pip says why above. Nothing is lost:\n"
                "- no connection, or a slow one: run the same command later, it goes on where it stopped;\n"
                "- no space left: free some room (3 GB; 8 GB with CUDA, README.md shows the small torch);\n"
                "- no matching torch: use a Python from 3.11 to 3.14 (delete .venv; make PYTHON=...)."
            )
        self.write_stamp(made_here, self.fingerprint())


def prepare(root, version):
    environment = Environment(root)
    new = not os.path.exists(environment.folder)
    problem = obstacle(version, new, root)
    if problem:
        sys.exit(problem)
    made_here = new or environment.read_stamp().get("made_here") is True
    if new:
        say(
            "Making the course environment in .venv. Once only: about 3 minutes and 1.4 GB; on Linux torch\n"
            "may bring CUDA along, 7 GB in all (README.md: how to get the small one)."
        )
        environment.make()
    elif environment.is_ready():
        return
    elif not environment.is_broken():
        say("Bringing .venv up to date; nothing in it is deleted.")
        if not made_here:
            say("(This command did not make that .venv: the course is added to what is there.)")
    elif made_here:
        say("The environment in .venv is broken or half made; making it anew.")
        shutil.rmtree(environment.folder)
        prepare(root, version)
        return
    else:
        sys.exit(
            "There is a .venv here that this command did not make, and its Python or its pip does not run.\n"
            "Rename or delete it, and run the same command again."
        )
    environment.install(made_here)
    say("The environment is ready.\n")


def main(root=ROOT, version=sys.version_info):
    try:
        with alone(root):
            prepare(root, version)
    except KeyboardInterrupt:
        sys.exit("\nStopped. Nothing is lost: the same command goes on from here.")
    except EnvironmentError as error:
        sys.exit(
            "The environment in .venv cannot be written:\n{}\n"
            "It needs a folder of yours with {:.0f} GB of room: copy the course there, without .venv,\n"
            "and run the same command again."
            .format(error, ROOM / 1e9)
        )


if __name__ == "__main__":
    main()
