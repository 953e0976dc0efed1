"""Charts of outcomes, as ECharts takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.plots import ON_SCREEN
from fedprice.errors import precision_error
from fedprice.pricing.display import number, percent

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.clients import Clients
    from fedprice.game import Game
    from fedprice.pricing import Outcome

__all__ = [
    "budget_range",
    "budget_step",
    "comparison_chart",
    "frontier_chart",
    "level_chart",
    "price_chart",
    "thinned",
]

MOST_POINTS = 2000
_PAID = {"name": "is paid", "symbol": "circle", "color": ON_SCREEN[0]}
_PAYS = {"name": "pays", "symbol": "diamond", "color": ON_SCREEN[5]}
_GRID = {"left": 62, "right": 20, "top": 36, "bottom": 46}


def thinned(clients: Clients) -> IntArray:
    """Return the rows to draw: all, or the extremes and every k-th by impact.

    They do not depend on prices: points move while a control is dragged, but none appears.
    """
    count = len(clients)
    if count <= MOST_POINTS:
        return np.arange(count)
    order = np.argsort(clients.weight * clients.norm, kind="stable")  # as by impact
    some = order[np.linspace(0, count - 1, MOST_POINTS - 200).astype(np.intp)]
    valued = np.argpartition(-clients.value, 100)[:100]
    costly = np.argpartition(-clients.cost, 100)[:100]
    return np.unique(np.concatenate([some, valued, costly]))


def _points(
    outcome: Outcome, rows: IntArray, x: FloatArray, y: FloatArray, selected: Collection[int]
) -> list[dict[str, Any]]:
    """Return one series of points for those that are paid, one for payers, one for selected."""
    ids, pays = outcome.game.clients.ids, outcome.prices < 0
    chosen = np.array(sorted(selected), dtype=np.intp)
    groups = (
        (_PAID, rows[~pays[rows]], 9),
        (_PAYS, rows[pays[rows]], 12),
        ({"name": "selected", "symbol": "circle", "color": "transparent"}, chosen, 18),
    )
    series = []
    for look, who, size in groups:
        data = [
            {"name": str(ids[n]), "value": [float(x[n]), float(y[n])]}
            for n in who.tolist()
            if np.isfinite(x[n]) and np.isfinite(y[n])
        ]
        style = {"color": look["color"], "opacity": 0.8}
        if look["name"] == "selected":
            style |= {"borderColor": ON_SCREEN[1], "borderWidth": 3, "opacity": 1}
        series.append(
            {"type": "scatter", "name": look["name"], "symbol": look["symbol"], "data": data,
             "symbolSize": size if rows.size <= 400 or look["name"] == "selected" else size / 2,
             "itemStyle": style, "z": 5 if look["name"] == "selected" else 2}
        )  # fmt: skip
    return series


def price_chart(
    outcome: Outcome, rows: IntArray, selected: Collection[int] = (), currency: str = ""
) -> dict[str, Any]:
    """Return price over value, with the value above which clients pay.

    Where all values are the same, prices are drawn over the samples, or shares of the data.
    """
    clients, unit = outcome.game.clients, currency or "money"
    x, name = clients.value, f"value, {unit} per unit of loss"
    by_value = bool(np.ptp(x))
    if not by_value:
        x, name = clients.weight, "share of the data"
        if clients.samples is not None:
            x, name = clients.samples.astype(np.float64), "samples"
    series = _points(outcome, rows, x, outcome.prices, selected)
    for one in series:
        one["dimensions"] = [name.partition(",")[0], "price"]
        one["encode"] = {"x": 0, "y": 1, "tooltip": [0, 1]}
    lines: list[dict[str, Any]] = [{"yAxis": 0, "label": {"show": False}}]
    if by_value and outcome.sign_threshold < 2 * float(x.max()):
        text = f"sign threshold {number(outcome.sign_threshold)}"
        label = {"formatter": text, "position": "insideEndTop"}
        place = float(outcome.sign_threshold)
        lines.append({"xAxis": place, "label": label, "lineStyle": {"type": "dashed"}})
    if not by_value and (outcome.prices[rows] > 0).all():
        lines = []  # 0 is the lower end of the axis
    series[0]["markLine"] = {
        "silent": True, "symbol": "none", "data": lines, "lineStyle": {"color": "#888"},
        "label": {"color": "#888"},
    }  # fmt: skip
    return {
        "grid": _GRID,
        "legend": _legend(series),
        "tooltip": {"trigger": "item"},
        "xAxis": {"type": "value", "name": name, "nameLocation": "middle", "nameGap": 28},
        "yAxis": {"type": "value", "name": f"price, {unit}", "scale": by_value},
        "series": series,
    }


def _legend(series: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a legend of who is paid and who pays, if there is anybody of both kinds."""
    groups = [one["name"] for one in series[:2] if one["data"]]
    return {"data": groups if len(groups) == 2 else [], "top": 4, "right": 12}


