"""The outcome of each report.

Each report defines a game in which one client has another cost and value. Under the
equilibrium each game is one scalar root, and many are solved at once (see
`fedprice.pricing.equilibrium` for symbols and equations); other schemes price one game after the
other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.game import best_level, price_at, profit_at
from fedprice.pricing.outcome import BUDGET_TOLERANCE, Status

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray
    from fedprice.game import Game
    from fedprice.pricing import Outcome, Scheme

__all__ = ["ReportSearch", "Told", "equilibria", "held"]

COSTS, VALUES = 9, 4  # reports per client that are tried at once
ZOOMS = 4  # times that the search is refined around the best report so far
CELLS = 1 << 17  # clients times games that are solved at once: they stay in the cache
MOST_STEPS = 500
ROUNDING = 1e-13  # of a sum of payments, relative to the sum of their absolute values
LARGEST_STEP = 3.0  # in log u: the spend may be nearly flat where a search starts


class Told(NamedTuple):
    """Reports and their results, all of one shape; an infeasible report has utility −inf."""

    cost: FloatArray
    value: FloatArray
    level: FloatArray
    payment: FloatArray
    spend: FloatArray
    loss: FloatArray
    utility: FloatArray


class _Solved(NamedTuple):
    """The results of reports, one entry each: the liar's level and price, and the totals."""

    level: FloatArray
    price: FloatArray
    held: BoolArray  # to the level; otherwise the liar chooses its best level
    spend: FloatArray
    loss: FloatArray
    feasible: BoolArray


def held(outcome: Outcome, *, committed: bool) -> BoolArray:
    """Return which clients are held to their levels, shape (N,).

    A contract binds the clients that it buys, and no others. At a price, clients are held if they
    commit to the level that their report implies. On a tariff, the level says what is paid.
    """
    if outcome.bought is not None:
        return outcome.bought
    return np.full(len(outcome.levels), committed or not outcome.posts_prices)


