"""`under`: what posted offers yield where clients are not as believed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.curves import Moments
from fedprice.beliefs.expectations import expected

if TYPE_CHECKING:
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.posted import Posted

__all__ = ["under"]


def under(posted: Posted, beliefs: Beliefs) -> Posted:
    """Return the same offers, with what they yield if other beliefs are right.

    Examples
    --------
    >>> import fedprice as fp
    >>> clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0])
    >>> guess = fp.Beliefs.exponential(cost=40, value=0)
    >>> posted = fp.post(clients, guess, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20)
    >>> twice = under(posted, guess.with_costs_times(2))
    >>> round(posted.expected_spend, 6), round(twice.expected_spend, 2)
    (20.0, 13.47)
    """
    types, group = beliefs.groups(posted.clients)
    moments = np.empty((4, group.size))
    for number, believed in enumerate(types):
        who = np.flatnonzero(group == number)
        cost, value, weight = (np.broadcast_to(x, (who.size, x.size)) for x in believed)
        if posted.form == "menu":  # made for values that are known
            value = np.broadcast_to(posted.clients.value[who, None], cost.shape)
        moments[:, who] = expected(
            posted.tariffs.of(who), posted.impact[who], cost, value, weight, posted.cost_exponent
        )
    return replace(posted, beliefs=beliefs, moments=Moments(*moments))
