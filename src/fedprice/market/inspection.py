"""Inspection of a ledger: its database, its chain, and what is stored beside the chain."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fedprice.market.canonical import content_of, key_text
from fedprice.market.chain import chain
from fedprice.market.database import DamagedError, accounts, entries, sa, states
from fedprice.verify import VerificationError, check_entries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from fedprice.market.chain import Entry
    from fedprice.market.database import Database
    from fedprice.verify import Report

__all__ = ["inspect"]


def inspect(
    database: Database, connection: Connection, head: str | None, kept: list[Entry] | None
) -> Report:
    """Return what is in the ledger, or raise `DamagedError` with the first thing that is wrong.

    Parameters
    ----------
    database, connection
        What to look at, at one moment.
    head
        The hash of an entry that must be there.
    kept
        Where to put the entries, if they are wanted.
    """

    def entries_of() -> Iterator[dict[str, Any]]:
        for entry in chain(connection):
            if kept is not None:
                kept.append(entry)
            yield entry._asdict() | {"postings": [list(line) for line in entry.postings]}

    try:
        database.check(connection)
        report = check_entries(entries_of(), head)
        _check_balances(connection, report)
        _check_keys(connection)
        _check_states(connection, report)
    except VerificationError as error:
        raise DamagedError(f"{database.name} does not verify: {error}") from error
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
    missing = {name for name, run in report.runs.items() if run.state}
    for run, done, state, digest in connection.execute(sa.select(states)):
        sound = run in missing and report.runs[run].done == done
        if not sound or hashlib.sha256(state).hexdigest() != digest:
            raise VerificationError(f"the state of run {run!r} is damaged.")
        missing.remove(run)
    if missing:
        raise VerificationError(f"the state of run {min(missing)!r} is missing.")
