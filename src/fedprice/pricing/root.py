"""The one scalar root that every scheme needs: the scalar at which a rising spend meets the budget.

scipy's bracketing solvers use no derivative, and its Newton method keeps no bracket. Here an
evaluation costs a pass over all clients, so both are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

__all__ = ["ROUNDING", "Root", "Spend", "find_root"]

MOST_ITERATIONS = 500  # more than enough: bisection alone closes any bracket of floats in about 120
ROUNDING = 2.0**-46  # relative to the scale: more than the rounding error of ten million payments


class Spend(NamedTuple):
    """The spend at a point, by how much it exceeds the budget, its derivative, and its scale.

    The scale is the sum of the absolute values of all that was summed: rounding is relative to it.
    """

    total: float
    excess: float
    slope: float
    scale: float


@dataclass(frozen=True)
class Root:
    """Where the spend meets the budget; if not `found`, no float lies between the two ends."""

    point: float
    lower: float
    upper: float
    found: bool
    iterations: int

    @classmethod
    def known(cls, point: float) -> Self:
        """Return a root that needed no search."""
        return cls(point, point, point, found=True, iterations=0)


def find_root(
    spend: Callable[[float], Spend],
    start: float,
    lower: float = 0.0,
    upper: float = math.inf,
) -> Root:
    """Find the x > 0 at which a continuous, non-decreasing spend meets the budget from below.

    Newton's iteration inside a bracket: the longer of a plain step and one in a variable that bends
    like the spend, the other where that leaves the bracket, a bisection where neither helps. It
    aims below the budget by the rounding error of the spend, so that what is spent never exceeds
    it, and ends when that is met or the bracket contains no further number.

    Parameters
    ----------
    spend
        The function, with its distance from the budget, its derivative and its scale.
    start
        Where to start, lower < start < upper.
    lower, upper
        Points where the spend is known to be at most, and at least, the budget.

    Examples
    --------
    >>> root = find_root(lambda x: Spend(x**3, x**3 - 8, 3 * x**2, x**3), start=100.0)
    >>> round(root.point, 12), root.found
    (2.0, True)
    """
    x, last_error, converged, iterations = start, math.inf, False, 0
    while iterations < MOST_ITERATIONS:
        iterations += 1
        total, excess, slope, scale = spend(x)
        excess += ROUNDING * scale
        if excess <= 0:
            lower = max(lower, x)
        else:
            upper = min(upper, x)
        converged = abs(excess) <= ROUNDING / 2 * scale
        if converged or not lower < (lower + upper) / 2 < upper:
            break
        moving = slope > 0 and abs(excess) <= last_error / 2
        steps = _steps(x, total, excess, slope) if moving else []
        inside = [step for step in steps if lower < step < upper]
        x, last_error = inside[0] if inside else _middle(x, lower, upper), abs(excess)
    return Root(x, lower, upper, converged, iterations)


def _steps(x: float, total: float, excess: float, slope: float) -> list[float]:
    """Return where Newton's iteration would go, in x and in a bent variable, the longer step first.

    A curved spend makes one of them fall short, and the other go too far, within the bracket.
    """
    plain = x - excess / slope
    # Where spend and budget are positive, in the logarithms of x and spend: exact for a power law.
    aim = total - excess
    if abs(aim) < 1e-12 * total:
        aim = 1e-12 * total  # below this, it is lost in the sum's rounding
    if total > 0 and aim > 0:
        exponent = total * math.log(aim / total) / (slope * x)
    else:
        # Otherwise in x^(−1/3): that is how the spend falls where a client pays without limit.
        shrunk = 1 - max(-excess / (slope * x), -50) / 3
        exponent = -3 * math.log(shrunk) if shrunk > 1e-3 else 50
    stretched = x * math.exp(min(max(exponent, -50), 50))
    return sorted((plain, stretched), reverse=excess < 0)


def _middle(x: float, lower: float, upper: float) -> float:
    """Return a point that halves the bracket, in the logarithm where it is wide."""
    if upper == math.inf:
        return x * 16
    if lower == 0:
        return upper / 16
    return math.sqrt(lower) * math.sqrt(upper) if upper > 4 * lower else (lower + upper) / 2