@dataclass(frozen=True)
class ReportSearch:
    """Searches for the best report of each client while the others tell the truth.

    Without a scheme the server prices by the equilibrium.
    """

    truth: Outcome
    committed: bool
    scheme: Scheme | None = None

    def best(self, start: Told, factor: float) -> Told:
        """Return the best report of each client within [c/ρ, ρ c] × [0, v], or the start."""
        best = Told(*(field.copy() for field in start))
        clients = self.truth.game.clients
        who = np.arange(len(clients))
        # Reports in units of the truth: log(ĉ/c) / log ρ from −1 to 1, and v̂/v from 0 to 1.
        low, high = np.tile([[-1.0], [0.0]], who.size), np.ones((2, who.size))
        for _ in range(1 + ZOOMS):
            if not who.size:
                break
            powers = np.linspace(low[0], high[0], COSTS)
            shares = np.linspace(low[1], high[1], VALUES)
            costs = np.repeat(clients.cost[who] * factor**powers, VALUES, axis=0)
            values = np.tile(clients.value[who] * shares, (COSTS, 1))
            told = self.tell(who, costs, values)
            row, column = np.argmax(told.utility, axis=0), np.arange(who.size)
            found = Told(*(field[row, column] for field in told))
            better = found.utility > best.utility[who]
            for field, new in zip(best, found, strict=True):
                field[who[better]] = new[better]
            middle = np.stack([powers[row // VALUES, column], shares[row % VALUES, column]])
            corner = (np.abs(middle[0]) == 1) & ((middle[1] == 0) | (middle[1] == 1))
            width = (high - low) / [[COSTS - 1], [VALUES - 1]]
            low = np.maximum(middle - width, low)[:, ~corner]
            high = np.minimum(middle + width, high)[:, ~corner]
            who = who[~corner]
        return best

    def tell(self, who: IntArray, cost: FloatArray, value: FloatArray) -> Told:
        """Return the results of reports, shape (…, W), of the clients `who`, shape (W,)."""
        liar = np.broadcast_to(who, cost.shape).ravel()
        game, size = self.truth.game, max(1, CELLS // len(self.truth.levels))
        parts = [slice(i, i + size) for i in range(0, liar.size, size)]
        solve = self._solved if self.scheme is None else self._one_by_one
        solved = [solve(liar[p], cost.ravel()[p], value.ravel()[p]) for p in parts]
        level, price, holds, spend, loss, feasible = map(np.concatenate, zip(*solved, strict=True))
        clients, tau = game.clients, game.cost_exponent
        k, c, v = (column[liar] for column in (game.impact, clients.cost, clients.value))
        with np.errstate(divide="ignore", invalid="ignore"):  # where there is no solution
            if not holds.all():
                answer = best_level(price, c, v * k, tau, clients.level_max[liar])
                answer = np.where(holds, level, answer)
                moved = (k > 0) & (answer != level)
                spend = spend + price * (answer - level)
                loss = loss + np.where(moved, k / answer - k / level, 0.0)
                level = answer
            profit = profit_at(level, price, c, tau)
            utility = np.where(v > 0, profit - v * loss, profit)
        utility[~feasible] = -np.inf
        fields = (cost, value, level, price * level, spend, loss, utility)
        return Told(*(field.reshape(cost.shape) for field in fields))

    def _one_by_one(self, liar: IntArray, cost: FloatArray, value: FloatArray) -> _Solved:
        """Return the scheme's outcome of each report, one game per entry."""
        assert self.scheme is not None
        game = self.truth.game
        rows = []
        for n, own_cost, own_value in zip(liar.tolist(), cost, value, strict=True):
            costs, values = game.clients.cost.copy(), game.clients.value.copy()
            costs[n], values[n] = own_cost, own_value
            clients = replace(game.clients, cost=costs, value=values)
            outcome = self.scheme(replace(game, clients=clients))
            holds = held(outcome, committed=self.committed)
            rows.append(
                (
                    outcome.levels[n], outcome.prices[n], holds[n], outcome.spend,
                    outcome.expected_loss,
                    outcome.status is not Status.INFEASIBLE,
                )
            )  # fmt: skip
        level, price, holds, spend, loss, feasible = map(np.array, zip(*rows, strict=True))
        return _Solved(level, price, holds, spend, loss, feasible)

    def _solved(self, liar: IntArray, cost: FloatArray, value: FloatArray) -> _Solved:
        """Return the equilibrium of each report, one game per entry."""
        game = self.truth.game
        clients, tau, k = game.clients, game.cost_exponent, game.impact
        rows = np.arange(liar.size)
        costs, values = (np.tile(c, (liar.size, 1)) for c in (clients.cost, clients.value))
        costs[rows, liar], values[rows, liar] = cost, value
        levels, feasible = equilibria(game, costs, values, self.truth.reciprocal)
        prices = price_at(levels, costs, values * k, tau)
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.sum(k * (1 - levels) / levels, axis=1, where=k > 0)
        spend = np.sum(prices * levels, axis=1)
        holds = np.full(liar.size, self.committed)
        return _Solved(levels[rows, liar], prices[rows, liar], holds, spend, loss, feasible)


def equilibria(
    game: Game, cost: FloatArray, value: FloatArray, start: tuple[float, float]
) -> tuple[FloatArray, BoolArray]:
    """Return the levels of many games that differ in costs and values, and which are feasible.

    The equations are those of `fedprice.pricing.equilibrium`, one game per row; here all roots are
    sought at once, by Newton's iteration in log u within a bracket.

    Parameters
    ----------
    game
        The game, for everything but costs and values.
    cost, value
        Costs and values, shape (G, N).
    start
        A guess of t = 1/λ for all games, as the sum of two numbers (see `Outcome.reciprocal`).
    """
    tau, k, budget = game.cost_exponent, game.impact, game.budget
    floor, cap = game.clients.level_min, game.clients.level_max
    free = (k > 0) & (floor == 0)
    reference = np.max(value, axis=1, where=free, initial=0.0)
    gap = reference[:, None] - value
    scale = k / (tau**2 * cost)
    most = np.where(k > 0, cap, floor)
    with np.errstate(divide="ignore"):
        upper = np.max(cap ** (tau + 1) / scale - gap, axis=1, where=k > 0, initial=0.0)

    def paid(levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the spend of each game, and the sum of the absolute values of its terms."""
        bought = tau * cost * levels**tau
        with np.errstate(divide="ignore", invalid="ignore"):
            given = np.where(value * k > 0, value * k / levels, 0.0)
        return (bought - given).sum(axis=1), (bought + given).sum(axis=1)

    def levels_at(u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the levels at t = v_ref + u, and the derivative of the spend."""
        beyond = np.maximum(gap + u[:, None], 0.0)
        levels = np.cbrt(scale * beyond) if tau == 2 else (scale * beyond) ** (1 / (tau + 1))
        inside = (levels > floor) & (levels < cap)
        levels = np.clip(levels, floor, cap)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.sum(k / (levels * beyond), axis=1, where=inside)
        return levels, slope * (reference + u) / (tau + 1)

    least, size = paid(np.broadcast_to(floor, cost.shape))
    # Levels near 0 can be bought, but not 0 itself; a client with a value pays for low levels.
    exact = BUDGET_TOLERANCE * (size + abs(budget))
    enough = budget > least if free.any() else budget >= least - exact
    feasible = np.asarray((reference > 0) | enough)
    slack = paid(np.broadcast_to(most, cost.shape))[0] <= budget
    search = feasible & ~slack

    low, high = np.full(reference.shape, -690.0), np.log(np.where(upper > 0, upper, 1.0))
    with np.errstate(divide="ignore"):
        z = np.clip(np.log(np.maximum((start[0] - reference) + start[1], 0.0)), low, high)
    levels, done = np.empty_like(cost), ~search
    for step in range(MOST_STEPS):
        levels, slope = levels_at(np.exp(z))
        total, size = paid(levels)
        excess = total - budget
        low, high = np.where(excess <= 0, z, low), np.where(excess > 0, z, high)
        met = np.isfinite(size) & (np.abs(excess) <= ROUNDING * size)
        done |= met | (high - low <= 1e-15 * np.abs(z))
        if done.all():
            break
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = z - np.clip(excess / (slope * np.exp(z)), -LARGEST_STEP, LARGEST_STEP)
        # Occasional bisection ends searches in which Newton's iteration cycles between two kinks.
        helps = (newton > low) & (newton < high) & (step % 8 < 7)
        z = np.where(done, z, np.where(helps, newton, (low + high) / 2))
    levels[slack] = most
    levels[~feasible] = floor
    return levels, feasible
