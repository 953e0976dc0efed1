"""What `fedprice compare` computes: schemes under the same budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.commands.feasible import require_feasible
from fedprice.pricing import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedprice.game import Game
    from fedprice.pricing import Outcome

__all__ = ["compare"]


def compare(game: Game, schemes: Sequence[Callable[[Game], Outcome]]) -> list[Outcome]:
    """Return the outcome of each scheme; at least one must be feasible."""
    outcomes = [one(game) for one in schemes]
    if all(outcome.status is Status.INFEASIBLE for outcome in outcomes):
        require_feasible(outcomes[0])
    return outcomes
