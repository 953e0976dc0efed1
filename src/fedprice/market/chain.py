"""The chain of a ledger's entries, inside a transaction: found by key, appended, read in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.market.accounts import Posting, add_postings
from fedprice.market.canonical import content_of, key_text
from fedprice.market.ledger_errors import DamagedError
from fedprice.market.schema import accounts, entries, postings, sa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

__all__ = ["Entry", "append", "chain", "find", "last_number", "recorded"]

# Statements that every entry needs, built once.
_BY_KEY = sa.select(entries.c.content, entries.c.number).where(
    entries.c.key == sa.bindparam("of_key")
)
_LAST = sa.select(sa.func.max(entries.c.number))
_NEW_ENTRY = entries.insert()


class Entry(NamedTuple):
    """One entry: what it says and posts, the hash that chains it to the last, who signed it.

    In the content rounds count from 0: `of` of the first round of run "first" is ["first", 0].
    """

    number: int
    content: dict[str, Any]
    postings: list[Posting]
    hash: str
    signature: str

    def line(self) -> dict[str, Any]:
        """Return the entry as an export has it."""
        return self._asdict() | {"postings": [list(line) for line in self.postings]}


def find(connection: Connection, key: list[Any]) -> dict[str, Any] | None:
    """Return the content of the entry with this key: its kind and its subject."""
    text = connection.execute(_BY_KEY, {"of_key": key_text(key)}).scalar()
    return None if text is None else content_of(text)


def last_number(connection: Connection) -> int:
    """Return the number of the last entry; 0 if there is none."""
    return connection.execute(_LAST).scalar() or 0


def recorded(connection: Connection, key: list[Any]) -> tuple[str, int] | None:
    """Return the text of the entry with this key, as it was recorded, and its number."""
    row = connection.execute(_BY_KEY, {"of_key": key_text(key)}).one_or_none()
    return None if row is None else (row.content, row.number)


def append(
    connection: Connection,
    key: list[Any],
    row: dict[str, Any],
    lines: list[Posting],
    ids: dict[str, int],
) -> None:
    """Append an entry.

    Parameters
    ----------
    key, row, lines
        Its kind and subject; its number, place, content, hash and signature; what it posts.
    ids
        Numbers of the accounts.
    """
    connection.execute(_NEW_ENTRY, row | {"key": key_text(key)})
    if lines:
        add_postings(connection, row["number"], lines, ids)


def chain(
    connection: Connection, run: str | None = None, after: int = 0, until: int | None = None
) -> Iterator[Entry]:
    """Yield the entries in a range of numbers, or those of a run, in order."""
    query = sa.select(entries.c.number, entries.c.content, entries.c.hash, entries.c.signature)
    lines = sa.select(postings.c.entry, accounts.c.name, postings.c.amount, postings.c.line).join(
        accounts, accounts.c.id == postings.c.account, isouter=True
    )
    if run is not None:
        query = query.where(entries.c.run == run)
        lines = lines.join(entries, entries.c.number == postings.c.entry)
        lines = lines.where(entries.c.run == run)
    if after:
        query = query.where(entries.c.number > after)
        lines = lines.where(postings.c.entry > after)
    if until is not None:
        query = query.where(entries.c.number <= until)
        lines = lines.where(postings.c.entry <= until)
    posted = connection.execute(lines.order_by(postings.c.entry, postings.c.line))
    line = next(posted, None)
    for number, content, hash_, signature in connection.execute(query.order_by(entries.c.number)):
        own: list[Posting] = []
        while line is not None and line[0] == number:
            if line[3] != len(own):
                raise DamagedError(f"the postings of entry {number} are not numbered in order.")
            own.append((line[1], line[2]))
            line = next(posted, None)
        yield Entry(number, content_of(content), own, hash_, signature)
    if line is not None:
        raise DamagedError(f"there are postings of entry {line[0]}, which is missing.")
