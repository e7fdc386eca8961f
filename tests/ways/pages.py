"""The offline copy of the course, build/html, in a real browser without a network, and on paper.

    .venv/bin/python tests/ways/pages.py         (make test-site builds the copy first)

Opens every page from a moved folder, light and dark, 1280, 640 and 400 pixels wide: pictures and their words, headings,
links, contrast, folds, search, print; no request leaves the folder. broken_page.html has every fault once; the checks
must find them all. Screenshots and a printed notebook: build/site.
"""
import json
import pathlib
import re
import shutil
import sys
import tempfile
from collections import Counter
from urllib.parse import unquote, urldefrag, urlsplit
from urllib.request import url2pathname

import shared

HERE = pathlib.Path(__file__).resolve().parent
shared.run_in("browser-env", HERE / "requirements.txt")
from playwright.sync_api import TimeoutError, sync_playwright  # noqa: E402  (installed by the line above)

SITE, OUT = shared.BUILD / "html", shared.BUILD / "site"
SHEET = 186 * 96 // 25              # pixels across a printed A4 sheet, between margins of 12 mm
FORMULA = re.compile(r"(?<![\\$])(\$\$?)(?=[^\s$])[^$]+?\1(?!\d)")
CODE = re.compile(r"^```.*?^```[ \t]*$|`[^`\n]+`", re.S | re.M)
WIDTHS = (1440, 1280, 640, 400)


def look(browser, path, scheme, shoot=True):
    """Open one page and do what a reader does -> the faults; links, anchors and more, to compare."""
    faults = []
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    context.set_offline(True)
    page = context.new_page()
    page.on("request", lambda request: faults.extend(
        [] if request.url.startswith(("file:", "data:")) else [f"asks another host: {request.url}"]))
    page.on("pageerror", lambda error: faults.append(f"script error: {error}"))
    page.goto(path.as_uri())
    page.add_script_tag(path=HERE / "pages.js")
    faults += page.evaluate("[...leaks(), ...pictures(), ...ghosts()]")
    if path.stem != "search":       # the theme's: it has no heading until it is asked
        faults += page.evaluate("outline()")
    page.emulate_media(media="print", color_scheme=scheme)
    page.set_viewport_size({"width": SHEET, "height": 1000})
    faults += page.evaluate("paper()")
    page.emulate_media(media="screen", color_scheme=scheme)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        faults += [f"{width} pixels: {fault}" for fault in page.evaluate("width()")]
        if shoot and width in (1280, 640):
            page.screenshot(path=OUT / f"{path.parent.name}-{path.stem}-{scheme}-{width}.png", full_page=True)
    faults += page.evaluate("[...folds(), ...width(), ...contrast()]")
    seen = page.evaluate("facts()")
    context.close()
    return seen | {"faults": faults}


def dead_links(path, pages, root):
    for link in pages[path]["links"]:
        target, anchor = urldefrag(link)
        if not target.startswith("file:"):
            continue                    # to another host: a link may lead there
        file = pathlib.Path(url2pathname(urlsplit(target).path))
        if not file.is_relative_to(root) or not file.is_file():
            yield f"leads nowhere: {link}"
        elif anchor and file in pages and unquote(anchor) not in pages[file]["anchors"]:
            yield f"no such place: {link}"


def unlike_the_notebook(name, page):
    """The page against the stored file: folds, formulas, the words of pictures, contents."""
    cells = json.loads((shared.ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    tags = Counter(tag for cell in cells for tag in cell["metadata"]["tags"])
    words = [output["metadata"]["image/png"]["alt"] for cell in cells for output in cell.get("outputs", [])
             if "image/png" in output.get("data", {})]
    text = [CODE.sub("", "".join(cell["source"])) for cell in cells if cell["cell_type"] == "markdown"]
    wanted = [tags["predict"] + tags["setup"], sum(len(FORMULA.findall(part)) for part in text)]
    if [page["folds"], page["formulas"]] != wanted:
        yield f"folded cells, formulas: {page['folds']}, {page['formulas']}; in the notebook {wanted}"
    if page["words"] != words:
        yield f"the words of the pictures are {page['words']}, in the notebook {words}"
    if page["contents"] != page["headings"]:
        yield f"{page['contents']} lines of contents for {page['headings']} headings"


def search(browser, root):
    """Type a word on one page, follow the first result."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_offline(True)
    page = context.new_page()
    page.goto((root / "notebooks" / "02_scores.html").as_uri())
    page.fill(".sidebar-search", "softmax")
    page.press(".sidebar-search", "Enter")
    try:
        page.wait_for_function("document.querySelectorAll('#search-results li a').length >= 5", timeout=20_000)
    except TimeoutError:
        return ["search for softmax: fewer than 5 results"]
    page.screenshot(path=OUT / "search.png")
    page.locator("#search-results li a").first.click()
    page.wait_for_selector("article h1")
    text = page.inner_text("article")
    context.close()
    return [] if "softmax" in text.lower() else ["search for softmax: the first result does not hold it"]


def print_notebook(browser, root):
    page = browser.new_page()
    page.goto((root / "notebooks" / "02_scores.html").as_uri())
    page.pdf(path=OUT / "02_scores.pdf", format="A4", prefer_css_page_size=True)
    page.close()


def unseen_faults(browser, folder):
    """The kinds of fault that broken_page.html has and the checks do not see."""
    path = shutil.copy(HERE / "broken_page.html", folder / "broken_page.html")
    seen = look(browser, path, "light", shoot=False)
    faults = "\n".join([*seen["faults"], *dead_links(path, {path: seen}, folder)])
    path.unlink()
    kinds = ("asks another host", "shown before", "picture does not load", "picture says only", "not one h1",
             "skip a level", "no lang", "no title", "widget ghost", "raw formula", "scrolls sideways",
             "cut at the right", "does not unfold", "contrast", "printed:", "cut: one_very", "missing on paper",
             "may be split", "leads nowhere", "no such place")
    return [f"the checks do not see a fault that is there: {kind}" for kind in kinds if kind not in faults]


def main():
    if not (SITE / "index.html").is_file():
        sys.exit("There is no build/html yet: run make html first.")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="moved é ") as folder, sync_playwright() as play:
        root = shutil.copytree(SITE, pathlib.Path(folder).resolve() / "course")
        browser = play.chromium.launch(executable_path=shared.chromium(), args=["--no-sandbox"])

        def report(name, faults):
            nonlocal failed
            failed |= bool(faults)
            shared.say(f"{'FAIL' if faults else 'ok':<5}{name}" + "".join(f"\n       {fault}" for fault in faults))

        report("the checks on a broken page", unseen_faults(browser, root))
        paths = sorted(root.rglob("*.html"))
        pages = {}
        for path in paths:
            pages[path] = look(browser, path, "light")
            faults = pages[path]["faults"]
            faults += [f"dark: {fault}" for fault in look(browser, path, "dark")["faults"] if fault not in faults]
            shared.say(f"     looked at {path.relative_to(root)}")
        for path in paths:
            notebook = path.parent.name == "notebooks" and path.stem != "README"
            report(path.relative_to(root), [*pages[path]["faults"], *dead_links(path, pages, root),
                                            *(unlike_the_notebook(path.stem, pages[path]) if notebook else ())])
        notebooks = {path.stem for path in (shared.ROOT / "notebooks").glob("*.ipynb")}
        report("a page for each notebook", sorted(notebooks - {path.stem for path in paths}))
        report("search", search(browser, root))
        print_notebook(browser, root)
        browser.close()
    shared.say(f"{len(paths)} pages; screenshots and 02_scores.pdf: {OUT.relative_to(shared.ROOT)}/")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
