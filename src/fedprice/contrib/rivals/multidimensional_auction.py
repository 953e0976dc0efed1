"""The multi-dimensional auction, modelled on FMore: the best by quality minus ask win.

Symbols: a weight, G gradient norm, k = α a² G² / R impact, b ask.

A client offers several qualities and names its ask. The server scores both, S = s(qualities) − b,
and takes the clients of highest score, as many as the budget pays for; each winner gets what it
asked for (first price). Here the qualities are data and gradient norm, combined as in a
Cobb–Douglas score to k, and quality and ask are both taken relative to their largest.

References
----------
R. Zeng, S. Zhang, J. Wang, X. Chu, FMore: An Incentive Scheme of Multi-dimensional Auction for
Federated Learning in MEC, ICDCS 2020.

Warnings
--------
In FMore clients also choose how much quality to offer, and ask for more than they need, as in the
Nash equilibrium of a first-price auction whose prior they all know; here every client takes part
fully if it wins and asks for the least that it would accept, so that the outcome is better than
FMore's. How many win is fixed there, and follows from the budget here. FMore trains on the winners
only; losers join unpaid here, at their free level. The rule is not truthful.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.contrib.rivals.auction import asks, sold, unpaid_levels
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice.game import Game
    from fedprice.pricing.outcome import Outcome

__all__ = ["multidimensional_auction"]


@scheme("multidimensional-auction", posts_prices=False)
def multidimensional_auction(game: Game) -> Outcome:
    """Return the outcome of the first-price auction by quality minus ask.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[2, 3, 2], grad_norm=1, cost=[2, 5, 9], value=0)
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=14)
    >>> multidimensional_auction(game).payments
    array([2., 5., 0.])
    """
    impact, unpaid = game.impact, unpaid_levels(game)
    ask = asks(game, game.clients.level_max, unpaid)
    with np.errstate(divide="ignore", invalid="ignore"):
        quality, asked = impact / impact.max(), np.where(ask > 0, ask / ask.max(), 0.0)
    score = np.where(impact > 0, quality - asked, -np.inf)
    order = np.argsort(-score, kind="stable")[: int((impact > 0).sum())]
    spent = np.cumsum(ask[order])
    winners = np.zeros(impact.size, bool)
    winners[order[: np.searchsorted(spent, game.budget, side="right")]] = True
    return sold(
        game,
        winners,
        np.where(winners, ask, 0.0),
        unpaid,
        everybody=float(ask.sum()) if (impact > 0).all() else np.inf,
        scheme="multidimensional-auction",
    )
