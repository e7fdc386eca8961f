"""Draw the figure at the top of README.md: three heads of the running example -> docs/three_heads.png.

    python tools/readme_figure.py
"""
import pathlib

from mha_lib.numpy_attention import multi_head_attention
from mha_lib.plots import plot_weights
from mha_lib.projections import running_example

FILE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "three_heads.png"


def draw():
    words, X, projections = running_example()
    weights = multi_head_attention(X, projections, h=3).weights
    return plot_weights(weights, words, words, ["0: agreement", "1: reference", "2: the word before"])


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    draw().figure.savefig(FILE, dpi=100, metadata={"Software": None})
    print("wrote", FILE.name)
