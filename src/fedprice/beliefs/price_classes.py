"""Price classes: a few prices for many clients.

Two clients belong together if one price serves both. Individual prices are found first. Clients
are sorted by them and cut into classes that minimise the sum of L (log P − log P̄)², L = A + μ C,
which is what a common price costs to second order. Then each client moves to the class whose price
suits it best, and classes are priced again, until no client moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.price_search import Search

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.beliefs.families import Population

__all__ = ["price_classes"]

MOVES = 6  # rounds in which clients change their class
MOST_POINTS = 1024  # cut exactly; more are thinned out first


def price_classes(
    population: Population, search: Search, budget: float, classes: int
) -> list[IntArray]:
    """Return the class of each row of each set of a population.

    Parameters
    ----------
    population, search
        Whom to price, and the search over their own prices.
    budget
        The expected budget.
    classes
        How many prices there may be.
    """
    individual = search.post(budget)
    value = (search.loss + individual.multiplier * search.spend).min(axis=1)
    scale = float(np.median(np.abs(individual.price))) or 1.0
    group = cut(np.arcsinh(individual.price / scale), value, classes)
    sizes = np.cumsum([curves.impact.size for curves in population.curves])[:-1]
    for _ in range(MOVES):
        _, group = np.unique(group, return_inverse=True)
        joined = Search(population.family(np.split(group, sizes)))
        common = joined.post(budget)
        spend, loss = search.family.at(np.tile(common.price, (search.family.size, 1)))
        best = np.argmin(loss + common.multiplier * spend, axis=1)
        if (best == group).all():
            break
        group = best
    _, group = np.unique(group, return_inverse=True)
    return list(np.split(group, sizes))


def cut(place: FloatArray, weight: FloatArray, parts: int) -> IntArray:
    """Return the part of each point when points on a line are cut with the least weighted variance.

    Dynamic programming over all cuts; exact up to 1,024 points.

    Examples
    --------
    >>> cut(np.array([1.0, 9.0, 1.1, 5.0, 9.2]), np.ones(5), 3)
    array([0, 2, 0, 1, 2])
    """
    order = np.argsort(place, kind="stable")
    step = -(-order.size // MOST_POINTS)
    ends = np.arange(0, order.size + step, step).clip(max=order.size)
    sums = [
        np.concatenate([[0.0], np.cumsum(weight[order] * place[order] ** n)])[ends]
        for n in (0, 1, 2)
    ]
    count = ends.size
    w, x, xx = (s[None, :] - s[:, None] for s in sums)  # sums over the points from row to column
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(w > 0, np.maximum(xx - x * x / w, 0.0), 0.0)
    cost[np.tril_indices(count, -1)] = np.inf
    best = cost[0].copy()
    back = []
    for _ in range(1, min(parts, count - 1)):
        total = best[:, None] + cost
        back.append(np.argmin(total, axis=0))
        best = total.min(axis=0)
    part = np.zeros(order.size, np.int64)
    at = count - 1
    for n, before in enumerate(reversed(back)):
        start = int(before[at])
        part[order[ends[start] : ends[at]]] = len(back) - n
        at = start
    return part
