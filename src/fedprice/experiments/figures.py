"""The figures of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.experiments.beyond import MECHANISMS, bound_points
from fedprice.experiments.measures import LEAST_SEEDS, POINTS, interval_of_mean, on_grid
from fedprice.experiments.results import Result, basis, spread, title_of
from fedprice.experiments.settings import PAPER_SCHEMES, PUBLISHED_SCHEMES
from fedprice.plots import COLORS, MARKERS, new_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedprice.arrays import FloatArray
    from fedprice.experiments.cells import Curve


__all__ = ["Drawing", "leading_figures", "other_figures"]

STRIDE = 4  # every fourth point of the grid is drawn
SWEEP_FIGURES = {"setup1": ("5", "v̄"), "setup2": ("6", "c̄"), "setup3": ("7", "B")}
SYMBOLS = {"v̄": "clients' mean value", "c̄": "clients' mean cost", "B": "budget"}
PARTS = {"setup1": "a, b", "setup2": "c, d", "setup3": "e, f"}


class Drawing(NamedTuple):
    """A figure of the report: its file name, heading, picture, what to know, and on what runs."""

    key: str
    title: str
    figure: Figure
    note: str
    basis: str


def leading_figures(results: Sequence[Result]) -> list[Drawing]:
    """Draw what comes first: prices and payments, then Figure 4 as differences and as curves."""
    draw = (prices_figure, differences_figure, curves_figure)
    return [figure(result) for figure in draw for result in results]


def other_figures(results: Sequence[Result]) -> list[Drawing]:
    """Draw the rest, the paper's first."""
    drawings = [sweep_figure(result) for result in results]
    drawings += [bias_figure(result) for result in results]
    drawings += [bound_figure(result) for result in results if result.study.compares_bound]
    return drawings


def prices_figure(result: Result) -> Drawing:
    """Draw the price and the payment of each client under the paper's schemes."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(2)
    outcomes = result.study.outcomes
    order = np.argsort(-outcomes["equilibrium"].game.impact, kind="stable")
    for axis in axes:
        axis.set_yscale("symlog", linthresh=1)  # a few clients get nearly everything
        axis.yaxis.set_major_formatter("{x:,g}")
    for i, name in enumerate(PAPER_SCHEMES):
        outcome = outcomes[name]
        for axis, values in zip(axes, (outcome.prices, outcome.payments), strict=True):
            axis.plot(
                1 + np.arange(order.size), values[order], linestyle="none", marker=MARKERS[i],
                markersize=4, color=COLORS[i], alpha=0.85, label=name,
            )  # fmt: skip
    for axis, words in zip(axes, ("price per unit of level", "payment"), strict=True):
        axis.axhline(0, color="0.4", linewidth=0.8)
        axis.set(xlabel="client, by falling impact on the bound", ylabel=words)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].legend(frameon=False, fontsize="small")
    payers = ", ".join(f"{name} {outcomes[name].payers}" for name in PAPER_SCHEMES)
    return Drawing(
        f"fig-prices-{result.name}",
        f"Prices and payments: {result.title}",
        figure,
        "A client's level is the probability that it joins a round; its payment is its price times "
        f"its level, and below 0 the client pays. Each scheme spends {result.study.setup.budget:,g}"
        f" in total. Clients that pay: {payers}.",
        "no training",
    )


def differences_figure(result: Result) -> Drawing:
    """Draw Figure 4 as differences to uniform pricing, with bands of intervals."""
    figure, axes = new_figure(2)
    times = np.linspace(0, result.end, POINTS)[::STRIDE]
    for axis, what in zip(axes, ("loss", "accuracy"), strict=True):
        for i, name in enumerate(_compared(result)):
            if name == "uniform":
                axis.axhline(0, color=COLORS[i], linewidth=1.2, label="uniform")
                continue
            count = result.seeds(name, "uniform")
            own, uniform = (
                on_grid(result.curves[n][:count], what, result.end)[:, ::STRIDE]
                for n in (name, "uniform")
            )
            _line(axis, times, (own - uniform).mean(axis=0), i, title_of(name))
            if count >= LEAST_SEEDS:
                low, high = interval_of_mean(own - uniform, result.error(name, "uniform"))
                axis.fill_between(times, low, high, color=COLORS[i % len(COLORS)], alpha=0.18,
                                  linewidth=0)  # fmt: skip
        words = f"{'global' if what == 'loss' else 'test'} {what} minus that of uniform"
        axis.set(xlabel="simulated time, s", ylabel=words)
        _zoom(axis)
    axes[0].legend(frameon=False, fontsize="small")
    return Drawing(
        f"fig-4-{result.name}",
        f"Figure 4 {PARTS[result.name]} as differences to uniform: {result.title}",
        figure,
        "Mean differences over seeds with the same coins and batches; the band is the interval of "
        "the mean at each time. Below 0 a loss is better than that of uniform pricing, above 0 an "
        "accuracy.",
        basis(result.study.settings),
    )


def curves_figure(result: Result) -> Drawing:
    """Draw Figure 4: loss and accuracy over simulated time, with bands."""
    figure, axes = new_figure(2)
    for axis, what in zip(axes, ("loss", "accuracy"), strict=True):
        for i, name in enumerate(_compared(result)):
            _band(axis, result.curves[name], what, result.end, i, title_of(name))
        target = result.timed(what).target
        axis.axhline(target, color="0.5", linewidth=0.8, linestyle="--")
        axis.annotate(
            f"target {target:.3g}", (1, target), xycoords=("axes fraction", "data"),
            xytext=(-2, 3), textcoords="offset points", ha="right", fontsize="small", color="0.5",
        )  # fmt: skip
        axis.set(
            xlabel="simulated time, s", ylabel=f"{'global' if what == 'loss' else 'test'} {what}"
        )
        _zoom(axis)
    axes[0].legend(frameon=False, fontsize="small")
    return Drawing(
        f"fig-4-curves-{result.name}",
        f"Figure 4 {PARTS[result.name]}: {result.title}, {result.study.federation.name}",
        figure,
        "Means over seeds, and bands of one standard deviation to either side. The dashed line is "
        "the target of Tables II and III.",
        basis(result.study.settings),
    )


def _compared(result: Result) -> list[str]:
    """Return the schemes that Figure 4 shows.

    Beside the baselines as published, the others could not be told apart.
    """
    return [name for name in result.schemes if name not in PUBLISHED_SCHEMES]


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
        _zoom(axis)
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
    mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
    _line(axis, times, mean, i, name)
    axis.fill_between(times, mean - deviation, mean + deviation, color=COLORS[i % len(COLORS)],
                      alpha=0.18, linewidth=0)  # fmt: skip


def _line(axis: Axes, times: FloatArray, values: FloatArray, i: int, name: str) -> None:
    marks = range((i + 1) * times.size // 20, times.size, times.size // 5)
    axis.plot(times, values, color=COLORS[i % len(COLORS)], marker=MARKERS[i % len(MARKERS)],
              markevery=marks, markersize=4, label=name)  # fmt: skip


def _zoom(axis: Axes) -> None:
    """Leave out the first steps, beside which nothing else could be seen."""
    lines = [np.asarray(line.get_ydata(), float) for line in axis.get_lines()]
    curves = [line[np.isfinite(line)] for line in lines if line.size > 2]
    skipped = np.concatenate([line[len(line) // 25 :] for line in curves])
    low, high = float(skipped.min()), float(skipped.max())
    margin = 0.08 * (high - low) or 0.01
    axis.set_ylim(low - margin, high + margin)
