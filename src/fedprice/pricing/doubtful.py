"""Payers whose fee is a property of the bound, not of reality.

Symbols: q level, q₀ the level at a price of 0, c cost, τ cost exponent, v value, k impact.

In the bound, a client that hardly ever joins makes the loss arbitrarily large, and a client with a
value suffers from that. So a server with a small or negative budget can charge it any amount, for
a level near 0: with a budget of −1,000,000, one client pays a million for a level of 1e-6. But a
client may also refuse the price and join unpaid, at its best level. That costs it
c q₀^τ + v k (1/q₀ − 1): its cost, and what it loses because its own data are not there in every
round. No agreement about its own level can save it more than that, so it never pays a higher fee.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.game import best_level
from fedprice.pricing.outcome import Status

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.pricing.outcome import Outcome

__all__ = ["Doubtful", "doubtful_payers"]


class Doubtful(NamedTuple):
    """Clients, by row, that would have to pay more than they can gain, the largest fee first.

    `burden` is what joining unpaid costs each of them: the most that it could ever gain.
    """

    clients: IntArray
    fee: FloatArray
    burden: FloatArray


def doubtful_payers(outcome: Outcome) -> Doubtful:
    """Return the clients whose fee exceeds what joining unpaid would cost them.

    Examples
    --------
    >>> import fedprice as fp
    >>> bound = fp.Bound(alpha=3.3, rounds=1000)
    >>> clients = fp.population()
    >>> doubtful_payers(fp.solve(fp.Game(clients, bound=bound, budget=200))).clients
    array([], dtype=int64)
    >>> who, fee, burden = doubtful_payers(fp.solve(fp.Game(clients, bound=bound, budget=-1e6)))
    >>> int(fee[0]), round(float(burden[0]), 2)
    (1000092, 7.98)
    """
    game, clients = outcome.game, outcome.game.clients
    payers = np.flatnonzero(outcome.payments < 0)
    if outcome.status is Status.INFEASIBLE:
        payers = payers[:0]
    cost, fee = clients.cost[payers], -outcome.payments[payers]
    wants, cap = (clients.value * game.impact)[payers], clients.level_max[payers]
    unpaid = best_level(0.0, cost, wants, game.cost_exponent, cap)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(wants > 0, wants * (1 / unpaid - 1), 0.0)
    burden = cost * unpaid**game.cost_exponent + own
    some = np.flatnonzero(fee > burden)
    some = some[np.argsort(-fee[some], kind="stable")]
    return Doubtful(payers[some], fee[some], burden[some])
