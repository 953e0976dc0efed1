"""Charts of a run, as ECharts takes them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from fedprice._plumbing.plots import ON_SCREEN
from fedprice.market.money import MICRO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.market.following import RunSeen
    from fedprice.market.metrics import RoundMetrics

__all__ = ["joiners_chart", "latest", "measured_chart", "paid_chart"]

LOSS = re.compile(r"(^|[^a-z])loss([^a-z]|$)", re.IGNORECASE)
ACCURACY = re.compile(r"(^|[^a-z])(acc|accuracy)([^a-z]|$)", re.IGNORECASE)
MOST_LINES = 6
WHOSE = ("server", "clients", "train")  # in order of preference
_GRID = {"left": 62, "right": 24, "top": 36, "bottom": 46}


def paid_chart(seen: RunSeen) -> dict[str, Any]:
    """Return what was paid so far over the rounds, against what may be paid in total."""
    before, own = seen.before, seen.summary
    data = [[before, 0.0], *([before + at.done, at.paid / MICRO] for at in seen.history)]
    what = "budget and payers' money" if own.paid_in else "budget"
    most = {
        "type": "line", "name": what, "symbol": "none", "color": ON_SCREEN[5],
        "lineStyle": {"type": "dashed"},
        "data": [[before, own.funds / MICRO], [before + own.rounds, own.funds / MICRO]],
    }  # fmt: skip
    paid = _line("paid", ON_SCREEN[0], data) | {"areaStyle": {"opacity": 0.15}}
    return _chart(seen, [paid, most], seen.unit)


def joiners_chart(seen: RunSeen) -> dict[str, Any]:
    """Return how many clients joined, missed and were refused in evenly spaced rounds."""
    series = [
        _line(name, color, [[seen.before + at.done, getattr(at, name)] for at in seen.history])
        | {"step": "middle", "lineStyle": {"width": 1}}
        for name, color in (
            ("joined", ON_SCREEN[0]),
            ("missed", ON_SCREEN[1]),
            ("refused", ON_SCREEN[3]),
        )
    ]
    chart = _chart(seen, series, "clients")
    chart["yAxis"]["minInterval"] = 1
    return chart


def measured_chart(seen: RunSeen, kind: re.Pattern[str]) -> dict[str, Any] | None:
    """Return one line per metric of a kind, loss or accuracy; None if none was measured."""
    lines: dict[str, list[list[float | None]]] = {}
    for own in seen.metrics:
        for name, value in own.metrics.items():
            if not isinstance(value, list) and kind.search(name):
                shown = float(value) if math.isfinite(value) else None  # a gap
                title = name if own.who == "server" else f"{name} ({own.who})"
                lines.setdefault(title, []).append([own.round, shown])
    if not lines:
        return None
    series = [
        _line(name, ON_SCREEN[n % len(ON_SCREEN)], data)
        for n, (name, data) in enumerate([*lines.items()][:MOST_LINES])
    ]
    chart = _chart(seen, series, "")
    chart["yAxis"]["scale"] = True
    return chart


def latest(metrics: Sequence[RoundMetrics], kind: re.Pattern[str]) -> tuple[float, str] | None:
    """Return the newest number of a kind, and where it comes from; None if there is none.

    The server's evaluation is preferred to the clients', and that to their training.
    """
    for who in WHOSE:
        for own in reversed(metrics):
            for name, value in own.metrics.items() if own.who == who else ():
                if not isinstance(value, list) and kind.search(name):
                    when = f"after round {own.round:,}" if own.round else "before round 1"
                    return float(value), when if who == "server" else f"{when}, {who}"
    return None


def _line(name: str, color: str, data: list[Any]) -> dict[str, Any]:
    few = len(data) == 1
    return {
        "type": "line", "name": name, "color": color, "data": data, "symbolSize": 7,
        "symbol": "circle" if few else "none", "lineStyle": {"width": 2},
    }  # fmt: skip


def _chart(seen: RunSeen, series: list[dict[str, Any]], unit: str) -> dict[str, Any]:
    return {
        "grid": _GRID,
        "legend": {"data": [own["name"] for own in series], "top": 4, "right": 12},
        "tooltip": {"trigger": "axis"},
        "xAxis": {
            "type": "value", "name": "round", "nameLocation": "middle", "nameGap": 28,
            "min": seen.before, "max": seen.before + seen.summary.rounds, "minInterval": 1,
        },
        "yAxis": {"type": "value", "name": unit},
        "series": series,
    }  # fmt: skip
