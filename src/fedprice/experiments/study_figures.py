"""The figures that every study has: prices and payments, and training."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice._plumbing.plots import COLORS, MARKERS, new_figure
from fedprice.experiments.measures import LEAST_SEEDS, POINTS, interval_of_mean, on_grid
from fedprice.experiments.results import Result, basis, title_of
from fedprice.experiments.study import FULL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.experiments.cells import Curve


__all__ = ["STRIDE", "Drawing", "curves_figure", "differences_figure", "draw_band",
           "legend_below", "prices_figure", "zoom"]  # fmt: skip

STRIDE = 4  # every fourth point of the grid is drawn


class Drawing(NamedTuple):
    """A figure of the report: its file name, heading, picture, note, and the runs behind it."""

    key: str
    title: str
    figure: Figure
    note: str
    basis: str


def prices_figure(result: Result) -> Drawing:
    """Draw the price and the payment of each client under each scheme."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(2)
    outcomes = result.study.outcomes
    order = np.argsort(-result.study.priced.impact, kind="stable")
    for axis in axes:
        axis.set_yscale("symlog", linthresh=1)  # a few clients get nearly everything
        axis.yaxis.set_major_formatter("{x:,g}")
    for i, name in enumerate(result.compared):
        outcome = outcomes[name]
        for axis, values in zip(axes, (outcome.prices, outcome.payments), strict=True):
            axis.plot(
                1 + np.arange(order.size), values[order], linestyle="none",
                marker=MARKERS[i % len(MARKERS)], markersize=4, color=COLORS[i % len(COLORS)],
                alpha=0.85, label=title_of(name),
            )  # fmt: skip
    for axis, words in zip(axes, ("price per unit of level", "payment"), strict=True):
        axis.axhline(0, color="0.4", linewidth=0.8)
        axis.set(xlabel="client, by falling impact on the bound", ylabel=words)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axes)
    return Drawing(
        f"fig-prices-{result.name}",
        f"Prices and payments: {result.title}",
        figure,
        f"What each client is offered and paid within a budget of {result.study.priced.budget:,g}; "
        "below 0 the client pays.",
        "no training",
    )


def differences_figure(
    result: Result, title: str = "Training", key: str = "differences"
) -> Drawing:
    """Draw loss and accuracy as differences from the reference, with bands of intervals."""
    figure, axes = new_figure(len(result.measures))
    reference = result.study.reference
    times = np.linspace(0, result.end, POINTS)[::STRIDE]
    for axis, what in zip(axes, result.measures, strict=True):
        grids = {
            name: on_grid(result.curves[name], what, result.end)[:, ::STRIDE]
            for name in (*result.compared, *_everybody(result))
        }
        for i, name in enumerate(result.compared):
            if name == reference:
                axis.axhline(0, color=COLORS[i % len(COLORS)], linewidth=1.2, label=title_of(name))
                continue
            count = result.seeds(name, reference)
            ahead = grids[name][:count] - grids[reference][:count]
            draw_line(axis, times, ahead.mean(axis=0), i, title_of(name))
            if count >= LEAST_SEEDS:
                low, high = interval_of_mean(ahead, result.error(name, reference))
                axis.fill_between(times, low, high, color=COLORS[i % len(COLORS)], alpha=0.18,
                                  linewidth=0)  # fmt: skip
        for name in _everybody(result):
            count = result.seeds(name, reference)
            draw_everybody(axis, times, (grids[name][:count] - grids[reference][:count]))
        words = f"{'global' if what == 'loss' else 'test'} {what} minus that of {reference}"
        axis.set(xlabel=result.study.time_label, ylabel=words)
        zoom(axis)
    legend_below(figure, axes)
    return Drawing(
        f"fig-{key}-{result.name}",
        f"{title} as differences from {reference}: {result.title}",
        figure,
        "Mean differences between runs of the same seed, with their intervals: better is below 0 "
        "for a loss and above 0 for an accuracy.",
        basis(result.study.settings),
    )


def curves_figure(result: Result, title: str = "Training", key: str = "training") -> Drawing:
    """Draw loss and accuracy over time, with bands."""
    figure, axes = new_figure(len(result.measures))
    times = np.linspace(0, result.end, POINTS)[::STRIDE]
    for axis, what in zip(axes, result.measures, strict=True):
        for i, name in enumerate(result.compared):
            draw_band(axis, result.curves[name], what, result.end, i, title_of(name))
        for name in _everybody(result):
            values = on_grid(result.curves[name], what, result.end)[:, ::STRIDE]
            draw_everybody(axis, times, values)
        target = result.timed(what).target
        axis.axhline(target, color="0.5", linewidth=0.8, linestyle="--")
        axis.annotate(
            f"target\n{target:.3g}", (1, target), xycoords=("axes fraction", "data"),
            xytext=(4, 0), textcoords="offset points", va="center", fontsize="small", color="0.5",
        )  # fmt: skip
        axis.set(
            xlabel=result.study.time_label,
            ylabel=f"{'global' if what == 'loss' else 'test'} {what}",
        )
        zoom(axis)
    legend_below(figure, axes)
    return Drawing(
        f"fig-{key}-{result.name}",
        f"{title}: {result.title}",
        figure,
        "Means over seeds, with bands of one standard deviation; the dashed line is the target.",
        basis(result.study.settings),
    )


def _everybody(result: Result) -> tuple[str, ...]:
    """Return the runs of full participation, where they were trained beside the schemes."""
    return (FULL,) if FULL in result.curves and FULL not in result.compared else ()


def draw_everybody(axis: Axes, times: FloatArray, values: FloatArray) -> None:
    """Draw the mean of runs, shape (runs, times), in which everybody joins."""
    axis.plot(times, values.mean(axis=0), color="0.35", linestyle=":", linewidth=1.8,
              label="everybody joins")  # fmt: skip


def legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend for all panels below them, where it hides no line."""
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False,
        fontsize="small",
    )  # fmt: skip
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // 4))


def draw_band(axis: Axes, runs: Sequence[Curve], what: str, end: float, i: int, name: str) -> None:
    """Draw the mean over runs, with a band of one standard deviation to either side."""
    values = on_grid(runs, what, end)[:, ::STRIDE]
    times = np.linspace(0, end, POINTS)[::STRIDE]
    mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
    draw_line(axis, times, mean, i, name)
    axis.fill_between(times, mean - deviation, mean + deviation, color=COLORS[i % len(COLORS)],
                      alpha=0.18, linewidth=0)  # fmt: skip


def draw_line(axis: Axes, times: FloatArray, values: FloatArray, i: int, name: str) -> None:
    marks = range((i + 1) * times.size // 20, times.size, times.size // 5)
    axis.plot(times, values, color=COLORS[i % len(COLORS)], marker=MARKERS[i % len(MARKERS)],
              markevery=marks, markersize=4, label=name)  # fmt: skip


def zoom(axis: Axes) -> None:
    """Leave out the first tenth, whose large losses would hide everything else."""
    lines = [np.asarray(line.get_ydata(), float) for line in axis.get_lines()]
    curves = [line[np.isfinite(line)] for line in lines if line.size > 2]
    skipped = np.concatenate([line[len(line) // 10 :] for line in curves])
    low, high = float(skipped.min()), float(skipped.max())
    margin = 0.08 * (high - low) or 0.01
    axis.set_ylim(low - margin, high + margin)
