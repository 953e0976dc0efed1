"""Buying along convex hulls: the cheapest way to lower a sum of losses under one budget.

Each row offers points (spend, loss). Only the corners of its lower convex hull can be part of an
optimum, and between two of them a lottery. All hulls' segments are sorted by slope, the loss that
one unit of money saves, and bought until the budget is spent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray

__all__ = ["Purchase", "buy", "lower_hull"]


class Purchase(NamedTuple):
    """What was bought: one corner per row, and for one row perhaps part of the next.

    Attributes
    ----------
    chosen
        Shape (rows,): the number of the point at which each row is.
    row, to, share
        The row that is bought in part (−1 if none), the point that it moves to, and the probability
        of that point.
    multiplier
        μ, the slope of the last segment: what one more unit of money saves; 0 if money is left.
    below, above
        Shape (rows,): the corners of the hull next to the one at which each row is, or that one
        itself at the hull's ends.
    """

    chosen: IntArray
    row: int
    to: int
    share: float
    multiplier: float
    below: IntArray
    above: IntArray


def lower_hull(spend: FloatArray, loss: FloatArray) -> list[int]:
    """Return the points of the falling part of the lower convex hull, by rising spend.

    Parameters
    ----------
    spend, loss
        Shape (M,); the spend rises. Points with an infinite loss are left out.

    Examples
    --------
    >>> lower_hull(np.array([0.0, 1.0, 2.0, 3.0]), np.array([9.0, 8.0, 2.0, 2.5]))
    [0, 2]
    """
    hull: list[int] = []
    c, a = spend.tolist(), loss.tolist()
    for i in range(len(c)):
        if not a[i] < np.inf:
            continue
        if hull and a[i] >= a[hull[-1]]:
            continue  # it costs more and saves nothing
        while hull and c[i] <= c[hull[-1]]:
            hull.pop()
        while len(hull) > 1:
            j, k = hull[-2], hull[-1]
            # Compute slopes as `buy` does, so that they also fall there, regardless of rounding.
            if (a[j] - a[k]) / (c[k] - c[j]) > (a[k] - a[i]) / (c[i] - c[k]):
                break
            hull.pop()
        hull.append(i)
    return hull


def buy(spend: FloatArray, loss: FloatArray, budget: float) -> Purchase | None:
    """Return the purchase that minimises the sum of losses; None where the budget cannot be met.

    Parameters
    ----------
    spend, loss
        Shape (rows, M), the spend rising along each row.
    budget
        The most to spend on all rows.

    Examples
    --------
    >>> spend = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    >>> loss = np.array([[9.0, 5.0, 4.0], [6.0, 3.0, 2.5]])
    >>> buy(spend, loss, budget=1.5)
    Purchase(chosen=array([1, 0]), row=1, to=1, share=0.5, multiplier=3.0, below=array([0, 0]),
    above=array([2, 1]))
    """
    hulls = [lower_hull(c, a) for c, a in zip(spend, loss, strict=True)]
    chosen = np.array([hull[0] for hull in hulls])
    rows = np.repeat(np.arange(len(hulls)), [len(hull) - 1 for hull in hulls])
    before = np.array([i for hull in hulls for i in hull[:-1]], np.int64)
    after = np.array([i for hull in hulls for i in hull[1:]], np.int64)
    left = budget - float(spend[np.arange(len(hulls)), chosen].sum())
    if left < -1e-12 * abs(budget):
        return None
    price = spend[rows, after] - spend[rows, before]
    with np.errstate(over="ignore"):
        slope = (loss[rows, before] - loss[rows, after]) / price
    order = np.argsort(-slope, kind="stable")
    paid = np.cumsum(price[order])
    bought = int(np.searchsorted(paid, left, side="right"))
    # A row's slopes fall along its hull, so the last segment bought gives its position.
    for segment in order[:bought].tolist():
        chosen[rows[segment]] = after[segment]
    place = np.bincount(rows[order[:bought]], minlength=len(hulls)).tolist()
    stands = list(zip(hulls, place, strict=True))
    below = np.array([hull[max(at - 1, 0)] for hull, at in stands])
    above = np.array([hull[min(at + 1, len(hull) - 1)] for hull, at in stands])
    if bought == order.size:
        return Purchase(chosen, -1, -1, 0.0, 0.0, below, above)
    last = int(order[bought])
    rest = left - (float(paid[bought - 1]) if bought else 0.0)
    share = min(max(rest, 0.0) / float(price[last]), 1.0)
    row, to, multiplier = int(rows[last]), int(after[last]), float(slope[last])
    return Purchase(chosen, row, to, share, multiplier, below, above)
