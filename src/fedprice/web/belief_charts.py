"""Charts of beliefs about costs and values, as ECharts options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.plots import ON_SCREEN as COLORS
from fedprice.pricing.display import number
from fedprice.web.chart_parts import GREY, axis, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.beliefs.beliefs import Types

__all__ = ["distribution_chart", "quantiles_of", "quartile_line"]

BINS = 30
QUARTILES = {0.25: "25 %", 0.5: "median", 0.75: "75 %"}


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
    """Draw the beliefs about the cost or the value as a histogram with its quartiles.

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
        if np.any(numbers == high):  # the last bin includes both of its ends
            share[-1] += weight[numbers == high].sum()
        color = (COLORS[0], COLORS[5])["table" in name]
        data = [[short(x), short(100 * y)] for x, y in zip(edges, [*share, share[-1]], strict=True)]
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
        "xAxis": axis(f"{what}, money" if what == "cost" else f"{what}, money per unit of loss",
                       min=short(low), max=short(high), clean=True),
        "yAxis": axis("share of clients, %", gap=34),
        "series": series,
    }  # fmt: skip


def _marks(at: Mapping[str, float]) -> dict[str, Any]:
    """Return vertical lines; a sentence beside the chart names them."""
    return {
        "silent": True, "symbol": "none", "label": {"show": False},
        "lineStyle": {"color": GREY, "type": "dotted", "width": 1},
        "data": [{"name": name, "xAxis": short(x)} for name, x in at.items()],
    }  # fmt: skip


def quartile_line(believed: Types | None, true: FloatArray | None) -> str:
    """Return a sentence with the quartiles of the beliefs, and the true median.

    >>> quartile_line(None, np.array([1.0, 2.0, 4.0]))
    'In the table the median is 2.'
    """
    parts = []
    if believed is not None and not believed.cost.any():
        parts.append("0 for every client.")
    elif believed is not None:
        marks = map(number, quantiles_of(believed.cost, believed.weight, tuple(QUARTILES)))
        parts.append("A quarter below {}, half below {}, three quarters below {}.".format(*marks))
    if true is not None:
        parts.append(f"In the table the median is {number(float(np.median(true)))}.")
    return " ".join(parts)
