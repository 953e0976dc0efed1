"""Charts of posted offers: prices, levels, tariffs, and why a price is what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.plots import ON_SCREEN as COLORS
from fedprice.beliefs.figures import hull_of, level_spread
from fedprice.web.chart_parts import GREY, MOST_POINTS, axis, line, over_impact, pairs, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.beliefs.figures import Hull
    from fedprice.beliefs.posted import Posted

__all__ = [
    "colors_of",
    "hull_chart",
    "level_chart",
    "marginal_chart",
    "offer_charts",
    "payment_chart",
    "price_chart",
    "some_clients",
    "thinned",
    "worth_chart",
]

SHOWN = (1.0, 0.75, 0.5, 0.0)  # quantiles of impact: the clients whose tariffs are drawn at first
MOST_TYPED = 8  # blocks up to which the answers of all types are computed


def offer_charts(posted: Posted, chosen: Sequence[str], one: str) -> dict[str, dict[str, Any]]:
    """Return all charts of an offer by name, including those of one client's hull if it has one.

    Parameters
    ----------
    posted
        The posted offers.
    chosen
        The clients whose tariffs are drawn.
    one
        The client whose hull is drawn, or "".
    """
    found = {
        "price": price_chart(posted, chosen),
        "level": level_chart(posted, chosen),
        "payment": payment_chart(posted, chosen),
        "marginal": marginal_chart(posted, chosen),
    }
    row = np.flatnonzero(posted.clients.ids == one)
    if posted.form == "price" and not posted.separate and (posted.impact[row] > 0).any():
        hull = hull_of(posted, one)
        found |= {"hull": hull_chart(hull), "worth": worth_chart(hull)}
    return found


def some_clients(posted: Posted) -> list[str]:
    """Return a few clients from the largest impact to the smallest."""
    order = np.argsort(posted.impact, kind="stable")
    order = order[posted.impact[order] > 0]
    some = order[[round(share * (order.size - 1)) for share in SHOWN]]
    ids = posted.clients.ids  # computed on each access if clients are numbered
    return [str(ids[n]) for n in dict.fromkeys(some.tolist())]


def thinned(posted: Posted) -> IntArray:
    """Return the clients that charts draw: those with an impact, at most MOST_POINTS."""
    priced = np.flatnonzero(posted.impact > 0)
    return priced[:: max(1, -(-priced.size // MOST_POINTS))]


def colors_of(chosen: Sequence[str]) -> dict[str, str]:
    """Return the colour of each chosen client: the same in all charts."""
    return {name: COLORS[place % len(COLORS)] for place, name in enumerate(chosen)}


def price_chart(posted: Posted, chosen: Sequence[str]) -> dict[str, Any]:
    """Draw the price of each client over its impact; under tariffs, the expected payment."""
    rows = thinned(posted)
    one_price = posted.form == "price"
    what = posted.prices if one_price else posted.moments.spend
    series = _scatter(posted, rows, what, chosen)
    name = "price per unit of level" if one_price else "expected payment, money"
    if what[rows].min(initial=0.0) < 0:
        series["markLine"] = {
            "silent": True, "symbol": "none", "label": {"show": False},
            "lineStyle": {"color": GREY, "type": "solid"}, "data": [{"yAxis": 0}],
        }  # fmt: skip
    return over_impact(name, [series])


def level_chart(posted: Posted, chosen: Sequence[str]) -> dict[str, Any]:
    """Draw the level that each client is expected to answer with, and how far types differ."""
    rows = thinned(posted)
    series = _scatter(posted, rows, posted.moments.level, chosen)
    options = over_impact("expected level", [series])
    if posted.tariffs.ends.shape[1] <= MOST_TYPED and posted.form != "menu":
        low, high = level_spread(posted, rows)
        spans: list[list[float | None]] = []
        for x, *ends in zip(posted.impact[rows], low, high, strict=True):
            spans += [[short(x), short(end)] for end in ends]
            spans.append([short(x), None])  # one line with gaps: many lines are slow to draw
        options["series"].append(
            line(np.zeros(0), np.zeros(0), "10 % to 90 %", COLORS[4])
            | {"data": spans, "silent": True, "z": 2, "tooltip": {"show": False}}
            | {"lineStyle": {"color": COLORS[4], "width": 2, "opacity": 0.5}}
        )
    options["yAxis"] |= {"min": 0, "max": 1}
    return options


def _scatter(
    posted: Posted, rows: IntArray, what: FloatArray, chosen: Sequence[str]
) -> dict[str, Any]:
    """Return points over the impact, named after clients; those chosen stand out."""
    data = []
    colors, ids = colors_of(chosen), posted.clients.ids
    for n in rows.tolist():
        name = str(ids[n])
        point: dict[str, Any] = {"name": name, "value": [short(posted.impact[n]), short(what[n])]}
        if name in colors:
            point |= {"itemStyle": {"color": colors[name], "opacity": 1}, "symbolSize": 14}
        data.append(point)
    return {
        "type": "scatter", "data": data, "symbolSize": 8, "z": 3,
        "itemStyle": {"color": GREY if chosen else COLORS[0], "opacity": 0.8},
    }  # fmt: skip


def payment_chart(posted: Posted, chosen: Sequence[str]) -> dict[str, Any]:
    """Draw what each level is paid, for the chosen clients."""
    tariffs = posted.tariffs
    series = []
    for name, n, color in _rows(posted, chosen):
        levels, paid = tariffs.ends[n], tariffs.end_payments[n]
        if not tariffs.menu:
            levels, paid = np.append(0.0, levels), np.append(0.0, paid)
        series.append(line(levels, paid, f"client {name}", color) | {
            "showSymbol": tariffs.menu, "symbolSize": 4,
            "lineStyle": {"color": color, "width": 1 if tariffs.menu else 2,
                          "type": "dotted" if tariffs.menu else "solid"},
        })  # fmt: skip
    return _over_level("payment, money", series)


def marginal_chart(posted: Posted, chosen: Sequence[str]) -> dict[str, Any]:
    """Draw the price of one more unit of level, for the chosen clients."""
    series = []
    for name, n, color in _rows(posted, chosen):
        ends, prices = posted.tariffs.ends[n], posted.tariffs.prices[n]
        at, price = np.append(0.0, ends), np.append(prices, prices[-1])
        series.append(line(at, price, f"client {name}", color) | {"step": "end"})
    return _over_level("price of one more unit", series)


def _rows(posted: Posted, chosen: Sequence[str]) -> list[tuple[str, int, str]]:
    """Return the chosen clients that exist, with their row and colour."""
    colors = colors_of(chosen)
    place = np.flatnonzero(np.isin(posted.clients.ids, list(chosen))).tolist()
    found = dict(zip(posted.clients.ids[place].tolist(), place, strict=True))
    return [(name, found[name], colors[name]) for name in chosen if name in found]


def _over_level(name: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "grid": {"left": 62, "right": 20, "top": 14, "bottom": 44},
        "tooltip": {"trigger": "axis"},
        "xAxis": axis("level", min=0, max=1),
        "yAxis": axis(name, gap=46),
        "series": series,
    }


def hull_chart(hull: Hull) -> dict[str, Any]:
    """Draw what a client's prices cost and bring, with the lower hull of that curve."""
    inside = _inside(hull)
    spend, loss = hull.spend[inside], hull.loss[inside]
    corners = [n for n in hull.corners if inside[n]]
    series = [
        line(hull.spend[corners], hull.loss[corners], "lower hull", COLORS[1])
        | {"lineStyle": {"color": COLORS[1], "width": 6, "opacity": 0.5}},
        line(spend, loss, "one point per price", COLORS[0]),
    ]
    if hull.tangent:
        ends = np.array([spend[0], spend[-1]])
        tangent = hull.here[1] - hull.multiplier * (ends - hull.here[0])
        series.append(
            line(ends, tangent, "slope −μ, as for every client", GREY)
            | {"lineStyle": {"color": GREY, "type": "dashed", "width": 1}}
        )
    at = np.searchsorted(hull.price, hull.posted)
    series.append(_dots(hull.spend[at], hull.loss[at], _word(hull)))
    low, high = float(loss.min()), min(float(loss.max()), 3 * hull.here[1])
    return _two_lines(
        axis("expected payment, money", min=short(spend[0]), max=short(spend[-1]), clean=True),
        axis("expected loss", gap=60, min=short(0.98 * low), max=short(1.02 * high), clean=True),
        series,
    )


