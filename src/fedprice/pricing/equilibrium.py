r"""The Stackelberg equilibrium: the server's optimal prices, exactly, for any number of clients.

Symbols: q level, x = 1/q, P price, c cost, τ cost exponent, v value, k impact, B budget, λ the
multiplier of the budget, t = 1/λ.

The paper calls the server's problem P1′ non-convex and searches over M = Σ c q² with a convex tool
at every step. In x = 1/q it is convex:

.. math::
    \min_x \sum_n k_n x_n
    \quad\text{s.t.}\quad \sum_n (\tau c_n x_n^{-\tau} - v_n k_n x_n) \le B,
    \quad 1/q_{\max} \le x_n \le 1/q_{\min}.

Its optimality conditions give every level from the single number t:

.. math::
    q_n(t) = \mathrm{clip}\big(
        [k_n (t - v_n)^+ / (\tau^2 c_n)]^{1/(\tau+1)}, q_{\min}, q_{\max} \big)

and the spend S(t) is continuous and non-decreasing, so one scalar root is the global optimum of all
clients. With r = τ² c / k, clipping q is clipping the gap g = t − v to r q_min^{τ+1} and
r q_max^{τ+1}, and then, clipped or not,

    x = (r / g)^{1/(τ+1)},   payment = k x (g / τ − v),

one power a client. When some clients have no floor, t must exceed the largest value v_ref among
them, and may come so close that t − v_ref drowns in rounding; the unknown is u = t − v_ref instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import precision_error
from fedprice.game import price_at
from fedprice.pricing.outcome import BUDGET_TOLERANCE, Certificate, Outcome, Status
from fedprice.pricing.root import ROUNDING, Root, Spend, find_root
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    import numpy.typing as npt

    from fedprice.game import Game

    FloatArray = npt.NDArray[np.float64]

__all__ = ["Problem", "equilibrium"]

LARGEST_GAP = 1e-9  # relative; a larger one is no proof
BLOCK = 1 << 13  # clients a block: the working set of one evaluation stays in the cache
SAMPLE = 1 << 6  # every so manieth client makes the sample whose root starts the search for all


@scheme("equilibrium")
def equilibrium(game: Game) -> Outcome:
    """Return the Stackelberg equilibrium, with a certificate of global optimality.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0],
    ...                   cost=[40, 55, 20], value=[0, 4000, 9000])
    >>> best = equilibrium(Game(clients, bound=Bound(alpha=3.3, rounds=1000), budget=20))
    >>> best.levels.round(3), best.prices.round(2), best.status.value
    (array([0.206, 0.509, 0.196]), array([16.46, 33.31, -1.72]), 'optimal')
    >>> best.certificate.gap < 1e-12
    True
    """
    return Problem.of(game).solve(game.budget)


@dataclass(frozen=True, eq=False)
class Problem:
    """A game without its budget, in the solver's form: one row a client that has an impact.

    Clients without impact are not bought: they stand at their floor, at the price of that floor.
    Everything runs over blocks of clients, so that beside the answer no array of full length is
    made: at ten million clients, fresh memory costs more than arithmetic.
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

    def solve(self, budget: float, start: float | None = None) -> Outcome:
        """Return the equilibrium under a budget, the search begun at a guess of u."""
        with np.errstate(all="ignore"):  # what overflows is refused for want of a proof
            tolerance = BUDGET_TOLERANCE * max(abs(budget), abs(self.least_budget))
            enough = self.least_budget - tolerance
            if budget >= (self.most_budget if self.impact.size else enough):
                return self.outcome(budget, Status.SLACK, lambda block: self.cap[block])
            if budget <= self.least_budget:
                # Levels near 0 can be bought, a level of 0 cannot: without floors none is enough.
                reached = budget >= enough and bool(self.floor.all())
                status = Status.OPTIMAL if reached else Status.INFEASIBLE
                root = Root.known(self.lowest) if reached else None
                return self.outcome(budget, status, lambda block: self.floor[block], root)
            net = np.longdouble(budget) - self.idle_spend
            root = self.root(net, start)
            if root.found:
                levels = partial(self.levels, root.point)
                return self.outcome(budget, Status.OPTIMAL, levels, root)
            between = self.between(root, net)
            return self.outcome(budget, Status.OPTIMAL, lambda block: between[block], root)

    def outcome(
        self,
        budget: float,
        status: Status,
        levels_of: Callable[[slice], FloatArray],
        root: Root | None = None,
    ) -> Outcome:
        """Return the outcome of these levels, with all that belongs to it from a single pass.

        The duality gap is λ [Σ {l(q) − min l} + (B − S)], with l(q) = (t − v) k / q + τ c q^τ: the
        definition, rearranged so that large sums do not cancel.
        """
        levels, prices = np.empty_like(self.impact), np.empty_like(self.impact)
        primal = slack = terms = moving = 0.0
        spend = self.idle_spend
        left = np.longdouble(budget) - self.idle_spend
        for block in self.blocks():
            q = levels[block] = levels_of(block)
            price = prices[block] = self.prices(q, block)
            loss = self.impact[block] / q
            payment = price * q
            primal += float(loss.sum())
            spend += float(payment.sum())
            if root is not None:
                moved = q > self.floor[block]
                moving += float(payment @ moved)
                left -= (payment * ~moved).sum(dtype=np.longdouble)
                terms += 2 * float(loss @ self.value[block])
                slack += self.slack(root.point, q, block)
        gap, reciprocal = 0.0, (0.0, np.inf)
        if status is Status.INFEASIBLE:
            gap = np.inf
        elif root is not None:
            reciprocal = (self.reference, root.point)
            if root.iterations:  # at the floors, which nothing can undercut, there is no gap
                gap = (slack + float(left - moving)) / np.float64(sum(reciprocal))
            # Nothing is called optimal without its proof. Rounding is relative to the sum of both
            # terms of all payments.
            excess = (spend - budget) / (abs(budget) + spend + terms)
            if not (abs(gap) <= LARGEST_GAP * primal and excess <= BUDGET_TOLERANCE):
                raise precision_error("equilibrium")
        return Outcome(
            game=self.game if budget == self.game.budget else replace(self.game, budget=budget),
            scheme="equilibrium",
            status=status,
            levels=self.everybody(levels, lambda: self.game.clients.level_min),
            prices=self.everybody(prices, lambda: self.idle_prices),
            reciprocal=reciprocal,
            certificate=Certificate(primal, float(primal - gap)),
            least_budget=self.least_budget,
            iterations=0 if root is None else root.iterations,
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
        """What the floor of each client would cost, had it no value, shape (N,)."""
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
        """What it costs to have everybody with an impact at the cap."""
        return self.idle_spend + sum(
            float(self.prices(self.cap[block], block) @ self.cap[block]) for block in self.blocks()
        )

    @cached_property
    def lowest(self) -> float:
        """The u up to which everybody stands at the floor; 0 where someone has none."""
        if self.floor_power is None or not self.floor.all():
            return 0.0
        return min(
            float((self.ratio(b) * self.floor_power[b] + (self.value[b] - self.reference)).min())
            for b in self.blocks()
        )

    def root(self, budget: np.longdouble, start: float | None = None) -> Root:
        """Find the u = t − v_ref at which the clients with an impact cost the budget."""
        upper = max(
            float((self.ratio(b) * self.cap_power[b] + (self.value[b] - self.reference)).max())
            for b in self.blocks()
        )
        guess = start if start is not None else self.guess(budget, upper)
        start_at = min(max(guess, self.lowest, 2.0**-1000), upper)
        return find_root(partial(self.spend, budget), start_at, self.lowest, upper)

    def guess(self, budget: np.longdouble, upper: float) -> float:
        """Return where to begin the search for u: where a sample's ends, if it has a root."""
        if self.impact.size > BLOCK:
            root = self.sample().root(budget)
            if root.found:
                return root.point
        if budget <= 0:
            return self.reference or upper
        # Without values, floors and caps the spend is a power of t.
        power = self.game.cost_exponent + 1
        unit = sum(float(self.impact[b] @ self.ratio(b) ** (1 / power)) for b in self.blocks())
        return float(np.float64((power - 1) * budget / unit) ** (power / (power - 1)))

    def sample(self) -> Self:
        """Return the problem of one client in SAMPLE, each counted so often, and of v_ref's."""
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
        that what is bought above them would drown in rounding; they are taken off the budget, in
        extended precision, and only the others' payments are summed.
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

    def between(self, root: Root, budget: np.longdouble) -> FloatArray:
        """Return the levels between the two ends of a bracket that holds no further number.

        Near the value of a client with a tiny floor, the spend moves by more than its rounding
        between neighbouring numbers t. The levels of both ends are then optimal for the same t to
        the last bit, and so is what lies between them; a line in x = 1/q finds the budget there.
        """
        from scipy.optimize import brentq

        everyone, tau = slice(None), self.game.cost_exponent
        levels = self.levels(root.upper, everyone)
        low = self.floor if root.lower <= self.lowest else self.levels(root.lower, everyone)
        longer = 1 / low - 1 / levels
        moving = longer > 0
        payments = self.prices(levels, everyone) * levels
        left = float(budget - payments[~moving].sum(dtype=np.longdouble))
        x, longer = 1 / levels[moving], longer[moving]
        c, vk = self.cost[moving], (self.value * self.impact)[moving]

        def excess(share: float) -> float:
            at = x + share * longer
            bought, given = float((tau * c * at**-tau).sum()), float((vk * at).sum())
            return (bought - given) - (left - ROUNDING * (bought + given))

        # Rounding may put the lower end, which is as good as all between, above the budget.
        share = 1.0
        if excess(1.0) < 0 < excess(0.0):
            share = brentq(excess, 0.0, 1.0, xtol=1e-300, rtol=1e-15)
        levels[moving] = 1 / (x + share * longer)
        return np.clip(levels, self.floor, self.cap)

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
    """Tell whether any level is above 0, looking once where one number stands for all."""
    return bool(levels[:1].any() if levels.strides == (0,) else levels.any())


def _power(levels: FloatArray, exponent: float) -> FloatArray:
    """Return levels^exponent, computed once where one number stands for all."""
    if levels.strides == (0,):
        return np.broadcast_to(levels[:1] ** exponent, levels.shape)
    return levels**exponent


def _inverse_power(ratio: FloatArray, gap: FloatArray, power: float) -> FloatArray:
    """Return x = 1/q = (r / g)^{1/(τ+1)}."""
    if power == 3:
        return np.cbrt(ratio / gap)
    return (ratio / gap) ** (1 / power)
