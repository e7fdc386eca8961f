"""What one attention sublayer computes, stage by stage, as exact integers: no array is made.

    >>> print(stages(n=5, d=12, h=3))       # a table; each row has .stage, .formula and .shape
"""

from html import escape
from typing import NamedTuple

from mha_lib import rules


class Row(NamedTuple):
    """One stage: its name, how it is computed, the shape of the result."""

    stage: str
    formula: str
    shape: tuple


class Table(tuple):
    """Rows that read as a text table in a terminal and as a real table in a notebook."""

    def __str__(self):
        cells = [Row._fields, *((row.stage, row.formula, str(row.shape)) for row in self)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(Row._fields))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        head = "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in Row._fields)
        rows = ("".join(f'<td style="text-align:left">{escape(str(cell))}</td>' for cell in row) for row in self)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def stages(n, d, h, batch=()):
    """The stages of multi-head self-attention for X (*batch, n, d) and h heads, in order -> Table of Row."""
    rules.whole(n=n, d=d)
    rules.heads_divide(d, h)
    d_k = d // h
    rows = [
        ("X", "the normalised stream", (n, d)),
        ("Q, K, V", "X @ W_Q, X @ W_K, X @ W_V", (n, d)),
        ("heads of Q, K, V", "split_heads", (h, n, d_k)),
        ("scores", "Q @ K^T / sqrt(d_k)", (h, n, n)),
        ("weights", "softmax(scores + mask)", (h, n, n)),
        ("heads", "weights @ V", (h, n, d_k)),
        ("concat", "merge_heads", (n, d)),
        ("output", "concat @ W_O", (n, d)),
    ]
    return Table(Row(stage, formula, (*batch, *shape)) for stage, formula, shape in rows)
