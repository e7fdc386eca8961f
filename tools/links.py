"""Stamp the repository and the version, which pyproject.toml holds, into every link of the course.

    python tools/links.py                     stamp anew, as after a new version
    python tools/links.py owner/name          set the repository, then stamp
    python tools/links.py --check             list the links that disagree; exit 1 if there are any
    python tools/links.py --check owner/name  and is this the repository that pyproject.toml names?
"""
import argparse
import json
import pathlib
import re
import sys
import tomllib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACEHOLDER = "OWNER"
REPO = r"[\w.-]+/[\w.-]+?"


class Home(NamedTuple):
    repo: str  # owner/name
    tag: str

    @classmethod
    def read(cls, root=ROOT):
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        repo = project["urls"]["Repository"].removeprefix("https://github.com/")
        return cls(repo, "v" + project["version"])

    def colab(self, notebook):
        return f"https://colab.research.google.com/github/{self.repo}/blob/{self.tag}/notebooks/{notebook}"

    def binder(self, notebook):
        return f"https://mybinder.org/v2/gh/{self.repo}/{self.tag}?urlpath=lab%2Ftree%2Fnotebooks%2F{notebook}"


def stamp(text, home, old_repo):
    """`text` with every link to the course leading to `home`; not another character changes."""
    repo, tag = home
    name = re.escape(repo.split("/")[1])
    for pattern, new in [
        (rf"(colab\.research\.google\.com/github/){REPO}/blob/[\w.-]+/", rf"\g<1>{repo}/blob/{tag}/"),
        (rf"(mybinder\.org/v2/gh/){REPO}/[\w.-]+", rf"\g<1>{repo}/{tag}"),
        (rf"(git\+https://github\.com/){REPO}@[\w.-]*\w", rf"\g<1>{repo}@{tag}"),
        (rf"(https://github\.com/)(?:{re.escape(old_repo)}|[\w.-]+/{name})(?![\w-])", rf"\g<1>{repo}"),
    ]:
        text = re.sub(pattern, new, text)
    return text


def texts(root):
    """Every file that may hold links, with its text, line ends as they are."""
    for pattern in ("*.md", "*.cff", "notebooks/*.md", "notebooks/*.ipynb"):
        for path in sorted(root.glob(pattern)):
            yield path, path.read_bytes().decode("utf-8")


def missing_badges(path, text, home):
    try:
        title = "".join(json.loads(text)["cells"][0]["source"])
    except (ValueError, LookupError, TypeError):
        yield f"{path.name}: cannot be read as a notebook (a merge left half done?)"
        return
    for url in (home.colab(path.name), home.binder(path.name)):
        if f"({url})" not in title:
            yield f"{path.name}: the title cell lacks the badge that opens this notebook: {url}"


def wrong(root=ROOT):
    """Every link that disagrees with pyproject.toml, one line each."""
    home = Home.read(root)
    lines = []
    for path, text in texts(root):
        stamped = stamp(text, home, home.repo).split("\n")
        for number, (old, new) in enumerate(zip(text.split("\n"), stamped, strict=True), start=1):
            if old != new:
                lines.append(f"{path.name}, line {number}: {old.strip()}")
        if path.suffix == ".ipynb":
            lines += missing_badges(path, text, home)
    return lines


def restamp(root=ROOT, repo=None):
    """Write the links anew -> the names of the files that changed."""
    old_repo = Home.read(root).repo
    changed = []
    if repo and repo != old_repo:
        path = root / "pyproject.toml"
        text = path.read_bytes().decode("utf-8")
        text = text.replace(f'"https://github.com/{old_repo}"', f'"https://github.com/{repo}"')
        path.write_bytes(text.encode("utf-8"))
        changed.append(path.name)
    home = Home.read(root)
    for path, text in texts(root):
        new = stamp(text, home, old_repo)
        if new != text:
            path.write_bytes(new.encode("utf-8"))
            changed.append(path.name)
    return changed


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repo", nargs="?", metavar="owner/name")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    here = options.repo
    if here and not re.fullmatch(r"[\w.-]+/[\w.-]+", here):
        sys.exit(f"'{here}' is no repository: write owner/name, as in make links REPO=ada/attention")
    if not options.check:
        print(*[f"stamped {name}" for name in restamp(root, here)] or ["nothing to stamp"], sep="\n")
    lines = wrong(root)
    home = Home.read(root)
    if here and home.repo != here:
        if home.repo.startswith(f"{PLACEHOLDER}/"):
            print(f"not compared with {here}: pyproject.toml has no owner yet (make links REPO=owner/name)")
        else:
            lines.append(f"pyproject.toml names {home.repo}, this is {here} (make links REPO={here})")
    print(*lines or [f"every link leads to {home.repo}, {home.tag}"], sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
