"""A game in the form in which `equilibrium` solves it: arrays over blocks of clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedprice.game import price_at
from fedprice.pricing.root import Spend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game


__all__ = ["BLOCK", "Problem"]

BLOCK = 1 << 13  # clients per block: the working set of one evaluation stays in the cache
SAMPLE = 1 << 6  # one in this many clients is in the sample whose root starts the search


@dataclass(frozen=True, eq=False)
class Problem:
    """A game without its budget, in the solver's form: one row per client that has an impact.

    Clients without impact are not bought: they stay at their floor, at the price of that floor.
    Everything runs over blocks of clients, so that apart from the result no array of full length is
    allocated: with ten million clients, fresh memory costs more time than arithmetic.
    """

    game: Game
    active: npt.NDArray[np.bool_] | slice
    reference: float
    impact: FloatArray
    cost: FloatArray
    value: FloatArray
    floor: FloatArray
    cap: FloatArray
    floor_power: FloatArray | None
    cap_power: FloatArray

    @classmethod
    def of(cls, game: Game) -> Self:
        """Put a game into the solver's form."""
        clients, impact = game.clients, game.impact
        active: npt.NDArray[np.bool_] | slice = slice(None)
        if impact.min() <= 0:
            active = impact > 0
        value, floor = clients.value[active], clients.level_min[active]
        floored = _some(floor)
        unfloored = value[floor == 0] if floored else value
        return cls(
            game=game,
            active=active,
            reference=float(unfloored.max(initial=0.0)),
            impact=impact[active],
            cost=clients.cost[active],
            value=value,
            floor=floor,
            cap=clients.level_max[active],
            floor_power=_power(floor, game.cost_exponent + 1) if floored else None,
            cap_power=_power(clients.level_max[active], game.cost_exponent + 1),
        )

    def everybody(self, active: FloatArray, idle: Callable[[], FloatArray]) -> FloatArray:
        """Return an array over all clients from those with and those without impact."""
        if isinstance(self.active, slice):
            return active
        whole = idle().copy()
        whole[self.active] = active
        return whole

    @cached_property
    def idle_prices(self) -> FloatArray:
        """What the floor of each client would cost if it had no value, shape (N,)."""
        clients, tau = self.game.clients, self.game.cost_exponent
        return price_at(clients.level_min, clients.cost, np.zeros(1), tau)

    @cached_property
    def idle_spend(self) -> float:
        """What the floors of clients without impact cost."""
        if isinstance(self.active, slice):
            return 0.0
        return float((self.idle_prices * self.game.clients.level_min)[~self.active].sum())

    @cached_property
    def floor_payment(self) -> FloatArray | None:
        """What the floor of each client with an impact costs; None where nobody has a floor."""
        if self.floor_power is None:
            return None
        return self.prices(self.floor, slice(None)) * self.floor

    @cached_property
    def least_budget(self) -> float:
        """The infimum of the budgets with a solution: −inf if one client can pay without limit."""
        if self.reference > 0:
            return -np.inf
        floors = 0 if self.floor_payment is None else self.floor_payment.sum(dtype=np.longdouble)
        return float(np.longdouble(self.idle_spend) + floors)

    @cached_property
    def most_budget(self) -> float:
        """What it costs to have every client with an impact at its cap."""
        return self.idle_spend + sum(
            float(self.prices(self.cap[block], block) @ self.cap[block]) for block in self.blocks()
        )

    @cached_property
    def lowest(self) -> float:
        """The u up to which every client stays at its floor; 0 if one has none."""
        if self.floor_power is None or not self.floor.all():
            return 0.0
        return min(
            float((self.ratio(b) * self.floor_power[b] + (self.value[b] - self.reference)).min())
            for b in self.blocks()
        )

    def sample(self) -> Self:
        """Return the problem of one in SAMPLE clients, each with that multiplicity, and v_ref's."""
        few = np.arange(0, self.impact.size, SAMPLE)
        times = np.full(few.size + 1, float(SAMPLE))
        times[-1] = 1
        highest = self.value if self.floor_power is None else self.value * (self.floor == 0)
        few = np.append(few, np.argmax(highest))
        return replace(
            self,
            impact=self.impact[few] * times,
            cost=self.cost[few] * times,
            value=self.value[few],
            floor=self.floor[few],
            cap=self.cap[few],
            floor_power=None if self.floor_power is None else self.floor_power[few],
            cap_power=self.cap_power[few],
        )

    def blocks(self) -> Iterator[slice]:
        """Iterate over blocks of clients that fit into the cache."""
        return (slice(i, i + BLOCK) for i in range(0, self.impact.size, BLOCK))

    def ratio(self, block: slice) -> FloatArray:
        """Return r = τ² c / k for a block of clients."""
        ratio = self.game.cost_exponent**2 * self.cost[block]
        ratio /= self.impact[block]
        return ratio

    def gaps(self, u: float, block: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return r, t − v, and t − v clipped to floors and caps, for a block of clients."""
        ratio = self.ratio(block)
        raw = (self.reference - self.value[block]) + u
        clipped = np.minimum(raw, ratio * self.cap_power[block])
        if self.floor_power is not None:
            np.maximum(clipped, ratio * self.floor_power[block], out=clipped)
        return ratio, raw, clipped

    def spend(self, budget: np.longdouble, u: float) -> Spend:
        """Return S(t) at t = v_ref + u, its distance from the budget, and its derivative.

        An interior client's spend has the derivative k x t / ((τ+1) g). Floors may cost so much
        that what is bought above them would be lost to rounding; so their cost is subtracted from
        the budget in extended precision, and only the other payments are summed.
        """
        tau = self.game.cost_exponent
        bought = given = slope = 0.0
        left = budget
        for block in self.blocks():
            ratio, raw, gap = self.gaps(u, block)
            weighted = self.impact[block] * _inverse_power(ratio, gap, tau + 1)
            inside = raw == gap
            if self.floor_power is not None and self.floor_payment is not None:
                moved = gap > ratio * self.floor_power[block]
                weighted *= moved
                inside &= moved
                left = left - (self.floor_payment[block] * ~moved).sum(dtype=np.longdouble)
            bought += float(weighted @ gap)
            given += float(weighted @ self.value[block])
            weighted /= gap
            slope += float(weighted @ inside)
        slope *= (self.reference + u) / (tau + 1)
        total = bought / tau - given
        return Spend(total, total - float(left), slope, bought / tau + given)

    def levels(self, u: float, block: slice) -> FloatArray:
        """Return q(t) at t = v_ref + u, exactly at the floor or cap where that binds."""
        ratio, raw, gap = self.gaps(u, block)
        q = 1 / _inverse_power(ratio, gap, self.game.cost_exponent + 1)
        np.copyto(q, self.cap[block], where=raw >= ratio * self.cap_power[block])
        if self.floor_power is not None:
            np.copyto(q, self.floor[block], where=raw <= ratio * self.floor_power[block])
        return np.clip(q, self.floor[block], self.cap[block], out=q)

    def slack(self, u: float, q: FloatArray, block: slice) -> float:
        """Return Σ {l(q) − min l} of a block of clients, l(q) = (t − v) k / q + τ c q^τ.

        The minimum is written out from the problem itself, without the identities that make the
        search fast.
        """
        tau, k, c = self.game.cost_exponent, self.impact[block], self.cost[block]
        gap = (self.reference - self.value[block]) + u
        free = (k * np.maximum(gap, 0) / (tau**2 * c)) ** (1 / (tau + 1))
        best = np.clip(free, self.floor[block], self.cap[block])
        here = gap * k / q + tau * c * q**tau
        return float((here - (gap * k / best + tau * c * best**tau)).sum())

    def prices(self, levels: FloatArray, block: slice) -> FloatArray:
        """Return the prices of the levels of a block of clients."""
        value_impact = self.value[block] * self.impact[block]
        return price_at(levels, self.cost[block], value_impact, self.game.cost_exponent)


def _some(levels: FloatArray) -> bool:
    """Return whether any level is above 0; a broadcast array is examined only once."""
    return bool(levels[:1].any() if levels.strides == (0,) else levels.any())


def _power(levels: FloatArray, exponent: float) -> FloatArray:
    """Return levels^exponent; a broadcast array is computed only once."""
    if levels.strides == (0,):
        return np.broadcast_to(levels[:1] ** exponent, levels.shape)
    return levels**exponent


def _inverse_power(ratio: FloatArray, gap: FloatArray, power: float) -> FloatArray:
    """Return x = 1/q = (r / g)^{1/(τ+1)}."""
    if power == 3:
        return np.cbrt(ratio / gap)
    return (ratio / gap) ** (1 / power)
