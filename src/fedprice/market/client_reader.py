"""Reading one client's entries from a ledger without replaying it, which proves nothing.

A statement is thus available long before its ledger is verified, which
`fedprice.market.verification` does in the meantime.
"""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.errors import InputError
from fedprice.market.accounts import balances_of
from fedprice.market.chain import Entry
from fedprice.market.database import Database
from fedprice.market.database_url import masked
from fedprice.market.ledger_errors import DamagedError
from fedprice.market.schema import accounts, entries, postings, sa
from fedprice.market.statements import no_client, part_of
from fedprice.verify import Books, Client, Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

__all__ = ["ClientRead", "read_client"]

_COLUMNS = (entries.c.number, entries.c.content, entries.c.hash)
_APART = sa.select(*_COLUMNS).where(entries.c.run.is_(None))  # entries that belong to no run
_RUNS = sa.select(entries.c.run).where(entries.c.run.is_not(None)).distinct()
_OF_RUN = entries.c.run == sa.bindparam("of_run")
_AGREED = sa.select(*_COLUMNS).where(_OF_RUN, entries.c.round.is_(None)).order_by(entries.c.number)
_ROUNDS = (
    sa.select(entries.c.round, *_COLUMNS)
    .where(_OF_RUN, entries.c.round.is_not(None))
    .order_by(entries.c.round)
)
_POSTED = (
    sa.select(postings.c.entry, postings.c.amount)
    .join(accounts, accounts.c.id == postings.c.account)
    .where(accounts.c.name == sa.bindparam("of_account"))
)
_LAST = sa.select(entries.c.number, entries.c.hash).order_by(entries.c.number.desc()).limit(1)


class ClientRead(NamedTuple):
    """What a ledger records about a client.

    Attributes
    ----------
    books
        Its balance, and its runs with this client alone.
    parts
        The client's part of the entries, as `fedprice.market.statements.entries_of` takes them.
    offered
        Runs that are offered to it but not yet open.
    size, head
        How many entries the ledger has, and the hash of the last one.
    """

    books: Books
    parts: list[Entry]
    offered: tuple[str, ...]
    size: int
    head: str


def read_client(url: str, client: str, count: Callable[[int], None]) -> ClientRead:
    """Return what a ledger records about a client; the ledger is only read.

    Parameters
    ----------
    url, client
        The ledger, and the client's name.
    count
        Called with the number of entries read so far; an exception that it raises ends the reading.
    """
    with closing(Database(url, read_only=True)) as database:
        try:
            with database.reading() as connection:
                return _Reader(connection, client, count).read(database.name)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise DamagedError(
                f"{database.name} has entries that cannot be understood; run: fedprice ledger "
                f"verify --ledger {shlex.quote(masked(url))}"
            ) from error


