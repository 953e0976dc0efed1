"""`under`: what posted offers yield where clients are not as believed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.curves import Moments
from fedprice.beliefs.expectations import expected

if TYPE_CHECKING:
    from fedprice.arrays import FloatArray, IntArray
    from fedprice.beliefs.beliefs import Beliefs, Types
    from fedprice.beliefs.posted import Posted
    from fedprice.tariff import Tariffs

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
    types, own = beliefs.groups(posted.clients)
    moments = _moments(posted, posted.tariffs, types, own)
    if posted.lottery is not None:
        row, price, chance = posted.lottery
        prices = posted.tariffs.prices.copy()
        prices[row] = price
        drawn = _moments(posted, replace(posted.tariffs, prices=prices), types, own)
        moments = _mixed(moments, drawn, chance)
    return replace(posted, beliefs=beliefs, moments=moments)


def _moments(posted: Posted, tariffs: Tariffs, types: list[Types], own: IntArray) -> Moments:
    """Return what tariffs yield over the types of each client."""
    found = np.empty((4, own.size))
    for number, one in enumerate(types):
        who = np.flatnonzero(own == number)
        cost, value, weight = (np.broadcast_to(x, (who.size, x.size)) for x in one)
        if posted.form == "menu":  # made for values that are known
            value = np.broadcast_to(posted.clients.value[who, None], cost.shape)
        found[:, who] = expected(
            tariffs.of(who), posted.impact[who], cost, value, weight, posted.cost_exponent
        )
    return Moments(*found)


def _mixed(first: Moments, second: Moments, chance: float) -> Moments:
    """Return what a lottery yields that draws the second with this chance."""

    def mean(one: FloatArray, other: FloatArray) -> FloatArray:
        return (1 - chance) * one + chance * other

    spend = mean(first.spend, second.spend)
    squares = mean(first.variance + first.spend**2, second.variance + second.spend**2)
    return Moments(
        mean(first.loss, second.loss), spend, squares - spend**2, mean(first.level, second.level)
    )