def level_chart(outcome: Outcome, rows: IntArray, selected: Collection[int] = ()) -> dict[str, Any]:
    """Return level over impact; clients without impact have no place on its axis."""
    impact = np.where(outcome.game.impact > 0, outcome.game.impact, np.nan)
    series = _points(outcome, rows, impact, outcome.levels, selected)
    for one in series:
        one["dimensions"] = ["impact", "level"]
        one["encode"] = {"x": 0, "y": 1, "tooltip": [0, 1]}
    return {
        "grid": _GRID,
        "legend": _legend(series),
        "tooltip": {"trigger": "item"},
        "xAxis": {
            "type": "log",
            "name": "impact",
            "nameLocation": "middle",
            "nameGap": 28,
            "axisLabel": {":formatter": "value => value.toExponential(0)"},
        },
        "yAxis": {"type": "value", "name": "level", "min": 0, "max": 1},
        "series": series,
    }


def budget_range(game: Game) -> tuple[float, float]:
    """Return the range of budgets that is worth showing, in round numbers.

    The upper end is a share of what full participation would cost; the budget of the game always
    lies within. Budgets at the lower end may be infeasible.
    """
    clients, tau = game.clients, game.cost_exponent
    with np.errstate(all="ignore"):  # what overflows is refused
        cost = tau * clients.cost * clients.level_max**tau
        worth = clients.value * game.impact / clients.level_max
        full = float(np.maximum(cost - worth, 0.1 * cost).sum())
    if not np.isfinite(full):
        raise precision_error("the cost of full participation")
    step = budget_step(0.3 * full)
    high = step * np.ceil(max(0.3 * full, game.budget) / step)
    low = step * np.floor(min(-0.03 * full, game.budget) / step)
    return float(low), float(high)


def budget_step(width: float) -> float:
    """Return a round number, a few hundredths of a range of budgets.

    Examples
    --------
    >>> budget_step(1600), budget_step(0.9)
    (5.0, 0.002)
    """
    unit = 10.0 ** np.floor(np.log10(width / 300))
    return float(next(m * unit for m in (1, 2, 5, 10) if m * unit * 500 >= width))


def frontier_chart(
    known: Sequence[tuple[float, float]],
    budget: float,
    distance: float | None,
    ends: tuple[float, float],
    currency: str = "",
) -> dict[str, Any]:
    """Return distances in per cent over the budget, which is a handle that can be dragged."""
    curve = {
        "type": "line", "name": "distance", "symbol": "none", "color": ON_SCREEN[0],
        "data": [[budget, 100 * left] for budget, left in known],
    }  # fmt: skip
    # Beside the point, on the side with more room: the axis below has labels of its own.
    right = budget < (ends[0] + ends[1]) / 2
    label = {
        "show": True, "formatter": f"{number(budget)}: {percent(distance or 0.0)}", "distance": 8,
        "position": "right" if right else "top", "align": "left" if right else "right",
        "offset": [0, -10 if right else 0],
    }  # fmt: skip
    here = {
        "type": "scatter", "name": "here", "symbolSize": 12, "color": ON_SCREEN[5], "label": label,
        "data": [] if distance is None else [[budget, 100 * distance]],
    }  # fmt: skip
    pointer = {
        "show": True, "snap": False, "value": budget, "status": "show", "triggerTooltip": False,
        "lineStyle": {"color": ON_SCREEN[5], "width": 2}, "label": {"show": False},
        "handle": {"show": True, "size": 34, "margin": 42, "color": ON_SCREEN[5], "throttle": 40},
    }  # fmt: skip
    return {
        "grid": {"left": 74, "right": 24, "top": 30, "bottom": 78},
        "tooltip": {"trigger": "none"},
        "axisPointer": {"triggerOn": "none"},  # only the handle moves it, not the mouse
        "xAxis": {
            "type": "value",
            "name": f"budget, {currency or 'money'}",
            "nameLocation": "middle",
            "nameGap": 26,
            "min": ends[0],
            "max": ends[1],
            "axisLabel": {"hideOverlap": True},
            "axisPointer": pointer,
        },
        "yAxis": {
            "type": "value",
            "name": "distance to full participation, %",
            "nameTextStyle": {"align": "left"},
            "axisLine": {"onZero": False},
        },
        "series": [curve, here],
    }


def comparison_chart(outcomes: Sequence[Outcome], rows: IntArray) -> dict[str, Any]:
    """Return the levels under each scheme, clients by falling impact."""
    order = rows[np.argsort(-outcomes[0].game.impact[rows], kind="stable")]
    ids = outcomes[0].game.clients.ids
    series = [
        {
            "type": "scatter", "name": outcome.scheme, "color": ON_SCREEN[position],
            "symbol": ("circle", "triangle")[position % 2],
            "symbolSize": 9 if order.size <= 400 else 4, "dimensions": ["client", "level"],
            "encode": {"x": 0, "y": 1, "tooltip": [1]}, "itemStyle": {"opacity": 0.8},
            "data": [
                {"name": str(ids[n]), "value": [place, float(outcome.levels[n])]}
                for place, n in enumerate(order.tolist(), start=1)
            ],
        }
        for position, outcome in enumerate(outcomes)
    ]  # fmt: skip
    return {
        "grid": _GRID,
        "legend": {"top": 4, "right": 12},
        "tooltip": {"trigger": "item"},
        "xAxis": {
            "type": "value",
            "name": "client, by falling impact",
            "nameLocation": "middle",
            "nameGap": 28,
            "min": 0,
            "max": int(order.size) + 1,
            "axisLabel": {"showMaxLabel": False},  # there is no such client
        },
        "yAxis": {"type": "value", "name": "level", "min": 0, "max": 1},
        "series": series,
    }
