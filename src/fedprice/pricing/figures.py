"""Figures of outcomes, drawn with matplotlib (extra `plot`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.plots import COLORS, MARKERS, new_figure
from fedprice.pricing.display import money, number, percent
from fedprice.pricing.outcome import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from matplotlib.figure import Figure

    from fedprice.pricing.outcome import Outcome

__all__ = ["draw_comparison", "draw_frontier", "draw_outcome"]

MOST_POINTS = 4000


def draw_outcome(outcome: Outcome, currency: str = "", *, alpha_known: bool = True) -> Figure:
    """Draw an outcome: price over value with the sign threshold, level over impact.

    `currency` is the label of money. Where α is not known, impacts are in units of it.
    """
    figure, (left, right) = new_figure(2)
    clients, shown = outcome.game.clients, _shown(len(outcome.levels))
    pays = outcome.prices[shown] < 0
    for who, color, name in ((~pays, COLORS[0], "is paid"), (pays, COLORS[5], "pays")):
        rows = shown[who]
        if rows.size:
            style: dict[str, Any] = {"s": 22, "color": color, "alpha": 0.75, "linewidths": 0}
            left.scatter(clients.value[rows], outcome.prices[rows], label=name, **style)
            right.scatter(outcome.game.impact[rows], outcome.levels[rows], **style)
    left.axhline(0, color="0.4", linewidth=0.8)
    if np.isfinite(outcome.sign_threshold) and clients.value.max() > outcome.sign_threshold / 2:
        left.axvline(outcome.sign_threshold, color="0.4", linewidth=0.8, linestyle="--")
        text = f" sign threshold\n {number(outcome.sign_threshold)}"
        left.text(
            outcome.sign_threshold, 0.98, text, va="top", transform=left.get_xaxis_transform()
        )
    label = currency.replace("$", r"\$")  # which would begin a formula
    left.set(xlabel="value", ylabel=f"price ({label})" if label else "price")
    left.legend(frameon=False)
    right.set(
        xlabel="impact" if alpha_known else "impact (· α)",
        ylabel="level",
        xscale="log",
        ylim=(0, 1.04),
    )
    figure.suptitle(
        f"{outcome.scheme}: {number(len(outcome.levels))} clients, spend "
        f"{money(outcome.spend, label)}, distance to full participation {percent(outcome.distance)}"
        f"{_sampled(shown, outcome)}",
        fontsize="medium",
    )
    return figure


def draw_comparison(outcomes: Sequence[Outcome]) -> Figure:
    """Draw schemes side by side: distance to full participation, then level and payment."""
    from matplotlib.ticker import MaxNLocator

    figure, (distance, level, payment) = new_figure(3, widths=(0.7, 1, 1))
    names = [outcome.scheme for outcome in outcomes]
    known = [100 * o.distance for o in outcomes if o.status is not Status.INFEASIBLE]
    top = 1.12 * max(known, default=1.0) or 1.0
    for position, outcome in enumerate(outcomes):
        infeasible = outcome.status is Status.INFEASIBLE
        bar = distance.bar(
            position,
            top if infeasible else 100 * outcome.distance,
            color="none" if infeasible else _color(position),
            edgecolor=_color(position),
            hatch="//" if infeasible else None,
            width=0.6,
        )
        text = "infeasible" if infeasible else percent(outcome.distance)
        distance.bar_label(bar, [text], padding=2)
    few = len(names) < 4
    distance.set_xticks(
        range(len(names)), names, rotation=0 if few else 45, ha="center" if few else "right"
    )
    ends = (0, top * (1 if len(known) == len(names) else 1.12))
    distance.set(title="distance to full participation (%)", ylim=ends)
    distance.grid(visible=False, axis="x")

    order = np.argsort(-outcomes[0].game.impact, kind="stable")
    shown = _shown(order.size)
    for number_, outcome in enumerate(outcomes):
        if outcome.status is Status.INFEASIBLE:
            continue
        color, marker = _color(number_), MARKERS[number_ % len(MARKERS)]
        for axis, column in ((level, outcome.levels), (payment, outcome.payments)):
            axis.plot(
                shown + 1,
                column[order[shown]],
                linestyle="none",
                marker=marker,
                markersize=4,
                color=color,
                alpha=0.8,
                label=outcome.scheme,
            )
    level.set(title="level", xlabel="client, by falling impact", ylim=(0, 1.04))
    payment.axhline(0, color="0.4", linewidth=0.8)
    payment.set(title="payment (below 0: the client pays)", xlabel="client, by falling impact")
    payment.legend(frameon=False, fontsize="small")
    for axis in (level, payment):
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(
        f"{number(order.size)} clients under a budget of {number(outcomes[0].game.budget)}"
        f"{_sampled(shown, outcomes[0])}",
        fontsize="medium",
    )
    return figure


def draw_frontier(outcomes: Sequence[Outcome]) -> Figure:
    """Draw the distance to full participation and the number of payers over the budget."""
    from matplotlib.ticker import MaxNLocator

    figure, (distance, payers) = new_figure(2)
    budgets = np.array([outcome.game.budget for outcome in outcomes])
    left = np.array([100 * outcome.distance for outcome in outcomes])
    known = np.array([outcome.status is not Status.INFEASIBLE for outcome in outcomes])
    distance.plot(budgets[known], left[known], color=COLORS[0], marker=".")
    distance.set(xlabel="budget", ylabel="distance to full participation (%)", ylim=(0, None))
    counts = [outcome.payers for outcome in outcomes]
    payers.step(budgets[known], np.array(counts)[known], color=COLORS[5], where="mid")
    most = max([*counts, 1])
    payers.set(xlabel="budget", ylabel="clients that pay", ylim=(-0.03 * most, 1.08 * most))
    payers.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(
        f"{number(len(outcomes[0].levels))} clients: what each budget buys", fontsize="medium"
    )
    return figure


def _color(position: int) -> str:
    return COLORS[position % len(COLORS)]


def _shown(count: int) -> npt.NDArray[np.intp]:
    """Return the rows to draw: all of them, or as many as can be distinguished."""
    return np.arange(0, count, max(1, -(-count // MOST_POINTS)))


def _sampled(shown: npt.NDArray[np.intp], outcome: Outcome) -> str:
    count = len(outcome.levels)
    return "" if shown.size == count else f" ({number(shown.size)} of them drawn)"
