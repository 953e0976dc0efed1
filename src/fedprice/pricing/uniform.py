"""Uniform pricing: one price for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.pricing.along import price_along
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice.game import Game
    from fedprice.pricing.outcome import Outcome

__all__ = ["uniform"]


@scheme("uniform")
def uniform(game: Game) -> Outcome:
    """Return the outcome of one price for all clients, the highest that the budget allows.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=6)
    >>> uniform(game).prices.round(6)
    array([4.707903, 4.707903])
    """
    return price_along(game, np.ones(len(game.clients)), "uniform")
