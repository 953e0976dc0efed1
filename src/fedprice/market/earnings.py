"""What levels earn under an offer: the table from which a client chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.verify import LEVEL_ONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.tariff import Tariffs

__all__ = ["earnings_of", "levels_of"]

STEPS = 10  # levels of a table, besides the ends of as many blocks


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
