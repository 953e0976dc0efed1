"""What a client accepts: the level that suits it best, within limits of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedprice.market.messages import RefusedError
from fedprice.market.money import LEVEL_ONE, MICRO, level_units
from fedprice.market.offers import chosen_level
from fedprice.market.terms import one_round

if TYPE_CHECKING:
    from fedprice.flower.client import Client
    from fedprice.market.offers import Conditions, Offer

__all__ = ["chosen_within"]


def chosen_within(client: Client, offer: Offer, conditions: Conditions) -> int:
    """Return the level that a client commits to, in multiples of 2⁻³²; refuse an offer at a loss.

    A client that values the model joins more than for the money alone, as far as its least profit
    allows: the server says what the model is worth to it, and may say anything.

    Raises
    ------
    RefusedError
        With what the client declines, in words.
    """
    if client.rounds not in (None, conditions.run_rounds):
        raise RefusedError(
            f"it declines: its cost is for {client.rounds} rounds, the run has "
            f"{conditions.run_rounds}."
        )
    share = conditions.rounds / conditions.run_rounds
    part = _up_to(offer, max(offer.level_floor, one_round(conditions.run_rounds)), client)
    profit, least = 0.0, client.least_profit + 0.0  # not -0
    if not client.value * float(offer.impact):
        least = max(least, 0.0)  # a loss for nothing
    for value in (client.value, 0.0):
        units = chosen_level(
            part, conditions, cost=client.cost, value=value, cost_exponent=client.cost_exponent
        )
        # What is posted, in whole micro-units: floats of large prices could hide a charge.
        level = units / LEVEL_ONE
        cost = client.cost * level**client.cost_exponent
        profit = offer.pays.payment(units) / MICRO / share - cost
        if profit >= least - 0.5 / MICRO / share:
            return units
    raise RefusedError(
        f"it declines: at level {level:.4g} the whole run would earn it {profit:.6f} in money, "
        f"payment minus cost; it takes at least {least:.6f}."
    )


def _up_to(offer: Offer, floor: int, client: Client) -> Offer:
    """Return the part of an offer between a least level and the largest that a client accepts."""
    most = level_units(client.largest_level)
    if most < floor or offer.pays.cap < floor:
        raise RefusedError(
            f"it declines: at least level {floor / LEVEL_ONE:.4g} is wanted; it accepts up to "
            f"{min(most, offer.pays.cap) / LEVEL_ONE:.4g}."
        )
    if offer.menu:
        # A menu's payments are sums over its rows: those that are too high end it.
        blocks = [block for block in offer.tariff if block[0] <= most]
        if not blocks or blocks[-1][0] < floor:
            raise RefusedError(
                f"it declines: no level of the menu is at most {most / LEVEL_ONE:.4g}."
            )
    else:
        before = [end for end, _ in offer.tariff if end < most]
        blocks = [block for block in offer.tariff if block[0] <= most]
        if len(blocks) == len(before) and len(blocks) < len(offer.tariff):
            blocks = [*blocks, (most, offer.tariff[len(blocks)][1])]
    return replace(offer, tariff=tuple(blocks), level_floor=floor)
