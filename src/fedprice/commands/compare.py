"""What `fedprice compare` computes: schemes under the same budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.commands.feasible import require_feasible
from fedprice.errors import FedpriceError, InputError
from fedprice.pricing import Scheme, Status, solve
from fedprice.pricing.outcome import summaries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.game import Game
    from fedprice.pricing import Outcome

__all__ = ["compare", "compared", "gains", "tariff_schemes"]


def compare(game: Game, schemes: Sequence[Callable[[Game], Outcome]]) -> list[Outcome]:
    """Return the outcome of each scheme; at least one must be feasible."""
    outcomes = [one(game) for one in schemes]
    if all(outcome.status is Status.INFEASIBLE for outcome in outcomes):
        require_feasible(outcomes[0])
    return outcomes


def compared(outcomes: Sequence[Outcome]) -> pl.DataFrame:
    """Return one row per outcome: its summary, and what compares it with others.

    `client_surplus` is what clients together gain over joining unpaid (`Outcome.surpluses`).
    `loss_ratio` is the expected loss over that of the equilibrium that spends as much as the scheme
    really does, which may be less than the budget; null where there is none.
    """
    import polars as pl

    return summaries(outcomes).with_columns(
        pl.Series("biased", [one.biased for one in outcomes]),
        pl.Series("client_surplus", [float(one.surpluses.sum()) for one in outcomes]),
        pl.Series("loss_ratio", [_loss_ratio(one) for one in outcomes], dtype=pl.Float64),
    )


def _loss_ratio(outcome: Outcome) -> float | None:
    if outcome.status is Status.INFEASIBLE:
        return None
    try:
        best = solve(replace(outcome.game, budget=outcome.spend))
    except FedpriceError:  # numbers too far apart for a certificate
        return None
    if best.status is Status.INFEASIBLE or not best.expected_loss:
        return None
    return outcome.expected_loss / best.expected_loss


def tariff_schemes(
    game: Game, beliefs: Beliefs, forms: Sequence[str] = ("price", "blocks", "tariff", "menu")
) -> list[Scheme]:
    """Return posted offers to the clients of a game, for these beliefs, as one scheme per form.

    Menus are made for the clients' values, which they take as known.
    """
    from fedprice.beliefs.posting import post

    return [
        post(
            game.clients, beliefs, bound=game.bound, budget=game.budget, form=form,
            cost_exponent=game.cost_exponent,
        ).as_scheme()
        for form in forms
    ]  # fmt: skip


def gains(game: Game, schemes: Sequence[Scheme], factor: float) -> pl.DataFrame:
    """Return what clients gain under each scheme by reports within a factor of the truth.

    `median_gain` is the median of the gain over the absolute money surplus, `largest_gain` is in
    money; both null where the truth is infeasible or has an infinite loss.
    """
    import polars as pl

    from fedprice.beliefs.lies import manipulability

    rows = []
    for one in schemes:
        try:
            found = manipulability(game, factor, scheme=one)
        except InputError:
            found = None
        rows.append(
            {
                "scheme": one.name,
                "median_gain": None if found is None else float(np.median(found.relative_gain)),
                "largest_gain": None if found is None else float(found.gain.max()),
            }
        )
    schema = {"scheme": pl.String, "median_gain": pl.Float64, "largest_gain": pl.Float64}
    return pl.DataFrame(rows, schema=schema)
