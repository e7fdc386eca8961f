"""Figures: their words are computed from the data, and every reader gets them."""

import html
import io
import re
import sys

import numpy as np
import pytest
from PIL import Image

from mha_lib import plots
from tools import readme_figure

WORDS = ["a", "b<", "c"]
WEIGHTS = np.array([[0.9, 0.1, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.2, 0.2, 0.6]])


@pytest.fixture
def shown(monkeypatch):
    """What was handed to IPython's display: a list of (data, metadata)."""
    display = pytest.importorskip("IPython.display")
    calls = []

    def record(data, metadata=None, raw=False):
        calls.append((data, metadata))
        assert raw or not isinstance(data, dict)

    monkeypatch.setattr(display, "display", record)
    return calls


def drawings():
    return {
        "weights": plots.plot_weights(WEIGHTS, WORDS, WORDS),
        "heads": plots.plot_weights(np.stack([WEIGHTS, WEIGHTS.T]), WORDS, WORDS),
        "large": plots.plot_weights(np.full((20, 30), 1 / 30), range(20), range(30)),
        "matrix": plots.plot_matrix([[1.0, -2.0], [0.0, 0.5], [0, 0]], WORDS, ["left", "a long name"], "M"),
        "matrices": plots.plot_matrices({"Q": [[1, 0], [0, 0], [-2, 0.5]], "K": np.zeros((3, 2))}, WORDS, ["x", "y"]),
        "zeros": plots.plot_matrix(np.zeros((3, 1)), WORDS, ["c"]),
        "shapes": plots.plot_shapes(("X", (5, 12)), "@", ("W_Q", (12, 12)), "=", ("Q", (5, 12))),
        "lines": plots.plot_lines([1, 2, 4], {"time": [1, 4, 16]}, {"time": [1, 4, 16], "limit": [2, 2, 2]},
                                  xlabel="n", ylabel="seconds", log="xy"),
        "panels": plots.plot_line_panels(
            [1, 2], {"seconds": {"slow": [2, 4], "fast": [1, 1]}, "bytes": {"slow": [8, 9]}}, xlabel="n", log="x"),
        "losses": plots.plot_losses({"one": [np.linspace(3, 0.1, 60)] * 2, "two": [np.full(60, 2.5)]}, chance=3.0),
        "reach": plots.plot_reach(np.tri(3, dtype=bool), WORDS, WORDS),
        "positions": plots.plot_positions({"alone": [np.full(12, 2.0)], "masked": [np.full(12, 0.5)]}),
        "passages": plots.plot_passages({"before": "zzzzzzzz", "after": "to be or not"}, "to be or not to be"),
        "sublayer": plots.plot_sublayer(),
    }


def test_the_same_figure_twice_is_the_same_bytes():
    first, second = drawings(), drawings()
    images = {name: plots._image_data(picture)["image/png"] for name, picture in first.items()}
    assert len(set(images.values())) == len(images)
    for name, picture in second.items():
        assert plots._image_data(picture)["image/png"] == images[name], name
        assert picture.words == first[name].words and picture.words.endswith("."), name


def test_words_of_weights_follow_the_weights():
    words = plots.plot_weights(WEIGHTS, WORDS, WORDS).words
    assert words == ("Attention weights, 3 rows by 3 columns. "
                     "a reads a most (0.90); b< reads all alike (0.33); c reads c most (0.60).")
    moved = WEIGHTS.copy()
    moved[0] = moved[0][::-1]
    assert "a reads c most (0.90)" in plots.plot_weights(moved, WORDS, WORDS).words
    both = plots.plot_weights(np.stack([WEIGHTS, moved]), WORDS, WORDS, titles=["one", "two"]).words
    assert both.startswith("2 maps of attention weights, 3 rows by 3 columns each. one: a reads a most (0.90)")
    assert "two: a reads c most (0.90)" in both


def test_words_of_weights_put_like_rows_together_and_give_a_single_row_whole():
    words = plots.plot_weights(WEIGHTS[[0, 1, 1]], WORDS, WORDS).words
    assert words.endswith("columns. a reads a most (0.90); b< and c read all alike (0.33).")
    single = plots.plot_weights(WEIGHTS[:1], "q", WORDS).words
    assert single.endswith("1 row by 3 columns. q reads a 0.90, b< 0.10, c 0.00.")


def test_words_of_weights_say_when_rows_do_not_add_up():
    assert "add up" not in plots.plot_weights(WEIGHTS, WORDS, WORDS).words
    assert plots.plot_weights(WEIGHTS.T, WORDS, WORDS).words.endswith("the rows add up to 0.63 to 1.43.")


def test_words_of_a_matrix_name_what_is_not_zero():
    words = plots.plot_matrix([[1.0, -2.0], [0.0, 0.5], [0, 0]], WORDS, ["x", "y"], "M").words
    assert words.startswith("M, 3 rows by 2 columns")
    assert words.endswith("a has x 1, y -2; b< has y 0.5; c has only zeros.")
    alike = plots.plot_matrix([[1 / 3, 0], [1 / 3, 0], [0, 2]], WORDS, ["x", "y"]).words
    assert alike.endswith("a and b< have x 0.33; c has y 2.00.")      # the numbers that the picture shows


