"""What a ledger says, as tables: its runs, the clients of a run, and a client's statement."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from fedprice.errors import nearest
from fedprice.market.database import LedgerError
from fedprice.market.money import LEVEL_ONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from fedprice.market.ledger import Entry, Ledger

__all__ = ["clients_of", "money", "runs_of", "statement_of"]


def money(units: int) -> Decimal:
    """Return micro-units as units, exactly.

    Examples
    --------
    >>> money(-1_500_000)
    Decimal('-1.500000')
    """
    return Decimal(units).scaleb(-6)


def runs_of(ledger: Ledger) -> pl.DataFrame:
    """Return the runs of a ledger that verifies, one a row."""
    import polars as pl

    report = ledger.verify()
    rows = []
    for name, run in report.runs.items():
        clients = run.clients.values()
        left = report.balances.get(f"escrow:{name}", 0)
        rows.append(
            {
                "run": name,
                "status": "settled" if run.settled else "open",
                "rounds": run.rounds,
                "done": run.done,
                "clients": len(run.clients),
                "budget": money(run.budget),
                "paid_out": money(sum(own.paid for own in clients if own.paid > 0)),
                "paid_in": money(-sum(own.paid for own in clients if own.paid < 0)),
                "escrow": money(left),
                "joined": sum(own.joined for own in clients),
                "missed": sum(own.missed for own in clients),
                "refused": sum(own.refused for own in clients),
                "model": run.model,
            }
        )
    return pl.DataFrame(rows, schema_overrides=_decimals("budget", "paid_out", "paid_in", "escrow"))


def clients_of(ledger: Ledger, run: str) -> pl.DataFrame:
    """Return the clients of a run in a ledger that verifies, one a row.

    `grad_norm` is what a client declared, and `shown` the root mean square of what its updates
    prove: one that shows more has declared too little.
    """
    import polars as pl

    entries = list(ledger.entries(run))
    report = ledger.verify().runs[run]
    agreement = entries[0].content["agreement"]
    squares = dict.fromkeys(report.clients, 0.0)
    for entry in entries:
        for name, (_, _, shown) in entry.content.get("joined", {}).items():
            squares[name] += float(shown) ** 2
    rows = []
    for name, own in report.clients.items():
        declared = agreement and float(agreement["clients"][name]["grad_norm"])
        rows.append(
            {
                "client": name,
                "price": money(own.price),
                "level": own.level / LEVEL_ONE,
                "agreed": money(own.payment),
                "heads": own.heads,
                "joined": own.joined,
                "missed": own.missed,
                "refused": own.refused,
                "paid": money(own.paid),
                "grad_norm": declared,
                "shown": (squares[name] / own.joined) ** 0.5 if own.joined else None,
            }
        )
    return pl.DataFrame(
        rows,
        schema_overrides=_decimals("price", "agreed", "paid")
        | {"grad_norm": pl.Float64, "shown": pl.Float64},
    )


def statement_of(ledger: Ledger, client: str) -> pl.DataFrame:
    """Return all that concerns a client, one entry a row: what happened, and what it was paid.

    `event` is deposit, opened, tails, joined, missed, refused or settled; `note` says what was
    offered and chosen, or why nothing was paid.
    """
    import polars as pl

    account, balance = f"client:{client}", 0
    ledger.verify()
    rows, known = [], set[str]()
    inside: set[str] = set()
    for entry in ledger.entries():
        content = entry.content
        known |= {a.removeprefix("client:") for a, _ in entry.postings if a.startswith("client:")}
        if content["kind"] == "open":
            names = {name for name, *_ in content["terms"]}
            known |= names
            if client in names:
                inside.add(content["of"][0])
        amount = sum(m for a, m in entry.postings if a == account)
        concerned = content["kind"] in ("open", "round", "settle") and content["of"][0] in inside
        if not (concerned or amount):
            continue
        balance += amount
        event, note = _event(content, client)
        of = content["of"]
        rows.append(
            {
                "entry": entry.number,
                "run": of[0] if concerned else None,
                "round": of[1] if content["kind"] == "round" else None,
                "event": event,
                "amount": money(amount),
                "balance": money(balance),
                "note": note,
            }
        )
    if not rows:
        hint = nearest(client, sorted(known)) if known else "It has none yet."
        raise LedgerError(f"{ledger.name} has no client {client!r}. {hint}")
    return pl.DataFrame(
        rows,
        schema_overrides=_decimals("amount", "balance")
        | {"run": pl.String, "round": pl.Int64, "note": pl.String},
        infer_schema_length=None,
    )


def _event(content: dict[str, Any], client: str) -> tuple[str, str]:
    kind = content["kind"]
    if kind == "deposit":
        return "deposit", str(content["reference"])
    if kind == "settle":
        return "settled", f"after {content['rounds']} rounds"
    if kind == "open":
        _, price, level, _ = next(terms for terms in content["terms"] if terms[0] == client)
        offered = f"offered a price of {money(price)}"
        if content["agreement"] is not None:
            offer = json.loads(content["agreement"]["clients"][client]["offer"])
            offered += f" up to level {offer['level_cap'] / LEVEL_ONE:.6f}"
        chose = f"chose level {level / LEVEL_ONE:.6f}"
        return "opened", f"{offered} for {content['rounds']} rounds, {chose}"
    if client in content["refused"]:
        return "refused", str(content["refused"][client])
    if client in content["missed"]:
        return "missed", "drew heads, and sent nothing"
    if client in content["joined"]:
        _, weight, _ = content["joined"][client]
        return "joined", f"weight {float(weight):.4g}"
    return "tails", ""


def postings_of(chain: Iterator[Entry]) -> pl.DataFrame:
    """Return the postings of a ledger, one a row."""
    import polars as pl

    rows = [
        {
            "entry": entry.number,
            "kind": entry.content["kind"],
            "of": " ".join(map(str, entry.content["of"])),
            "account": account,
            "amount": money(amount),
            "hash": entry.hash,
        }
        for entry in chain
        for account, amount in entry.postings
    ]
    return pl.DataFrame(rows, schema_overrides=_decimals("amount"), infer_schema_length=None)


def _decimals(*names: str) -> dict[str, Any]:
    import polars as pl

    return dict.fromkeys(names, pl.Decimal(38, 6))
