"""The checks of tests/ways/colab.py can fail. (make test-colab runs them on Colab's versions.)"""
import asyncio
import sys

import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

from tests.ways import colab
from tools import links

HOME = links.Home("ada/heads", "v1.0.0")
COURSE = "mha_lib @ git+https://github.com/ada/heads@abc123"


def test_the_course_alone_may_be_added():
    colab.only_the_course({"numpy==2.0.2"}, {"numpy==2.0.2", COURSE}, HOME, "abc123")


@pytest.mark.parametrize(("after", "named"), [
    ({"numpy==2.4.6", COURSE}, "removed: ['numpy==2.0.2']"),
    ({"numpy==2.0.2", "wheel==1.0", COURSE}, "'wheel==1.0'"),
    ({"numpy==2.0.2"}, "added: []"),
    ({"numpy==2.0.2", "mha_lib @ git+https://github.com/ada/heads@def456"}, "def456"),
    ({"numpy==2.0.2", "mha_lib==1.0.0"}, "mha_lib==1.0.0"),
], ids=["another numpy", "one more package", "nothing", "another commit", "from elsewhere"])
def test_any_other_change_of_the_packages_is_told(after, named):
    with pytest.raises(colab.Fault) as error:
        colab.only_the_course({"numpy==2.0.2"}, after, HOME, "abc123")
    assert named in str(error.value)


@pytest.mark.parametrize(("state", "moved"), [
    ({"value": 2.0, "min": 0.0, "max": 4.0}, {"value": 4.0}),
    ({"value": 4, "min": 0, "max": 4}, {"value": 0}),
    ({"value": False}, {"value": True}),
    ({"index": 0, "_options_labels": ["a", "b", "c"]}, {"index": 2}),
    ({"index": 1, "_options_labels": ["a", "b", "c"]}, {"index": 0}),
])
def test_every_control_moves_to_another_place(state, moved):
    assert colab.elsewhere(state) == moved


SLIDER = """
import sys
from ipywidgets import IntSlider
from mha_lib.plots import Picture, explore, plot_weights

assert "google.colab" in sys.modules

def render(x):
    picture = plot_weights([[1 - x / 10, x / 10]], ["a"], ["b", "c"])
    return {result}

{call}(render, "watch", x=IntSlider(value=3, min=0, max=10, description="how much"))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    colab.kernel(tmp_path, "as-on-colab", sys.executable, {})
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))

    def run(source):
        asyncio.run(colab.run(new_notebook(cells=[new_code_cell(source, id="the-cell")]), tmp_path, "as-on-colab"))
    return run


def test_a_slider_that_works_passes(run):
    run(SLIDER.format(result="picture", call="explore"))


@pytest.mark.parametrize(("result", "call", "said"), [
    ("picture", "(lambda *_, **controls: explore)", "the-cell: the slider is not displayed"),
    ("Picture(picture.figure, 'always so')", "explore", "the-cell: the words stayed when the slider 'how much' moved"),
    ("Picture(plot_weights([[1, 0]], ['a'], ['b', 'c']).figure, str(x))", "explore", "the picture stayed"),
    ("1 / (x - 10) and picture", "explore", "ZeroDivisionError"),
], ids=["not displayed", "same words", "same picture", "error"])
def test_a_slider_that_does_not_is_told(run, result, call, said):
    source = SLIDER.format(result=result, call=call) + "# explore("
    with pytest.raises(colab.Fault) as error:
        run(source)
    assert said in str(error.value)


def test_a_cell_that_asks_for_what_is_not_there_is_told(run):
    with pytest.raises(CellExecutionError, match="No module named 'left_out_on_colab'"):
        run("import left_out_on_colab")
