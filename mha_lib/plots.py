"""Figures that say in words what they show, and the slider figure.

A plot function returns a Picture: the figure, and a description computed from the same data. `show` displays it with a
sentence beneath; the description is the image's alternative text, and a folded text where no viewer shows that.
"""

import base64
import html
import io
import itertools
import math
import re
import textwrap
from typing import NamedTuple

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

WEIGHTS = "Blues"                                       # 0..1, white to dark: survives grey print and colour blindness
SIGNED = "PuOr"                                         # negative to positive through white
INK, MUTED, ZERO = "#1b1b1b", "#8a8a8a", "#6b6b6b"      # text and edges, a line behind others, the number 0
LINES = (("#0072b2", "o", "-"), ("#d55e00", "s", "--"), ("#009e73", "^", "-."), (INK, "D", ":"))
DPI = 100


class Picture(NamedTuple):
    """A figure and the words that say what it shows."""

    figure: Figure
    words: str


def show(picture, sentence):
    """Display the figure, the sentence under it (*word* becomes italic), and its description, folded."""
    from IPython.display import display

    display(_image_data(picture), metadata=_image_words(picture), raw=True)
    display(_caption(sentence, "The figure in words", picture.words), raw=True)


def explore(render, sentence, **controls):
    """A figure that follows its controls: render(**values) -> Picture; controls are ipywidgets by argument name.

    The file stores the starting picture and the sentence, so a reader without a kernel has them too.
    """
    from IPython.display import display

    def picture():
        return render(**{name: control.value for name, control in controls.items()})

    start = picture()
    data = _image_data(start)
    box = _live(data, picture, controls)
    if box and not hasattr(box, "_repr_mimebundle_"):   # ipywidgets 7, as on Colab, displays itself
        display(box)
    else:
        display(data | _widget_data(box), metadata=_image_words(start), raw=True)
    display(_caption(sentence, "The figure in words, as it starts", start.words), raw=True)


def _live(data, picture, controls):
    """-> a box of the controls and the figure, redrawn at every change; None without ipywidgets."""
    try:
        import ipywidgets
    except ImportError:
        return None
    # an image inside an HTML widget: Output widgets print into the cell under nbval, and drop the alternative text
    view = ipywidgets.HTML()

    def draw(data):
        words = html.escape(data["text/plain"])
        source = "data:image/png;base64," + data["image/png"]
        view.value = f'<img style="max-width:100%" alt="{words}" src="{source}"><p>{words}</p>'

    draw(data)
    for control in controls.values():
        control.observe(lambda _change: draw(_image_data(picture())), "value")
    return ipywidgets.VBox([*controls.values(), view])


def _widget_data(box):
    live = "application/vnd.jupyter.widget-view+json"
    return {live: box._repr_mimebundle_()[live]} if box else {}


def _caption(sentence, summary, words):
    """The sentence in view, the words folded."""
    text = re.sub(r"\*(.+?)\*", r"<em>\1</em>", html.escape(sentence, quote=False))
    folded = f"<details><summary>{summary}</summary><p>{html.escape(words, quote=False)}</p></details>"
    return {"text/html": f"<p>{text}</p>{folded}", "text/plain": sentence}


def plot_weights(weights, queries, keys, titles=None):
    """Attention weights (n, m), or (h, n, m) as h panels: query i down, key j across; numbers if small -> Picture."""
    panels = np.asarray(weights)
    panels = panels if panels.ndim == 3 else panels[None]               # (h, n, m)
    h, n, m = panels.shape
    _labels_fit(panels.shape, queries, keys)
    titles = titles or ([f"head {a}" for a in range(h)] if h > 1 else [""])
    cell = 0.56 if max(n, m) <= 8 else 4.5 / max(n, m)
    figure = Figure((h * (m * cell + 0.2) + 1.0, n * cell + 1.45), layout="constrained")
    axes = figure.subplots(1, h, squeeze=False)[0]
    for panel, ax, title in zip(panels, axes, titles, strict=True):
        _heat_map(ax, panel, WEIGHTS, 0, 1, ".2f" if max(n, m) <= 8 else None)
        _name_axes(ax, queries if ax is axes[0] else None, keys)
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("key j")
    axes[0].set_ylabel("query i")
    if h == 1:
        lead = f"{titles[0] or 'Attention weights'}, {n} row{'s' * (n > 1)} by {m} columns. "
        return Picture(figure, lead + _weights_in_words(panels[0], queries, keys))
    parts = [f"{title}: {_weights_in_words(panel, queries, keys)}" for panel, title in zip(panels, titles, strict=True)]
    return Picture(figure, f"{h} maps of attention weights, {n} rows by {m} columns each. " + " ".join(parts))


