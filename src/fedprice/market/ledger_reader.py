"""`LedgerReader`: what a ledger holds, from its entries, balances and states.

What may be recorded, and what it posts, is defined in `fedprice.verify`. Entries were checked by
these rules before they were written; `verify` checks all of them again.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.errors import InputError, nearest
from fedprice.market.accounts import balances_of
from fedprice.market.chain import chain, find, last_number, recorded
from fedprice.market.ledger_errors import DamagedError, LedgerError, NoRunError
from fedprice.market.messages import require_name, valid_signature
from fedprice.market.metrics import WHO, RoundMetrics, round_metrics
from fedprice.market.schema import accounts, entries, measured, sa
from fedprice.market.states import read_state
from fedprice.verify import Books, VerificationError, canonical, check_entry, entry_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from fedprice._plumbing.arrays import State
    from fedprice.market.chain import Entry
    from fedprice.market.database import Database
    from fedprice.verify import Run

__all__ = ["Head", "LedgerReader"]

_HEAD = sa.select(entries.c.number, entries.c.hash, entries.c.signature)
_HEAD = _HEAD.order_by(entries.c.number.desc()).limit(1)
MOST_HINTS = 1000  # runs that are compared with a mistyped name


class Head(NamedTuple):
    """The last entry of a ledger, as the server signed it; the signature may be empty."""

    number: int
    hash: str
    signature: str


class LedgerReader:
    """A ledger as far as it is read; `fedprice.market.ledger.Ledger` writes it, too.

    Parameters
    ----------
    database
        Where it is.
    """

    def __init__(self, database: Database) -> None:
        self._database, self.name = database, database.name
        self._books = _new_books()
        self._digests: dict[int, str] = {}  # of the last entries that were written here
        self._lock = threading.RLock()

    @property
    def file(self) -> Path | None:
        """The SQLite file; None in memory, and on PostgreSQL."""
        return self._database.file

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    @property
    def books(self) -> Books:
        """The totals of all entries so far."""
        with self._lock, self._reading() as connection:
            return self._caught_up(connection)

    def run(self, name: str) -> Run:
        """Return a run as it stands."""
        self._require_run(name)
        return self._books.runs[name]

    def head(self) -> Head:
        """Return the last entry's number and hash, signed by the server."""
        with self._reading() as connection:
            return Head(*connection.execute(_HEAD).one())

    def _caught_up(self, connection: Connection) -> Books:
        """Return the books with all new entries, which were checked before they were written."""
        books = self._books
        if last_number(connection) <= len(books.hashes):
            return books
        books.trusting = True
        try:
            for entry in chain(connection, after=len(books.hashes)):
                check_entry(books, entry.line(), len(books.hashes) + 1)
        except (VerificationError, LookupError, TypeError, ValueError, AttributeError) as error:
            where, self._books = len(books.hashes) + 1, _new_books()
            raise DamagedError(f"{self.name} is damaged at entry {where}: {error}") from error
        finally:
            books.trusting = False
        return books

    def balance(self, account: str) -> int:
        """Return the balance of an account in micro-units; 0 if it has none yet."""
        with self._reading() as connection:
            return balances_of(connection, [account]).get(account, 0)

    def balances(self) -> dict[str, int]:
        """Return every account's balance, by name."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(accounts.c.name, accounts.c.balance))
            return dict(sorted((name, int(balance)) for name, balance in rows))

    def entries(self, run: str | None = None) -> Iterator[Entry]:
        """Yield the whole chain, or the entries of a run, in order."""
        if run is not None and run not in self.books.offered:
            self._require_run(run)
        with self._reading() as connection:
            yield from chain(connection, run)

    def find(self, kind: str, *of: Any) -> dict[str, Any] | None:
        """Return the content of the entry with this kind and subject; None if there is none."""
        with self._reading() as connection:
            return find(connection, [kind, *of])

    def number_of(self, kind: str, *of: Any) -> int:
        """Return the number of the entry with this kind and subject."""
        with self._reading() as connection:
            found = recorded(connection, [kind, *of])
        if found is None:
            raise LedgerError(f"{self.name} has no entry {[kind, *of]}.")
        return found[1]

    def digests(self, after: int, until: int) -> list[str]:
        """Return the digests of the entries in a range, from which their hashes follow."""
        numbers = range(after + 1, until + 1)
        if all(number in self._digests for number in numbers):
            return [self._digests[number] for number in numbers]
        with self._reading() as connection:
            return [
                entry_digest(canonical(own.content), canonical(own.postings))
                for own in chain(connection, after=after, until=until)
            ]

    def offers(self, run: str, attempt: int) -> tuple[str, list[tuple[str, str]]] | None:
        """Return a set of offers with all of its turns; None if there is none.

        Returns
        -------
        conditions
            The text of what the offers have in common.
        offers
            The text and the signature of each, in the order in which they were made.
        """
        first = found = self.find("offer", run, attempt)
        offers: list[tuple[str, str]] = []
        turn = 1
        while found is not None:
            offers += [(text, signature) for text, signature in found["offers"]]
            turn += 1
            found = self.find("offer", run, attempt, turn)
        return None if first is None else (first["conditions"], offers)

    def opening(self, run: str) -> dict[str, Any] | None:
        """Return the entry that opened a run, or None if there is none."""
        return self.find("open", run)

    def is_settled(self, run: str) -> bool:
        """Return whether a run is closed."""
        return self.find("settle", run) is not None

    def rounds_done(self, run: str) -> int:
        """Return how many rounds of a run are recorded."""
        return self.run(run).done

    def rounds(self, run: str) -> list[dict[str, Any]]:
        """Return the contents of a run's rounds so far."""
        return [own.content for own in self.entries(run) if own.content["kind"] == "round"]

    def progress(self, run: str) -> tuple[list[dict[str, Any]], State | None]:
        """Return the rounds of a run so far and the state to resume from, as one snapshot."""
        self._require_run(run)
        damaged = f"{self.name}: the state of run {run!r} is damaged."
        with self._reading() as connection:
            rounds = [e.content for e in chain(connection, run) if e.content["kind"] == "round"]
            try:
                found = read_state(connection, run)
            except ValueError as error:
                raise DamagedError(damaged) from error
        if found is None:
            if rounds and rounds[-1]["state"]:
                raise DamagedError(f"{self.name}: the state of run {run!r} is missing.")
            return rounds, None
        done, state = found
        if done != len(rounds):
            raise DamagedError(damaged)
        return rounds, state

    def metrics(self, run: str) -> list[RoundMetrics]:
        """Return the metrics of a run, in the order of rounds; they are not verified."""
        query = sa.select(measured).where(measured.c.run == run)
        with self._reading() as connection:
            found = [round_metrics(*row) for row in connection.execute(query)]
        return sorted(found, key=lambda own: (own.round, WHO.index(own.who)))

    def verify(self, *heads: str) -> Books:
        """Check the database, the chain, every payment and balance; return the totals.

        Parameters
        ----------
        heads
            Hashes of entries that must be there, kept by somebody as proof.

        Raises
        ------
        DamagedError
            Naming the first thing that is wrong.
        """
        return self._verified(heads, None)

    def verified(self, part: Callable[[Entry], Entry] | None = None) -> tuple[Books, list[Entry]]:
        """Verify, and return the totals with the entries of the same snapshot.

        Parameters
        ----------
        part
            Returns the part of an entry to keep; by default all of it.
        """
        kept: list[Entry] = []
        keep = kept.append if part is None else lambda entry: kept.append(part(entry))
        return self._verified((), keep), kept

    def _verified(self, heads: Sequence[str], keep: Callable[[Entry], object] | None) -> Books:
        from fedprice.market.inspection import inspect

        with self._reading() as connection:
            return inspect(self._database, connection, heads, keep)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Read one snapshot; entries that cannot be understood are damage."""
        try:
            with self._database.reading() as connection:
                yield connection
        except InputError as error:
            raise DamagedError(f"{self.name} is damaged: {error}") from error

    def _require_run(self, run: str) -> None:
        """Refuse a run that does not exist, and name the nearest one."""
        require_name("run", run)
        known = self.books.runs
        if run not in known:
            last = [*known][-MOST_HINTS:]
            hint = nearest(run, last) if last else "It has none yet."
            raise NoRunError(f"{self.name} has no run {run!r}. {hint}")


def _new_books() -> Books:
    """Return books that remember which signatures are valid."""
    return Books(valid=valid_signature)
