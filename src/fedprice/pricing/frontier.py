"""The frontier: what each budget buys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.pricing.equilibrium import solve_problem
from fedprice.pricing.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedprice.game import Game
    from fedprice.pricing.outcome import Outcome

__all__ = ["frontier"]


def frontier(game: Game, budgets: Iterable[float]) -> list[Outcome]:
    """Return the equilibrium for each budget, every search begun where the last one ended.

    One more unit of budget changes the expected loss by −λ: the outcome's `multiplier` is the
    (negative) slope of the frontier.

    Parameters
    ----------
    game
        The game; its own budget plays no part.
    budgets
        The budgets, best in rising or falling order.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=0)
    >>> for best in frontier(game, [-5, 0, 5]):
    ...     print(f"{best.game.budget:3.0f} {best.expected_loss:.5f} {best.payers}")
     -5 0.00564 1
      0 0.00186 1
      5 0.00063 0
    """
    problem = Problem.of(game)
    outcomes: list[Outcome] = []
    start = None
    for budget in budgets:
        outcomes.append(solve_problem(problem, float(budget), start))
        if outcomes[-1].multiplier:
            start = outcomes[-1].reciprocal[1]
    return outcomes
