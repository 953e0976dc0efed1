"""Figures of posted tariffs, drawn with matplotlib (extra `plot`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice._plumbing.plots import COLORS, new_figure
from fedprice.beliefs.curves import Curves
from fedprice.beliefs.display import NAMES
from fedprice.beliefs.families import Family
from fedprice.beliefs.hulls import lower_hull
from fedprice.beliefs.price_search import Search
from fedprice.errors import InputError
from fedprice.pricing.display import count_clients, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.beliefs.posted import Information, Posted
    from fedprice.beliefs.sequential import Sequential

__all__ = [
    "Hull",
    "draw_information",
    "draw_posted",
    "draw_sequential",
    "hull_of",
    "level_spread",
]

MOST_POINTS = 400  # clients drawn
SHOWN = (1.0, 0.75, 0.5, 0.0)  # the clients whose tariffs are drawn, by quantile of the impact
QUANTILES = (0.1, 0.9)  # between which the levels of most types lie
FINE = 400  # prices at which a curve is drawn
_RATIO = ("ratio", "low", "high")
LOWEST = 0.01  # marginal prices at levels below this do not set the scale
MOST_ROWS = 40  # of a menu; with more, rows get no markers


def draw_posted(posted: Posted) -> Figure:
    """Draw what was posted: prices with levels over the impact, or the tariffs of some clients."""
    figure, (left, right) = new_figure(2)
    (_draw_prices if posted.form == "price" else _draw_tariffs)(posted, left, right)
    return _titled(figure, NAMES[posted.form], len(posted.clients), posted)


def draw_sequential(turns: Sequential) -> Figure:
    """Draw the prices of a posting in turn if spending goes as expected, with their levels."""
    figure, (left, right) = new_figure(2)
    _draw_prices(turns.posted, left, right)
    name = "sequentially posted prices, if spending goes as expected"
    return _titled(figure, name, len(turns.posted.clients), turns)


def _titled(figure: Figure, name: str, count: int, brings: Posted | Sequential) -> Figure:
    figure.suptitle(
        f"{name}: {count_clients(count)}, expected spend {number(brings.expected_spend)} ± "
        f"{number(brings.spend_std)}, expected loss {number(brings.expected_loss)}",
        fontsize="medium",
    )
    return figure


def _draw_prices(posted: Posted, left: Axes, right: Axes) -> None:
    """Draw price, and level with its spread over the types, over the impact."""
    priced = np.flatnonzero(posted.impact > 0)
    rows = priced[:: max(1, -(-priced.size // MOST_POINTS))]
    impact = posted.impact[rows]
    left.scatter(impact, posted.prices[rows], s=22, color=COLORS[0], alpha=0.75, linewidths=0)
    if posted.prices[rows].min() < 0:
        left.axhline(0, color="0.4", linewidth=0.8)
    left.set(xlabel="impact", ylabel="price per unit of level", xscale="log")
    low, high = level_spread(posted, rows)
    right.vlines(
        impact, low, high, color=COLORS[4], alpha=0.5, linewidth=1.5,
        label="from the 10 % to the 90 % quantile",
    )  # fmt: skip
    level = posted.moments.level[rows]
    right.scatter(impact, level, s=22, color=COLORS[0], linewidths=0, zorder=3, label="mean")
    floor = posted.clients.level_min[rows]
    if floor.any():
        right.scatter(
            impact, floor, s=26, color=COLORS[5], marker="_", zorder=4, label="floor (level_min)"
        )
    right.set(xlabel="impact", ylabel="level that a client chooses", xscale="log", ylim=(0, 1.24))
    right.set_yticks(np.linspace(0, 1, 6))
    right.legend(frameon=False, fontsize="small", loc="upper left", ncols=1)


def level_spread(posted: Posted, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the 10 % and 90 % quantiles of the levels over the types of some clients."""
    types, group = posted.beliefs.groups(posted.clients)
    quantiles = np.empty((2, rows.size))
    for n in np.unique(group[rows]).tolist():
        which = np.flatnonzero(group[rows] == n)
        some, believed = rows[which], types[n]
        cost = np.broadcast_to(believed.cost, (some.size, believed.cost.size))
        value_impact = believed.value * posted.impact[some, None]
        levels = posted.tariffs.of(some).best_levels(cost, value_impact, posted.cost_exponent)
        order = np.argsort(levels, axis=1)
        reached = np.cumsum(believed.weight[order], axis=1)
        for row, share in enumerate(QUANTILES):
            at = np.argmax(reached >= share - 1e-12, axis=1)
            quantiles[row, which] = np.take_along_axis(levels, order, 1)[np.arange(some.size), at]
    return quantiles[0], quantiles[1]