def test_words_of_several_matrices_name_each_row_that_holds_something():
    words = drawings()["matrices"].words
    assert words.endswith("Q: a has 1.0 in column x; c has -2.0 in column x, 0.5 in column y. K: all zero.")
    tiny = plots.plot_matrices({"Q": [[-0.04, 8]]}, ["a"], "xy").words
    assert tiny.endswith("Q: a has 0.0 in column x, 8.0 in column y.")       # as in the picture, and no -0.0
    summed = plots.plot_matrices({name: [[1]] for name in ("a", "b", "c")}, ["r"], ["x"], signs="+=").words
    assert "Between them: + =." in summed
    full = plots.plot_matrices({"Q": [[1, -2, 3, 4, 5]]}, ["a"], "vwxyz").words
    assert full.endswith("Q: a has 5 entries from -2.0 to 5.0.")
    ones = plots.plot_matrices({"Q": np.ones((2, 5))}, "ab", "vwxyz").words
    assert ones.endswith("Q: a and b have 5 entries of 1.0.")


def test_signs_stand_in_the_gaps_and_the_matrices_share_their_colours():
    parts = {"a": [[1.25, 0]], "b": [[-3.25, 0]], "sum": [[-2, 0]]}
    for signs, tops, number in (("+=", [3.25, 3.25, 3.25], "1.25"), ("", [1.25, 3.25, 2], "1.2")):
        axes = plots.plot_matrices(parts, ["r"], ["x", "y"], signs=signs).figure.axes
        assert [ax.images[0].get_clim() for ax in axes] == [(-top, top) for top in tops]
        texts = [[text.get_text() for text in ax.texts] for ax in axes]
        assert texts[0][0] == number
        assert [sign for held in texts for sign in held if sign in "+="] == list(signs)
        assert not signs or (texts[1][-1], texts[2][-1]) == ("+", "=")


def test_words_of_losses_say_where_the_runs_end():
    quarter, middle = "below a quarter of", "between a quarter and three quarters of"
    for ends, place in (((0.02, 0.09), quarter), ((0.3, 0.6), middle), ((0.8, 0.9), "above three quarters of"),
                        ((0.1, 0.5), f"{quarter} or {middle}")):
        words = plots.plot_losses({"heads": [np.full(30, 3.0 * end) for end in ends]}, chance=3.0).words
        assert words.startswith("Loss in the course of 30 training steps.")
        assert words.endswith(f"heads: 2 runs, ending {place} the loss of guessing (3.00).")


def test_words_of_reach_name_what_each_output_moves_with():
    moves = [[True, False], [True, True], [False, False]]
    words = plots.plot_reach([moves, np.ones((3, 2), bool)], ["a", "b", "c"], ["x", "y"], ["one", "two"]).words
    assert words == ("Which output is moved by which tokens. one: a by x; b by all; c by none. "
                     "two: a, b and c by all.")
    band = np.triu(np.ones((4, 4), bool)) & np.tri(4, k=2, dtype=bool)
    words = plots.plot_reach(band, range(4), "wxyz").words
    assert "row 0 by w to y; row 1 by x to z; row 2 by y and z; row 3 by z." in words


def test_words_of_positions_compare_the_second_model_with_the_first():
    for share, last, words in ((0.05, 2, "two: below a tenth"), (0.3, 2, "two: below half"),
                               (0.9, 2, "two: not below half"), (0.3, 0.5, "two: below half")):
        row = np.full(12, share)
        row[-1] = last
        described = plots.plot_positions({"one": [np.ones(12)] * 2, "two": [row] * 2}).words
        assert f"{words} of the loss one" in described
        assert described.endswith("At the last one: higher." if last > 1 else "At the last one: not higher.")


def test_words_of_passages_say_how_much_of_them_is_known():
    words = plots.plot_passages({"before": "zzzzzzzz", "after": "to be or not"}, "to be or not to be").words
    assert "before: 8 characters; fewer than half" in words and "after: 12 characters; more than half" in words


def test_words_of_shapes_and_lines_carry_the_numbers():
    assert "X (5, 12) @ W_Q (12, 12) = Q (5, 12)" in drawings()["shapes"].words
    words = plots.plot_lines([1, 2000], {"t": [0.5, 1234.5]}, xlabel="n", ylabel="s").words
    assert words == "s against n. t: 0.5 at 1, 1,234 at 2,000."
    words = plots.plot_lines([1, 2], {"t": [3, 4]}, {"t": [5, 6], "u": [7, 8]}, xlabel="n", ylabel="s").words
    assert words == "s against n. t: 3 at 1, 4 at 2; predicted: 5 at 1, 6 at 2."
    assert drawings()["panels"].words == ("seconds against n. slow: 2 at 1, 4 at 2; fast: 1 at 1, 1 at 2. "
                                          "bytes against n. slow: 8 at 1, 9 at 2.")