def plot_matrix(matrix, rows, columns, title=""):
    """A signed matrix (n, d): one colour for each sign, white for 0, small whole numbers written in -> Picture."""
    matrix = np.asarray(matrix)
    _labels_fit((1, *matrix.shape), rows, columns)
    n, d = matrix.shape
    top = np.abs(matrix).max() or 1
    figure = Figure((d * 0.52 + 1.8, n * 0.45 + 1.1), layout="constrained")
    ax = figure.subplots()
    number = ".3g" if np.allclose(matrix, matrix.round(2)) else ".2f"
    _heat_map(ax, matrix, SIGNED, -top, top, number)
    _name_axes(ax, rows, columns)
    ax.set_title(title, fontsize=11)
    names = [_called("column", column) for column in columns]
    held = [", ".join(f"{name} {value:{number}}" for name, value in zip(names, row, strict=True)
                      if abs(value) > 5e-3) or "only zeros" for row in matrix]
    lead = f"{title or 'Matrix'}, {n} rows by {d} columns, zeros left out. "
    return Picture(figure, f"{lead}{_row_by_row(rows, held, 'has', 'have')}.")


def plot_matrices(matrices, rows, columns, signs=""):
    """Signed matrices of one shape (n, d) side by side, a dict title -> matrix; each has its own colours -> Picture.

    With signs, such as "++=" for four, one is written into each gap, and all share one range of colours.
    """
    arrays = {title: np.asarray(matrix) for title, matrix in matrices.items()}
    for matrix in arrays.values():
        _labels_fit(matrix.shape, rows, columns)
    n, d = len(rows), len(columns)
    cell = min(0.5, 8.2 / (d * len(arrays)))
    panel_width = max(d * cell, 1.5) + 0.15
    figure = Figure((len(arrays) * panel_width + 0.9, n * cell + 0.9), layout="constrained")
    axes = figure.subplots(1, len(arrays), squeeze=False)[0]
    parts = []
    for (title, matrix), ax in zip(arrays.items(), axes, strict=True):
        top = max(np.abs(part).max() for part in (arrays.values() if signs else [matrix])) or 1
        digits = 2 if signs else 1                      # a sum is there to be checked
        number = ".3g" if np.allclose(matrix, matrix.round()) else f".{digits}f"
        _heat_map(ax, matrix.round(digits), SIGNED, -top, top, number)      # rounded first: no "-0.0"
        _name_axes(ax, rows if ax is axes[0] else None, columns)
        ax.set_title(title, fontsize=11)
        held = {name: _row_in_words(row, columns, digits, number) for name, row in zip(rows, matrix, strict=True)
                if np.abs(row).max() > 5e-3}
        parts.append(f"{title}: {_row_by_row(held, held.values(), 'has', 'have') or 'all zero'}.")
    for ax, sign in zip(axes[1:], signs, strict=False):
        ax.text(-0.03, 0.5, sign, transform=ax.transAxes, ha="right", va="center", fontsize=14, color=INK)
    between = f" Between them: {' '.join(signs)}." if signs else ""
    many = f"{len(arrays)} matrices, {n} rows by {d} columns each" if len(arrays) > 1 else f"{n} rows by {d} columns"
    return Picture(figure, f"{many}, zeros left out.{between} " + " ".join(parts))


