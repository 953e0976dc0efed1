"""The search behind uniform and weighted pricing: as far along one direction as the budget goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.game import best_response, price_for
from fedprice.pricing.outcome import Outcome
from fedprice.pricing.root import Spend, find_root

if TYPE_CHECKING:
    from fedprice.arrays import FloatArray
    from fedprice.game import Game


__all__ = ["price_along"]


def price_along(game: Game, direction: FloatArray, scheme: str) -> Outcome:
    """Return the outcome of the prices P_n = s · direction_n that just use up the budget.

    The clients answer with their true best response. The scalar s ≥ 0 is the root of
    Σ P_n q_n(P_n) = B, or the smallest that puts every client at its cap. A client whose floor
    needs a higher price gets that price; without floors this never happens.

    Parameters
    ----------
    game
        The game.
    direction
        Non-negative relative prices, shape (N,).
    scheme
        The name to put into the outcome.
    """
    with np.errstate(all="ignore"):  # `solve` refuses what overflows
        return _price_along(game, direction, scheme)


def _price_along(game: Game, direction: FloatArray, scheme: str) -> Outcome:
    clients = game.clients
    at_floor = np.where(clients.level_min > 0, price_for(game, clients.level_min), -np.inf)
    positive = direction > 0
    at_cap = price_for(game, clients.level_max)[positive] / direction[positive]
    most = max(float(at_cap.max(initial=0.0)), 0.0) * (1 + 2**-50)  # above its own rounding error

    def prices(scalar: float) -> FloatArray:
        return np.maximum(scalar * direction, at_floor)

    def spend(scalar: float) -> Spend:
        given = prices(scalar)
        levels = best_response(game, given)
        payments = given * levels
        moving = np.where(given > at_floor, direction, 0.0)
        slope = moving @ (levels + given * _response_slope(game, levels))
        total = float(payments.sum())
        return Spend(total, total - game.budget, float(slope), float(np.abs(payments).sum()))

    least = spend(0.0).total
    scalar, iterations = 0.0, 1
    if game.budget >= spend(most).total:
        scalar, iterations = most, 2
    elif game.budget > least:
        root = find_root(spend, start=most / 2, upper=most)
        scalar = root.point if root.found else root.lower
        iterations = root.iterations + 2
    return Outcome.from_prices(
        game, prices(scalar), scheme=scheme, least_budget=least, iterations=iterations
    )


def _response_slope(game: Game, levels: FloatArray) -> FloatArray:
    """Return dq/dP = 1 / (2 v k / q³ + τ (τ−1) c q^{τ−2}), and 0 at the cap and at level 0."""
    clients, tau = game.clients, game.cost_exponent
    inside = (levels > 0) & (levels < clients.level_max)
    q = np.where(inside, levels, 1.0)
    curvature = 2 * clients.value * game.impact / q**3
    curvature += tau * (tau - 1) * clients.cost * q ** (tau - 2)
    return np.where(inside, 1 / curvature, 0.0)
