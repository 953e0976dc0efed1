"""A client's account as a page shows it, from a ledger or from an export dropped on the page."""

from __future__ import annotations

import io
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from fedprice.errors import InputError
from fedprice.market.chain import find
from fedprice.market.client_reader import read_client
from fedprice.market.database import Database
from fedprice.market.exported import read_export
from fedprice.market.money import money
from fedprice.market.pay import PayLine, pay_lines, why_paid
from fedprice.market.schema import accounts, sa
from fedprice.market.statements import Undelivered, entries_of, no_client, undelivered_in
from fedprice.verify import HASH, LONGEST_NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    import polars as pl

    from fedprice.verify import Books, Client, Run

__all__ = [
    "Account",
    "RunPart",
    "account_of",
    "checked_export",
    "client_address",
    "client_names",
    "heads_of",
]


@dataclass(frozen=True)
class RunPart:
    """A client's part in a run: what it did, and what it was paid or not paid, with reasons."""

    name: str
    run: Run
    own: Client
    lines: tuple[PayLine, ...]
    why: str
    undelivered: tuple[Undelivered, ...]

    @property
    def paid(self) -> Decimal:
        """What it was paid; negative if it paid."""
        return money(self.own.paid)

    @property
    def lost(self) -> Decimal:
        """What the client lost by not delivering for all of its heads."""
        run, own = self.run, self.own
        return money(max(0, own.earned(run.rounds, own.heads) - own.paid))


@dataclass(frozen=True)
class Account:
    """A client's statement.

    Attributes
    ----------
    client, unit, balance
        The client, the unit of money, and what the account holds.
    parts
        One for each run, in the order in which they were opened.
    entries
        All that concerns the client, as `fedprice.market.statements.statement_of` returns it.
    offered
        Runs that are offered to the client but not yet open.
    size, head
        How many entries the ledger has, and the hash of the last one.
    """

    client: str
    unit: str
    balance: Decimal
    parts: tuple[RunPart, ...]
    entries: pl.DataFrame
    offered: tuple[str, ...]
    size: int
    head: str


def account_of(url: str, client: str, count: Callable[[int], None]) -> Account:
    """Return a client's account as a ledger records it, without verifying the ledger.

    Parameters
    ----------
    url, client
        The ledger, and whose account it is.
    count
        Called with the number of entries read so far; an exception that it raises ends the reading.
    """
    found = read_client(url, client, count)
    rows = entries_of(found.books, found.parts, client)
    return _account(found.books, rows, client, found.offered, found.size, found.head)


def checked_export(
    content: bytes,
    name: str,
    *,
    client: str,
    heads: list[str],
    unsigned: bool,
    count: Callable[[int], None],
) -> tuple[Books, Account | None]:
    """Return the totals of an exported ledger, and a client's account in it.

    Parameters
    ----------
    content, name
        What `fedprice ledger export` wrote, and how errors call it.
    client
        Whose account is wanted; empty for none.
    heads
        Hashes of entries that must be there.
    unsigned
        Whether to accept money that moved without its owner's signature.
    count
        Called with the number of each entry that is read; an exception ends the reading.

    Raises
    ------
    UnverifiedError
        Naming the first thing that is wrong.
    InputError
        If it is not an export, or the client is not in it.
    """
    if content.startswith(b"SQLite format 3"):
        raise InputError(
            f"{name} is a database, not an export; show it with: fedprice serve --ledger {name}"
        )
    books, kept = read_export(
        io.BytesIO(content), name, client=client, heads=heads, unsigned=unsigned, count=count
    )
    if not client:
        return books, None
    rows = entries_of(books, kept, client)
    offered = tuple(run for run, made in books.offered.items() if client in made.offers)
    if rows.is_empty() and not offered:
        raise no_client(name, books, client)
    return books, _account(books, rows, client, offered, len(books.hashes), books.hashes[-1])


def _account(
    books: Books, rows: pl.DataFrame, client: str, offered: tuple[str, ...], size: int, head: str
) -> Account:
    parts = tuple(
        RunPart(
            name,
            run,
            own,
            tuple(pay_lines(run, own)),
            why_paid(run, own, books.unit),
            undelivered_in(rows, name),
        )
        for name, run in books.runs.items()
        if (own := run.clients.get(client)) is not None
    )
    balance = money(books.balances.get(f"client:{client}", 0))
    return Account(client, books.unit, balance, parts, rows, offered, size, head)


def client_address(client: str) -> str:
    """Return the address of a client's page.

    Examples
    --------
    >>> client_address("a/b <i>"), client_address("..")
    ('/client/a%2Fb%20%3Ci%3E', '/client?name=..')
    """
    quoted = quote(client, safe="")
    # Browsers treat dots as a parent directory, even when they are quoted.
    return f"/client?name={quoted}" if {".", ".."} & {*client.split("/")} else f"/client/{quoted}"


def client_names(url: str, search: str, most: int) -> tuple[list[tuple[str, Decimal]], str, int]:
    """Return clients of a ledger whose names have a text in them, and their balances.

    Parameters
    ----------
    url, search, most
        The ledger, the text (in any case), and how many clients to return at most.

    Returns
    -------
    clients
        In the order of names; names that are numbers in the order of numbers.
    unit, total
        What the money is, and how many clients there are with this text.
    """
    named = sa.select(accounts.c.name, accounts.c.balance).where(
        accounts.c.name.startswith("client:")
    )
    with closing(Database(url, read_only=True)) as database, database.reading() as connection:
        balances = {name[7:]: balance for name, balance in connection.execute(named)}
        begun = find(connection, ["begin"]) or {}
    wanted = search.casefold()
    found = [name for name in balances if wanted in name.casefold()]
    found.sort(key=lambda name: (len(name), name) if name.isdigit() else (LONGEST_NAME + 1, name))
    shown = [(name, money(balances[name])) for name in found[:most]]
    return shown, str(begun.get("unit", "")), len(found)


def heads_of(text: str) -> list[str]:
    """Return the hashes in a text, which may be none; reject anything else.

    Examples
    --------
    >>> heads_of(" " + "ab" * 32 + ", ") == ["ab" * 32], heads_of("")
    (True, [])
    >>> heads_of("ab")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: a head must be 64 hexadecimal digits; got 'ab'.
    """
    found = text.replace(",", " ").split()
    for head in found:
        if not HASH.match(head):
            raise InputError(f"a head must be 64 hexadecimal digits; got {head!r:.80}.")
    return found
