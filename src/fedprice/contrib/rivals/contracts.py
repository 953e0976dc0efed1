r"""Full-information contracts: take-it-or-leave-it offers that leave no client any surplus.

Symbols: q level, c cost, τ cost exponent, v value, k impact, T payment, B budget, λ the multiplier
of the budget, t = 1/λ.

A server that knows every cost and value need not pay by a price. It offers one level and one
payment, the least that the client accepts instead of joining unpaid at its free level q₀:

    T(q) = c q^τ + v k / q − (c q₀^τ + v k / q₀),   q ≥ q₀.

A price leaves (τ − 1)/τ of what it pays a seller as rent; a contract leaves nothing, and buys the
same levels for 1/τ of the money where v = 0. In x = 1/q the problem of least Σ k/q is convex, and

    q = min(q_max, [k (t + v) / (τ c)]^{1/(τ+1)}),

with the one t at which the payments are the budget. A higher value now raises the level.

References
----------
P. Bolton, M. Dewatripont, Contract Theory, MIT Press 2005, chapter 2 (first-best contracts).

Warnings
--------
This is the benchmark that contract theory compares its menus with, and what mechanisms with
contracts for federated learning reach when types are known. No client would report its type
truthfully to a server that prices like this: see `fedprice.beliefs.menus` for contracts when costs
are private.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.contrib.rivals.auction import asks, unpaid_levels
from fedprice.pricing.outcome import Outcome
from fedprice.pricing.root import Spend, find_root
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game

__all__ = ["contracts"]


@scheme("contracts", posts_prices=False)
def contracts(game: Game) -> Outcome:
    """Return the levels of least expected loss that contracts buy under the budget.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game, solve
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=0)
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=2)
    >>> outcome = contracts(game)
    >>> outcome.levels.round(3), outcome.profits.round(12)
    (array([0.297, 0.574]), array([0., 0.]))
    >>> solve(replace(game, budget=4)).levels.round(3)  # prices buy the same for twice as much
    array([0.297, 0.574])
    """
    clients, tau, impact = game.clients, game.cost_exponent, game.impact
    unpaid, cap = unpaid_levels(game), clients.level_max
    least = np.maximum(unpaid, clients.level_min)
    matters = impact > 0

    def levels(t: float) -> FloatArray:
        wanted = (impact * (t + clients.value) / (tau * clients.cost)) ** (1 / (tau + 1))
        return np.clip(wanted, least, cap)

    def spend(t: float) -> Spend:
        q = levels(t)
        paid = asks(game, q, unpaid)
        inside = matters & (q > least) & (q < cap)
        # dT/dt = dT/dq · dq/dt, with dT/dq = t k/q² inside.
        rise = np.divide(t * impact, q * (t + clients.value), out=np.zeros_like(q), where=inside)
        total, scale = float(paid.sum()), float((clients.cost * q**tau).sum())
        return Spend(total, total - game.budget, float(rise.sum()) / (tau + 1), scale)

    with np.errstate(all="ignore"):  # `solve` refuses what overflows
        full = tau * clients.cost * cap ** (tau + 1) / impact - clients.value
        most = float(np.max(full, where=matters, initial=0.0)) * (1 + 2**-50)
        floor = spend(0.0).total
        t, iterations = 0.0, 1
        if game.budget >= spend(most).total:
            t = most
        elif game.budget > floor:
            root = find_root(spend, start=most / 2, upper=most)
            t = root.point if root.found else root.lower
            iterations += root.iterations
        q = levels(t)
        paid = asks(game, q, unpaid)
        outcome = Outcome.from_prices(
            game,
            np.where(paid > 0, paid / q, 0.0),
            scheme="contracts",
            levels=q,
            bought=paid > 0,
            least_budget=floor,
            iterations=iterations,
        )
        return replace(outcome, posts_prices=False)
