"""What one attention sublayer computes and what it costs, stage by stage, as exact integers: no array is made.

    stages(n=5, d=12, h=3)                                  a table; each row has .stage, .formula and .shape
    costs(n=1024, d=512, h=8, causal=True)                  a prefill; each row has .parameters, .flops, .bytes too
    costs(n=1, m=1024, d=512, h=8)                          one decode step, 1023 tokens in the cache
    cache_bytes(n=1024, d=512, h=8, layers=6)               what the caches take

    >>> costs(n=1024, d=512, h=8)["scores"].bytes, costs(n=1024, d=512, h=8).total.flops
    (33554432, 4294967296)
"""

import math
from html import escape
from typing import NamedTuple

from mha_lib import rules

ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}            # bytes of one number


class Row(NamedTuple):
    """One stage: its name, how it is computed, the shape of the result."""

    stage: str
    formula: str
    shape: tuple


class Cost(NamedTuple):
    """One stage with its price: learned numbers, FLOPs, bytes of the result."""

    stage: str
    formula: str
    shape: tuple
    parameters: int
    flops: int
    bytes: int


class Table(tuple):
    """Rows that read as a text table in a terminal and as a real table in a notebook; table["scores"] is one row."""

    def __getitem__(self, at):
        if not isinstance(at, str):
            return super().__getitem__(at)
        for row in self:
            if row.stage == at:
                return row
        raise KeyError(f"no stage {at!r} here: take one of {', '.join(row.stage for row in self)}")

    @property
    def total(self):
        """The sums of the number columns, as one more row."""
        return type(self[0])("total", "", "", *(sum(column) for column in list(zip(*self, strict=True))[3:]))

    def _cells(self):
        """Rows of strings, the head first and a total last where there are numbers; and which columns hold numbers."""
        names = self[0]._fields
        is_number = [name not in Row._fields for name in names]
        rows = ([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
                for row in (*self, *([self.total] if any(is_number) else [])))
        return [names, *rows], is_number

    def __str__(self):
        cells, is_number = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.rjust(width) if right else cell.ljust(width)
                           for cell, width, right in zip(row, widths, is_number, strict=True)).rstrip()
                 for row in cells]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        (head, *rows), is_number = self._cells()
        sides = [f'style="text-align:{"right" if right else "left"}"' for right in is_number]
        head = "".join(f'<th scope="col" {side}>{name}</th>' for name, side in zip(head, sides, strict=True))
        rows = ("".join(f"<td {side}>{escape(cell)}</td>" for cell, side in zip(row, sides, strict=True))
                for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def stages(n, d, h, batch=()):
    """The stages of multi-head self-attention for X (*batch, n, d) and h heads, in order -> Table of Row."""
    rules.whole(n=n, d=d)
    rules.heads_divide(d, h)
    rows = [
        ("X", "the normalised stream", (n, d)),
        ("Q, K, V", "X @ W_Q, X @ W_K, X @ W_V", (n, d)),
        ("heads of Q, K, V", "split_heads", (h, n, d // h)),
        *_from_scores_on(n, n, d, h),
    ]
    return Table(Row(stage, formula, (*batch, *shape)) for stage, formula, shape in rows)


def _from_scores_on(n, m, d, h):
    return [
        ("scores", "Q @ K^T / sqrt(d_k)", (h, n, m)),
        ("weights", "softmax(scores + mask)", (h, n, m)),
        ("heads", "weights @ V", (h, n, d // h)),
        ("concat", "merge_heads", (n, d)),
        ("output", "concat @ W_O", (n, d)),
    ]


def costs(n, d, h, m=None, batch=1, dtype="float32", causal=False, kv_heads=None):
    """What the sublayer costs for X (batch, n, d), the last n of m tokens -> Table of Cost, sums in .total.

    m: keys, the past from a cache included; None means n. Prefill: n = m, causal=True. One decode step: n=1, m tokens.
    flops: 2 a b c for each matrix product (a, b) @ (b, c), a multiplication and an addition each. Not counted: scaling,
    mask, softmax (a few operations for each of the h n m scores) and biases. causal=True counts only the pairs that a
    query may see, which is half of them for large n = m; arrays stay rectangles, so bytes do not shrink.
    bytes: the array that a stage makes, its nbytes. K and V include the past, which a step must read though it
    computes only n rows of them. parameters: entries of W_Q, W_K, W_V, W_O; in memory each takes a number's bytes too.
    kv_heads: grouped-query attention, h query heads share so many heads of K and V; 1 is multi-query; None means h.
    """
    m = n if m is None else m
    n, m, d, h, batch, kv_heads = _sizes(n, m, d, h, batch, kv_heads)
    rules.causal_lengths(n, m)
    d_kv = kv_heads * d // h                            # the width of K and V, d unless heads share them
    pairs = n * m - causal * n * (n - 1) // 2           # query i of the last n may see m - n + i + 1 keys
    past = "" if m == n else "the cache, then "
    rows = [                                            # stage, formula, shape, parameters, FLOPs of one sequence
        ("X", "the normalised stream", (n, d), 0, 0),
        ("Q", "X @ W_Q", (h, n, d // h), d * d, 2 * n * d * d),
        ("K", past + "X @ W_K", (kv_heads, m, d // h), d * d_kv, 2 * n * d * d_kv),
        ("V", past + "X @ W_V", (kv_heads, m, d // h), d * d_kv, 2 * n * d * d_kv),
    ]
    prices = [(0, 2 * pairs * d), (0, 0), (0, 2 * pairs * d), (0, 0), (d * d, 2 * n * d * d)]
    rows += [(*row, *price) for row, price in zip(_from_scores_on(n, m, d, h), prices, strict=True)]
    size = _itemsize(dtype)
    return Table(Cost(stage, formula, (batch, *shape), parameters, batch * flops, batch * math.prod(shape) * size)
                 for stage, formula, shape, parameters, flops in rows)


def cache_bytes(n, d, h, layers=1, batch=1, dtype="float32", kv_heads=None):
    """Bytes of the KV caches that hold n tokens: K and V, (batch, kv_heads, n, d_k) each, for every layer."""
    n, _, d, h, batch, kv_heads = _sizes(n, n, d, h, batch, kv_heads)
    rules.whole(layers=layers)
    return 2 * int(layers) * batch * kv_heads * n * (d // h) * _itemsize(dtype)


def longest_context(memory, d, h, layers=1, batch=1, dtype="float32", kv_heads=None):
    """The most tokens whose caches fit into `memory` bytes: what is left after the model's own weights."""
    rules.whole(memory=memory)
    return int(memory) // cache_bytes(1, d, h, layers, batch, dtype, kv_heads)


def _sizes(n, m, d, h, batch, kv_heads):
    """The sizes as Python's integers, which never overflow, after the rules they must keep."""
    kv_heads = h if kv_heads is None else kv_heads
    rules.whole(n=n, m=m, d=d, batch=batch, kv_heads=kv_heads)
    rules.heads_divide(d, h)
    if h % kv_heads:
        raise ValueError(f"h={h} query heads cannot share kv_heads={kv_heads} evenly: h must be a multiple of kv_heads")
    return map(int, (n, m, d, h, batch, kv_heads))


def _itemsize(dtype):
    name = str(dtype).removeprefix("torch.")            # X.dtype serves as well as its name
    if name not in ITEMSIZE:
        raise ValueError(f"dtype must be one of {', '.join(ITEMSIZE)}, got {dtype}")
    return ITEMSIZE[name]
