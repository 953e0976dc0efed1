"""Menus: the optimal contracts for clients whose cost is private and whose value is known.

Symbols: q level, z = q^τ, c cost, τ cost exponent, v value, k impact, T payment, U utility,
B budget, μ multiplier of the budget, t = 1/μ, w_j the weight of cost c_j, F_j that of all costs
below it, Δ_j = c_j − c_{j−1}.

A menu is a list of rows (level, payment); a client of cost c takes the row with the largest
T − c q^τ − v k/q. It may also join unpaid, which gives it R(c) = max_q −c q^τ − v k/q. Each of the
costs c_1 < … < c_S takes its own row if and only if, between c_{j−1} and c_j, U falls by some s_j
per unit of cost with z_{j−1} ≥ s_j ≥ z_j. It is best to have U_S = R_S and z_j = s_j, unless that
is more than would be bought if the cost were known. So the expected payment is

    E[T] = R_S + Σ_j w_j (ψ_j z_j + v k/q_j),   ψ_j = c_j + Δ_j F_j / w_j,

and the problem is that of complete information with *virtual costs* ψ. Where these fall, levels are
made equal by *ironing*: weighted isotonic regression of ψ, the same for all k, v and μ. Then

    q_j = min(q_max, [k (t + v) / (τ ψ̄_j)]^{1/(τ+1)}),

and one root in t meets the budget. With v = 0 that is the paper's equilibrium with cost ψ̄/τ for
every pair of client and cost.

With v > 0 clients of high cost may prefer to join unpaid: U_j ≥ R_j then binds below the highest
cost, too. Let G_j be the sum of its multipliers over all costs below c_j, divided by μ; it rises
with j, and virtual costs become c_j + Δ_j (F_j − G_j) / w_j. Taken alone, each cost needs the G_j
at which U is as steep as R. Where these fall with j, neighbours are pooled under one G, at which U
falls as much as R over all of them: pooling of adjacent violators, as in ironing.

References
----------
R. Myerson, Optimal Auction Design, Mathematics of Operations Research, 1981 (ironing).
B. Jullien, Participation Constraints in Adverse Selection Models, Journal of Economic Theory, 2000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq, isotonic_regression

from fedprice.beliefs.block_tariffs import FoundTariffs, with_unbought
from fedprice.beliefs.curves import Moments
from fedprice.beliefs.price_search import NoPriceError
from fedprice.beliefs.tariff_tails import tail_fee, with_tail
from fedprice.errors import InputError
from fedprice.game import best_level
from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.beliefs.beliefs import Types

__all__ = ["Costs", "costs_of", "post_menus"]

SPARE = 0.05  # the lowest row that pads shorter menus, relative to their lowest level
SAME = 1e-12  # relative: levels as close as this are merged into one row


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
    margin: float = 0.0,
) -> FoundTariffs:
    """Return the menus of least expected loss whose expected spend is the budget.

    No client is worse off than with its best level without payment. A client without value gets a
    small fee on top, so that there are rows for costs above all believed ones (see
    `fedprice.beliefs.tariff_tails`). Among the menus that grant this, these are optimal.

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
        B > 0: the most that is spent in expectation.
    margin
        How much more a row is paid, relative to its distance from the next lower one. At 0, the
        menu is optimal, and every cost is indifferent between its row and the next lower one.
    """
    if not budget > 0:
        raise NoPriceError(
            f"`budget` must be above 0 for menus, which never charge; got {budget:g}. Raise the "
            "budget."
        )
    bought = impact > 0
    if not bought.any():
        raise InputError("no client has any impact, so there is nothing to buy.")
    if not bought.all():
        post = post_menus(
            impact[bought],
            types,
            group_of[bought],
            value[bought],
            cost_exponent,
            level_max[bought],
            budget,
            margin,
        )
        return with_unbought(bought, level_max, post)
    menus = _Menus.of(impact, types, group_of, value, cost_exponent, level_max, margin)
    most = float((menus.weight * menus.rows(np.inf)[1]).sum())
    fee = np.where(value > 0, 0.0, tail_fee(min(budget, most), len(impact)))
    reciprocal = _reciprocal(menus, float(fee.sum()), budget)
    levels, payments = menus.rows(reciprocal)
    mean = (menus.weight * payments).sum(axis=1)
    moments = Moments(
        loss=(menus.weight * (impact[:, None] / levels)).sum(axis=1),
        spend=mean + fee,
        variance=(menus.weight * (payments - mean[:, None]) ** 2).sum(axis=1),
        level=(menus.weight * levels).sum(axis=1),
    )
    tariffs = with_tail(_tariffs(levels, payments), fee, menus.cost[:, -1], cost_exponent)
    return FoundTariffs(tariffs, moments, 1 / reciprocal)


class _Menus(NamedTuple):
    """The inputs of menus: one row per client, and one column per cost in rising order.

    Clients with fewer costs repeat the highest one with weight 0.
    """

    cost: FloatArray  # (N, S)
    weight: FloatArray  # (N, S)
    virtual: FloatArray  # (N, S): ironed
    size: IntArray  # (N, 1): how many costs there are
    below: FloatArray  # (N, S): F, the weight of lower costs
    unpaid: FloatArray  # (N, S): R, the largest utility without payment
    steepness: FloatArray  # (N, S): by how much R falls per unit of cost, up to each cost
    impact: FloatArray  # (N, 1)
    value: FloatArray  # (N, 1)
    level_max: FloatArray  # (N, 1)
    cost_exponent: float
    margin: float

    @classmethod
    def of(
        cls,
        impact: FloatArray,
        types: Sequence[Types],
        group_of: IntArray,
        value: FloatArray,
        cost_exponent: float,
        level_max: FloatArray,
        margin: float,
    ) -> _Menus:
        groups = [costs_of(each) for each in types]
        sizes = np.array([len(each.cost) for each in groups])
        most = int(sizes.max())
        cost, virtual = (
            np.stack([np.pad(x, (0, most - len(x)), mode="edge") for x in column])[group_of]
            for column in ([each.cost for each in groups], [each.virtual for each in groups])
        )
        weight = np.stack([np.pad(each.weight, (0, most - len(each.cost))) for each in groups])
        weight = weight[group_of]
        k, v, cap = impact[:, None], value[:, None], level_max[:, None]
        level = best_level(0.0, cost, v * k, cost_exponent, cap)
        own = np.divide(v * k, level, out=np.zeros_like(cost), where=level > 0)
        unpaid = -cost * level**cost_exponent - own
        step, fall = np.diff(cost, axis=1), -np.diff(unpaid, axis=1)
        steepness = np.zeros_like(cost)
        np.divide(fall, step, out=steepness[:, 1:], where=step > 0)
        return cls(
            cost, weight, virtual, sizes[group_of, None], np.cumsum(weight, axis=1) - weight,
            unpaid, steepness, k, v, cap, cost_exponent, margin,
        )  # fmt: skip

    def rows(self, reciprocal: float) -> tuple[FloatArray, FloatArray]:
        """Return levels and payments at t, shape (N, S), both falling in each row."""
        tau = self.cost_exponent
        slopes = self._slopes(reciprocal)
        known = (self._worth(reciprocal) / self.cost) ** (tau / (tau + 1))
        levels = np.minimum(np.minimum(slopes, known) ** (1 / tau), self.level_max)
        # What each cost could gain by imitating the next higher one, summed from the highest.
        steps = np.diff(self.cost, axis=1) * slopes[:, 1:]
        rent = np.pad(np.cumsum(steps[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))
        utility = np.maximum(self.unpaid[:, -1:] + rent, self.unpaid)
        own = self.value * self.impact / levels
        payments = np.maximum(utility + self.cost * levels**tau + own, 0.0)
        # Half of what would make the next higher cost imitate this one, at most.
        step, power = np.diff(self.cost, axis=1), levels**tau
        room = np.maximum(step * (power[:, :-1] - slopes[:, 1:]), 0.0) / 2
        more = np.minimum(-self.margin * np.diff(payments, axis=1), room)
        payments[:, :-1] += np.cumsum(np.maximum(more, 0.0)[:, ::-1], axis=1)[:, ::-1]
        return levels, payments

    def _worth(self, reciprocal: float) -> FloatArray:
        """Return k (t + v) / τ, shape (N, 1)."""
        worth: FloatArray = self.impact * (reciprocal + self.value) / self.cost_exponent
        return worth

    def _slopes(self, reciprocal: float) -> FloatArray:
        """Return s at t, by how much U falls per unit of cost up to each cost, shape (N, S)."""
        tau, worth = self.cost_exponent, self._worth(reciprocal)
        slopes = np.minimum((worth / self.virtual) ** (tau / (tau + 1)), self.level_max**tau)
        step, column = np.diff(self.cost, axis=1, prepend=0.0), np.arange(slopes.shape[1])
        # G at which U is as steep as R up to each cost alone; nobody imitates a cost below the
        # lowest.
        with np.errstate(divide="ignore", invalid="ignore"):
            steep = self.cost - worth * self.steepness ** (-1 - 1 / tau)
            alone = np.clip(self.below + steep * self.weight / step, 0.0, self.below)
        alone = np.where(column < self.size, alone, 1.0)
        alone[:, 0] = 0.0
        bound = alone > 0
        start = np.argmax(bound, axis=1, keepdims=True)
        virtual = np.take_along_axis(self.virtual, np.maximum([start - 1, start], 0)[:, :, 0].T, 1)
        parted = bound.any(axis=1) & (virtual[:, 0] == virtual[:, 1])
        slopes = np.where(bound, self.steepness, slopes)
        for n in np.flatnonzero(parted | (np.diff(alone, axis=1) < 0).any(axis=1)).tolist():
            size = int(self.size[n, 0])
            slopes[n, :size] = self._pooled(n, alone[n, :size], float(worth[n, 0]))
        return np.take_along_axis(slopes, np.minimum(column, self.size - 1), 1)

    def _pooled(self, n: int, alone: FloatArray, worth: float) -> FloatArray:
        """Return s of a client whose neighbouring costs are to be pooled, shape (size,)."""
        size, tau = alone.size, self.cost_exponent
        cost, weight, below, steepness = (
            x[n, :size] for x in (self.cost, self.weight, self.below, self.steepness)
        )
        step, most = np.diff(cost, prepend=0.0), float(self.level_max[n, 0]) ** tau

        def slopes(first: int, end: int, multiplier: float) -> FloatArray:
            some = slice(first, end)
            virtual = cost[some] + (below[some] - multiplier) * step[some] / weight[some]
            ironed = isotonic_regression(virtual, weights=weight[some]).x
            found: FloatArray = np.minimum((worth / ironed) ** (tau / (tau + 1)), most)
            return found

        pools: list[tuple[int, float]] = []  # where each begins, and its G
        for at in range(1, size):
            first, multiplier = at, float(alone[at])
            while pools and pools[-1][1] > multiplier:
                first, high = pools.pop()

                def excess(g: float, some: slice = slice(first, at + 1)) -> float:
                    found = slopes(some.start, some.stop, g)
                    return float(step[some] @ (found - steepness[some]))

                if excess(0.0) >= 0:
                    multiplier = 0.0
                elif excess(high) <= 0:
                    multiplier = high
                else:
                    multiplier = brentq(excess, 0.0, high, xtol=1e-16, rtol=8.9e-16)
            pools.append((first, multiplier))
        found = steepness.copy()
        pools = [(0, 0.0)] + [pool for pool in pools if pool[1] > 0]
        for (first, multiplier), end in zip(
            pools, [*(first for first, _ in pools[1:]), size], strict=True
        ):
            if end - first > 1 or not multiplier:
                found[first:end] = slopes(first, end, multiplier)
        return found


def _reciprocal(menus: _Menus, fees: float, budget: float) -> float:
    """Return the t = 1/μ at which the expected spend is the budget; infinite if it is slack."""

    def excess(log_reciprocal: float) -> float:
        _, payments = menus.rows(np.exp(log_reciprocal))
        return float((menus.weight * payments).sum()) + fees - budget

    if excess(np.inf) <= 0:
        return np.inf
    lower = upper = float(np.log(max(budget, 1.0) / menus.impact.sum()))
    while excess(upper) <= 0:
        upper += 3.0
    while excess(lower) > 0:
        lower -= 3.0
        if lower < np.log(np.finfo(np.float64).tiny):
            raise NoPriceError(
                f"`budget` is too small for any menu; got {budget:g}. Raise the budget."
            )
    root = brentq(excess, lower, upper, xtol=1e-15, rtol=8.9e-16)
    step = 1e-16
    while excess(root) > 0:
        root -= step * max(1.0, abs(root))
        step *= 2
    return float(np.exp(root))


def _tariffs(levels: FloatArray, payments: FloatArray) -> Tariffs:
    """Return menus whose rows are the distinct levels; shorter ones begin with unpaid rows."""
    rising, paid = levels[:, ::-1], payments[:, ::-1]
    new = np.diff(rising, axis=1, prepend=0.0) > SAME * rising
    new[:, 0] = True
    above = np.cumsum(new[:, ::-1], axis=1)[:, ::-1]
    size = int(above[:, 0].max())
    spare = size - above[:, :1]
    part = np.minimum(np.arange(size) / np.maximum(spare, 1), 1.0)
    ends = rising[:, :1] * SPARE ** (1 - part)
    total = np.zeros_like(ends)
    client, column = np.nonzero(new)
    place = size - above[client, column]
    ends[client, place] = rising[client, column]
    total[client, place] = paid[client, column]
    prices = np.diff(total, axis=1, prepend=0.0) / np.diff(ends, axis=1, prepend=0.0)
    return Tariffs(ends, prices, menu=True)
