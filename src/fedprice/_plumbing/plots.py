"""How figures look, with matplotlib (extra `plot`)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from fedprice.errors import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLORS", "MARKERS", "ON_SCREEN", "new_figure"]

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#8c510a")
# Hues that can be told apart on both light and dark pages.
ON_SCREEN = ("#1b86c8", "#d99000", "#0a9b73", "#c770a3", "#4fabe0", "#dd6a12", "#8f8f8f", "#a0682f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


def new_figure(panels: int = 1, widths: Sequence[float] | None = None) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side, without a display and without global state.

    A notebook shows it. `savefig` writes it to a file.
    """
    require("matplotlib", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        # IPython learns from pyplot how to show a figure, but pyplot is not imported here.
        def _repr_png_(self) -> bytes:
            png = io.BytesIO()
            self.savefig(png, format="png")
            return png.getvalue()

    figure = NotebookFigure(figsize=(4.4 * panels, 3.6), dpi=144, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False, width_ratios=widths)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="0.5", alpha=0.18)
        axis.set_axisbelow(True)
    return figure, list(axes)
