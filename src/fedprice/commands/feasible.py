"""What the computations of several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.errors import InfeasibleError
from fedprice.pricing import Status
from fedprice.pricing.display import infeasible_line

if TYPE_CHECKING:
    import polars as pl

    from fedprice.calibration import Calibration
    from fedprice.pricing import Outcome

__all__ = ["require_feasible", "with_norms_named"]


def require_feasible(outcome: Outcome) -> None:
    """End with a clear line, and exit code 3, if the budget does not suffice."""
    if outcome.status is Status.INFEASIBLE:
        raise InfeasibleError(infeasible_line(outcome))


def with_norms_named(rows: pl.DataFrame, calibration: Calibration | None) -> pl.DataFrame:
    """Return rows whose column of norms is called by what was measured."""
    if calibration is not None and calibration.norms == "updates":
        return rows.rename({"grad_norm": "update_norm"})
    return rows
