"""Inspection of a ledger: its database, its chain, and what is stored beside the chain."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError
from fedprice.market.database import LedgerError, accounts, entries, sa, states
from fedprice.market.ledger import content_of, key_text
from fedprice.verify import VerificationError, check_entries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from fedprice.market.database import Database
    from fedprice.market.ledger import Entry
    from fedprice.verify import Report

__all__ = ["inspect"]


def inspect(database: Database, chain: Iterable[Entry], head: str | None) -> Report:
    """Return what is in the ledger, or raise `LedgerError` with the first thing that is wrong."""
    database.check()
    try:
        report = check_entries(
            entry._asdict() | {"postings": [list(line) for line in entry.postings]}
            for entry in chain
        )
        with database.reading() as connection:
            _check_balances(connection, report)
            _check_keys(connection)
            _check_states(connection, report)
        if head is not None and head not in report.hashes:
            raise VerificationError(
                f"no entry has the hash {head}; the ledger was cut short or written anew."
            )
    except (VerificationError, InputError) as error:
        raise LedgerError(f"{database.name} does not verify: {error}") from error
    return report


def _check_balances(connection: Connection, report: Report) -> None:
    rows = connection.execute(sa.select(accounts.c.name, accounts.c.balance)).all()
    stored = {name: balance for name, balance in rows if type(balance) is int}
    if len(stored) != len(rows) or stored != report.balances:
        raise VerificationError("the balances are not the sums of the postings.")


def _check_keys(connection: Connection) -> None:
    columns = (entries.c.key, entries.c.run, entries.c.round, entries.c.content)
    for key, run, round_, text in connection.execute(sa.select(*columns)):
        content = content_of(text)
        kind, of = content["kind"], content["of"]
        place: list[Any] = of if kind == "round" else [None, None]
        if kind in ("open", "settle"):
            place = [of[0], None]
        if key != key_text([kind, *of]) or [run, round_] != place:
            raise VerificationError(f"the entry known as {key} is another one.")


def _check_states(connection: Connection, report: Report) -> None:
    for run, state, digest in connection.execute(sa.select(states)):
        if run not in report.runs or hashlib.sha256(state).hexdigest() != digest:
            raise VerificationError(f"the state of run {run!r} is damaged.")
