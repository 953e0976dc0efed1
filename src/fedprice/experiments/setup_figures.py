"""The figures of the paper's setups: Figures 4 to 7, bias, and the bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice._plumbing.plots import COLORS, new_figure
from fedprice.experiments.beyond_tables import MECHANISMS, bound_points
from fedprice.experiments.measures import POINTS, on_grid
from fedprice.experiments.results import basis, spread
from fedprice.experiments.study_figures import (
    STRIDE,
    Drawing,
    curves_figure,
    differences_figure,
    draw_band,
    prices_figure,
    zoom,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.experiments.setup_results import SetupResult

__all__ = ["leading_figures", "other_figures"]

SWEEP_FIGURES = {"setup1": ("5", "v̄"), "setup2": ("6", "c̄"), "setup3": ("7", "B")}
SYMBOLS = {"v̄": "clients' mean value", "c̄": "clients' mean cost", "B": "budget"}
PARTS = {"setup1": "a, b", "setup2": "c, d", "setup3": "e, f"}


def leading_figures(results: Sequence[SetupResult]) -> list[Drawing]:
    """Draw what comes first: prices and payments, then Figure 4 as differences and as curves."""
    return [
        *(prices_figure(result) for result in results),
        *(differences_figure(result, f"Figure 4 {PARTS[result.name]}", "4") for result in results),
        *(
            curves_figure(result, f"Figure 4 {PARTS[result.name]}", "4-curves")
            for result in results
        ),
    ]


def other_figures(results: Sequence[SetupResult]) -> list[Drawing]:
    """Draw the other figures, those of the paper first."""
    if results[0].study.only_times:
        return []
    drawings = [sweep_figure(result) for result in results]
    drawings += [bias_figure(result) for result in results]
    drawings += [bound_figure(result) for result in results if result.study.compares_bound]
    return drawings


def sweep_figure(result: SetupResult) -> Drawing:
    """Draw Figure 5, 6 or 7: the effect of the mean value, the mean cost or the budget."""
    number, symbol = SWEEP_FIGURES[result.name]
    end = result.sweep_end
    figure, axes = new_figure(3)
    for axis, kind in zip(axes, ("loss", "accuracy"), strict=False):
        for i, (value, runs) in enumerate(result.sweep.items()):
            draw_band(axis, runs, kind, end, i, f"{symbol} = {value:,}")
        axis.set(
            xlabel="simulated time, s", ylabel=f"{'global' if kind == 'loss' else 'test'} {kind}"
        )
        zoom(axis)
    times = np.linspace(0, end, POINTS)
    for i, runs in enumerate(result.sweep.values()):
        around = spread(on_grid(runs, "loss", end).T)
        axes[2].plot(times[5::STRIDE], around[5::STRIDE], color=COLORS[i])
    axes[2].set(xlabel="simulated time, s", ylabel="spread of the loss over seeds", yscale="log")
    axes[0].legend(frameon=False, fontsize="small")
    printed = "" if result.name == "setup1" else " The paper does not print the values it varied."
    return Drawing(
        f"fig-{number}",
        f"Figure {number}: impact of {symbol}, {result.title}",
        figure,
        f"The equilibrium under three values of {symbol}, the {SYMBOLS[symbol]}: means over seeds, "
        "bands of one standard deviation to either side, and the mean absolute deviation from the "
        f"median.{printed}",
        basis(result.study.settings),
    )


def bias_figure(result: SetupResult) -> Drawing:
    """Draw how far from the optimum each mechanism gets."""
    figure, (axis,) = new_figure(1)
    figure.set_size_inches(7.4, 3.6)
    for i, (words, name) in enumerate(MECHANISMS.items()):
        runs = result.curves[name]
        loss = np.mean([curve.loss for curve in runs], axis=0) - result.study.least
        axis.plot(runs[0].rounds[1:], loss[1:], color=COLORS[i], label=words)
    axis.set(xlabel="rounds", ylabel="loss above the optimum", yscale="log")
    axis.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return Drawing(
        f"fig-bias-{result.name}",
        f"Bias: {result.title}",
        figure,
        "Drawn over rounds, since full participation has longer ones. Means over seeds.",
        basis(result.study.settings, result.study.settings.bias_seeds),
    )


def bound_figure(result: SetupResult) -> Drawing:
    """Draw predicted against measured loss over random levels."""
    figure, (axis,) = new_figure(1)
    predicted, measured = bound_points(result)
    axis.scatter(predicted, measured, s=22, color=COLORS[0], alpha=0.75, linewidths=0)
    axis.set(xlabel="loss predicted by the bound", ylabel="loss measured", xscale="log")
    return Drawing(
        "fig-bound",
        f"The bound against training: {result.title}",
        figure,
        f"{predicted.size} random vectors of levels with the same mean; the prediction is above "
        "full participation.",
        basis(result.study.settings, 2, int(result.curves["levels=0"][0].rounds[-1])),
    )
