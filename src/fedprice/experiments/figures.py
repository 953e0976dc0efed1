"""The figures of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.experiments.beyond import MECHANISMS, bound_points
from fedprice.experiments.measures import POINTS, on_grid
from fedprice.experiments.results import Result, basis, title_of
from fedprice.experiments.tables import timed
from fedprice.plots import COLORS, MARKERS, new_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedprice.experiments.cells import Curve


__all__ = ["Drawing", "all_figures"]

STRIDE = 4  # every fourth point of the grid is drawn
SWEEP_FIGURES = {"setup1": ("5", "v̄"), "setup2": ("6", "c̄"), "setup3": ("7", "B")}


class Drawing(NamedTuple):
    """A figure of the report: its file name, heading, picture, what to know, and on what runs."""

    key: str
    title: str
    figure: Figure
    note: str
    basis: str


def all_figures(results: Sequence[Result]) -> list[Drawing]:
    """Draw every figure, the paper's first."""
    drawings = [curves_figure(result) for result in results]
    drawings += [sweep_figure(result) for result in results]
    drawings += [bias_figure(result) for result in results]
    drawings += [bound_figure(result) for result in results if result.study.compares_bound]
    return drawings


def curves_figure(result: Result) -> Drawing:
    """Draw Figure 4: loss and accuracy over simulated time, with bands."""
    figure, axes = new_figure(2)
    for axis, what in zip(axes, ("loss", "accuracy"), strict=True):
        for i, (name, runs) in enumerate(result.schemes.items()):
            _band(axis, runs, what, result.end, i, title_of(name))
        target = timed(result, what).target
        axis.axhline(target, color="0.5", linewidth=0.8, linestyle="--")
        axis.annotate(
            f"target {target:.3g}", (1, target), xycoords=("axes fraction", "data"),
            xytext=(-2, 3), textcoords="offset points", ha="right", fontsize="small", color="0.5",
        )  # fmt: skip
        axis.set(
            xlabel="simulated time, s", ylabel=f"{'global' if what == 'loss' else 'test'} {what}"
        )
        _zoom(axis, what)
    axes[0].legend(frameon=False, fontsize="small")
    parts = {"setup1": "a, b", "setup2": "c, d", "setup3": "e, f"}[result.name]
    return Drawing(
        f"fig-4-{result.name}",
        f"Figure 4 {parts}: {result.title}, {result.study.federation.name}",
        figure,
        f"Mean of {len(result.curves['uniform'])} runs and the band of one standard deviation. The "
        "dashed line is the target of Tables II and III.",
        basis(result.study.settings),
    )


def sweep_figure(result: Result) -> Drawing:
    """Draw Figure 5, 6 or 7: what the mean value, the mean cost or the budget changes."""
    number, symbol = SWEEP_FIGURES[result.name]
    end = result.sweep_end
    figure, axes = new_figure(3)
    for axis, kind in zip(axes, ("loss", "accuracy"), strict=False):
        for i, (value, runs) in enumerate(result.sweep.items()):
            _band(axis, runs, kind, end, i, f"{symbol} = {value:,}")
        axis.set(
            xlabel="simulated time, s", ylabel=f"{'global' if kind == 'loss' else 'test'} {kind}"
        )
        _zoom(axis, kind)
    times = np.linspace(0, end, POINTS)
    for i, runs in enumerate(result.sweep.values()):
        spread = on_grid(runs, "loss", end).std(axis=0, ddof=1)
        axes[2].plot(times[5::STRIDE], spread[5::STRIDE], color=COLORS[i])
    axes[2].set(xlabel="simulated time, s", ylabel="std of the loss over seeds", yscale="log")
    axes[0].legend(frameon=False, fontsize="small")
    printed = "" if result.name == "setup1" else " The paper does not print the values it varied."
    return Drawing(
        f"fig-{number}",
        f"Figure {number}: impact of {symbol}, {result.title}",
        figure,
        f"The proposed scheme under three values of {symbol}; mean and one standard deviation of "
        f"{len(result.curves['uniform'])} runs.{printed}",
        basis(result.study.settings, rounds=int(next(iter(result.sweep.values()))[0].rounds[-1])),
    )


def bias_figure(result: Result) -> Drawing:
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
        "Over rounds, since full participation takes longer ones. Means over seeds.",
        basis(result.study.settings, result.study.settings.bias_seeds),
    )


def bound_figure(result: Result) -> Drawing:
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


def _band(axis: Axes, runs: Sequence[Curve], what: str, end: float, i: int, name: str) -> None:
    values = on_grid(runs, what, end)[:, ::STRIDE]
    times = np.linspace(0, end, POINTS)[::STRIDE]
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    color = COLORS[i % len(COLORS)]
    marks = range((i + 1) * times.size // 20, times.size, times.size // 5)
    axis.plot(times, mean, color=color, marker=MARKERS[i % len(MARKERS)], markevery=marks,
              markersize=4, label=name)  # fmt: skip
    axis.fill_between(times, mean - spread, mean + spread, color=color, alpha=0.18, linewidth=0)


def _zoom(axis: Axes, what: str) -> None:
    """Leave out the first steps, beside which nothing else could be seen."""
    lines = [np.asarray(line.get_ydata(), float) for line in axis.get_lines()]
    curves = [line[np.isfinite(line)] for line in lines if line.size > 2]
    skipped = np.concatenate([line[len(line) // 25 :] for line in curves])
    low, high = float(skipped.min()), float(skipped.max())
    margin = 0.08 * (high - low) or 0.01
    axis.set_ylim(low - margin, high + margin)
