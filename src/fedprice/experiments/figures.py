"""The figures that every study has: prices and payments, and training."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.experiments.measures import LEAST_SEEDS, POINTS, interval_of_mean, on_grid
from fedprice.experiments.results import Result, basis, title_of
from fedprice.plots import COLORS, MARKERS, new_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedprice.arrays import FloatArray
    from fedprice.experiments.cells import Curve


__all__ = ["STRIDE", "Drawing", "curves_figure", "differences_figure", "draw_band",
           "prices_figure", "zoom"]  # fmt: skip

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
    axes[0].legend(frameon=False, fontsize="small")
    payers = ", ".join(f"{name} {outcomes[name].payers}" for name in result.compared)
    return Drawing(
        f"fig-prices-{result.name}",
        f"Prices and payments: {result.title}",
        figure,
        "A client's level is the probability that it joins a round; its payment is its price times "
        f"its level, and below 0 the client pays. The budget is {result.study.priced.budget:,g}. "
        f"Clients that pay: {payers}.",
        "no training",
    )


def differences_figure(result: Result, title: str = "Training") -> Drawing:
    """Draw loss and accuracy as differences from the reference, with bands of intervals."""
    figure, axes = new_figure(len(result.measures))
    reference = result.study.reference
    times = np.linspace(0, result.end, POINTS)[::STRIDE]
    for axis, what in zip(axes, result.measures, strict=True):
        for i, name in enumerate(result.compared):
            if name == reference:
                axis.axhline(0, color=COLORS[i % len(COLORS)], linewidth=1.2, label=title_of(name))
                continue
            count = result.seeds(name, reference)
            own, others = (
                on_grid(result.curves[n][:count], what, result.end)[:, ::STRIDE]
                for n in (name, reference)
            )
            draw_line(axis, times, (own - others).mean(axis=0), i, title_of(name))
            if count >= LEAST_SEEDS:
                low, high = interval_of_mean(own - others, result.error(name, reference))
                axis.fill_between(times, low, high, color=COLORS[i % len(COLORS)], alpha=0.18,
                                  linewidth=0)  # fmt: skip
        words = f"{'global' if what == 'loss' else 'test'} {what} minus that of {reference}"
        axis.set(xlabel=result.study.time_label, ylabel=words)
        zoom(axis)
    axes[0].legend(frameon=False, fontsize="small")
    return Drawing(
        f"fig-4-{result.name}",
        f"{title} as differences from {reference}: {result.title}",
        figure,
        "Mean differences over seeds with the same coins and batches; the band is the interval of "
        "the mean at each time. Below 0 a loss is better than that of "
        f"{reference}, above 0 an accuracy.",
        basis(result.study.settings),
    )


def curves_figure(result: Result, title: str = "Training") -> Drawing:
    """Draw loss and accuracy over time, with bands."""
    figure, axes = new_figure(len(result.measures))
    for axis, what in zip(axes, result.measures, strict=True):
        for i, name in enumerate(result.compared):
            draw_band(axis, result.curves[name], what, result.end, i, title_of(name))
        target = result.timed(what).target
        axis.axhline(target, color="0.5", linewidth=0.8, linestyle="--")
        axis.annotate(
            f"target {target:.3g}", (1, target), xycoords=("axes fraction", "data"),
            xytext=(-2, 3), textcoords="offset points", ha="right", fontsize="small", color="0.5",
        )  # fmt: skip
        axis.set(
            xlabel=result.study.time_label,
            ylabel=f"{'global' if what == 'loss' else 'test'} {what}",
        )
        zoom(axis)
    axes[0].legend(frameon=False, fontsize="small")
    return Drawing(
        f"fig-4-curves-{result.name}",
        f"{title}: {result.title}",
        figure,
        "Means over seeds, and bands of one standard deviation to either side. The dashed line is "
        "the target.",
        basis(result.study.settings),
    )


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
    """Leave out the first steps, whose large losses would hide everything else."""
    lines = [np.asarray(line.get_ydata(), float) for line in axis.get_lines()]
    curves = [line[np.isfinite(line)] for line in lines if line.size > 2]
    skipped = np.concatenate([line[len(line) // 25 :] for line in curves])
    low, high = float(skipped.min()), float(skipped.max())
    margin = 0.08 * (high - low) or 0.01
    axis.set_ylim(low - margin, high + margin)