class _Reader:
    """One reading, within one transaction."""

    def __init__(self, connection: Connection, client: str, count: Callable[[int], None]) -> None:
        self._connection, self._client, self._count = connection, client, count
        self._account = f"client:{client}"
        self._named = json.dumps(client, ensure_ascii=False)  # as entries write it
        self._posted: dict[int, int] = {}  # by entry
        for entry, amount in connection.execute(_POSTED, {"of_account": self._account}):
            self._posted[entry] = self._posted.get(entry, 0) + amount
        self._parts: list[Entry] = []

    def read(self, name: str) -> ClientRead:
        """Return everything; `name` is the name of the ledger in errors."""
        size, head = self._connection.execute(_LAST).one()
        books = Books()
        for number, text, hash_ in self._connection.execute(_APART):
            content = json.loads(text)
            self._add(number, content, hash_)
            books.unit = content["unit"] if content["kind"] == "begin" else books.unit
        offered, first = [], {}
        for run in self._connection.execute(_RUNS).scalars().all():
            first[run] = len(self._parts)
            found = self._agreed(run)
            if isinstance(found, Run):
                books.runs[run] = found
                self._rounds(run, found)
                own = self._parts[first[run] :]
                found.clients[self._client].paid = sum(self._posted.get(e.number, 0) for e in own)
                first[run] = next(e.number for e in own if e.content["kind"] == "open")
            elif found:
                offered.append(run)
        books.runs = dict(sorted(books.runs.items(), key=lambda item: first[item[0]]))
        books.balances = balances_of(self._connection, [self._account])
        if not (books.runs or offered or self._posted or self._is_dropped()):
            every = self._connection.execute(sa.select(accounts.c.name, accounts.c.balance))
            books.balances = dict(every.tuples().all())
            raise no_client(name, books, self._client)
        parts = sorted(self._parts, key=lambda entry: entry.number)
        return ClientRead(books, parts, tuple(offered), size, head)

    def _add(self, number: int, content: dict[str, Any], hash_: str) -> dict[str, Any]:
        """Keep the client's part of an entry, and return it."""
        part = part_of(Entry(number, content, [], hash_, ""), self._client)
        self._keep(part)
        return part.content

    def _keep(self, part: Entry) -> None:
        if part.number in self._posted:
            part.postings.append((self._account, self._posted[part.number]))
        self._parts.append(part)
        self._count(len(self._parts))

    def _is_dropped(self) -> bool:
        return any(self._client in part.content.get("dropped", {}) for part in self._parts)

    def _agreed(self, run: str) -> Run | bool:
        """Return a run that the client is in, or else whether it has an offer still open."""
        conditions: dict[str, Any] = {}
        offer, committed = None, ""
        found: Run | None = None
        settled = False
        for number, text, hash_ in self._connection.execute(_AGREED, {"of_run": run}):
            content = json.loads(text)
            self._add(number, content, hash_)
            if content["kind"] == "offer":
                conditions = json.loads(content["conditions"])
                in_turn = len(content["of"]) > 2  # otherwise it is a new set, which replaces all
                offer = self._own_offer(content) or (offer if in_turn else None)
            elif content["kind"] == "commit":
                committed = content["commitments"].get(self._client, ("",))[0]
            elif content["kind"] == "open":
                found = self._opened(content, conditions, offer, committed)
                offer = None
            else:
                settled, offer = True, None
        if found is None:
            return offer is not None
        found.settled = settled
        return found

    def _own_offer(self, content: dict[str, Any]) -> dict[str, Any] | None:
        """Return the offer to this client; only its text is parsed."""
        likely = (json.loads(text) for text, _ in content["offers"] if self._named in text)
        return next((own for own in likely if own["client"] == self._client), None)

    def _opened(
        self,
        content: dict[str, Any],
        conditions: dict[str, Any],
        offer: dict[str, Any] | None,
        committed: str,
    ) -> Run | None:
        if "terms" in content:  # nobody signed it
            for name, tariff, level, samples in content["terms"]:
                if name == self._client:
                    own = Client(tariff, level, samples)
                    return Run(content["rounds"], content["budget"], {name: own})
            return None
        if offer is None or self._client not in content["secrets"]:
            return None
        own = Client(offer["tariff"], json.loads(committed)["level"], 0, menu=offer["menu"])
        return Run(
            conditions["rounds"],
            content["budget"],
            {self._client: own},
            signed=True,
            follows=conditions["follows"],
        )

    def _rounds(self, run: str, found: Run) -> None:
        """Read the rounds of a run that the client is in, and count what it did."""
        tails: dict[str, Any] = {"kind": "round", "joined": {}, "missed": [], "refused": {}}
        for round_, number, text, hash_ in self._connection.execute(_ROUNDS, {"of_run": run}):
            if self._named in text:
                part = self._add(number, json.loads(text), hash_)
                found.advance(part | {"model": "", "state": False})
            else:  # nothing needs to be parsed
                self._keep(Entry(number, tails | {"of": [run, round_]}, [], hash_, ""))
                found.done += 1
