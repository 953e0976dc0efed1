"""Charts of the Client page: what each level of an offer would earn, and a balance over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fedprice.errors import precision_error
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import chosen_level
from fedprice.market.responses import earnings, levels_shown

if TYPE_CHECKING:
    from fedprice.market.offers import Conditions, Offer

__all__ = ["balance_chart", "earning_chart", "earning_rows"]

LEVELS = 400  # of a curve
MOST_POINTS = 2000
NAMES = {"payment": "payment", "cost": "cost", "absence": "absence", "utility": "net"}
_MONEY = "value => value == null ? '–' : Number(Number(value).toPrecision(6)).toLocaleString('en')"
_GRID = {"left": 8, "right": 28, "top": 30, "bottom": 30, "containLabel": True}


def earning_rows(
    offer: Offer,
    conditions: Conditions,
    *,
    cost: float,
    value: float,
    cost_exponent: float = 2.0,
    curve: bool = False,
) -> tuple[pl.DataFrame, float]:
    """Return what levels would earn in the whole run, one per row, and the best of them.

    Parameters
    ----------
    offer, conditions
        The offer. A period's terms are treated as if they held for the whole run.
    cost, value, cost_exponent
        c, v and τ of the client, for the whole run.
    curve
        Whether to return enough levels for a curve, rather than those of a table.

    Returns
    -------
    rows
        `level`, `payment`, `cost`, `absence` (the value that the client loses by being away) and
        `utility`: the payment minus the other two.
    best
        The level that suits the client best; it is among the rows.
    """
    own = {"cost": cost, "value": value, "cost_exponent": cost_exponent}
    with np.errstate(all="ignore"):
        chosen = chosen_level(offer, conditions, **own)
        levels = levels_shown(offer, chosen)
        if curve and not offer.menu:
            even = np.linspace(offer.level_floor, offer.pays.cap, LEVELS) / LEVEL_ONE
            ends = [end / LEVEL_ONE for end in offer.pays.ends if end >= offer.level_floor]
            levels = np.union1d(even, [*ends, chosen / LEVEL_ONE])
        rows = earnings(offer, conditions, levels, **own)
        rows = rows.with_columns(absence=rows["profit"] - rows["utility"])
    if not np.isfinite(rows.to_numpy()).all():
        raise precision_error("the best level")
    return rows.select("level", *NAMES), chosen / LEVEL_ONE


def earning_chart(
    offer: Offer,
    conditions: Conditions,
    *,
    cost: float | None,
    value: float = 0.0,
    cost_exponent: float = 2.0,
) -> dict[str, Any]:
    """Return a chart of what each level would earn; the best level is marked.

    A menu is drawn as points: nothing between them can be chosen. While the cost is None, only
    the payment is drawn.
    """
    own = {"cost": cost or 1.0, "value": value, "cost_exponent": cost_exponent}
    rows, best = earning_rows(offer, conditions, curve=True, **own)
    shown = [name for name in NAMES if name != "absence" or (rows["absence"] > 0).any()]
    if cost is None:
        shown = ["payment"]
    there = rows.row(by_predicate=pl.col("level") == best, named=True)
    # The cost of absence grows without bound as the level falls, so it may leave the chart.
    seen = rows.select(name for name in shown if name in ("payment", "cost")).to_numpy().ravel()
    if cost is not None:
        seen = np.append(seen, [there["absence"], there["utility"]])
    seen = np.append(seen, 0.0)
    room = 0.08 * float(np.ptp(seen)) or 1.0
    series = [_curve(rows, name, offer.menu) for name in shown]
    if cost is not None:
        series[-1] |= _best(best, there["utility"])
    return {
        "grid": _GRID | {"top": 60},  # on a narrow screen the legend takes two lines
        "legend": {"top": 0, "itemWidth": 18, "data": [NAMES[name] for name in shown]},
        "tooltip": {"trigger": "axis", ":valueFormatter": _MONEY},
        "xAxis": {
            "type": "value", "name": "level", "nameLocation": "middle", "nameGap": 26, "min": 0,
            "max": min(1.0, 1.1 * rows["level"][-1]), "axisLabel": {"showMaxLabel": False},
            "axisPointer": {"label": {":formatter": "own => own.value.toFixed(3)"}},
        },
        "yAxis": {
            "type": "value", "name": conditions.unit, "min": _rounded(float(seen.min()) - room),
            "max": _rounded(float(seen.max()) + room),
            "axisLabel": {"showMinLabel": False, "showMaxLabel": False},
        },
        "series": series,
    }  # fmt: skip


def _rounded(number: float) -> float:
    """Return a number with few digits: the label of an axis' end takes room though it is hidden."""
    return float(f"{number:.2g}")


def _curve(rows: pl.DataFrame, name: str, menu: bool) -> dict[str, Any]:
    style = {"cost": "dashed", "absence": "dotted"}.get(name, "solid")
    width = 3 if name == "utility" else 2
    return {
        "name": NAMES[name],
        "type": "line",
        "data": [list(point) for point in rows.select("level", name).iter_rows()],
        "showSymbol": menu,
        "symbol": {"cost": "rect", "absence": "triangle"}.get(name, "circle"),
        "symbolSize": 10,
        "lineStyle": {"type": style} | ({"width": 1, "opacity": 0.3} if menu else {"width": width}),
    }


def _best(level: float, net: float) -> dict[str, Any]:
    """Return the marks of the best level: a line, and a point on the curve of the net gain."""
    label = {"formatter": f"best {level:.4g}", "position": "end", "distance": 4}
    return {
        "markLine": {
            "silent": True, "symbol": "none", "lineStyle": {"color": "#888", "type": "dashed"},
            "label": label | {"color": "#888", "fontWeight": "bold"}, "data": [{"xAxis": level}],
        },
        "markPoint": {
            "silent": True, "symbol": "circle", "symbolSize": 13, "label": {"show": False},
            "data": [{"coord": [level, net]}],
        },
    }  # fmt: skip


def balance_chart(entries: pl.DataFrame, unit: str) -> dict[str, Any]:
    """Return a chart of a client's balance after each of its entries, thinned if they are many.

    Parameters
    ----------
    entries, unit
        The entries of an account, and the unit of its money.
    """
    step = -(-entries.height // MOST_POINTS)
    # The last balance must not be thinned out.
    some = entries.reverse().gather_every(step).reverse() if step > 1 else entries
    balances = some["balance"].cast(float).to_list()
    return {
        "grid": _GRID,
        "tooltip": {"trigger": "axis", ":valueFormatter": _MONEY},
        "xAxis": {
            "type": "value", "name": "entry of the ledger", "nameLocation": "middle",
            "nameGap": 26, "min": "dataMin", "max": "dataMax", "minInterval": 1,
        },
        "yAxis": {"type": "value", "name": unit},
        "series": [
            {
                "name": "balance", "type": "line", "step": "end", "showSymbol": False,
                "areaStyle": {"opacity": 0.12}, "lineStyle": {"width": 2},
                "data": [[n, y] for n, y in zip(some["entry"].to_list(), balances, strict=True)],
            }
        ],
    }  # fmt: skip