def plot_shapes(*shapes, unit=None):
    """Named shapes drawn to scale in one row: plot_shapes(("X", (5, 12)), "@", ("W_Q", (12, 12)), "=", ("Q", (5, 12))).

    A text between two shapes is written there as an operator. Rows run down, columns across -> Picture.
    """
    boxes = [item for item in shapes if not isinstance(item, str)]
    tallest = max(rows for _, (rows, _) in boxes)
    unit = unit or 1.9 / max(*(side for _, shape in boxes for side in shape), 1)
    width = sum(0.5 if isinstance(item, str) else max(item[1][1] * unit, 0.75) + 0.2 for item in shapes)
    height = tallest * unit + 0.9
    figure = Figure((width + 0.2, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width + 0.2), ylim=(0, height))
    ax.axis("off")
    x, middle = 0.1, 0.5 + tallest * unit / 2
    for item in shapes:
        if isinstance(item, str):
            ax.text(x + 0.25, middle, item, ha="center", va="center", fontsize=14, color=INK)
            x += 0.5
            continue
        name, (rows, columns) = item
        space = max(columns * unit, 0.75) + 0.2
        left, bottom = x + (space - columns * unit) / 2, middle - rows * unit / 2
        ax.add_patch(_rectangle(left, bottom, columns * unit, rows * unit))
        ax.text(x + space / 2, bottom + rows * unit + 0.06, name, ha="center", va="bottom", fontsize=11, color=INK)
        ax.text(x + space / 2, bottom - 0.06, f"({rows}, {columns})", ha="center", va="top", fontsize=10, color=INK)
        x += space
    texts = [item if isinstance(item, str) else f"{item[0]} ({item[1][0]}, {item[1][1]})" for item in shapes]
    gaps = [" " if isinstance(a, str) or isinstance(b, str) else ", " for a, b in itertools.pairwise(shapes)]
    chain = "".join(text + gap for text, gap in zip(texts, [*gaps, ""], strict=True))
    return Picture(figure, f"Shapes drawn to scale, rows down and columns across: {chain}.")


def plot_lines(x, measured, predicted=None, *, xlabel, ylabel, log="", title=""):
    """Measured points over predicted lines: two dicts name -> values at x; log is "", "x", "y" or "xy" -> Picture.

    A prediction with the name of a measurement takes its colour.
    """
    figure = Figure((6.4, 3.8), layout="constrained")
    ax = figure.subplots()
    words = _lines(ax, x, measured, predicted or {}, xlabel, ylabel, log)
    ax.set_title(title)
    ax.legend(frameon=False)
    return Picture(figure, words)


