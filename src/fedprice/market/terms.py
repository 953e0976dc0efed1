"""From an outcome to offers in whole numbers: tariffs, budget, floors, largest weight."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from fedprice.clients import LARGEST_WEIGHT
from fedprice.errors import InputError
from fedprice.market.money import (
    LEVEL_ONE,
    level_units,
    micro_units,
    price_units,
    whole_payments,
)
from fedprice.market.tariffs import Tariff, whole_tariffs
from fedprice.pricing import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedprice.pricing import Outcome
    from fedprice.tariff import Tariffs

__all__ = [
    "budgeted_tariffs",
    "largest_weight",
    "least_levels",
    "offered_tariffs",
    "one_more",
    "one_round",
]


def offered_tariffs(
    outcome: Outcome, tariffs: Tariffs | None, rounds: int
) -> tuple[list[Tariff], int]:
    """Return what to offer each client for a period, and what the period may cost in micro-units.

    Without tariffs, an outcome's prices up to its levels are offered: they add up to what the
    outcome spends, at most the period's share of its game's budget. Clients choose their levels
    from tariffs on their own, so the budget is then the sum of the largest payments that they can
    choose. In both cases a period may cost one update more of each client.

    Parameters
    ----------
    outcome
        The levels that are expected, with the game that has the clients and their floors.
    tariffs
        What to offer for a whole run; None for the outcome's prices.
    rounds
        Rounds of the period, of all rounds of the outcome's game.
    """
    share = Fraction(rounds, outcome.game.bound.rounds)
    floors = least_levels(outcome)
    if tariffs is None:
        budget = int(micro_units(outcome.game.budget) * share)
        offered = budgeted_tariffs(outcome, rounds=rounds, budget=budget)
        return offered, budget + one_more(zip(offered, floors, strict=True), rounds)
    if len(tariffs) != len(outcome.levels):
        raise InputError(
            f"`tariffs` must have {len(outcome.levels)} rows, one per client; got {len(tariffs)}."
        )
    found = whole_tariffs(tariffs, share)
    for n, (own, floor) in enumerate(zip(found, floors, strict=True)):
        if floor > own.cap:
            raise InputError(
                f"the tariff of client {outcome.game.clients.ids[n]!r} must end at its least level "
                f"of {floor / LEVEL_ONE:.6g} or above; got {own.cap / LEVEL_ONE:.6g}."
            )
    both = list(zip(found, floors, strict=True))
    return found, sum(own.most(floor) for own, floor in both) + one_more(both, rounds)


def one_more(offered: Iterable[tuple[Tariff, int]], rounds: int) -> int:
    """Return what one update more of each client costs at most, by tariffs and least levels."""
    return sum(tariff.one_more(floor, rounds) for tariff, floor in offered)


def budgeted_tariffs(
    outcome: Outcome, *, rounds: int | None = None, budget: int | None = None
) -> list[Tariff]:
    """Return an outcome in whole numbers: one price per client, up to its level.

    Payments at the caps add up exactly to what the outcome spends in these rounds, at most the
    budget.

    Parameters
    ----------
    outcome
        What is offered for a whole run.
    rounds
        Rounds of the period, of all rounds of the outcome's game; by default all.
    budget
        The most to spend in the period, in micro-units; by default the share of the game's budget.
    """
    if outcome.status is Status.INFEASIBLE:
        raise InputError("an infeasible outcome cannot be offered; raise the budget.")
    if outcome.status is Status.OVER_BUDGET:
        raise InputError(
            f"scheme {outcome.scheme!r} spends {outcome.spend:.6g}, but the budget is "
            f"{outcome.game.budget:.6g}. Raise the budget, or choose another scheme."
        )
    if not outcome.posts_prices:
        raise InputError(
            f"scheme {outcome.scheme!r} has no prices, so there is no market. Choose another one."
        )
    total = outcome.game.bound.rounds
    share = Fraction(total if rounds is None else rounds, total)
    most = int(micro_units(outcome.game.budget) * share) if budget is None else budget
    # Levels are rounded down, but a payer's up, since its payment is part of the budget.
    least = one_round(total)
    caps = [max(level_units(float(level)), least) for level in outcome.levels]
    caps = [
        cap + int(price < 0 and cap < LEVEL_ONE)
        for cap, price in zip(caps, outcome.prices, strict=True)
    ]
    exact = (
        float(price) * (cap / LEVEL_ONE) * float(share)
        for price, cap in zip(outcome.prices, caps, strict=True)
    )
    return [
        Tariff.flat(price_units(payment, cap), cap)
        for payment, cap in zip(whole_payments(exact, most), caps, strict=True)
    ]


def least_levels(outcome: Outcome) -> list[int]:
    """Return the least level that each client may commit to, in multiples of 2⁻³².

    The floors of the outcome's game, rounded down, and at least one round of the run. With these,
    no weight a/q exceeds the largest that the game's floors were made for.
    """
    least = one_round(outcome.game.bound.rounds)
    return [max(level_units(float(floor)), least) for floor in outcome.game.clients.level_min]


def one_round(run_rounds: int) -> int:
    """Return the level that joins one round of a run: lower ones are not offered."""
    return -(-LEVEL_ONE // run_rounds)


def largest_weight(outcome: Outcome) -> float:
    """Return the largest weight a / q that an outcome allows: at its floors, where all have one.

    Otherwise it is the largest at the levels that are bought, and at least `LARGEST_WEIGHT`.
    """
    clients = outcome.game.clients
    if (clients.level_min > 0).all():
        return float((clients.weight / clients.level_min).max())
    bought = outcome.levels > 0
    weights = clients.weight[bought] / outcome.levels[bought]
    # It is stored with six digits.
    return max(LARGEST_WEIGHT, 1.00001 * float(weights.max(initial=0.0)))
