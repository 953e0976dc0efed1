"""Parts of charts as ECharts takes them: axes, lines, numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray

__all__ = ["GREY", "MOST_POINTS", "axis", "line", "over_impact", "pairs", "short"]

GREY = "#888"
MOST_POINTS = 400  # clients drawn


def over_impact(name: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a chart of something over the impact, on a logarithmic axis."""
    return {
        "grid": {"left": 62, "right": 20, "top": 14, "bottom": 44},
        "tooltip": {"trigger": "item"},
        "xAxis": axis("impact", type="log", clean=True) | _decade(series),
        "yAxis": axis(name, gap=46),
        "series": series,
    }


def _decade(series: list[dict[str, Any]]) -> dict[str, Any]:
    """Return where a logarithmic axis begins and ends: a little beyond its points."""
    x = [point["value"][0] for one in series for point in one["data"]]
    return {"min": short(min(x) / 1.5), "max": short(max(x) * 1.5)} if x else {}


def line(x: FloatArray, y: FloatArray, name: str, color: str) -> dict[str, Any]:
    """Return a line without symbols."""
    return {
        "type": "line", "name": name, "data": pairs(x, y), "showSymbol": False,
        "itemStyle": {"color": color}, "lineStyle": {"color": color, "width": 2},
    }  # fmt: skip


def pairs(x: FloatArray, y: FloatArray) -> list[list[float | None]]:
    """Return points as ECharts takes them."""
    return [[short(a), short(b)] for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def axis(name: str, gap: int = 28, *, clean: bool = False, **more: Any) -> dict[str, Any]:
    """Return an axis; a clean one labels its ends only if they are round numbers."""
    axis = {"type": "value", "name": name, "nameLocation": "middle", "nameGap": gap} | more
    label: dict[str, Any] = {"hideOverlap": True}
    if clean:
        label |= {"showMinLabel": False, "showMaxLabel": False}
    return axis | {"axisLabel": label}


def short(value: float) -> float | None:
    """Return a number with as many digits as a chart can show; JSON has no infinite numbers."""
    return float(f"{float(value):.6g}") if math.isfinite(value) else None
