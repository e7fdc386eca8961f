"""pytest plugin (-p tests.nbval_figures): what `--nbval` leaves out.

nbval skips image/png, so a changed plot passes; and a cell stored without outputs and execution count is run
but compared with nothing, so a notebook stripped of all outputs passes.

Figures. On the pinned versions an unchanged figure is equal byte for byte; elsewhere, and when a number moves
in its last bit, text edges and the snapping of a line to whole pixels may change. A mean over the picture
forgives that, but it also forgives a small change that means something: two weights of a 5 x 5 map. So both
pictures are blurred, which spreads a shifted edge thin while a cell or a digit stays visible, and then the
largest difference anywhere counts.

Cells tagged `measured` depend on the machine: of their figures only the number and the words are compared
(the words are text/plain, which nbval compares).
"""
import base64
import io

from nbval.plugin import IPyNbCell
from PIL import Image, ImageChops, ImageFilter

BLUR = 6    # pixels, about the size of a digit
LIMIT = 2   # of 255; two weights .1 apart swapped in a 5 x 5 map: 20 or more


def pictures(outputs):
    return [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]


def blurred(png):
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    return image.filter(ImageFilter.GaussianBlur(BLUR))


def difference(stored, computed):
    """Largest difference of the blurred pictures, 0 to 255; 255 when their sizes differ."""
    stored, computed = blurred(stored), blurred(computed)
    if stored.size != computed.size:
        return 255
    return max(high for low, high in ImageChops.difference(stored, computed).getextrema())


def figure_problem(stored, computed, measured):
    """What is wrong with the computed pictures, in one line, or None."""
    if len(stored) != len(computed):
        return f"{len(stored)} figures stored, {len(computed)} computed"
    if measured:
        return None
    for number, (old, new) in enumerate(zip(stored, computed, strict=True), start=1):
        if old != new and (size := difference(old, new)) > LIMIT:
            return f"figure {number} changed: {size} of 255 at one place, {LIMIT} allowed"
    return None


compare_text, run_cell = IPyNbCell.compare_outputs, IPyNbCell.runtest


def compare_outputs(self, test, ref, skip_compare=None):
    if not compare_text(self, test, ref, skip_compare):
        return False
    problem = figure_problem(pictures(ref), pictures(test), "measured" in self.cell.metadata.get("tags", []))
    if problem:
        self.comparison_traceback.append(problem)
    return problem is None


def runtest(self):
    run_cell(self)      # first, so that the cells below have their names
    if self.cell.execution_count is None:
        self.raise_cell_error("stored without having been run: nothing to compare with; use make notebooks")


IPyNbCell.compare_outputs, IPyNbCell.runtest = compare_outputs, runtest
