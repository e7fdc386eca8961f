"""notebooks/README.md lists what the course claims: each row names cells that exist and assert, or is still to come."""
import pathlib
import re

import pytest

from tests.notebook_rules import Book, has_assert

FOLDER = pathlib.Path(__file__).parent.parent / "notebooks"
BOOKS = {path.name[:2]: Book(path) for path in FOLDER.glob("*.ipynb")}
GLOSSARY = ["Query", "Key", "Value", "Score matrix", "Scaling factor", "Head", "Output projection", "Causal mask"]


def rows(text):
    """The table rows: [claim, cells, what was found, verdict]."""
    lines = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[part.strip() for part in line] for line in lines if line[0].strip() != "claim"]


def problems(row):
    if len(row) != 4:
        yield f"a row has the four columns claim, cells, found, verdict: {row}"
        return
    claim, cells, found, verdict = row
    if verdict.startswith("to come in "):
        if verdict.removeprefix("to come in ") in BOOKS:
            yield f"{claim}: notebook {verdict.removeprefix('to come in ')} is here now"
        return
    if not re.match(r"holds(\b|,)|holds when |holds if |half true|does not hold", verdict):
        known = "holds, holds when ..., half true, does not hold, to come in NN"
        yield f"{claim}: the verdict {verdict!r} is none of {known}"
    names = re.findall(r"`(\d\d-[\w-]+)`", cells)
    if not names or not found:
        yield f"{claim}: names no cell, or does not say what was found"
    for name in names:
        cell = next((cell for cell in BOOKS[name[:2]].code if cell.id == name), None) if name[:2] in BOOKS else None
        if cell is None:
            yield f"{claim}: there is no code cell {name}"
        elif not has_assert(cell.source):
            yield f"{claim}: {name} asserts nothing"


TABLE = rows((FOLDER / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0][:40])
def test_the_row_leads_to_cells_that_assert(row):
    assert list(problems(row)) == []


def test_the_table_is_whole():
    assert len(TABLE) >= 40
    claims = "\n".join(row[0] for row in TABLE)
    assert [term for term in GLOSSARY if f"*{term}*" not in claims] == []


def test_a_wrong_row_is_seen():
    good = ["a claim", "`00-swap-check`", "one row", "holds"]
    assert list(problems(good)) == []
    for position, wrong in [(1, "`00-no-such-cell`"), (1, "`00-heads-figure`"), (1, "`99-x`"), (1, ""), (2, ""),
                            (3, "true"), (3, "to come in 00")]:
        assert list(problems([*good[:position], wrong, *good[position + 1:]])), wrong
    assert list(problems(good[:3]))
