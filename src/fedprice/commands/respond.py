"""What `fedprice respond` computes: the client's side of a price."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError, precision_error
from fedprice.game import LARGEST_EXPONENT, best_level, break_even, difference, profit_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.commands.offers import Contract

__all__ = ["check_response", "declining", "impact_for", "respond", "respond_to_contract"]

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


def impact_for(value: float, impact: float | None) -> float:
    """Return a client's impact; one that does not value the model needs none."""
    if impact is None and value > 0:
        raise InputError(
            "--value above 0 needs --impact, as the server states it. Leave out --value if the "
            "model itself is worth nothing to you."
        )
    return 0.0 if impact is None else impact


def respond(
    *,
    price: float,
    cost: float,
    value: float = 0.0,
    impact: float | None = None,
    exponent: float = 2.0,
    level_max: float = 1.0,
) -> dict[str, Any]:
    """Return a client's best level for a price, what it earns, and what declining would.

    Examples
    --------
    >>> answer = respond(price=10.0, cost=40.0)
    >>> round(answer["level"], 3), round(answer["gain"], 3)
    (0.125, 0.625)
    """
    impact = impact_for(value, impact)
    check_response(
        cost=cost, value=value, exponent=exponent, price=price, impact=impact, level_max=level_max
    )
    value_impact = value * impact
    with np.errstate(all="ignore"):
        level = float(best_level(price, cost, value_impact, exponent, level_max))
    own_cost = cost * level**exponent
    if not math.isfinite(level + own_cost):
        raise precision_error("the best level")
    profit = profit_at(level, price, cost, exponent)
    utility = profit - (value_impact * (1 / level - 1) if value_impact else 0.0)
    return {
        "level": level,
        "payment": price * level + 0.0,  # no zero is negative
        "cost": own_cost,
        "profit": profit,
        "utility": utility,
        **declining(utility, cost, value_impact, exponent, level_max),
        "break_even_price": break_even(cost, value_impact, exponent, level_max),
        "pays_below": 0.0 if value_impact else None,
    }


def respond_to_contract(
    contract: Contract,
    *,
    cost: float,
    value: float = 0.0,
    impact: float | None = None,
    exponent: float = 2.0,
) -> dict[str, float]:
    """Return what a contract earns if it is taken, and what declining it would.

    Examples
    --------
    >>> from fedprice.commands.offers import Contract
    >>> answer = respond_to_contract(Contract(0.5, 12.0, 1.0), cost=40.0)
    >>> answer["cost"], answer["profit"], answer["gain"]
    (10.0, 2.0, 2.0)
    """
    impact = impact_for(value, impact)
    check_response(cost=cost, value=value, exponent=exponent, impact=impact)
    level, payment, level_max = contract
    spent = cost * level**exponent
    profit = difference(payment, spent)
    utility = profit - value * impact * (1 / level - 1)
    return {
        "level": level,
        "payment": payment,
        "cost": spent,
        "profit": profit,
        "utility": utility,
        **declining(utility, cost, value * impact, exponent, level_max),
    }


def declining(
    utility: float, cost: float, value_impact: float, exponent: float, level_max: float = 1.0
) -> dict[str, float]:
    """Return what a client does best without an offer, and what accepting it gains over that.

    A client that values the model joins unpaid, if the server lets it; any other stays away.

    Parameters
    ----------
    utility
        That of the best level under the offer.
    cost, value_impact, exponent, level_max
        c, v k, τ and the largest level of the client.

    Examples
    --------
    >>> declining(3.0, cost=4.0, value_impact=0.0, exponent=2.0)
    {'level_unpaid': 0.0, 'utility_unpaid': 0.0, 'gain': 3.0}
    >>> declining(-2.5, cost=4.0, value_impact=1.0, exponent=2.0)  # a charge
    {'level_unpaid': 0.5, 'utility_unpaid': -2.0, 'gain': -0.5}
    """
    with np.errstate(all="ignore"):
        level = float(best_level(0.0, cost, value_impact, exponent, level_max))
    unpaid = profit_at(level, 0.0, cost, exponent)
    unpaid -= value_impact * (1 / level - 1) if value_impact else 0.0
    if not math.isfinite(utility + unpaid):
        raise precision_error("the best level")
    gain = difference(utility, unpaid)
    return {"level_unpaid": level, "utility_unpaid": unpaid, "gain": gain}
