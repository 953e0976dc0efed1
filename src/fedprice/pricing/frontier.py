"""The frontier: what each budget buys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from fedprice._plumbing.tables import as_pandas
from fedprice.errors import InputError, number_like
from fedprice.pricing.equilibrium import solve_problem
from fedprice.pricing.outcome import Outcome, summaries
from fedprice.pricing.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure

    from fedprice.game import Game

__all__ = ["Frontier", "frontier"]


@dataclass(frozen=True, eq=False, repr=False)
class Frontier(Sequence[Outcome]):
    """What each budget buys: the equilibria in the order of the budgets, as a sequence.

    Attributes
    ----------
    outcomes
        One outcome per budget; its budget is `outcome.game.budget`.
    """

    outcomes: tuple[Outcome, ...]

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Outcome, ...]: ...
    def __getitem__(self, index: int | slice) -> Outcome | tuple[Outcome, ...]:
        return self.outcomes[index]

    def __len__(self) -> int:
        return len(self.outcomes)

    def __repr__(self) -> str:
        budgets = [outcome.game.budget for outcome in self.outcomes]
        return (
            f"Frontier(num_budgets={len(self)}, lowest={min(budgets):g}, highest={max(budgets):g})"
        )

    def to_frame(self) -> pl.DataFrame:
        """Return a polars table with one row per budget: the columns of `Outcome.summary`."""
        return summaries(self.outcomes)

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())

    def plot(self) -> Figure:
        """Draw expected loss and payers over the budget (extra `plot`); a notebook shows the plot.

        Write it to a file with `frontier(…).plot().savefig("frontier.png")`.
        """
        from fedprice.pricing.figures import draw_frontier

        return draw_frontier(self.outcomes)


def frontier(game: Game, budgets: Iterable[float]) -> Frontier:
    """Return the equilibrium for each budget; each search starts where the last one ended.

    One more unit of budget changes the expected loss by −λ: the outcome's `multiplier` is the
    (negative) slope of the frontier.

    Parameters
    ----------
    game
        The game; its own budget does not matter.
    budgets
        The budgets, at least one; the search is fastest if they are sorted.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=0)
    >>> traced = frontier(game, [-5, 0, 5])
    >>> traced
    Frontier(num_budgets=3, lowest=-5, highest=5)
    >>> for best in traced:
    ...     print(f"{best.game.budget:3.0f} {best.expected_loss:.5f} {best.payers}")
     -5 0.00564 1
      0 0.00186 1
      5 0.00063 0
    """
    points = [number_like("budgets", budget) for budget in budgets]
    if not points:
        raise InputError("`budgets` must be at least one; got none.")
    for budget in points:
        if not math.isfinite(budget):
            raise InputError(f"`budgets` must be finite numbers; got {budget}.")
    problem = Problem.of(game)
    outcomes: list[Outcome] = []
    start = None
    for budget in points:
        outcomes.append(solve_problem(problem, budget, start))
        if outcomes[-1].multiplier:
            start = outcomes[-1].reciprocal[1]
    return Frontier(tuple(outcomes))
