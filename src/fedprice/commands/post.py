"""What `fedprice post` computes: offers to clients whose costs and values are unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedprice._plumbing.tables import json_text
from fedprice.commands.assumptions import ASSUMED
from fedprice.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.posted import Information, Posted
    from fedprice.beliefs.sequential import Sequential
    from fedprice.bound import Bound
    from fedprice.calibration import Calibration
    from fedprice.clients import Clients

__all__ = [
    "DRAWS",
    "EXPONENTIAL",
    "OTHERS",
    "PostAnswer",
    "check_post",
    "exponential_beliefs",
    "post",
    "post_form",
]

OTHERS, EXPONENTIAL = "others", "exponential"  # beliefs that are not a table
DRAWS = 200  # populations over which postings are compared with full information


@dataclass(frozen=True, eq=False)
class PostAnswer:
    """What `fedprice post` answers.

    Attributes
    ----------
    posted
        The offers, posted all at once.
    turns
        The same offers posted to one client after another, if that was requested.
    known
        How they compare with full information, if that was requested.
    calibration
        Where α and the norms come from, if they were measured.
    interval
        The interval of α, if the budget is kept for every α in it.
    assumed
        Columns that the table of clients lacks, for which assumptions stand.
    """

    posted: Posted
    turns: Sequential | None = None
    known: Information | None = None
    calibration: Calibration | None = None
    interval: tuple[float, float] | None = None
    assumed: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return the summary of the offers, with α."""
        summary = self.posted.summary()
        if self.turns is not None:
            summary |= {
                "form": "price, sequential",
                "expected_loss": self.turns.expected_loss,
                "expected_spend": self.turns.expected_spend,
                "spend_std": self.turns.spend_std,
                "over_budget": 0.0,
            }
        if self.known is not None:
            summary |= {
                "information_ratio": self.known.ratio,
                "information_low": self.known.low,
                "information_high": self.known.high,
                "information_draws": self.known.draws,
            }
        summary |= {"alpha": self.posted.bound.alpha}
        if self.assumed:
            summary |= {"assumed": {name: ASSUMED[name] for name in self.assumed}}
        if self.interval is not None:
            summary |= {"alpha_low": self.interval[0], "alpha_high": self.interval[1]}
        return summary

    def to_frame(self) -> pl.DataFrame:
        """Return one row per client, with its turn if clients are asked one after another."""
        import polars as pl

        rows = self.posted.to_frame()
        if self.turns is not None:
            place: list[int | None] = [None] * len(self.posted.clients)
            for turn, n in enumerate(self.turns.order.tolist()):
                place[n] = turn + 1
            rows = rows.with_columns(pl.Series("turn", place, dtype=pl.Int64))
        return rows

    def to_json(self) -> str:
        """Return summary and clients as one JSON object."""
        return json_text(summary=self.summary(), clients=self.to_frame())


def check_post(
    form: str,
    *,
    blocks: int | None,
    classes: int | None,
    risk: float | None,
    sequential: bool,
    robust: bool,
    information: bool,
    others: bool,
) -> None:
    """Refuse options of posting that cannot be combined."""
    if blocks is not None and form != "blocks":
        raise InputError(f"--blocks requires --form blocks; got --form {form}.")
    given = {
        "--classes": classes is not None,
        "--risk": risk is not None,
        "--sequential": sequential,
        "--robust": robust,
    }
    for name, is_given in given.items():
        if is_given and form != "price":
            raise InputError(f"{name} requires --form price; got --form {form}.")
    refused = given | {"--information": information, "--form menu": form == "menu"}
    for name, is_given in refused.items():
        if is_given and others:
            raise InputError(f"--beliefs others cannot be combined with {name}.")
    for name in ("--risk", "--classes", "--robust"):
        if sequential and given[name]:
            raise InputError(f"--sequential cannot be combined with {name}.")
    if classes is not None and robust:
        raise InputError("--classes cannot be combined with --robust.")


def exponential_beliefs(cost: float | None, value: float | None, form: str) -> Beliefs:
    """Return beliefs with these means; a menu takes values from the clients."""
    from fedprice.beliefs.beliefs import Beliefs

    if form == "menu" and value is not None:
        raise InputError("--form menu takes values from CLIENTS: leave out --value.")
    if cost is None or (value is None and form != "menu"):
        raise InputError(
            "--beliefs exponential needs the means of cost and value: give --cost and --value "
            "(0 if nobody values the model)."
        )
    return Beliefs.exponential(cost=cost, value=value or 0.0)


def post_form(
    clients: Clients, believed: Beliefs | None, form: str, *, bound: Bound, **more: Any
) -> Posted:
    """Return offers in a form, from beliefs or, without any, from what others reported."""
    from fedprice.beliefs.from_others import post_from_others
    from fedprice.beliefs.posting import post as post_tariffs

    if believed is None:
        return post_from_others(clients, form=form, bound=bound, **more)
    return post_tariffs(clients, believed, form=form, bound=bound, **more)


def post(
    clients: Clients,
    believed: Beliefs | None,
    *,
    bound: Bound,
    budget: float,
    exponent: float,
    form: str = "price",
    blocks: int | None = None,
    classes: int | None = None,
    risk: float | None = None,
    sequential: bool = False,
    information: bool = False,
    calibration: Calibration | None = None,
    robust: bool = False,
    assumed: tuple[str, ...] = (),
) -> PostAnswer:
    """Post prices or tariffs from beliefs; None stands for the reports of all other clients.

    The options are those of `fedprice post`, which `check_post` has found to go together; `assumed`
    are the columns that the table of clients lacks.
    """
    if form == "menu" and "value" in clients.unknown:
        raise InputError(
            "--form menu needs a column 'value'. Add it, or post --form tariff, which needs none."
        )
    interval = calibration.interval if robust and calibration is not None else None
    how: dict[str, Any] = {}
    if form == "blocks":
        how = {"blocks": blocks}
    elif form == "price" and believed is not None:
        how = {"classes": classes, "risk": risk, "alpha_interval": interval}
    posted = post_form(
        clients, believed, form, bound=bound, budget=budget, cost_exponent=exponent, **how
    )
    turns = posted.sequential() if sequential else None
    known = None
    if information:
        known = posted.value_of_information(DRAWS) if turns is None else turns.information(DRAWS)
    return PostAnswer(posted, turns, known, calibration, interval, assumed)