def test_names_that_do_not_fit_the_data_are_refused():
    for plot in (plots.plot_weights, plots.plot_matrix, lambda x, *names: plots.plot_matrices({"Q": x}, *names)):
        with pytest.raises(ValueError, match=r"2 row names and 3 column names do not fit the shape \(3, 3\)"):
            plot(WEIGHTS, WORDS[:2], WORDS)


def test_two_weights_swapped_are_other_pixels():
    swapped = WEIGHTS.copy()
    swapped[2, [0, 2]] = swapped[2, [2, 0]]
    images = [plots._image_data(plots.plot_weights(w, WORDS, WORDS))["image/png"] for w in (WEIGHTS, swapped)]
    assert images[0] != images[1]


def test_show_gives_the_words_as_alt_text_and_folded(shown):
    picture = drawings()["weights"]
    plots.show(picture, "look at *b<*: it reads all alike")
    (image, metadata), (text, _) = shown
    assert metadata == {"image/png": {"alt": picture.words}} and image["text/plain"] == picture.words
    assert image["image/png"].startswith("iVBOR")
    assert "<p>look at <em>b&lt;</em>: it reads all alike</p>" in text["text/html"]
    folded = re.search("<details>.*<p>(.*)</p></details>", text["text/html"]).group(1)
    assert "<" not in folded and html.unescape(folded) == picture.words
    assert text["text/plain"] == "look at *b<*: it reads all alike"


def render(power=1):
    shares = WEIGHTS ** power
    return plots.plot_weights(shares / shares.sum(axis=1, keepdims=True), WORDS, WORDS)


def test_explore_follows_its_slider_in_picture_and_words(shown, monkeypatch):
    widgets = pytest.importorskip("ipywidgets")
    boxes, VBox = [], widgets.VBox
    monkeypatch.setattr(widgets, "VBox", lambda children: boxes.append(VBox(children)) or boxes[-1])
    slider = widgets.IntSlider(value=1, min=1, max=9)
    plots.explore(render, "move *it*", power=slider)
    (data, metadata), (caption, _) = shown
    assert caption["text/plain"] == "move *it*" and html.escape(render(1).words) in caption["text/html"]
    assert data["image/png"] == plots._image_data(render(1))["image/png"]      # what a reader without a kernel sees
    assert metadata["image/png"]["alt"] == render(1).words
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == boxes[0].model_id
    control, view = boxes[0].children
    assert control is slider and html.escape(render(1).words) in view.value
    slider.value = 9
    assert html.escape(render(9).words) in view.value and html.escape(render(1).words) not in view.value
    assert plots._image_data(render(9))["image/png"] in view.value


def test_explore_without_ipywidgets_shows_the_starting_picture(shown, monkeypatch):
    class Slider:
        value = 2

    monkeypatch.setitem(sys.modules, "ipywidgets", None)        # import raises ImportError
    plots.explore(render, "move it", power=Slider)
    (data, metadata), _ = shown
    assert data["image/png"] == plots._image_data(render(2))["image/png"]
    assert metadata["image/png"]["alt"] == render(2).words and set(data) == {"image/png", "text/plain"}


def test_explore_with_ipywidgets_7_displays_the_box_itself(shown, monkeypatch):
    widgets = pytest.importorskip("ipywidgets")
    slider = widgets.IntSlider(value=1, min=1, max=9)

    class OldBox:                                               # displays itself, and has no _repr_mimebundle_
        def __init__(self, children):
            self.children = children

    monkeypatch.setattr(widgets, "VBox", OldBox)
    plots.explore(render, "move it", power=slider)
    (box, _), (caption, _) = shown
    assert caption["text/plain"] == "move it"
    assert isinstance(box, OldBox) and box.children[0] is slider
    slider.value = 9
    assert html.escape(render(9).words) in box.children[1].value


def test_a_tie_is_named_as_a_tie_whatever_the_last_bits_say():
    weights = np.array([[0.44, 0.44 + 1e-16, 0.12], [0.2, 0.3, 0.5]])
    nudged = weights + np.array([[1e-15, 0, 0], [0, 0, 0]])
    words = plots.plot_weights(weights, "ab", "xyz").words
    assert "a reads x and y most (0.44)" in words and "b reads z most (0.50)" in words
    assert plots.plot_weights(nudged, "ab", "xyz").words == words


def test_the_figure_in_the_readme_is_the_one_that_the_tool_draws():
    stored = np.asarray(Image.open(readme_figure.FILE).convert("RGB"), dtype=float)
    whole = io.BytesIO()
    readme_figure.draw().figure.savefig(whole, format="png", dpi=100)
    drawn = np.asarray(Image.open(whole).convert("RGB"), dtype=float)
    assert abs(np.subtract(stored.shape, drawn.shape)).max() <= 4       # another matplotlib moves text by pixels
    height, width = np.minimum(stored.shape, drawn.shape)[:2]
    assert abs(stored[:height, :width] - drawn[:height, :width]).mean() < 6


def test_no_line_is_dropped_in_silence():
    with pytest.raises(ValueError, match="at most 4 lines apart, got 5"):
        plots.plot_lines([1, 2], {name: [1, 2] for name in "abcde"}, xlabel="x", ylabel="y")
