"""Best responses in bulk: what `fedprice.game.best_level` returns, several times faster.

Symbols: q level, P price, c cost, v value, k impact, τ cost exponent.

With b = (v k / τ c)^{1/(τ+1)}, the answer to a price of 0, and p = P / (τ c b^{τ−1}), the answer is
q = b y, where y solves y^{τ+1} = 1 + p y²: one function of one number for all types, clients and
prices. It is tabulated once per τ, relative to r^{1/(τ−1)} for p > 0 and r^{−1/2} for p ≤ 0,
r = 1 + |p|, which are its limits at both ends. A value from the table has four correct digits, and
two steps of Newton's iteration make that sixteen.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedprice.game import best_level

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray

__all__ = ["levels_at"]

NODES = 1 << 14
STEPS, MORE_STEPS = 2, 4  # of Newton's iteration; more for τ below CLOSE, where y is more curved
CLOSE = 1.2
LARGEST = 1e300  # of |p|: beyond it, p/(1 + |p|) would not be a number
TOO_CLOSE = 1.01  # below this τ, r^{1/(τ−1)} overflows even for prices just above the cap


def levels_at(
    price: FloatArray,
    cost: FloatArray,
    value_impact: FloatArray,
    cost_exponent: float,
    level_max: FloatArray,
) -> FloatArray:
    """Return the level that each type chooses at each price.

    Parameters
    ----------
    price
        P, shape (rows, prices, 1).
    cost, value_impact
        c, shape (S,), and v k, shape (rows, 1, S).
    cost_exponent
        τ.
    level_max
        The caps, shape (rows, 1, 1).

    Returns
    -------
    levels
        Shape (rows, prices, S).
    """
    tau = cost_exponent
    if tau < TOO_CLOSE:
        return best_level(price, cost, value_impact, tau, level_max)
    wanting = value_impact > 0
    base = (np.where(wanting, value_impact, 1.0) / (tau * cost)) ** (1 / (tau + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        levels = _unit_levels(price * (1 / (tau * cost * base ** (tau - 1))), tau)
    levels *= base
    if not wanting.all():
        unpaid = np.maximum(price, 0.0) / (tau * cost)
        with np.errstate(over="ignore"):
            levels = np.where(wanting, levels, unpaid ** (1 / (tau - 1)))
    # Close to τ = 1 an answer far above the cap may overflow to NaN.
    return np.fmin(levels, level_max, out=levels)


def _unit_levels(p: FloatArray, tau: float) -> FloatArray:
    """Return y(p), the root of y^{τ+1} = 1 + p y²."""
    p = np.clip(p, -LARGEST, LARGEST, out=p)
    r = np.abs(p)
    r += 1
    at = p / r
    at += 1
    at *= NODES / 2
    at = np.minimum(at, NODES, out=at)
    at = np.fmax(at, 0.0, out=at)  # NaN, of an infinite impact, has no cell; it ends at the cap
    node = at.astype(np.int32)
    y: FloatArray = _table(tau)[node]
    y *= np.where(p > 0, _power(r, 1 / (tau - 1)), 1 / np.sqrt(r))
    for _ in range(STEPS if tau >= CLOSE else MORE_STEPS):
        # f = y² (y^{τ−1} − p) − 1, f′ = y ((τ+1) y^{τ−1} − 2 p).
        power = _power(y, tau - 1)
        f = power - p
        f *= y
        f *= y
        f -= 1
        slope = (tau + 1) * power
        slope -= p
        slope -= p
        slope *= y
        f /= slope
        y -= f
    return y


@lru_cache(maxsize=8)
def _table(tau: float) -> FloatArray:
    """Return y relative to its limits, in the middle of each cell of p/(1 + |p|)."""
    s = (np.arange(NODES + 1) + 0.5) / (NODES / 2) - 1
    s[-1] = 1 - 1e-9
    p = s / (1 - np.abs(s))
    # c = 1/τ and v k = 1 make b = 1.
    y = best_level(p, 1 / tau, 1.0, tau, np.inf)
    r = 1 + np.abs(p)
    table: FloatArray = y / np.where(p > 0, r ** (1 / (tau - 1)), 1 / np.sqrt(r))
    return table


def _power(base: FloatArray, exponent: float) -> FloatArray:
    """Return base^exponent; the base itself, not a copy, where the exponent is 1."""
    return base if exponent == 1 else base**exponent