def worth_chart(hull: Hull) -> dict[str, Any]:
    """Draw what a client's price minimises: the expected loss plus the worth of its payment."""
    inside = _inside(hull)
    price = hull.price[inside]
    worth = (hull.loss + hull.multiplier * hull.spend)[inside]
    at = np.searchsorted(price, hull.posted)
    series = [
        line(price, worth, "expected loss + μ · expected payment", COLORS[0]),
        _dots(price[at], worth[at], _word(hull)),
    ]
    least = float(worth.min())
    most = min(float(worth.max()), 1.5 * least)
    room = 0.1 * (most - least)
    return _two_lines(
        axis("price per unit of level", min=short(price[0]), max=short(price[-1]), clean=True),
        axis("loss + μ · payment", gap=60, min=short(least - room), max=short(most), clean=True),
        series,
    )


def _inside(hull: Hull) -> Any:
    """Return which prices of a hull are drawn."""
    return (hull.price >= hull.window[0]) & (hull.price <= hull.window[1])


def _word(hull: Hull) -> str:
    return "posted" if len(hull.posted) == 1 else "randomised"


def _two_lines(
    x: dict[str, Any], y: dict[str, Any], series: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "grid": {"left": 76, "right": 20, "top": 44, "bottom": 44},
        "legend": {"top": 0, "left": 0, "icon": "roundRect", "itemHeight": 6},
        "tooltip": {"trigger": "item"},
        "xAxis": x,
        "yAxis": y,
        "series": series,
    }


def _dots(x: FloatArray, y: FloatArray, name: str) -> dict[str, Any]:
    return {
        "type": "scatter", "name": name, "data": pairs(x, y), "symbolSize": 12, "z": 5,
        "itemStyle": {"color": COLORS[5]},
    }  # fmt: skip
