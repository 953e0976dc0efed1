"""What `fedprice price` computes: what to offer each client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.tables import json_text, number_column, text_column
from fedprice.beliefs.refusals import Outside, refusals
from fedprice.clients import require_same
from fedprice.commands.assumptions import ALPHA_FREE, GIVEN
from fedprice.commands.cost_letters import cost_of_levels, is_at_cost
from fedprice.commands.feasible import require_feasible
from fedprice.commands.sensitivity import bands
from fedprice.commands.warnings import price_warnings
from fedprice.errors import InputError, nearest
from fedprice.pricing import Outcome, Scheme, Status, find_scheme
from fedprice.pricing.at_cost import reimbursing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl
    from matplotlib.figure import Figure

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.beliefs.posted import Posted
    from fedprice.beliefs.refusals import Refusals
    from fedprice.calibration import Calibration
    from fedprice.clients import Clients
    from fedprice.commands.assumptions import Assumptions
    from fedprice.commands.sensitivity import Bands
    from fedprice.commands.what_if import WhatIf
    from fedprice.game import Game

__all__ = [
    "LOSSES",
    "Pay",
    "PriceAnswer",
    "RobustAnswer",
    "check_outside",
    "losses_of",
    "paid_by",
    "price",
    "price_robust",
    "priced_by",
]

LOSS_COLUMNS = {
    "client_id": "the clients' ids",
    "without": "by how much the loss of the best model without each client's data exceeds the "
    "optimum",
    "own": "by how much the loss of each client's own model exceeds the optimum",
}
IN_ALPHA = ("expected_loss", "multiplier")
LOSSES = {Outside.STAY: "without", Outside.NOTHING: "own"}  # the column that each option needs


@dataclass(frozen=True, eq=False)
class PriceAnswer:
    """What `fedprice price` answers.

    Attributes
    ----------
    outcome
        The prices.
    calibration
        Where α and the norms come from, if they were measured.
    ends
        The outcomes at both ends of α's interval; none if prices are the same there.
    refusals
        Who would refuse the equilibrium's prices, if that was requested.
    assumptions
        What was assumed.
    bands
        How prices change if an assumption is wrong, if something was assumed.
    what_if
        What would be offered if some clients had other numbers, if that was requested.
    """

    outcome: Outcome
    calibration: Calibration | None = None
    ends: Sequence[Outcome] = ()
    refusals: Refusals | None = None
    assumptions: Assumptions = GIVEN
    bands: Bands | None = None
    what_if: WhatIf | None = None

    @cached_property
    def warnings(self) -> list[str]:
        """What to know before these prices are used."""
        return price_warnings(self.outcome)

    def summary(self) -> dict[str, Any]:
        """Return the outcome in numbers, with its assumptions.

        Where α is not known, what is in units of α has names that say so.
        """
        summary = self.outcome.summary()
        if self.assumptions.alpha is None:
            per_alpha = {f"{name}_per_alpha": summary[name] for name in IN_ALPHA}
            unknown = dict.fromkeys([*IN_ALPHA, "sign_threshold", "primal", "dual"])
            summary |= unknown | per_alpha
        summary |= self.assumptions.summary(self.outcome.game)
        if self.calibration is not None:
            low, high = self.calibration.interval
            summary |= {"alpha_low": low, "alpha_high": high, "norms": self.calibration.norms}
        if self.bands is not None:
            summary |= self.bands.summary()
        return summary if self.refusals is None else summary | self.refusals.summary()

    def to_frame(self) -> pl.DataFrame:
        """Return one row per client."""
        import polars as pl

        rows = (self.outcome if self.refusals is None else self.refusals).to_frame()
        for name, end in zip(("price_alpha_low", "price_alpha_high"), self.ends, strict=False):
            if end.status is not Status.INFEASIBLE:
                rows = rows.with_columns(pl.Series(name, end.prices))
        if is_at_cost(self.outcome):
            rows = rows.with_columns(
                pl.Series("cost_at_level", cost_of_levels(self.outcome)),
                pl.Series("margin", self.outcome.profits),
            )
        if self.what_if is not None:
            changed = self.what_if.to_frame().select("level_if", "price_if", "payment_if")
            rows = rows.hstack(changed)
        return rows if self.bands is None else self.bands.with_prices(rows)

    def to_json(self, currency: str = "", **more: str) -> str:
        """Return summary, clients and warnings as one JSON object."""
        summary = self.summary() | _named(currency, more)
        parts: dict[str, Any] = {"summary": summary, "clients": self.to_frame()}
        if self.what_if is not None:
            parts |= {"what_if": self.what_if.summary(), "stands": self.what_if.stands()}
        return json_text(**parts, warnings=self.warnings)

    def plot(self, currency: str = "") -> Figure:
        """Draw the outcome, with the currency as label of money (extra `plot`)."""
        from fedprice.pricing.figures import draw_outcome

        known = self.assumptions.alpha is not None
        return draw_outcome(self.outcome, currency, alpha_known=known)


def _named(currency: str, more: dict[str, str]) -> dict[str, str]:
    """Return the texts that there are, by name."""
    return {name: text for name, text in {"currency": currency, **more}.items() if text}


class Pay(StrEnum):
    """What clients are paid: a price per unit of level, or the cost of a level."""

    PRICE = "price"
    COST = "cost"


def paid_by(pay: Pay, margin: float | None, scheme: str | None) -> Scheme:
    """Return the scheme that options about pay ask for; refuse those that do not go together."""
    if pay is Pay.PRICE:
        if margin is not None:
            raise InputError("--margin is paid on top of costs; add --pay cost, or leave it out.")
        return find_scheme(scheme or "equilibrium")
    if scheme is not None:
        raise InputError(
            "--pay cost is a scheme of its own; leave out --scheme, or leave out --pay cost."
        )
    if margin is not None and margin > 1:
        raise InputError(f"--margin is a share of the cost: write 0.1 for 10 %; got {margin:.12g}.")
    return reimbursing(margin or 0.0)


def check_outside(outside: Outside | None, scheme: str, *, losses: bool) -> None:
    """Refuse options about refusing that cannot be combined."""
    if outside is not None and scheme != "equilibrium":
        raise InputError("--outside prices by the equilibrium; leave out --scheme and --pay.")
    if losses and outside not in LOSSES:
        raise InputError("--outside-losses needs --outside stay or --outside nothing.")
    if outside is Outside.NOTHING and not losses:
        raise InputError(
            "--outside nothing needs --outside-losses FILE with the columns client_id and own: by "
            "how much the loss of each client's own model exceeds the optimum."
        )


def losses_of(frame: pl.DataFrame, name: str, clients: Clients) -> FloatArray:
    """Return a column of losses outside the federation, in the order of the clients.

    The table has the columns `client_id` and `without` or `own`, or both.
    """
    for column in frame.columns:
        if column not in LOSS_COLUMNS:
            raise InputError(f"unknown column {column!r:.100}. {nearest(column, LOSS_COLUMNS)}")
    for column in ("client_id", name):
        if column not in frame.columns:
            raise InputError(
                f"there is no column {column!r}; the columns are {', '.join(frame.columns)}. Add "
                f"{LOSS_COLUMNS[column]}."
            )
    given = text_column(frame["client_id"]).tolist()
    if len(set(given)) < len(given):
        raise InputError("client ids must be distinct.")
    require_same("the table of losses", given, clients.ids.tolist(), "the table of clients")
    numbers, at = number_column(frame[name]), {client: row for row, client in enumerate(given)}
    return numbers[[at[client] for client in clients.ids]]


def priced_by(
    scheme: Callable[[Game], Outcome],
    outside: Outside | None = None,
    losses: FloatArray | None = None,
) -> Callable[[Game], Outcome]:
    """Return how a game is priced, if `outside` says so by prices that nobody refuses."""

    def priced(game: Game) -> Outcome:
        outcome = scheme(game)
        asked = _refused(outcome, outside, losses)
        return outcome if asked is None else asked.respected

    return priced


def _refused(
    outcome: Outcome, outside: Outside | None, losses: FloatArray | None
) -> Refusals | None:
    """Return who would refuse, if that can be asked."""
    if outside is None or outcome.status is Status.INFEASIBLE:
        return None
    return refusals(outcome, outside, **({} if losses is None else {LOSSES[outside]: losses}))


def price(
    game: Game,
    *,
    scheme: str | Scheme = "equilibrium",
    calibration: Calibration | None = None,
    outside: Outside | None = None,
    losses: FloatArray | None = None,
    assumptions: Assumptions = GIVEN,
) -> PriceAnswer:
    """Price clients, by prices that none refuses if `outside` says what refusing means.

    Parameters
    ----------
    game
        The clients under a budget.
    scheme
        How to price, or the name of that.
    calibration
        Where the game's α comes from; prices at both ends of its interval are then computed, too.
    outside
        What a client has if it refuses.
    losses
        The losses that `outside` needs (`LOSSES`), one per client.
    assumptions
        What the game takes for granted; each client is then priced under other assumptions, too.

    Raises
    ------
    InfeasibleError
        If the budget does not suffice.
    """
    chosen = find_scheme(scheme) if isinstance(scheme, str) else scheme
    priced = priced_by(chosen, outside, losses)
    outcome = chosen(game)
    require_feasible(outcome)
    asked = _refused(outcome, outside, losses)
    if asked is not None:
        outcome = asked.respected
        # The floors of `game` are what a user can lower.
        require_feasible(replace(outcome, game=game, scheme=f"--outside {outside}"))
    ends = [] if calibration is None else _at_ends(game, outcome, calibration, priced)
    free = chosen.name in ALPHA_FREE
    moved = bands(outcome, assumptions.columns, priced) if free else None
    return PriceAnswer(outcome, calibration, ends, asked, assumptions, moved)


def _at_ends(
    game: Game, outcome: Outcome, measured: Calibration, priced: Callable[[Game], Outcome]
) -> list[Outcome]:
    """Return the outcomes at both ends of α's interval, or none if prices are the same there."""
    ends = [
        priced(replace(game, bound=replace(game.bound, alpha=alpha))) for alpha in measured.interval
    ]
    same = all(np.allclose(end.prices, outcome.prices, rtol=1e-6, atol=0) for end in ends)
    return [] if same else ends


