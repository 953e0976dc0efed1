"""Rows of the tables of runs, rounds and clients; names in them are text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.tariffs import Tariff

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fedprice.market.following import RoundSeen, RunSeen, RunSummary
    from fedprice.market.verification import Checked

__all__ = ["amount", "client_frame", "round_rows", "run_address", "run_rows"]

NAMES = 12  # of clients in a cell


def amount(units: int) -> str:
    """Return micro-units as units of money, as people read them.

    Examples
    --------
    >>> amount(1_234_567_891), amount(-250_000), amount(12), amount(0)
    ('1,234.57', '-0.25', '0.000012', '0')
    """
    if abs(units) >= MICRO // 100 or units == 0:
        text = f"{units / MICRO:,.2f}"
        return text.removesuffix(".00") if units % MICRO == 0 else text
    return f"{units / MICRO:.6f}"


def run_address(name: str) -> str:
    """Return the address of a run's page.

    Examples
    --------
    >>> run_address("demo#2"), run_address("a/b"), run_address("..")
    ('/runs/demo%232', '/runs/a%2Fb', '/runs?run=..')
    """
    quoted = quote(name, safe="")
    # Browsers and the guard treat these as directories, however they are written.
    return f"/runs?run={quoted}" if {".", ".."} & {*name.split("/")} else f"/runs/{quoted}"


def run_rows(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Return one row per period, with numbers to sort by beside those that are shown."""
    return [
        {
            "name": own.name,
            "address": run_address(own.name),
            "state": own.state,
            "period": own.period,
            "done": own.done,
            "rounds": f"{own.done:,} of {own.rounds:,}",
            "clients": own.clients,
            "paid": own.paid_out / MICRO,
            "money": f"{amount(own.paid_out)} of {amount(own.funds)}",
        }
        for own in runs
    ]


def round_rows(rounds: Sequence[RoundSeen], before: int) -> list[dict[str, Any]]:
    """Return one row per round; rounds are counted from 1 in the whole run.

    Parameters
    ----------
    rounds
        What was recorded.
    before
        Rounds of the periods before.
    """
    return [
        {
            "at": before + own.round + 1,
            "round": f"{before + own.round + 1:,}",
            "heads": own.heads,
            "joined": _names(own.joined),
            "missed": _names(own.missed),
            "refused": _names([f"{client}: {why}" for client, why in own.refused.items()], "; "),
            "paid": amount(own.paid),
        }
        for own in rounds
    ]


def _names(names: Collection[str], between: str = ", ") -> str:
    shown = between.join([*names][:NAMES])
    more = len(names) - NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown


def client_frame(seen: RunSeen, checked: Checked) -> pl.DataFrame:
    """Return one row per client: what was agreed, and what it did as far as has been verified."""
    counts = checked.clients or {}
    rows = []
    for name, own in seen.terms.items():
        did = counts.get(name)
        rows.append(
            {
                "client": name,
                "level": own.level / LEVEL_ONE,
                "agreed": own.payment / MICRO,
                "heads": did and did.heads,
                "delivered": did and did.joined,
                "missed": did and did.missed,
                "refused": did and did.refused,
                "paid": did and did.paid / MICRO,
                "offer": str(Tariff(tuple((end, price) for end, price in own.tariff), own.menu)),
            }
        )
    schema: dict[str, Any] = {"client": pl.String, "level": pl.Float64, "agreed": pl.Float64}
    schema |= dict.fromkeys(("heads", "delivered", "missed", "refused"), pl.Int64)
    schema |= {"paid": pl.Float64, "offer": pl.String}
    return pl.DataFrame(rows, schema=schema)
