"""The chain of a ledger's entries, inside a transaction: found by key, appended, read in order."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.market.accounts import Posting, account_ids, add_postings
from fedprice.market.canonical import canonical_bytes, content_of, key_text
from fedprice.market.database import DamagedError, LedgerError, accounts, entries, postings, sa
from fedprice.verify import entry_title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

__all__ = ["Entry", "append", "chain", "find"]

GENESIS = "0" * 64

# What every entry needs, put together once.
_BY_KEY = sa.select(entries.c.content).where(entries.c.key == sa.bindparam("of_key"))
_LAST = sa.select(entries.c.number, entries.c.hash).order_by(entries.c.number.desc()).limit(1)
_NEW_ENTRY = entries.insert()


class Entry(NamedTuple):
    """One entry: its number, content and postings, and the hash that chains it to the last.

    In the content rounds count from 0: `of` of the first round of run "first" is ["first", 0].
    """

    number: int
    content: dict[str, Any]
    postings: list[Posting]
    hash: str


def find(connection: Connection, key: list[Any]) -> dict[str, Any] | None:
    """Return the content of the entry with this key: its kind, and what of."""
    text = connection.execute(_BY_KEY, {"of_key": key_text(key)}).scalar()
    return None if text is None else content_of(text)


def append(
    connection: Connection,
    key: list[Any],
    content: dict[str, Any],
    lines: list[Posting],
    *,
    ids: dict[str, int],
    run: str | None = None,
    round_: int | None = None,
    first: Callable[[], None] | None = None,
) -> bool:
    """Append an entry; return whether it is new. The same again is nothing.

    Parameters
    ----------
    key, content, lines
        Its kind and what of; what it says; what it posts.
    ids
        Numbers of accounts that were found before.
    run, round_
        Where it belongs.
    first
        Called before a new entry is written, and may refuse it.
    """
    content = content | {"kind": key[0], "of": key[1:]}
    text = canonical_bytes(content).decode()
    found = connection.execute(_BY_KEY, {"of_key": key_text(key)}).scalar()
    if found is not None:
        # What was posted follows from the content, except for a deposit's amount.
        if found != text or (key[0] == "deposit" and _posted(connection, key) != lines):
            raise LedgerError(
                f"{entry_title(key[0], key[1:])} is recorded already, with other content; "
                "take another name or ledger."
            )
        return False
    if first is not None:
        first()
    last = connection.execute(_LAST).first()
    number, previous = (last.number + 1, last.hash) if last else (1, GENESIS)
    known = account_ids(connection, lines, ids)
    posted = canonical_bytes(lines).decode()
    chained = hashlib.sha256(f"{previous}\n{number}\n{text}\n{posted}".encode()).hexdigest()
    connection.execute(
        _NEW_ENTRY,
        {
            "number": number,
            "key": key_text(key),
            "run": run,
            "round": round_,
            "content": text,
            "hash": chained,
        },
    )
    if lines:
        rows = [(number, i, known[account], amount) for i, (account, amount) in enumerate(lines)]
        add_postings(connection, number, rows)
    return True


def chain(connection: Connection, run: str | None = None) -> Iterator[Entry]:
    """Yield all entries, or those of a run, the first one first."""
    query = sa.select(entries.c.number, entries.c.content, entries.c.hash)
    lines = sa.select(postings.c.entry, accounts.c.name, postings.c.amount).join(
        accounts, accounts.c.id == postings.c.account, isouter=True
    )
    if run is not None:
        query = query.where(entries.c.run == run)
        lines = lines.join(entries, entries.c.number == postings.c.entry)
        lines = lines.where(entries.c.run == run)
    posted = connection.execute(lines.order_by(postings.c.entry, postings.c.line))
    line = next(posted, None)
    for number, content, hash_ in connection.execute(query.order_by(entries.c.number)):
        own: list[Posting] = []
        while line is not None and line[0] == number:
            own.append((line[1], line[2]))
            line = next(posted, None)
        yield Entry(number, content_of(content), own, hash_)
    if line is not None:
        raise DamagedError(f"there are postings of an entry {line[0]} that is not there.")


def _posted(connection: Connection, key: list[Any]) -> list[Posting]:
    rows = connection.execute(
        sa.select(accounts.c.name, postings.c.amount)
        .join(accounts, accounts.c.id == postings.c.account)
        .join(entries, entries.c.number == postings.c.entry)
        .where(entries.c.key == key_text(key))
        .order_by(postings.c.line)
    )
    return [(name, amount) for name, amount in rows]
