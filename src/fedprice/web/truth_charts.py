"""Charts of what not knowing costs, who gains by lying, and who would refuse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.plots import ON_SCREEN as COLORS
from fedprice.web.chart_parts import MOST_POINTS, axis, over_impact, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.beliefs.lies import Manipulability
    from fedprice.beliefs.posted import Information
    from fedprice.beliefs.refusals import Refusals

__all__ = ["gain_chart", "information_chart", "money_chart", "refusal_chart"]

MOST_BARS = 40  # clients with a bar each


def information_chart(bars: Mapping[str, Information]) -> dict[str, Any]:
    """Draw the expected loss of forms relative to a server that knows every cost and value."""
    names = list(bars)
    found = list(bars.values())
    spans = [
        [{"coord": [short(one.low), place]}, {"coord": [short(one.high), place]}]
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
        {"value": short(one.ratio), "name": f"{name}: {one.ratio:.2f}"}
        for name, one in zip(names, found, strict=True)
    ]
    return {
        "grid": {"left": 14, "right": 30, "top": 26, "bottom": 42},
        "tooltip": {"trigger": "item"},
        "xAxis": axis("expected loss / that with full information", min=0),
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
        data = [
            {"name": str(ids[n]), "value": [short(impact[n]), short(relative[n])]} for n in some
        ]
        series.append({"type": "scatter", "name": name, "data": data, "symbolSize": 8,
                       "itemStyle": {"color": color, "opacity": 0.8}})  # fmt: skip
    options = over_impact("gain / honest surplus", series)
    options["grid"]["top"] = 40
    options["legend"] = {"top": 0, "left": 0}
    return options


def money_chart(lies: Manipulability) -> dict[str, Any]:
    """Draw the largest gains, and how much less the other clients are paid."""
    order = np.argsort(-lies.gain, kind="stable")[:MOST_BARS]
    ids = [str(name) for name in lies.truth.game.clients.ids[order]]
    bars = {"the liar gains": lies.gain[order], "the others are paid": lies.others_payment[order]}
    return _bars(ids, bars, "money", "client, by falling gain", (COLORS[0], COLORS[1]))


def refusal_chart(found: Refusals) -> dict[str, Any]:
    """Draw how much better taking part is than refusing for each client, the least first."""
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
    """Return stacked bars, one per client."""
    return {
        "grid": {"left": 66, "right": 20, "top": 40, "bottom": 44},
        "legend": {"top": 0, "left": 0},
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "xAxis": {"type": "category", "data": ids, "name": x, "nameLocation": "middle",
                  "nameGap": 28, "axisLabel": {"hideOverlap": True}, "axisTick": {"show": False}},
        "yAxis": axis(y, gap=50),
        "series": [
            {"type": "bar", "name": name, "stack": "all", "itemStyle": {"color": color},
             "data": [short(z) if math.isfinite(z) else None for z in column.tolist()]}
            for (name, column), color in zip(bars.items(), colors, strict=True)
        ],
    }  # fmt: skip
