"""An export that is read without a ledger: verified first, then one client's part of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError
from fedprice.market.chain import Entry
from fedprice.market.statements import entries_of, no_client, part_of, runs_with
from fedprice.market.verifying import verifying
from fedprice.verify import LONGEST_LINE, check_entries, require_signed
from fedprice.verify import entries_of as lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import polars as pl

    from fedprice.verify import Books

__all__ = ["read_export", "shown_client", "statement_in"]


def read_export(
    file: BinaryIO,
    name: str,
    *,
    client: str = "",
    heads: Sequence[str] = (),
    unsigned: bool = False,
    count: Callable[[int], None] = lambda number: None,
) -> tuple[Books, list[Entry]]:
    """Return what an export adds up to, and what its entries say of a client.

    Parameters
    ----------
    file, name
        What `fedprice ledger export` wrote, whole or for this client, and how errors call it.
    client
        Whose entries are wanted; empty for none.
    heads
        Hashes of entries that must be there.
    unsigned
        Whether to accept transfers that nobody signed.
    count
        Called with the number of every entry that is read; what it raises ends the reading.

    Raises
    ------
    UnverifiedError
        Naming the first thing that is wrong.
    InputError
        If it is no export, or one for another client.
    """
    kept: list[Entry] = []

    def entries() -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines_of(file), start=1):
            count(number)
            yield line
            if client and "content" in line:  # it was found to be sound by now
                postings = [(account, amount) for account, amount in line["postings"]]
                entry = Entry(number, line["content"], postings, line["hash"], line["signature"])
                kept.append(part_of(entry, client))

    with verifying(name):
        books = check_entries(entries(), heads=heads, partial=True)
        require_signed(books, unsigned)
    if client and books.only not in ("", client):
        raise InputError(f"{name} shows only what concerns client {books.only!r}.")
    return books, kept


def shown_client(path: Path) -> str | None:
    """Return the client for whom a partial export was made; None for any other file.

    Nothing is verified yet: the name is what the file says.
    """
    try:
        with path.open("rb") as file:
            for line in iter(lambda: file.readline(LONGEST_LINE), b""):
                if line.startswith(b'{"client":'):  # an entry of which there is only the hash
                    return str(json.loads(line)["client"])
    except (OSError, ValueError):
        return None  # what reads the file then says what is wrong with it
    return None


def statement_in(
    file: BinaryIO, name: str, client: str, *, unsigned: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame, Books]:
    """Return a client's statement from an export alone, as `statement_of` has it from a ledger.

    The parameters and errors are those of `read_export`.
    """
    books, kept = read_export(file, name, client=client, unsigned=unsigned)
    rows = entries_of(books, kept, client)
    if rows.is_empty():
        raise no_client(name, books, client)
    return rows, runs_with(books, client), books
