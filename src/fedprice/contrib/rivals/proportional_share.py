r"""The proportional-share auction: clients that ask for no more than their share of the budget win.

Symbols: w worth, b ask, B budget, ρ = b/w rate.

Clients are sorted by rising rate. The winners S are the longest prefix in which every client asks
for at most its share of the budget among those up to itself, b_i ≤ B w_i / Σ_{j≤i} w_j. A winner is
paid the highest ask with which it would still have won, which does not depend on its own ask:

.. math:: \min\big( B w_i / \textstyle\sum_{j \in S} w_j,\; w_i \rho_{next} \big)

with ρ_next the rate of the first client that lost. So no client gains by asking for anything but
the least payment it would accept, and the payments never exceed the budget.

References
----------
Y. Singer, Budget Feasible Mechanisms, FOCS 2010.

Warnings
--------
Three things differ from the publication. The worth of a client is its impact k, in which the bound
is additive; for its guarantee, Singer's auction also chooses between the winners and the single
client of highest worth, which is left out here. Losers join unpaid, at their free level. And a
client with a value v cares about who else joins, which the auction's truthfulness does not cover:
the gain is 0 in the client's own payment, cost and loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.contrib.rivals.auction import asks, sold, unpaid_levels
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game
    from fedprice.pricing.outcome import Outcome

__all__ = ["proportional_share", "sell_by_rate"]


@scheme("proportional-share", posts_prices=False)
def proportional_share(game: Game) -> Outcome:
    """Return the outcome of the proportional-share auction, with a client's impact as its worth.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[2, 3, 2], grad_norm=1, cost=[2, 5, 9], value=0)
    >>> outcome = proportional_share(Game(clients, bound=Bound(alpha=2, rounds=1000), budget=14))
    >>> outcome.levels, outcome.payments.round(3)  # worth 4, 9 and 4: 14 is shared as 4 to 9
    (array([1., 1., 0.]), array([4.308, 9.692, 0.   ]))
    """
    return sell_by_rate(game, game.impact, "proportional-share")


def sell_by_rate(game: Game, worth: FloatArray, name: str) -> Outcome:
    """Return the outcome of the proportional-share auction for any worth, shape (N,)."""
    unpaid = unpaid_levels(game)
    ask = asks(game, game.clients.level_max, unpaid)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(worth > 0, ask / worth, np.inf)
    order = np.argsort(rate, kind="stable")
    sorted_rate, total = rate[order], np.cumsum(worth[order])
    # Rates rise and shares fall along the order, so that the prefix ends where they cross.
    with np.errstate(invalid="ignore"):
        count = int(np.sum(sorted_rate * total <= game.budget))
    winners = np.zeros(len(ask), bool)
    winners[order[:count]] = True
    highest = np.inf  # the rate at which a winner would lose
    if count:
        lost = sorted_rate[count] if count < len(ask) else np.inf
        highest = min(game.budget / float(total[count - 1]), float(lost))
    return sold(
        game,
        winners,
        np.where(winners, worth, 0.0) * (highest if count else 0.0),
        unpaid,
        everybody=float(sorted_rate[-1] * total[-1]) if (worth > 0).all() else np.inf,
        scheme=name,
    )