def _draw_tariffs(posted: Posted, left: Axes, right: Axes) -> None:
    """Draw payment and marginal price over the level, for clients of several impacts."""
    order = np.argsort(posted.impact, kind="stable")
    order = order[posted.impact[order] > 0]
    some = order[[round(share * (order.size - 1)) for share in SHOWN]]
    tariffs = posted.tariffs
    for color, n in zip(COLORS, dict.fromkeys(some.tolist()), strict=False):
        name = f"client {posted.clients.ids[n]}, impact {number(float(posted.impact[n]))}"
        ends, prices = tariffs.ends[n], tariffs.prices[n]
        paid = np.concatenate([[0.0], tariffs.end_payments[n]])
        levels = np.concatenate([[0.0], ends])
        dots = tariffs.menu and ends.size <= MOST_ROWS
        left.plot(
            levels[1:] if tariffs.menu else levels, paid[1:] if tariffs.menu else paid,
            color=color, label=name, marker="." if dots else "",
            linestyle=":" if dots else "-", linewidth=1 if dots else 1.6,
        )  # fmt: skip
        right.stairs(prices, levels, color=color, baseline=None, linewidth=1.6)
    left.set(xlabel="level", ylabel="payment", xlim=(0, 1))
    left.legend(frameon=False, fontsize="small", loc="upper left")
    # Leave room for the legend above, but none below unless a client pays.
    left.set_ylim(min(0.0, 1.05 * left.dataLim.y0), 1.38 * left.dataLim.y1)
    right.set(xlabel="level", ylabel="price of one more unit of level", xlim=(0, 1))
    # The fee for the lowest levels is small, but large per unit of level: it would hide the rest.
    shown = tariffs.prices[some][tariffs.starts[some] >= LOWEST]
    top = float(shown.max(initial=0.0)) or right.dataLim.y1
    right.set_ylim(min(0.0, 1.05 * right.dataLim.y0), 1.05 * max(top, np.finfo(float).tiny))


class Hull(NamedTuple):
    """The curve of one client with its lower hull, for prices of which some were posted.

    Attributes
    ----------
    price, spend, loss
        The prices drawn, what each is expected to cost, and the loss E[k/q] that it leaves.
    corners
        Which of them are corners of the lower hull.
    posted
        The posted price.
    here
        The expected payment and loss of what was posted.
    multiplier
        μ, the slope of the hull at the price.
    tangent
        Whether the hull has that slope there, as it does unless prices are shared or robust.
    window
        The range of prices in which the curve is worth showing.
    """

    price: FloatArray
    spend: FloatArray
    loss: FloatArray
    corners: list[int]
    posted: list[float]
    here: tuple[float, float]
    multiplier: float
    tangent: bool
    window: tuple[float, float]


def hull_of(posted: Posted, client: str) -> Hull:
    """Return the curve of one client, its lower hull, and the position of its price.

    Parameters
    ----------
    posted
        Of form "price".
    client
        The id of the client.
    """
    if posted.form != "price":
        raise InputError(f"a hull exists only for form 'price'; got {posted.form!r}.")
    named = np.flatnonzero(posted.clients.ids == client)
    if not named.size:
        raise InputError(f"there is no client {client!r}.")
    n = int(named[0])
    if not posted.impact[n] > 0:
        raise InputError(f"client {client!r} has no impact, and therefore no curve.")
    types, group = posted.beliefs.groups(posted.clients)
    impact = posted.impact[[n]]
    believed = types[int(group[n])]
    curves = Curves(believed, impact, impact, posted.clients.level_max[[n]], posted.cost_exponent)
    prices = [float(posted.prices[n])]
    price, spend, loss = _curve(curves, prices)
    corners = lower_hull(spend, loss)
    multiplier = posted.multiplier
    tangent = multiplier > 0 and posted.classes is None and posted.worst is None
    here = float(posted.moments.spend[n]), float(posted.moments.loss[n])
    window = _window(price, prices, price[corners])
    return Hull(price, spend, loss, corners, prices, here, multiplier, tangent, window)


def _curve(curves: Curves, prices: list[float]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return prices with what they cost and bring, fine around those that are posted."""
    search = Search(Family([curves], [np.zeros(1, np.int64)], [np.ones(1)], 1))
    rough = search.price[0]
    low, high = _window(rough, prices, rough[lower_hull(search.spend[0], search.loss[0])])
    price = np.unique(np.concatenate([rough, np.linspace(low, high, FINE), prices]))
    spend, loss = search.family.at(price[None])
    return price, spend[0], loss[0]


def _window(price: FloatArray, posted: list[float], corners: FloatArray) -> tuple[float, float]:
    """Return prices to draw between: around the posted ones and the hull's nearest corners."""
    low, high = min(posted), max(posted)
    before = float(corners[corners < low].max(initial=price[0]))
    after = float(corners[corners > high].min(initial=price[-1]))
    span = max(after - before, 0.75 * abs(high))
    return max(low - span, float(price[0])), min(high + span, float(price[-1]))


def draw_information(bars: Mapping[str, Information]) -> Figure:
    """Draw the expected loss of postings relative to the equilibrium that knows all types.

    Parameters
    ----------
    bars
        The value of information of each posting, by the name that it gets in the figure.
    """
    figure, (axis,) = new_figure(1)
    figure.set_size_inches(6.4, 1.3 + 0.42 * len(bars))
    informations = list(bars.values())
    place = -np.arange(len(informations))
    ratio, low, high = (np.array([getattr(x, name) for x in informations]) for name in _RATIO)
    axis.barh(place, ratio, height=0.62, color=COLORS[0], alpha=0.85)
    axis.errorbar(
        ratio, place, xerr=[ratio - low, high - ratio], fmt="none", ecolor="0.15", capsize=3
    )
    for y, end, loss in zip(place.tolist(), high.tolist(), ratio.tolist(), strict=True):
        axis.text(end + 0.02 * float(high.max()), y, f"{loss:.2f}", va="center")
    axis.axvline(1, color=COLORS[5], linewidth=1.4)
    axis.set_yticks(place, list(bars))
    axis.grid(visible=False, axis="y")
    axis.set(
        xlabel="expected loss, relative to full information (95 % interval)",
        xlim=(0, 1.14 * float(high.max())),
    )
    axis.text(
        1, 1.01, "full information", color=COLORS[5], ha="center", va="bottom", fontsize="small",
        transform=axis.get_xaxis_transform(),
    )  # fmt: skip
    figure.suptitle(
        f"what not knowing costs: {number(informations[0].draws)} draws of costs and values",
        fontsize="medium",
    )
    return figure
