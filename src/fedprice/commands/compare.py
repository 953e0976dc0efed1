"""What `fedprice compare` computes: schemes under the same budget."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.commands.feasible import require_feasible
from fedprice.errors import FedpriceError, InputError
from fedprice.pricing import Scheme, Status, solve
from fedprice.pricing.outcome import summaries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.lies import Manipulability
    from fedprice.game import Game
    from fedprice.pricing import Outcome

__all__ = ["compare", "compared", "gains", "gains_frame", "notes", "tariff_schemes"]


def compare(game: Game, schemes: Sequence[Callable[[Game], Outcome]]) -> list[Outcome]:
    """Return the outcome of each scheme; at least one must be feasible."""
    outcomes = [one(game) for one in schemes]
    if all(outcome.status is Status.INFEASIBLE for outcome in outcomes):
        require_feasible(outcomes[0])
    return outcomes


def compared(outcomes: Sequence[Outcome]) -> pl.DataFrame:
    """Return one row per outcome: its summary, and what compares it with others.

    `offers` is "price" where clients choose their level at one, and "whole" where they are offered
    one level for one payment, to take or leave. `client_surplus` is what clients together gain over
    joining unpaid (`Outcome.surpluses`). `loss_ratio` is the expected loss over that of the
    equilibrium that spends as much as the scheme really does, which may be less than the budget;
    null where there is none.
    """
    import polars as pl

    return summaries(outcomes).with_columns(
        pl.Series("offers", ["price" if one.bought is None else "whole" for one in outcomes]),
        pl.Series("biased", [one.biased for one in outcomes]),
        pl.Series("client_surplus", [float(one.surpluses.sum()) for one in outcomes]),
        pl.Series("loss_ratio", [_loss_ratio(one) for one in outcomes], dtype=pl.Float64),
    )


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what to know before schemes are compared, for those that are there."""
    names = {one.scheme for one in outcomes}
    whole = [one.scheme for one in outcomes if one.bought is not None]
    lines = []
    if whole:
        lines.append(
            f"Offers that are whole ({', '.join(whole)}): one level for one payment, to take or "
            "leave. In all other schemes clients choose their level at a price; the equilibrium is "
            "optimal among these."
        )
    if "contracts" in names:
        lines.append(
            "contracts know every cost and value, and pay each client no more than it needs to "
            "accept: a benchmark for what could be had if nobody kept its cost to itself."
        )
    if "at-cost" in names:
        lines.append(
            "at-cost reimburses costs as clients state them (fedprice price --pay cost), and needs "
            "proof of them."
        )
    return lines


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


def gains(
    game: Game, schemes: Sequence[Scheme], factor: float, *, free_response: bool = False
) -> dict[str, Manipulability]:
    """Return what clients gain under each scheme by reports within a factor of the truth.

    A scheme is missing where the truth is infeasible or has an infinite loss.

    Parameters
    ----------
    game, schemes
        The truth, and what prices it.
    factor
        Reported costs lie within this factor of the truth, reported values below it.
    free_response
        Whether a liar chooses its best level at the price that its report leads to.
    """
    from fedprice.beliefs.lies import check_factor, manipulability

    check_factor(factor)
    found = {}
    for one in schemes:
        with suppress(InputError):
            found[one.name] = manipulability(game, factor, scheme=one, committed=not free_response)
    return found


def gains_frame(found: Mapping[str, Manipulability]) -> pl.DataFrame:
    """Return one row per scheme: `median_gain` over the absolute money surplus, `largest_gain`."""
    import polars as pl

    rows = [
        {
            "scheme": name,
            "median_gain": float(np.median(lies.relative_gain)),
            "largest_gain": float(lies.gain.max()),
        }
        for name, lies in found.items()
    ]
    schema = {"scheme": pl.String, "median_gain": pl.Float64, "largest_gain": pl.Float64}
    return pl.DataFrame(rows, schema=schema)
