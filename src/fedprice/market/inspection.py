"""Inspection of a ledger: its database, its chain, and what is stored alongside the chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError
from fedprice.market.canonical import content_of, key_text
from fedprice.market.chain import chain
from fedprice.market.ledger_errors import DamagedError, NoLedgerError
from fedprice.market.schema import accounts, entries, sa
from fedprice.market.states import check_states, stray_parts
from fedprice.verify import Books, VerificationError, check_entries, check_next

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection

    from fedprice.market.chain import Entry
    from fedprice.market.database import Database

__all__ = ["Inspection", "inspect"]


def inspect(
    database: Database,
    connection: Connection,
    heads: Sequence[str],
    keep: Callable[[Entry], object] | None,
) -> Books:
    """Return what is in the ledger, or raise `DamagedError` with the first thing that is wrong.

    Parameters
    ----------
    database, connection
        What to inspect, as one snapshot.
    heads
        Hashes of entries that must be there.
    keep
        Called with every entry, if given.
    """

    def entries_of() -> Iterator[dict[str, Any]]:
        for entry in chain(connection):
            if keep is not None:
                keep(entry)
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


class Inspection:
    """The same inspection of a growing ledger: some entries at a time, never again from the start.

    Attributes
    ----------
    books
        The totals of the entries that were inspected so far.
    """

    def __init__(self, database: Database) -> None:
        self.books = Books()
        self._database = database
        self._is_whole = False  # the file and the states were inspected, too

    def go_on(self, most: int) -> bool:
        """Inspect up to this many further entries; return whether these were all.

        Balances are compared whenever the end is reached. Database and states are inspected when it
        is reached for the first time: that takes as long as they are large, and both change with
        every round.

        Raises
        ------
        DamagedError
            With the first thing that is wrong.
        """
        books, done = self.books, len(self.books.hashes)
        try:
            with self._database.reading() as connection:
                for entry in chain(connection, after=done, until=done + most):
                    check_next(books, entry.line())
                now = len(books.hashes)
                _check_keys(connection, after=done, until=now)
                last = connection.execute(sa.select(sa.func.max(entries.c.number))).scalar() or 0
                if not last and not now:
                    raise NoLedgerError(f"{self._database.name} holds no ledger yet.")
                if last > now > done:
                    return False
                if last != now:  # a ledger that was truncated, or has a gap
                    missing = now + 1 if last > now else last + 1
                    raise VerificationError(f"entry {missing} is missing.")
                _check_balances(connection, books)
                if not self._is_whole:
                    self._database.check(connection)
                    _check_states(connection, books)
                    self._is_whole = True
        except VerificationError as error:
            raise DamagedError(f"{self._database.name} does not verify: {error}") from error
        except NoLedgerError:
            raise
        except InputError as error:
            raise DamagedError(f"{self._database.name} is damaged: {error}") from error
        return True


def _check_balances(connection: Connection, books: Books) -> None:
    rows = connection.execute(sa.select(accounts.c.name, accounts.c.balance)).all()
    stored = {name: balance for name, balance in rows if type(balance) is int}
    if len(stored) != len(rows) or stored != books.balances:
        raise VerificationError("the balances are not the sums of the postings.")


def _check_keys(connection: Connection, after: int = 0, until: int | None = None) -> None:
    columns = (entries.c.key, entries.c.run, entries.c.round, entries.c.content)
    query = sa.select(*columns).where(entries.c.number > after)
    if until is not None:
        query = query.where(entries.c.number <= until)
    for key, run, round_, text in connection.execute(query):
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
