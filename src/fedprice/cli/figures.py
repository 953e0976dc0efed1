"""The figure of a federation, drawn with matplotlib (extra `plot`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice._plumbing.plots import new_figure

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.figure import Figure

__all__ = ["draw_federation"]


def draw_federation(name: str, counts: npt.NDArray[np.int64]) -> Figure:
    """Draw the samples of each client, stacked by class, the largest client first."""
    figure, (axis,) = new_figure(1)
    from matplotlib import colormaps

    figure.set_size_inches(8, 3.6)
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    bottom = np.zeros(len(counts))
    hues = np.linspace(0, 1, counts.shape[1], endpoint=False)
    for c, hue in enumerate(hues):
        own = counts[order, c]
        axis.bar(np.arange(1, len(counts) + 1), own, bottom=bottom, color=colormaps["turbo"](hue))
        bottom += own
    axis.set(xlabel="client, by falling size", ylabel="samples (one colour per class)")
    figure.suptitle(name, fontsize="medium")
    return figure
