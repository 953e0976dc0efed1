"""What the auctions share: what clients ask for, and the outcome for winners and losers.

Symbols: q level, c cost, τ cost exponent, v value, k impact.

An auction buys whole clients: a winner joins as often as it can. A loser is not turned away. It may
still join unpaid, at its best level, which is 0 for a client without value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.game import best_response
from fedprice.pricing.outcome import Outcome

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import BoolArray, FloatArray
    from fedprice.game import Game

__all__ = ["asks", "sold", "unpaid_levels"]


def unpaid_levels(game: Game) -> FloatArray:
    """Return how often each client joins unpaid, shape (N,)."""
    return best_response(game, 0.0)


def asks(game: Game, levels: FloatArray, unpaid: FloatArray) -> FloatArray:
    """Return the least payment for which each client accepts a level, shape (N,).

    A client that accepts bears c q^τ + v k/q; one that does not bears the same at its unpaid
    level, where this is least. It asks for the difference.

    Parameters
    ----------
    game
        The game.
    levels, unpaid
        The levels in question, and those of `unpaid_levels`, shape (N,) each.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=10)
    >>> asks(game, clients.level_max, unpaid_levels(game)).round(3)
    array([4.   , 2.754])
    """
    clients, tau = game.clients, game.cost_exponent
    wants = clients.value * game.impact
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(wants > 0, wants / unpaid - wants / levels, 0.0)
    return np.maximum(clients.cost * (levels**tau - unpaid**tau) - own, 0.0)


def sold(
    game: Game,
    winners: BoolArray,
    payments: FloatArray,
    unpaid: FloatArray,
    *,
    everybody: float,
    scheme: str,
) -> Outcome:
    """Return the outcome in which winners join as often as they can, and losers join unpaid.

    Parameters
    ----------
    game
        The game.
    winners, payments
        Who wins, and what each is paid; losers are paid nothing. Shape (N,) each.
    unpaid
        `unpaid_levels` of the game.
    everybody
        A budget under which everybody wins, which meets every floor.
    scheme
        The name to put into the outcome.
    """
    clients = game.clients
    low = bool((unpaid < clients.level_min * (1 - 1e-12)).any())
    outcome = Outcome.from_prices(
        game,
        np.where(winners, payments / clients.level_max, 0.0),
        scheme=scheme,
        levels=np.where(winners, clients.level_max, unpaid),
        bought=winners,
        least_budget=max(everybody, 0.0) if low else 0.0,
    )
    return replace(outcome, posts_prices=False)
