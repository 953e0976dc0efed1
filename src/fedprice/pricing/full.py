"""Full participation: pay every client to join every round, whatever that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedprice.game import price_for
from fedprice.pricing.outcome import Outcome, Status
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice.game import Game

__all__ = ["full"]


@scheme("full")
def full(game: Game) -> Outcome:
    """Return the outcome of every client at its cap, at the least price at which it wants that.

    The budget is ignored: if it does not suffice, the status is OVER_BUDGET, and `spend` says what
    full participation costs.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> everybody = full(Game(clients, bound=Bound(alpha=2, rounds=1000), budget=6))
    >>> everybody.levels, everybody.prices, everybody.status.value
    (array([1., 1.]), array([8.    , 8.9875]), 'over budget')
    """
    cap = game.clients.level_max
    outcome = Outcome.from_prices(game, price_for(game, cap), scheme="full", levels=cap)
    over = outcome.status is Status.INFEASIBLE
    return replace(outcome, status=Status.OVER_BUDGET) if over else outcome
