"""What `fedprice respond` computes: the client's side of a price."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError, precision_error
from fedprice.game import LARGEST_EXPONENT, best_level, break_even, profit_at

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_response", "respond"]

_RULES: dict[str, tuple[Callable[[float], bool], str]] = {
    "price": (math.isfinite, "a finite number"),
    "cost": (lambda given: 0 < given < math.inf, "above 0"),
    "value": (lambda given: 0 <= given < math.inf, "a finite number, at least 0"),
    "impact": (lambda given: 0 <= given < math.inf, "a finite number, at least 0"),
    "exponent": (lambda given: 1 < given <= LARGEST_EXPONENT, f"in (1, {LARGEST_EXPONENT:g}]"),
    "level_max": (lambda given: 0 < given <= 1, "in (0, 1]"),
}


def check_response(**options: float) -> None:
    """Refuse numbers that no client's response can have."""
    for name, given in options.items():
        holds, rule = _RULES[name]
        if not holds(given):
            raise InputError(f"--{name.replace('_', '-')} must be {rule}; got {given}.")


def respond(
    *,
    price: float,
    impact: float,
    cost: float,
    value: float,
    exponent: float = 2.0,
    level_max: float = 1.0,
) -> dict[str, Any]:
    """Return a client's best level for a price, and what it earns.

    Examples
    --------
    >>> round(respond(price=10.0, impact=0.0, cost=40.0, value=0.0)["level"], 3)
    0.125
    """
    check_response(
        cost=cost, value=value, exponent=exponent, price=price, impact=impact, level_max=level_max
    )
    value_impact = value * impact
    with np.errstate(all="ignore"):
        level = float(best_level(price, cost, value_impact, exponent, level_max))
        unpaid = float(best_level(0.0, cost, value_impact, exponent, level_max))
    own_cost = cost * level**exponent
    if not math.isfinite(level + unpaid + own_cost):
        raise precision_error("the best level")
    profit = profit_at(level, price, cost, exponent)
    return {
        "level": level,
        "payment": price * level,
        "cost": own_cost,
        "profit": profit,
        "utility": profit - (value_impact * (1 / level - 1) if value_impact else 0.0),
        "level_unpaid": unpaid,
        "break_even_price": break_even(cost, value_impact, exponent, level_max),
        "pays_below": 0.0 if value_impact else None,
    }
