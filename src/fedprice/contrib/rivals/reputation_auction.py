"""The reputation auction, modelled on RRAFL: the cheapest per unit of reputation win.

Clients are sorted by ask over reputation, and the longest prefix wins whose members ask for no more
than their share of the budget; each winner is paid the highest ask with which it would still have
won. That is the proportional-share auction with reputation as the worth.

References
----------
J. Zhang, Y. Wu, R. Pan, Incentive Mechanism for Horizontal Federated Learning Based on Reputation
and Reverse Auction, WWW 2021 (RRAFL).

Warnings
--------
RRAFL measures reputations over earlier tasks, by how good and how reliable a client's updates were,
and keeps them on a blockchain. Before anything is trained there are none, so the number of
samples takes their place. RRAFL trains on the winners only; losers join unpaid here, at their free
level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.contrib.rivals.proportional_share import sell_by_rate
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice.game import Game
    from fedprice.pricing.outcome import Outcome

__all__ = ["reputation_auction"]


@scheme("reputation-auction", posts_prices=False)
def reputation_auction(game: Game) -> Outcome:
    """Return the outcome of the reputation auction, with shares of samples as reputations.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[2, 3, 2], grad_norm=1, cost=[2, 5, 9], value=0)
    >>> outcome = reputation_auction(Game(clients, bound=Bound(alpha=2, rounds=1000), budget=14))
    >>> outcome.payments.round(3)  # 14 is shared as 2 to 3
    array([5.6, 8.4, 0. ])
    """
    return sell_by_rate(game, game.clients.weight, "reputation-auction")
