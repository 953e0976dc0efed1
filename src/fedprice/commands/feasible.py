"""The check that a budget suffices, which several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.errors import InfeasibleError
from fedprice.pricing import Status
from fedprice.pricing.display import infeasible_line

if TYPE_CHECKING:
    from fedprice.pricing import Outcome

__all__ = ["require_feasible"]


def require_feasible(outcome: Outcome) -> None:
    """End with a clear line, and exit code 3, if the budget does not suffice."""
    if outcome.status is Status.INFEASIBLE:
        raise InfeasibleError(infeasible_line(outcome))
