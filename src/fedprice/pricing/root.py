"""The one scalar root that every scheme needs: what is spent rises with a scalar; hit the budget.

scipy's bracketing solvers take no derivative and its Newton keeps no bracket. Here an evaluation
costs a pass over all clients, so both are wanted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ROUNDING", "Root", "Spend", "find_root"]

ROUNDING = 2.0**-46  # relative to the scale: more than a sum of ten million payments is off


class Spend(NamedTuple):
    """The spend at a point, its derivative there, and the sum of its terms' absolute values."""

    total: float
    slope: float
    scale: float


@dataclass(frozen=True)
class Root:
    """Where the spend meets the budget; if not `found`, no number lies between the two ends."""

    point: float
    lower: float
    upper: float
    found: bool
    iterations: int


def find_root(
    spend: Callable[[float], Spend],
    budget: float,
    start: float,
    lower: float = 0.0,
    upper: float = math.inf,
) -> Root:
    """Find the x > 0 at which a continuous, non-decreasing spend meets the budget from below.

    Newton's iteration inside a bracket: a plain step, one in log x where the plain one leaves the
    bracket, a bisection where neither helps. It aims below the budget by the rounding error of the
    spend, so that what is spent never exceeds it, and ends when that is met or the bracket holds no
    further number.

    Parameters
    ----------
    spend
        The function, with its derivative and scale.
    budget
        The value to hit.
    start
        Where to begin, lower < start < upper.
    lower, upper
        Points where the spend is known to be at most, and at least, the budget.

    Examples
    --------
    >>> root = find_root(lambda x: Spend(x**3, 3 * x**2, x**3), budget=8.0, start=100.0)
    >>> round(root.point, 12), root.found
    (2.0, True)
    """
    x, last_error, found = start, math.inf, False
    for iteration in range(1, 500):
        total, slope, scale = spend(x)
        gap = budget - total - ROUNDING * scale
        if gap >= 0:
            lower = max(lower, x)
        else:
            upper = min(upper, x)
        found = abs(gap) <= ROUNDING * scale
        if found or not lower < (lower + upper) / 2 < upper:
            break
        x = _next(x, gap, slope, lower, upper, stalled=abs(gap) > last_error / 2)
        last_error = abs(gap)
    return Root(x, lower, upper, found, iteration)


def _next(
    x: float, gap: float, slope: float, lower: float, upper: float, *, stalled: bool
) -> float:
    if slope > 0 and not stalled:
        steps = [x + gap / slope, x * math.exp(min(max(gap / (slope * x), -50), 50))]
        if gap > 0:
            # Below the root the spend is mostly concave and steps fall short: try the longer first.
            steps.sort(reverse=True)
        for step in steps:
            if lower < step < upper:
                return step
    if upper == math.inf:
        return x * 16
    if lower == 0:
        return upper / 16 if upper > 0 else x
    return lower * math.sqrt(upper / lower) if upper > 4 * lower else (lower + upper) / 2