def plot_line_panels(x, panels, *, xlabel, log=""):
    """Several panels on one y axis: a dict title -> (a dict name -> values at x), one legend below -> Picture."""
    figure = Figure((3.2 * len(panels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    words = []
    for ax, (title, measured) in zip(axes, panels.items(), strict=True):
        words.append(_lines(ax, x, measured, {}, xlabel, title, log))
        ax.set_title(title, fontsize=11)
        ax.set_ylabel("")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return Picture(figure, " ".join(words))


def plot_losses(runs, chance):
    """Training: a dict name -> losses by step of several seeds, over the loss of guessing -> Picture.

    Its words are so coarse that they hold on every machine.
    """
    figure = Figure((6.4, 3.8), layout="constrained")
    ax = figure.subplots()
    steps = 1 + np.arange(len(next(iter(runs.values()))[0]))
    ax.axhline(chance, color=MUTED, linewidth=1)
    ax.text(steps[-1], chance, f"guessing, {chance:.2f}", ha="right", va="bottom", color=INK)
    parts = []
    for (name, losses), (colour, marker, dash) in zip(runs.items(), _styles(runs), strict=True):
        for number, loss in enumerate(losses):
            ax.plot(steps, loss, dash, marker=marker, markevery=max(1, len(steps) // 6), color=colour, linewidth=1.3,
                    label=None if number else name)
        ends = {_quarter(np.mean(loss[-10:]) / chance) for loss in losses}
        place = " or ".join(sorted(ends))
        parts.append(f"{name}: {len(losses)} runs, ending {place} the loss of guessing ({chance:.2f})")
    ax.set(xlabel="training step", ylabel="loss", ylim=(0, None))
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return Picture(figure, f"Loss in the course of {len(steps)} training steps. " + "; ".join(parts) + ".")


def plot_reach(reach, outputs, tokens, titles=("",)):
    """Which outputs move when a token does, True at (i, j): (n, n), or (h, n, n) as h panels -> Picture."""
    panels = np.asarray(reach)
    panels = panels if panels.ndim == 3 else panels[None]               # (h, n, n)
    h, n, m = panels.shape
    _labels_fit(panels.shape, outputs, tokens)
    cell = min(0.5, 7.5 / (h * m))
    figure = Figure((h * (m * cell + 0.2) + 1.1, n * cell + 1.45), layout="constrained")
    axes = figure.subplots(1, h, squeeze=False)[0]
    parts = []
    for panel, ax, title in zip(panels, axes, titles, strict=True):
        _heat_map(ax, 0.75 * panel, WEIGHTS, 0, 1, None)
        ax.grid(which="minor", color=INK, linewidth=0.8)
        _name_axes(ax, outputs if ax is axes[0] else None, tokens)
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("token j moves")
        rows = _row_by_row(outputs, [_reach_in_words(row, tokens) for row in panel], "by", "by")
        parts.append(f"{title}: {rows}." if title else f"{rows}.")
    axes[0].set_ylabel("output i moves")
    return Picture(figure, "Which output is moved by which tokens. " + " ".join(parts))


def plot_positions(runs):
    """Losses by position of two kinds of model: a dict of two, name -> one row of n losses for each seed -> Picture.

    Its words hold on every machine: they compare the second with the first, before the last position and there.
    """
    figure = Figure((6.4, 3.8), layout="constrained")
    ax = figure.subplots()
    means = []
    for (name, losses), (colour, marker, dash) in zip(runs.items(), _styles(runs), strict=True):
        for number, row in enumerate(losses):
            ax.plot(1 + np.arange(len(row)), row, dash, marker=marker, markersize=4, color=colour, linewidth=1.3,
                    markevery=[*range(0, len(row), 9), -1], label=None if number else name)
        means.append(np.mean(losses, axis=0))
    ax.set(xlabel="position", ylabel="loss", ylim=(0, None))
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    (first, second), ratio = runs, means[1] / means[0]
    before = "below a tenth" if ratio[:-1].max() < 0.1 else "below half" if ratio[:-1].max() < 0.5 else "not below half"
    last = "higher" if ratio[-1] > 1 else "not higher"
    return Picture(figure, f"Loss at {len(ratio)} positions. Before the last one, {second}: {before} of the loss "
                           f"{first}. At the last one: {last}.")


def plot_passages(passages, known):
    """Generated texts side by side, a dict title -> text; its words say how many pieces a known text has -> Picture."""
    figure = Figure((8.8, 2.2))
    pieces = {known[i:i + 4] for i in range(len(known) - 3)}
    parts = []
    for place, (title, text) in enumerate(passages.items()):
        left = 0.02 + place / len(passages)
        figure.text(left, 0.95, title, va="top", fontsize=11, color=INK, weight="bold")
        lines = textwrap.fill(" ".join(text.split()), 86 // len(passages) - 3)
        figure.text(left, 0.81, lines, va="top", fontsize=10, color=INK, family="monospace", linespacing=1.5)
        found = np.mean([text[i:i + 4] in pieces for i in range(len(text) - 3)])
        share = "more" if found > 0.5 else "fewer"
        parts.append(f"{title}: {len(text)} characters; {share} than half of the runs of four occur in the known text")
    return Picture(figure, "Generated text. " + ". ".join(parts) + ".")


def plot_sublayer():
    """Where attention sits: the residual stream, with Norm and the attention sublayer beside it -> Picture."""
    figure = Figure((7.6, 2.5))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 7.6), ylim=(0, 2.5))
    ax.axis("off")

    def arrow(start, end):
        ax.annotate("", end, start, arrowprops=dict(arrowstyle="-|>", color=INK, lw=1.6, shrinkA=0, shrinkB=0))

    def box(left, width, text):
        ax.add_patch(_rectangle(left, 0.35, width, 0.8))
        ax.text(left + width / 2, 0.75, text, ha="center", va="center", fontsize=11, color=INK)

    stream = 1.9
    ax.text(0.1, stream, "x", fontsize=14, style="italic", va="center", color=INK)
    arrow((0.4, stream), (6.27, stream))
    ax.text(3.3, stream + 0.14, "the residual stream, (n, d) from end to end", ha="center", fontsize=11, color=INK)
    ax.plot([0.9, 0.9], [stream, 0.75], color=INK, lw=1.6)
    arrow((0.9, 0.75), (1.4, 0.75))
    box(1.4, 1.1, "Norm")
    arrow((2.5, 0.75), (3.1, 0.75))
    ax.text(2.8, 0.88, "X", fontsize=12, style="italic", ha="center", color=INK)
    box(3.1, 2.4, "multi-head attention\n(this course)")
    ax.plot([5.5, 6.4], [0.75, 0.75], color=INK, lw=1.6)
    arrow((6.4, 0.75), (6.4, stream - 0.13))
    ax.text(6.4, stream, "+", fontsize=13, ha="center", va="center", color=INK,
            bbox=dict(boxstyle="circle,pad=0.15", facecolor="white", edgecolor=INK))
    arrow((6.56, stream), (7.4, stream))
    return Picture(figure, "The residual stream x runs straight through from left to right, shape (n, d) all the way. "
                           "A branch leaves it, passes Norm, which gives X, then multi-head attention, "
                           "and is added back: x + Sublayer(Norm(x)).")


def _lines(ax, x, measured, predicted, xlabel, ylabel, log):
    """Draw points and predicted lines into one panel -> their words."""
    names = list(dict.fromkeys([*measured, *predicted]))
    parts = []
    for name, (colour, marker, dash) in zip(names, _styles(names), strict=True):
        if name in predicted:
            ax.plot(x, predicted[name], dash, color=colour, label=f"{name}, predicted")
        if name in measured:
            ax.plot(x, measured[name], marker, color=colour, label=f"{name}, measured" if predicted else name,
                    linestyle="none" if predicted else dash, markersize=6)
            parts.append(f"{name}: {_points_in_words(x, measured[name])}")
            if name in predicted:
                parts.append(f"predicted: {_points_in_words(x, predicted[name])}")
    for axis in log:
        getattr(ax, f"set_{axis}scale")("log", base=2 if axis == "x" else 10)
    if "y" in log:
        ax.yaxis.set_major_formatter(lambda value, _: _short(value))
    if "x" in log:
        ax.set_xticks(x, [_short(u) for u in x])
        ax.minorticks_off()
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(alpha=0.3)
    return f"{ylabel} against {xlabel}. " + "; ".join(parts) + "."


def _points_in_words(x, values):
    return ", ".join(f"{_short(value)} at {_short(u)}" for u, value in zip(x, values, strict=True))


def _styles(names):
    """A colour, a marker and a dash for each: they differ in all three, so that grey print tells them apart."""
    if len(names) > len(LINES):
        raise ValueError(f"one figure tells at most {len(LINES)} lines apart, got {len(names)}")
    return LINES[:len(names)]


def _quarter(part):
    if 0.25 <= part <= 0.75:
        return "between a quarter and three quarters of"
    return "below a quarter of" if part < 0.25 else "above three quarters of"


def _heat_map(ax, matrix, colours, low, high, number):
    """Draw one matrix; each number in a colour that can be read on its cell."""
    image = ax.imshow(matrix, cmap=colours, vmin=low, vmax=high)
    ax.set_xticks(np.arange(1, matrix.shape[1]) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, matrix.shape[0]) - 0.5, minor=True)
    ax.tick_params(which="minor", length=0)
    if number is None:
        return
    ax.grid(which="minor", color="white", linewidth=1.5)
    for (i, j), value in np.ndenumerate(matrix):
        ax.text(j, i, f"{value + 0.0:{number}}", ha="center", va="center", fontsize=9,
                color=_readable_on(image.cmap(image.norm(value)), ZERO if value == 0 else INK))


def _readable_on(cell, first):
    """The first of three colours that has the contrast 4.5 that WCAG asks of text; white or black always has it."""
    def luminance(colour):
        light = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
        return np.dot(light, [0.2126, 0.7152, 0.0722])

    def contrast(colour):
        dark, light = sorted([luminance(colour), luminance(cell)])
        return (light + 0.05) / (dark + 0.05)

    return next(colour for colour in (first, "white", "black") if contrast(colour) >= 4.5)


def _name_axes(ax, rows, columns):
    long = max((len(str(name)) for name in columns), default=0) > 5
    if len(columns) <= 16:
        ax.set_xticks(range(len(columns)), columns, rotation=40 if long else 0, ha="right" if long else "center",
                      rotation_mode="anchor" if long else None, fontsize=10)
    if rows is None:
        ax.set_yticks([])
    elif len(rows) <= 16:
        ax.set_yticks(range(len(rows)), rows, fontsize=10)


def _row_by_row(names, texts, one, many):
    """Rows in words, like ones together: "a reads x; b and c read all alike", with one="reads" and many="read"."""
    groups = {}
    for name, text in zip(names, texts, strict=True):
        groups.setdefault(text, []).append(_called("row", name))
    return "; ".join(f"{_and(group)} {one if len(group) == 1 else many} {text}" for text, group in groups.items())


def _called(kind, name):
    """A number alone would read as one more value: "row 3", "column 3"."""
    return f"{kind} {name}" if str(name).isdigit() else str(name)


def _and(names):
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last


def _weights_in_words(weights, queries, keys):
    """Which key each query reads most, or that it reads all alike; no words hang on the last bits."""
    texts = []
    for row in weights:
        most = [key for key, weight in zip(keys, row, strict=True) if weight > max(row) - 5e-3]     # ties by name
        what = "all alike" if len(most) == len(keys) else f"{_and(most)} most"
        texts.append(f"{what} ({max(row):.2f})")
    if len(weights) == 1:                               # a single row has room for all
        texts = [", ".join(f"{key} {weight:.2f}" for key, weight in zip(keys, weights[0], strict=True))]
    sums = np.sum(weights, axis=1)
    wrong = "" if np.allclose(sums, 1, atol=5e-3) else f"; the rows add up to {min(sums):.2f} to {max(sums):.2f}"
    return f"{_row_by_row(queries, texts, 'reads', 'read')}{wrong}."


def _row_in_words(row, columns, digits, number):
    """The entries of a row that are not zero, as the picture shows them, or their range where there are many."""
    held = [(column, value) for column, value in zip(columns, row, strict=True) if abs(value) > 5e-3]
    if len(held) > 4:
        low, high = f"{min(row):.1f}", f"{max(row):.1f}"
        return f"{len(held)} entries " + (f"of {low}" if low == high else f"from {low} to {high}")
    return ", ".join(f"{value.round(digits) + 0.0:{number}} in column {column}" for column, value in held)


def _reach_in_words(row, tokens):
    moved = np.flatnonzero(row)
    if len(moved) == len(tokens):
        return "all"
    if len(moved) > 2 and np.ptp(moved) == len(moved) - 1:
        return f"{tokens[moved[0]]} to {tokens[moved[-1]]}"
    return _and([tokens[j] for j in moved]) if len(moved) else "none"


def _labels_fit(shape, rows, columns):
    if (len(rows), len(columns)) != shape[-2:]:
        raise ValueError(f"{len(rows)} row names and {len(columns)} column names do not fit the shape {shape[-2:]}")


def _rectangle(left, bottom, width, height):
    from matplotlib.patches import Rectangle

    return Rectangle((left, bottom), width, height, facecolor="#e8eef7", edgecolor=INK, linewidth=1.2)


def _short(value):
    """A number as a reader would say it: 3 digits, thousands whole."""
    value = float(value)
    return f"{value:,.0f}" if abs(value) >= 100 and math.isfinite(value) else f"{value:.3g}"


def _base64(figure):
    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=DPI)
    Image.open(whole).convert("RGB").quantize(256).save(small, "png", optimize=True)    # a third of the bytes
    return base64.b64encode(small.getvalue()).decode()


def _image_data(picture):
    return {"image/png": _base64(picture.figure), "text/plain": picture.words}


def _image_words(picture):
    return {"image/png": {"alt": picture.words}}
