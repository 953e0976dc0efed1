"""Charts of beliefs and of what is posted by them, as ECharts options."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.beliefs.figures import hull_of, level_spread
from fedprice.plots import ON_SCREEN as COLORS
from fedprice.pricing.display import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.beliefs.beliefs import Types
    from fedprice.beliefs.figures import Hull
    from fedprice.beliefs.lies import Manipulability
    from fedprice.beliefs.posted import Information, Posted
    from fedprice.beliefs.refusals import Refusals

__all__ = [
    "colors_of",
    "distribution_chart",
    "gain_chart",
    "hull_chart",
    "information_chart",
    "level_chart",
    "marginal_chart",
    "money_chart",
    "offer_charts",
    "payment_chart",
    "price_chart",
    "quantiles_of",
    "quartile_line",
    "refusal_chart",
    "some_clients",
    "thinned",
    "worth_chart",
]

MOST_POINTS = 400  # clients drawn
MOST_BARS = 40  # clients with a bar each
BINS = 30
QUARTILES = {0.25: "25 %", 0.5: "median", 0.75: "75 %"}
SHOWN = (1.0, 0.75, 0.5, 0.0)  # the clients whose tariffs are drawn at first, by impact
MOST_TYPED = 8  # blocks up to which the answers of all types are computed
GREY = "#888"


def thinned(posted: Posted) -> IntArray:
    """Return the clients that charts draw: those with an impact, at most MOST_POINTS."""
    priced = np.flatnonzero(posted.impact > 0)
    return priced[:: max(1, -(-priced.size // MOST_POINTS))]


def some_clients(posted: Posted) -> list[str]:
    """Return a few clients from the largest impact to the smallest."""
    order = np.argsort(posted.impact, kind="stable")
    order = order[posted.impact[order] > 0]
    some = order[[round(share * (order.size - 1)) for share in SHOWN]]
    ids = posted.clients.ids  # made anew each time, if clients are numbered
    return [str(ids[n]) for n in dict.fromkeys(some.tolist())]


def quantiles_of(numbers: FloatArray, weight: FloatArray, shares: Sequence[float]) -> list[float]:
    """Return quantiles of numbers with weights.

    >>> quantiles_of(np.array([3.0, 1.0, 2.0]), np.array([0.25, 0.5, 0.25]), (0.5, 0.75, 0.9))
    [1.0, 2.0, 3.0]
    """
    order = np.argsort(numbers, kind="stable")
    reached = np.cumsum(weight[order])
    at = np.searchsorted(reached, np.array(shares) - 1e-12)
    found: list[float] = numbers[order[np.minimum(at, order.size - 1)]].tolist()
    return found


def distribution_chart(
    what: str, believed: Types | None, true: FloatArray | None
) -> dict[str, Any]:
    """Draw what is believed of the cost or the value as a histogram with its quartiles.

    Parameters
    ----------
    what
        "cost" or "value".
    believed
        The types' costs, with weights (see `PostAsked.marginals`); None if nothing is believed.
    true
        What the table of clients says, shape (N,), if it has the column.
    """
    known = {}
    if believed is not None:
        known["believed"] = believed.cost, believed.weight
    if true is not None:
        known["in the table"] = true, np.full(true.size, 1 / true.size)
    if not known:
        return {"series": []}
    ends = [quantiles_of(*some, (0.0, 0.985)) for some in known.values()]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    low = 0.0 if low < 0.5 * high else low
    high = high if high > low else low + (abs(low) or 1.0)
    edges = np.linspace(low, high, BINS + 1)
    series = []
    for place, (name, (numbers, weight)) in enumerate(known.items()):
        inside = np.minimum(((numbers - low) / (high - low) * BINS).astype(np.int64), BINS)
        share = np.bincount(np.maximum(inside, 0), weight, BINS + 1)[:BINS]
        if np.any(numbers == high):  # the last bin has both of its ends
            share[-1] += weight[numbers == high].sum()
        color = (COLORS[0], COLORS[5])["table" in name]
        data = [[_n(x), _n(100 * y)] for x, y in zip(edges, [*share, share[-1]], strict=True)]
        one: dict[str, Any] = {
            "type": "line", "name": name, "step": "end", "showSymbol": False, "data": data,
            "itemStyle": {"color": color}, "z": 2 + place,
            "lineStyle": {"color": color, "width": 1.6, "type": ("solid", "dashed")[place]},
        }  # fmt: skip
        if name == "believed":
            one["areaStyle"] = {"color": color, "opacity": 0.22}
            marks = quantiles_of(numbers, weight, tuple(QUARTILES))
            one["markLine"] = _marks(dict(zip(QUARTILES.values(), marks, strict=True)))
        series.append(one)
    return {
        "grid": {"left": 52, "right": 20, "top": 34, "bottom": 42},
        "legend": {"top": 0, "right": 0, "icon": "roundRect", "itemHeight": 6},
        "tooltip": {"trigger": "axis"},
        "xAxis": _axis(f"{what}, money" if what == "cost" else f"{what}, money per unit of loss",
                       min=_n(low), max=_n(high), clean=True),
        "yAxis": _axis("share of clients, %", gap=34),
        "series": series,
    }  # fmt: skip


def _marks(at: Mapping[str, float]) -> dict[str, Any]:
    """Return vertical lines; a sentence beside the chart names them."""
    return {
        "silent": True, "symbol": "none", "label": {"show": False},
        "lineStyle": {"color": GREY, "type": "dotted", "width": 1},
        "data": [{"name": name, "xAxis": _n(x)} for name, x in at.items()],
    }  # fmt: skip


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
    return _over_impact(name, [series])


def level_chart(posted: Posted, chosen: Sequence[str]) -> dict[str, Any]:
    """Draw the level that each client is expected to answer with, and how far types differ."""
    rows = thinned(posted)
    series = _scatter(posted, rows, posted.moments.level, chosen)
    options = _over_impact("expected level", [series])
    if posted.tariffs.ends.shape[1] <= MOST_TYPED and posted.form != "menu":
        low, high = level_spread(posted, rows)
        spans: list[list[float | None]] = []
        for x, *ends in zip(posted.impact[rows], low, high, strict=True):
            spans += [[_n(x), _n(end)] for end in ends]
            spans.append([_n(x), None])  # one line with gaps: many lines are slow to draw
        options["series"].append(
            _line(np.zeros(0), np.zeros(0), "10 % to 90 %", COLORS[4])
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
        point: dict[str, Any] = {"name": name, "value": [_n(posted.impact[n]), _n(what[n])]}
        if name in colors:
            point |= {"itemStyle": {"color": colors[name], "opacity": 1}, "symbolSize": 14}
        data.append(point)
    return {
        "type": "scatter", "data": data, "symbolSize": 8, "z": 3,
        "itemStyle": {"color": GREY if chosen else COLORS[0], "opacity": 0.8},
    }  # fmt: skip


def _over_impact(name: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "grid": {"left": 62, "right": 20, "top": 14, "bottom": 44},
        "tooltip": {"trigger": "item"},
        "xAxis": _axis("impact", type="log", clean=True) | _decade(series),
        "yAxis": _axis(name, gap=46),
        "series": series,
    }


def _decade(series: list[dict[str, Any]]) -> dict[str, Any]:
    """Return where a logarithmic axis begins and ends: a little beyond its points."""
    x = [point["value"][0] for one in series for point in one["data"]]
    return {"min": _n(min(x) / 1.5), "max": _n(max(x) * 1.5)} if x else {}


def offer_charts(posted: Posted, chosen: Sequence[str], one: str) -> dict[str, dict[str, Any]]:
    """Return all charts of an offer, by name; those of the hull of a client where it has one.

    Parameters
    ----------
    posted
        What is posted.
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