@dataclass(frozen=True, eq=False)
class RobustAnswer:
    """What `fedprice price --robust` answers: prices that keep the budget for every α."""

    posted: Posted
    game: Game
    calibration: Calibration
    assumptions: Assumptions = GIVEN

    @cached_property
    def outcome(self) -> Outcome:
        """What the clients answer at the α that was measured."""
        return Outcome.from_prices(self.game, self.posted.prices, scheme="robust")

    @cached_property
    def warnings(self) -> list[str]:
        """What to know before these prices are used."""
        return price_warnings(self.outcome)

    def summary(self) -> dict[str, Any]:
        """Return the prices in numbers, with the largest loss and spend over α's interval."""
        (low, high), (loss, spend) = self.calibration.interval, self.posted.worst or (0.0, 0.0)
        return {
            "num_clients": len(self.game.clients),
            "budget": self.game.budget,
            "spend": self.outcome.spend,
            "largest_spend": spend,
            "expected_loss": self.outcome.expected_loss,
            "distance": self.outcome.distance,
            "largest_loss": loss,
            "mean_level": float(self.outcome.levels.mean()),
            "multiplier": self.posted.multiplier,
            "primal": self.posted.certificate.primal,
            "dual": self.posted.certificate.dual,
            "gap": self.posted.certificate.gap,
            "alpha_low": low,
            "alpha_high": high,
        } | self.assumptions.summary(self.game)

    def to_frame(self) -> pl.DataFrame:
        """Return one row per client."""
        return self.outcome.to_frame()

    def to_json(self, currency: str = "", **more: str) -> str:
        """Return summary, clients and warnings as one JSON object."""
        summary = self.summary() | _named(currency, more)
        return json_text(summary=summary, clients=self.to_frame(), warnings=self.warnings)


def price_robust(
    game: Game, calibration: Calibration, assumptions: Assumptions = GIVEN
) -> RobustAnswer:
    """Price clients so that the budget is kept for every α in the calibration's interval."""
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.posting import post as post_tariffs

    posted = post_tariffs(
        game.clients, Beliefs.known(game.clients), bound=game.bound, budget=game.budget,
        alpha_interval=calibration.interval, cost_exponent=game.cost_exponent,
    )  # fmt: skip
    return RobustAnswer(posted, game, calibration, assumptions)
