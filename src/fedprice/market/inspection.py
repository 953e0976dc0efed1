"""Inspection of a ledger: its database, its chain, and what is stored beside the chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprice.market.canonical import content_of, key_text
from fedprice.market.chain import chain
from fedprice.market.database import DamagedError, accounts, entries, sa
from fedprice.market.states import check_states, stray_parts
from fedprice.verify import VerificationError, check_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

    from fedprice.market.chain import Entry
    from fedprice.market.database import Database
    from fedprice.verify import Books

__all__ = ["inspect"]


def inspect(
    database: Database, connection: Connection, heads: Sequence[str], kept: list[Entry] | None
) -> Books:
    """Return what is in the ledger, or raise `DamagedError` with the first thing that is wrong.

    Parameters
    ----------
    database, connection
        What to look at, at one moment.
    heads
        Hashes of entries that must be there.
    kept
        Where to put the entries, if they are wanted.
    """

    def entries_of() -> Iterator[dict[str, Any]]:
        for entry in chain(connection):
            if kept is not None:
                kept.append(entry)
            yield entry.line()

    try:
        database.check(connection)
        books = check_entries(entries_of(), heads=heads)
        _check_balances(connection, books)
        _check_keys(connection)
        _check_states(connection, books)
    except VerificationError as error:
        raise DamagedError(f"{database.name} does not verify: {error}") from error
    return books


def _check_balances(connection: Connection, books: Books) -> None:
    rows = connection.execute(sa.select(accounts.c.name, accounts.c.balance)).all()
    stored = {name: balance for name, balance in rows if type(balance) is int}
    if len(stored) != len(rows) or stored != books.balances:
        raise VerificationError("the balances are not the sums of the postings.")


def _check_keys(connection: Connection) -> None:
    columns = (entries.c.key, entries.c.run, entries.c.round, entries.c.content)
    for key, run, round_, text in connection.execute(sa.select(*columns)):
        content = content_of(text)
        kind, of = content["kind"], content["of"]
        place: list[Any] = of if kind == "round" else [None, None]
        if kind in ("offer", "commit", "open", "settle"):
            place = [of[0], None]
        if key != key_text([kind, *of]) or [run, round_] != place:
            raise VerificationError(f"the entry known as {key} is another one.")


def _check_states(connection: Connection, books: Books) -> None:
    missing = {name for name, run in books.runs.items() if run.state}
    for run, done in check_states(connection):
        if run not in missing or books.runs[run].done != done:
            raise VerificationError(f"the state of run {run!r} is damaged.")
        missing.remove(run)
    if missing:
        raise VerificationError(f"the state of run {min(missing)!r} is missing.")
    for run in stray_parts(connection):
        raise VerificationError(f"there are parts of a state of run {run!r}, which has none.")
