"""What `fedprice respond` computes: the client's side of a price."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError, precision_error
from fedprice.game import LARGEST_EXPONENT, best_level, break_even, profit_at
from fedprice.verify import LEVEL_ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from fedprice.arrays import FloatArray
    from fedprice.tariff import Tariffs

__all__ = ["check_response", "declining", "earnings_of", "impact_for", "levels_of", "respond"]

STEPS = 10  # levels of a table, besides the ends of as many blocks

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
        "payment": price * level,
        "cost": own_cost,
        "profit": profit,
        "utility": utility,
        **declining(utility, cost, value_impact, exponent, level_max),
        "break_even_price": break_even(cost, value_impact, exponent, level_max),
        "pays_below": 0.0 if value_impact else None,
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
    return {"level_unpaid": level, "utility_unpaid": unpaid, "gain": utility - unpaid}


def earnings_of(
    tariffs: Tariffs,
    levels: FloatArray,
    *,
    cost: float,
    value_impact: float,
    exponent: float = 2.0,
) -> pl.DataFrame:
    """Return what levels would earn under one tariff, one per row.

    `profit` is the payment less the cost, and `utility` also what the client's absence costs the
    model.

    Examples
    --------
    >>> from fedprice.tariff import Tariffs
    >>> tariff = Tariffs(np.array([[0.5, 1.0]]), np.array([[8.0, 2.0]]))
    >>> earnings_of(tariff, np.array([0.5, 1.0]), cost=4, value_impact=1.0).rows()
    [(0.5, 4.0, 1.0, 3.0, 2.0), (1.0, 5.0, 4.0, 1.0, 1.0)]
    """
    import polars as pl

    paid, spent = tariffs.payments(levels[None])[0], cost * levels**exponent
    profit = paid - spent
    return pl.DataFrame(
        {
            "level": levels,
            "payment": paid,
            "cost": spent,
            "profit": profit,
            "utility": profit - value_impact * (1 / levels - 1),
        }
    )


def levels_of(ends: Sequence[int], chosen: int, *, menu: bool, floor: int = 1) -> FloatArray:
    """Return levels of one tariff to compare; the chosen one is among them.

    Those of a menu; else tenths of the highest level, and the ends of blocks if they are few.

    Parameters
    ----------
    ends, chosen, floor
        Where blocks end, the best level and the least one, all in multiples of 2⁻³².
    menu
        Whether only the ends can be chosen.
    """
    levels = {chosen, *(ends if menu or len(ends) <= STEPS else ())}
    if not menu:
        levels |= {ends[-1] * n // STEPS for n in range(1, STEPS + 1)}
    return np.array(sorted(level for level in levels if level >= floor)) / LEVEL_ONE