def quartile_line(believed: Types | None, true: FloatArray | None) -> str:
    """Return the quartiles of what is believed in a sentence, with the true median.

    >>> quartile_line(None, np.array([1.0, 2.0, 4.0]))
    'In the table the median is 2.'
    """
    parts = []
    if believed is not None:
        marks = map(number, quantiles_of(believed.cost, believed.weight, tuple(QUARTILES)))
        parts.append("A quarter below {}, half below {}, three quarters below {}.".format(*marks))
    if true is not None:
        parts.append(f"In the table the median is {number(float(np.median(true)))}.")
    return " ".join(parts)


def colors_of(chosen: Sequence[str]) -> dict[str, str]:
    """Return the colour of each chosen client: the same in all charts."""
    return {name: COLORS[place % len(COLORS)] for place, name in enumerate(chosen)}


def payment_chart(posted: Posted, chosen: Sequence[str]) -> dict[str, Any]:
    """Draw what each level is paid, for the chosen clients."""
    tariffs = posted.tariffs
    series = []
    for name, n, color in _rows(posted, chosen):
        levels, paid = tariffs.ends[n], tariffs.end_payments[n]
        if not tariffs.menu:
            levels, paid = np.append(0.0, levels), np.append(0.0, paid)
        series.append(_line(levels, paid, f"client {name}", color) | {
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
        series.append(_line(at, price, f"client {name}", color) | {"step": "end"})
    return _over_level("price of one more unit", series)


def _rows(posted: Posted, chosen: Sequence[str]) -> list[tuple[str, int, str]]:
    """Return the chosen clients that there are, with their row and colour."""
    colors = colors_of(chosen)
    place = np.flatnonzero(np.isin(posted.clients.ids, list(chosen))).tolist()
    found = dict(zip(posted.clients.ids[place].tolist(), place, strict=True))
    return [(name, found[name], colors[name]) for name in chosen if name in found]


def _over_level(name: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "grid": {"left": 62, "right": 20, "top": 14, "bottom": 44},
        "tooltip": {"trigger": "axis"},
        "xAxis": _axis("level", min=0, max=1),
        "yAxis": _axis(name, gap=46),
        "series": series,
    }


def hull_chart(hull: Hull) -> dict[str, Any]:
    """Draw what a client's prices cost and bring, with the lower hull of that curve."""
    inside = _inside(hull)
    spend, loss = hull.spend[inside], hull.loss[inside]
    corners = [n for n in hull.corners if inside[n]]
    series = [
        _line(hull.spend[corners], hull.loss[corners], "lower hull", COLORS[1])
        | {"lineStyle": {"color": COLORS[1], "width": 6, "opacity": 0.5}},
        _line(spend, loss, "one point per price", COLORS[0]),
    ]
    if hull.tangent:
        ends = np.array([spend[0], spend[-1]])
        line = hull.here[1] - hull.multiplier * (ends - hull.here[0])
        series.append(
            _line(ends, line, "slope −μ, as for every client", GREY)
            | {"lineStyle": {"color": GREY, "type": "dashed", "width": 1}}
        )
    at = np.searchsorted(hull.price, hull.posted)
    series.append(_dots(hull.spend[at], hull.loss[at], _word(hull)))
    low, high = float(loss.min()), min(float(loss.max()), 3 * hull.here[1])
    return _two_lines(
        _axis("expected payment, money", min=_n(spend[0]), max=_n(spend[-1]), clean=True),
        _axis("expected loss", gap=60, min=_n(0.98 * low), max=_n(1.02 * high), clean=True),
        series,
    )


def worth_chart(hull: Hull) -> dict[str, Any]:
    """Draw what a client's price minimises: expected loss and what its payment could buy."""
    inside = _inside(hull)
    price = hull.price[inside]
    worth = (hull.loss + hull.multiplier * hull.spend)[inside]
    at = np.searchsorted(price, hull.posted)
    series = [
        _line(price, worth, "expected loss + μ · expected payment", COLORS[0]),
        _dots(price[at], worth[at], _word(hull)),
    ]
    least = float(worth.min())
    most = min(float(worth.max()), 1.5 * least)
    room = 0.1 * (most - least)
    return _two_lines(
        _axis("price per unit of level", min=_n(price[0]), max=_n(price[-1]), clean=True),
        _axis("loss + μ · payment", gap=60, min=_n(least - room), max=_n(most), clean=True),
        series,
    )


def _inside(hull: Hull) -> Any:
    """Return which prices of a hull are drawn."""
    return (hull.price >= hull.window[0]) & (hull.price <= hull.window[1])


def _word(hull: Hull) -> str:
    return "posted" if len(hull.posted) == 1 else "drawn by lot"


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
        "type": "scatter", "name": name, "data": _pairs(x, y), "symbolSize": 12, "z": 5,
        "itemStyle": {"color": COLORS[5]},
    }  # fmt: skip


def information_chart(bars: Mapping[str, Information]) -> dict[str, Any]:
    """Draw the expected loss of forms relative to prices that know every cost and value."""
    names = list(bars)
    found = list(bars.values())
    spans = [
        [{"coord": [_n(one.low), place]}, {"coord": [_n(one.high), place]}]
        for place, one in enumerate(found)
    ]
    whiskers = {
        "type": "line", "data": [], "silent": True,
        "markLine": {
            "silent": True, "symbol": "none",
            "lineStyle": {"color": COLORS[1], "width": 4, "type": "solid"}, "data": spans,
            "animation": False,
        },
    }  # fmt: skip
    full = {
        "type": "line", "data": [], "silent": True,
        "markLine": {
            "silent": True, "symbol": "none", "data": [{"name": "full information", "xAxis": 1}],
            "label": {"formatter": "{b}", "color": COLORS[5], "position": "start"},
            "lineStyle": {"color": COLORS[5], "width": 2, "type": "solid"},
        },
    }  # fmt: skip
    label = {"show": True, "position": "insideLeft", "color": "#fff", "formatter": "{b}"}
    data = [
        {"value": _n(one.ratio), "name": f"{name}: {one.ratio:.2f}"}
        for name, one in zip(names, found, strict=True)
    ]
    return {
        "grid": {"left": 14, "right": 30, "top": 26, "bottom": 42},
        "tooltip": {"trigger": "item"},
        "xAxis": _axis("expected loss / that with full information", min=0),
        "yAxis": {"type": "category", "data": names, "inverse": True, "show": False},
        "series": [
            {"type": "bar", "data": data, "label": label, "barCategoryGap": "22%",
             "itemStyle": {"color": COLORS[0], "borderRadius": 3}},
            whiskers, full,
        ],
    }  # fmt: skip


def gain_chart(lies: Manipulability) -> dict[str, Any]:
    """Draw what each client would gain by its best lie, relative to its honest money surplus."""
    truth, impact = lies.truth, lies.truth.game.impact
    ids = truth.game.clients.ids
    relative = lies.relative_gain
    rows = np.flatnonzero((impact > 0) & np.isfinite(relative))
    rows = rows[:: max(1, -(-rows.size // MOST_POINTS))]
    series = []
    for pays, color, name in ((False, COLORS[0], "is paid if honest"),
                              (True, COLORS[5], "pays if honest")):  # fmt: skip
        some = rows[(truth.prices[rows] < 0) == pays]
        data = [{"name": str(ids[n]), "value": [_n(impact[n]), _n(relative[n])]} for n in some]
        series.append({"type": "scatter", "name": name, "data": data, "symbolSize": 8,
                       "itemStyle": {"color": color, "opacity": 0.8}})  # fmt: skip
    options = _over_impact("gain / honest surplus", series)
    options["grid"]["top"] = 40
    options["legend"] = {"top": 0, "left": 0}
    return options


def money_chart(lies: Manipulability) -> dict[str, Any]:
    """Draw what the clients that gain the most gain, and what the others are paid less."""
    order = np.argsort(-lies.gain, kind="stable")[:MOST_BARS]
    ids = [str(name) for name in lies.truth.game.clients.ids[order]]
    bars = {"the liar gains": lies.gain[order], "the others are paid": lies.others_payment[order]}
    return _bars(ids, bars, "money", "client, by falling gain", (COLORS[0], COLORS[1]))


def refusal_chart(found: Refusals) -> dict[str, Any]:
    """Draw what taking part is worth to each client beyond refusing, the least first."""
    order = np.argsort(found.advantage, kind="stable")[:MOST_BARS]
    ids = [str(name) for name in found.outcome.game.clients.ids[order]]
    bars = {
        "would refuse": np.where(found.refuses[order], found.advantage[order], np.nan),
        "takes part": np.where(found.refuses[order], np.nan, found.advantage[order]),
    }
    name = "client, by rising advantage"
    return _bars(ids, bars, "advantage, money", name, (COLORS[5], COLORS[0]))


def _bars(
    ids: list[str], bars: Mapping[str, FloatArray], y: str, x: str, colors: Sequence[str]
) -> dict[str, Any]:
    """Return bars of which each client has one, stacked."""
    return {
        "grid": {"left": 66, "right": 20, "top": 40, "bottom": 44},
        "legend": {"top": 0, "left": 0},
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "xAxis": {"type": "category", "data": ids, "name": x, "nameLocation": "middle",
                  "nameGap": 28, "axisLabel": {"hideOverlap": True}, "axisTick": {"show": False}},
        "yAxis": _axis(y, gap=50),
        "series": [
            {"type": "bar", "name": name, "stack": "all", "itemStyle": {"color": color},
             "data": [_n(z) if math.isfinite(z) else None for z in column.tolist()]}
            for (name, column), color in zip(bars.items(), colors, strict=True)
        ],
    }  # fmt: skip


def _line(x: FloatArray, y: FloatArray, name: str, color: str) -> dict[str, Any]:
    return {
        "type": "line", "name": name, "data": _pairs(x, y), "showSymbol": False,
        "itemStyle": {"color": color}, "lineStyle": {"color": color, "width": 2},
    }  # fmt: skip


def _pairs(x: FloatArray, y: FloatArray) -> list[list[float | None]]:
    return [[_n(a), _n(b)] for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def _axis(name: str, gap: int = 28, *, clean: bool = False, **more: Any) -> dict[str, Any]:
    """Return an axis; a clean one does not label ends that are no round numbers."""
    axis = {"type": "value", "name": name, "nameLocation": "middle", "nameGap": gap} | more
    label: dict[str, Any] = {"hideOverlap": True}
    if clean:
        label |= {"showMinLabel": False, "showMaxLabel": False}
    return axis | {"axisLabel": label}


def _n(value: float) -> float | None:
    """Return a number with as many digits as a chart can show; JSON has no infinite ones."""
    return float(f"{float(value):.6g}") if math.isfinite(value) else None
