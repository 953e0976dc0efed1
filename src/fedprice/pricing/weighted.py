"""Weighted pricing: prices in proportion to data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.pricing.along import price_along
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice.game import Game
    from fedprice.pricing.outcome import Outcome

__all__ = ["weighted"]


@scheme("weighted")
def weighted(game: Game) -> Outcome:
    """Return the outcome of prices P_n = s · a_n, as high as the budget allows.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=6)
    >>> prices = weighted(game).prices
    >>> (prices / prices[0]).round(12)
    array([1., 3.])
    """
    return price_along(game, game.clients.weight, "weighted")
