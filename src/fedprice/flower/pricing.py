"""How a strategy prices the clients that showed up: from their profiles to terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.bound import Bound
from fedprice.clients import Clients
from fedprice.errors import InputError
from fedprice.game import Game
from fedprice.market.money import level_units, micro_units, price_units
from fedprice.market.offers import Terms
from fedprice.market.simulation import budgeted_terms
from fedprice.pricing import Status, solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.flower.wire import Profile

__all__ = ["FullInformation", "PostedPrice", "Priced"]


class Priced(NamedTuple):
    """What to offer, a client each, and what it may cost in all, in micro-units."""

    terms: list[Terms]
    impacts: list[float]
    budget: int


@dataclass(frozen=True)
class FullInformation:
    """The paper's game: clients reveal cost and value, a scheme finds the prices.

    Parameters
    ----------
    budget, alpha
        B, and the bound's α as measured.
    scheme, cost_exponent
        The scheme's name, and τ.
    """

    budget: float
    alpha: float
    scheme: str = "equilibrium"
    cost_exponent: float = 2.0

    def __call__(self, profiles: Sequence[Profile], rounds: int) -> Priced:
        """Return the scheme's prices and levels for these clients."""
        private = [p.client for p in profiles if not (p.cost and p.value)]
        if private:
            raise InputError(
                f"client {private[0]!r} keeps its cost or value to itself; use PostedPrice, or ask "
                "it to reveal them."
            )
        clients = _clients(profiles, [float(p.cost) for p in profiles])
        bound = Bound(alpha=self.alpha, rounds=rounds)
        game = Game(clients, bound=bound, budget=self.budget, cost_exponent=self.cost_exponent)
        outcome = solve(game, self.scheme)
        if outcome.status is Status.INFEASIBLE:
            raise InputError(
                f"a budget of {self.budget:g} does not suffice for {self.scheme}; it needs "
                f"{outcome.least_budget:.6g}."
            )
        samples = np.array([p.samples for p in profiles])
        return Priced(
            budgeted_terms(outcome, samples), game.impact.tolist(), micro_units(self.budget)
        )


@dataclass(frozen=True)
class PostedPrice:
    """One price for all, for clients that keep cost and value to themselves.

    The budget suffices if all take the highest level; who values the model joins more.
    """

    budget: float
    alpha: float
    level_cap: float = 1.0

    def __call__(self, profiles: Sequence[Profile], rounds: int) -> Priced:
        """Return the same price and cap for each of these clients."""
        cap, budget = level_units(self.level_cap), micro_units(self.budget)
        if not cap or budget < 0:
            raise InputError("`level_cap` must be above 0, and `budget` at least 0.")
        price = price_units(budget // len(profiles), cap)
        bound = Bound(alpha=self.alpha, rounds=rounds)
        impacts = bound.impact(_clients(profiles, [1.0] * len(profiles)))
        return Priced([Terms(price, cap, p.samples) for p in profiles], impacts.tolist(), budget)


def _clients(profiles: Sequence[Profile], costs: list[float]) -> Clients:
    return Clients(
        samples=[p.samples for p in profiles],
        grad_norm=[float(p.grad_norm) for p in profiles],
        cost=costs,
        value=[float(p.value or 0) for p in profiles],
        ids=[p.client for p in profiles],
    )
