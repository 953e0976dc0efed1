"""The fixed subset: buy full participation of the most valuable clients, and of no others.

This is what the paper argues against: clients that are left out never enter the model, so the
bound is infinite, and plain averaging over the subset is biased towards its data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.game import price_for
from fedprice.pricing.outcome import Outcome
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice.game import Game

__all__ = ["subset"]


@scheme("subset", posts_prices=False, aggregator="fedavg")
def subset(game: Game) -> Outcome:
    """Return the outcome of buying clients at their cap until the budget is spent.

    Clients that pay to join, or have a floor, come first. The others are bought by falling impact;
    one that costs more than what is left is passed over.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3, 2], grad_norm=1, cost=[2, 5, 3], value=0)
    >>> subset(Game(clients, bound=Bound(alpha=2, rounds=1000), budget=14)).levels
    array([1., 1., 0.])
    """
    clients = game.clients
    prices = price_for(game, clients.level_max)
    payments = prices * clients.level_max
    bought = (payments <= 0) | (clients.level_min > 0)
    least = float(payments[bought].sum())
    left = game.budget - least
    waiting = np.flatnonzero(~bought)
    waiting = waiting[np.argsort(-game.impact[waiting], kind="stable")]
    while waiting.size and left > 0:
        waiting = waiting[payments[waiting] <= left]
        spent = np.cumsum(payments[waiting])
        count = int(np.searchsorted(spent, left, side="right"))
        if count:
            bought[waiting[:count]] = True
            left -= float(spent[count - 1])
            waiting = waiting[count:]
    outcome = Outcome.from_prices(
        game,
        np.where(bought, prices, 0.0),
        scheme="subset",
        levels=np.where(bought, clients.level_max, 0.0),
        bought=bought,
        least_budget=least,
    )
    return replace(outcome, posts_prices=False, aggregator="fedavg")
