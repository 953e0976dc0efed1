"""What `fedprice price --budgets` computes: what each budget buys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.commands.feasible import require_feasible
from fedprice.pricing import Status
from fedprice.pricing.frontier import frontier as trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.game import Game
    from fedprice.pricing.frontier import Frontier

__all__ = ["frontier"]


def frontier(game: Game, budgets: Sequence[float]) -> Frontier:
    """Return what each budget buys; at least one must suffice."""
    traced = trace(game, budgets)
    if all(outcome.status is Status.INFEASIBLE for outcome in traced):
        require_feasible(traced[-1])
    return traced
