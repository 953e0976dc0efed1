"""What `fedprice compare --lies` computes: what clients gain by lying."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.beliefs.lies import manipulability
from fedprice.commands.feasible import require_feasible
from fedprice.pricing import solve

if TYPE_CHECKING:
    from fedprice.beliefs.lies import Manipulability
    from fedprice.game import Game

__all__ = ["lies"]


def lies(game: Game, factor: float, *, free_response: bool) -> Manipulability:
    """Return what each client gains by lying; the budget must suffice for the truth."""
    require_feasible(solve(game))
    return manipulability(game, factor, committed=not free_response)
