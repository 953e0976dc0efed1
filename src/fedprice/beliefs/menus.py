"""Menus: the optimal contracts for clients whose cost is private and whose value is known.

Symbols: q level, c cost, τ cost exponent, v value, k impact, T payment, B budget, μ multiplier of
the budget, t = 1/μ, w the weight of a cost and F the cumulative weight.

A menu is a list of rows (level, payment); a client of cost c takes the row with the largest
T − c q^τ − v k/q. The costs c_1 < … < c_S reveal themselves if and only if levels fall with the
cost and each cost is paid at least what it could earn as the next higher one. With U the utility
of the highest cost, the expected payment is then at least

    E[T] = U + Σ_j w_j (ψ_j q_j^τ + v k/q_j),   ψ_j = c_j + (c_j − c_{j−1}) F_{j−1} / w_j,

so that the problem is that of complete information with *virtual costs* ψ. Where these fall, levels
are made equal by *ironing*: weighted isotonic regression of ψ, the same for all k, v and μ. Then

    q_j = min(q_max, [k (t + v) / (τ ψ̄_j)]^{1/(τ+1)}),

and one root in t meets the budget. With v = 0 that is the paper's equilibrium with cost ψ̄/τ for
every pair of client and cost.

References
----------
R. Myerson, Optimal Auction Design, Mathematics of Operations Research, 1981 (ironing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq, isotonic_regression

from fedprice.beliefs.block_tariffs import FoundTariffs, with_unbought
from fedprice.beliefs.curves import Moments
from fedprice.beliefs.expectations import expected
from fedprice.beliefs.prices import NoPriceError
from fedprice.errors import InputError
from fedprice.game import best_level
from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.beliefs.beliefs import Types

__all__ = ["Costs", "costs_of", "post_menus"]

TAIL = 8  # rows below the lowest level of a menu, for costs that the beliefs do not cover
TAIL_END = 0.05  # the lowest of them, relative to the lowest level of the menu
SAME = 1e-12  # relative: levels as close as this are one row


class Costs(NamedTuple):
    """The distinct costs of a group, rising, with their weights and ironed virtual costs, (S,)."""

    cost: FloatArray
    weight: FloatArray
    virtual: FloatArray


def costs_of(types: Types) -> Costs:
    """Return the distinct costs among types, their weights, and their ironed virtual costs.

    Examples
    --------
    >>> from fedprice.beliefs.beliefs import Types
    >>> costs_of(Types.of([1, 2, 3], 0.0, [0.5, 0.25, 0.25])).virtual
    array([1., 4., 6.])
    >>> costs_of(Types.of([1, 2, 3], 0.0, [0.5, 0.125, 0.375])).virtual  # 1, 6, 4.67 before
    array([1., 5., 5.])
    """
    cost, place = np.unique(types.cost, return_inverse=True)
    weight = np.bincount(place, types.weight).astype(np.float64)
    below = np.cumsum(weight) - weight
    virtual = cost + np.diff(cost, prepend=0.0) * below / weight
    return Costs(cost, weight, isotonic_regression(virtual, weights=weight).x)


def post_menus(
    impact: FloatArray,
    types: Sequence[Types],
    group_of: IntArray,
    value: FloatArray,
    cost_exponent: float,
    level_max: FloatArray,
    budget: float,
    *,
    outside: FloatArray | None = None,
    tail: bool = False,
) -> FoundTariffs:
    """Return the menus of least expected loss whose expected spend is the budget.

    Parameters
    ----------
    impact, level_max
        k and the largest level of each client, shape (N,).
    types, group_of
        The possible types of each group, of which only the costs count, and each client's group,
        shape (N,).
    value
        The known value v of each client, shape (N,).
    cost_exponent
        τ.
    budget
        B: the most that is spent in expectation.
    outside
        The least T − c q^τ − v k/q that a client accepts, shape (N,), the same for all its types.
        By default clients may also join unpaid: nobody is worse off than with the best level
        without payment.
    tail
        Whether levels below those of the menu are paid in proportion, instead of nothing. Then
        costs higher than any in the beliefs also find an acceptable row, but the highest costs in
        the beliefs may step down to it.

    Notes
    -----
    With an outside utility the menu is optimal. Where clients may join unpaid, levels are
    max(q_j, the unpaid level), and payments 0 where the second is larger; that is optimal for
    regular continuous beliefs, and up to 8 % above the optimum with a handful of costs.
    """
    bought = impact > 0
    if not bought.any():
        raise InputError("no client has any impact, so that there is nothing to buy.")
    if not bought.all():
        some = outside if outside is None else outside[bought]
        post = post_menus(
            impact[bought],
            types,
            group_of[bought],
            value[bought],
            cost_exponent,
            level_max[bought],
            budget,
            outside=some,
            tail=tail,
        )
        return with_unbought(bought, level_max, post)
    menus = _Menus.of(impact, types, group_of, value, cost_exponent, level_max, outside)
    reciprocal = _reciprocal(menus, budget)
    levels = menus.levels(reciprocal)
    payments = menus.payments(levels)
    tariffs = _rows(menus, levels, payments, tail)
    if tail:
        values = np.broadcast_to(value[:, None], menus.cost.shape)
        found = expected(tariffs, impact, menus.cost, values, menus.weight, cost_exponent)
    else:
        mean = (menus.weight * payments).sum(axis=1)
        found = Moments(
            loss=(menus.weight * (impact[:, None] / levels)).sum(axis=1),
            spend=mean,
            variance=(menus.weight * (payments - mean[:, None]) ** 2).sum(axis=1),
            level=(menus.weight * levels).sum(axis=1),
        )
    return FoundTariffs(tariffs, found, 1 / reciprocal)


class _Menus(NamedTuple):
    """What menus are made of: one row per client and one column per cost, rising."""

    cost: FloatArray  # (N, S)
    weight: FloatArray  # (N, S)
    virtual: FloatArray  # (N, S)
    impact: FloatArray  # (N, 1)
    value: FloatArray  # (N, 1)
    level_max: FloatArray  # (N, 1)
    unpaid: FloatArray | None  # (N, S): the best level without payment, if clients may join unpaid
    least: FloatArray  # (N, S): the least utility
    cost_exponent: float

    @classmethod
    def of(
        cls,
        impact: FloatArray,
        types: Sequence[Types],
        group_of: IntArray,
        value: FloatArray,
        cost_exponent: float,
        level_max: FloatArray,
        outside: FloatArray | None,
    ) -> _Menus:
        groups = [costs_of(each) for each in types]
        size = max(len(each.cost) for each in groups)
        cost, virtual = (
            np.stack([np.pad(x, (0, size - len(x)), mode="edge") for x in column])[group_of]
            for column in ([each.cost for each in groups], [each.virtual for each in groups])
        )
        weight = np.stack([np.pad(each.weight, (0, size - len(each.cost))) for each in groups])
        k, v, cap = impact[:, None], value[:, None], level_max[:, None]
        unpaid = None
        if outside is None:
            unpaid = best_level(0.0, cost, v * k, cost_exponent, cap)
            own = np.divide(v * k, unpaid, out=np.zeros_like(cost), where=unpaid > 0)
            least = -cost * unpaid**cost_exponent - own
        else:
            least = np.broadcast_to(outside[:, None], cost.shape)
        return cls(cost, weight[group_of], virtual, k, v, cap, unpaid, least, cost_exponent)

    def levels(self, reciprocal: float) -> FloatArray:
        """Return q at t, shape (N, S), falling in each row."""
        tau = self.cost_exponent
        wanted = (self.impact * (reciprocal + self.value) / (tau * self.virtual)) ** (1 / (tau + 1))
        levels: FloatArray = np.minimum(wanted, self.level_max)
        return levels if self.unpaid is None else np.maximum(levels, self.unpaid)

    def payments(self, levels: FloatArray) -> FloatArray:
        """Return the least payments at which every cost takes its own level, shape (N, S)."""
        spent = levels**self.cost_exponent
        # What each cost could gain by acting as the next higher one, summed from the highest.
        steps = np.diff(self.cost, axis=1) * spent[:, 1:]
        rent = np.pad(np.cumsum(steps[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))
        utility = self.least[:, -1:] + rent
        if self.unpaid is not None:
            # Nobody is worse off than unpaid, nor than as any higher cost.
            floor = np.maximum.accumulate((self.least - rent)[:, ::-1], axis=1)[:, ::-1]
            utility = floor + rent
        payments: FloatArray = utility + self.cost * spent + self.value * self.impact / levels
        if self.unpaid is not None:
            idle = (levels <= self.unpaid) & (utility <= self.least)
            payments = np.where(idle, 0.0, payments)
        return payments


def _reciprocal(menus: _Menus, budget: float) -> float:
    """Return the t = 1/μ at which the expected spend is the budget; infinite if it is slack."""

    def excess(log_reciprocal: float) -> float:
        payments = menus.payments(menus.levels(np.exp(log_reciprocal)))
        return float((menus.weight * payments).sum()) - budget

    if excess(np.inf) <= 0:
        return np.inf
    lower = upper = float(np.log(max(budget, 1.0) / menus.impact.sum()))
    while excess(upper) <= 0:
        upper += 3.0
    while excess(lower) > 0:
        lower -= 3.0
        if lower < np.log(np.finfo(np.float64).tiny):
            least = round(excess(lower) + budget, 6)
            raise NoPriceError(
                f"`budget` must be above {least:.6g} for these beliefs and outside options; got "
                f"{budget:g}. Raise the budget."
            )
    root = brentq(excess, lower, upper, xtol=1e-15, rtol=8.9e-16)
    step = 1e-16
    while excess(root) > 0:
        root -= step * max(1.0, abs(root))
        step *= 2
    return float(np.exp(root))


def _rows(menus: _Menus, levels: FloatArray, payments: FloatArray, tail: bool) -> Tariffs:
    """Return menus whose rows are the distinct levels, above the rows of the tail."""
    rising, paid = levels[:, ::-1], payments[:, ::-1]
    new = np.diff(rising, axis=1, prepend=0.0) > SAME * rising
    new[:, 0] = True
    above = np.cumsum(new[:, ::-1], axis=1)[:, ::-1]
    size = TAIL + int(above[:, 0].max())
    lowest = rising[:, :1]
    spare = size - above[:, :1]
    # The tail, a geometric progression up to the lowest level of the menu.
    ends = lowest * TAIL_END ** (1 - np.arange(size) / spare)
    tau, own = menus.cost_exponent, menus.value * menus.impact
    utility = paid[:, :1] - menus.cost[:, -1:] * lowest**tau - own / lowest
    # Not more than would leave the highest cost indifferent.
    total = np.minimum(utility + menus.cost[:, -1:] * ends**tau + own / ends, 0.0)
    if tail:
        total = np.where(paid[:, :1] > 0, paid[:, :1] * ends / lowest, total)
    client, column = np.nonzero(new)
    place = size - above[client, column]
    ends[client, place] = rising[client, column]
    total[client, place] = paid[client, column]
    prices = np.diff(total, axis=1, prepend=0.0) / np.diff(ends, axis=1, prepend=0.0)
    return Tariffs(ends, prices, menu=True)
