"""What the pricing commands warn of, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.clients import LARGEST_WEIGHT
from fedprice.game import best_response
from fedprice.pricing import Status
from fedprice.pricing.display import number, safe
from fedprice.pricing.doubtful import doubtful_payers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedprice.pricing import Outcome

NOTHING = 1e-9  # relative to payment and cost: what rounding leaves of a loss

__all__ = ["frontier_warnings", "price_warnings", "scheme_warnings"]


def price_warnings(outcome: Outcome) -> list[str]:
    """Return what to know before an outcome is used: one sentence or two each.

    Examples
    --------
    >>> import fedprice as fp
    >>> game = fp.Game(fp.population(), bound=fp.Bound(alpha=3.3, rounds=1000), budget=-1e6)
    >>> print(price_warnings(fp.solve(game))[0])
    client 7 and 2 more would have to pay more than they can gain: 7 pays 1,000,093 for a level of
    1.375e-06, while joining unpaid would cost it 7.982 in all. Such fees exist only in the bound:
    nobody would pay them. Raise the budget above 0 and add --outside free, for prices that nobody
    refuses, or set floors with --max-weight 1 or the column level_min.
    """
    line = _doubtful(outcome)
    lines = [] if line is None else [f"{line} {_remedy(outcome)}"]
    if (line := _refused(outcome)) is not None:
        lines.append(line)
    if outcome.status is Status.OVER_BUDGET:
        budget, spend = number(outcome.game.budget), number(outcome.spend)
        lines.append(f"the budget of {budget} is ignored; these prices cost {spend}.")
    return lines


def scheme_warnings(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the warnings of several schemes, each with its name."""
    return [f"{one.scheme}: {line}" for one in outcomes for line in price_warnings(one)]


def frontier_warnings(outcomes: Iterable[Outcome]) -> list[str]:
    """Return one warning for all budgets at which a client is to pay more than it could gain."""
    found = [one for one in outcomes if doubtful_payers(one).clients.size]
    if not found:
        return []
    worst = min(found, key=lambda one: one.game.budget)
    highest = max(one.game.budget for one in found)
    return [
        f"losses at budgets up to {number(highest)} rely on fees that nobody would pay. With a "
        f"budget of {number(worst.game.budget)}, {_doubtful(worst)} "
        f"{_remedy(worst, frontier=True)}"
    ]


def _doubtful(outcome: Outcome) -> str | None:
    """Return which clients would have to pay more than they can gain, if any."""
    who, fee, burden = doubtful_payers(outcome)
    if not who.size:
        return None
    name = safe(str(outcome.game.clients.ids[who[0]]))
    others = f" and {number(who.size - 1)} more" if who.size > 1 else ""
    they = "they" if who.size > 1 else "it"
    return (
        f"client {name}{others} would have to pay more than {they} can gain: {name} pays "
        f"{number(float(fee[0]))} for a level of {number(float(outcome.levels[who[0]]))}, while "
        f"joining unpaid would cost it {number(float(burden[0]))} in all. Such fees exist "
        "only in the bound: nobody would pay them."
    )


def _refused(outcome: Outcome) -> str | None:
    """Return which clients would rather join unpaid than be held to their contracts, if any."""
    if outcome.bought is None:
        return None
    lost = np.where(outcome.bought, outcome.surpluses, 0.0)
    who = np.flatnonzero(lost < -NOTHING * (np.abs(outcome.payments) + outcome.game.clients.cost))
    if not who.size:
        return None
    worst = int(who[np.argmin(lost[who])])
    name = safe(str(outcome.game.clients.ids[worst]))
    unpaid = float(best_response(outcome.game, 0.0)[worst])
    others = f" and {number(who.size - 1)} more" if who.size > 1 else ""
    return (
        f"client {name}{others} would rather join unpaid, because the model is of value to them: "
        f"{name} at a level of {number(unpaid)} instead of {number(float(outcome.levels[worst]))}. "
        "Raise the budget, or offer prices, at which clients choose their levels."
    )


def _remedy(outcome: Outcome, *, frontier: bool = False) -> str:
    """Return advice: the remedies that would help and are not already in place."""
    game, worst = outcome.game, doubtful_payers(outcome).clients[0]
    ways = [] if game.budget > 0 else ["raise the budget above 0"]
    if outcome.scheme == "equilibrium" and not frontier:
        ways.append("add --outside free, for prices that nobody refuses")
    first = " and ".join(ways)
    light = game.clients.weight[worst] <= LARGEST_WEIGHT * outcome.levels[worst]
    floors = "" if light else "set floors with --max-weight 1 or the column level_min"
    text = ", or ".join(way for way in (first, floors) if way) or "raise the budget"
    return f"{text[0].upper()}{text[1:]}."
