"""A ledger as files: the chain for `fedprice verify`, whole or in part, tables, and books."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from fedprice._plumbing.tables import csv_text, whole_file
from fedprice.errors import InputError
from fedprice.market.canonical import canonical_bytes, canonical_text
from fedprice.market.money import money
from fedprice.market.statements import no_client, postings_of
from fedprice.verify import entry_title, run_of

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fedprice.market.ledger import Entry, Ledger

__all__ = ["BOOKS", "EXPORTS", "export", "shown_to"]

BOOKS = ".beancount"
EXPORTS = (".jsonl", ".csv", ".parquet", BOOKS)


def export(
    ledger: Ledger, path: Path, *, date: datetime.date, client: str | None = None
) -> tuple[int, int]:
    """Write a ledger that verifies, in the format that the suffix names.

    Parameters
    ----------
    path
        .jsonl has everything, for `fedprice verify`; .csv and .parquet have the postings;
        .beancount has books for that program. Rounds count from 0 in .jsonl, .csv
        and .parquet, as in the entries, and from 1 in the titles of books.
    date
        The date that books give all transactions: a ledger counts rounds, not days.
    client
        Whose entries to show, in a .jsonl file: all others are there as hashes only.

    Returns
    -------
    entries, hidden
        How many there are, and how many of these are hashes only.
    """
    if client is not None and path.suffix != ".jsonl":
        raise InputError(f"an export for one client must be a .jsonl file; got {path}.")
    books, chain = ledger.verified()
    shown = {entry.number for entry in chain} if client is None else shown_to(client, chain)
    if not shown:
        raise no_client(ledger.name, books, str(client))
    with whole_file(path, private=True) as part:
        if path.suffix == ".parquet":
            postings_of(chain).write_parquet(part)
            return len(chain), 0
        with part.open("w", encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                file.write(csv_text(postings_of(chain)))
            elif path.suffix == ".jsonl":
                file.writelines(_lines(chain, shown, client))
            else:
                file.writelines(_beancount(chain, ledger.unit, date))
    return len(chain), len(chain) - len(shown)


def shown_to(client: str, chain: Iterable[Entry]) -> set[int]:
    """Return the numbers of the entries that an export for one client shows; empty if none is its.

    They are what the verifier needs for it: deposits, withdrawals, reversals and keys of its
    account, all entries of runs in which it was offered something, the keys of the server, and the
    first entry. Who else is in these runs is shown, too: the hash of an entry covers all of it.
    """
    chain, account = list(chain), f"client:{client}"
    runs = {run_of(entry.content["of"][0]) for entry in chain if _is_named(entry.content, client)}
    own: set[int] = set()
    keys: set[int] = set()
    for entry in chain:
        kind, of = entry.content["kind"], entry.content["of"]
        if kind in ("deposit", "withdraw", "rotate"):
            concerned = of[0] == account
        elif kind == "reverse":
            concerned = of[0] in own
        else:
            concerned = kind != "begin" and run_of(of[0]) in runs
        if concerned:
            own.add(entry.number)
        elif kind == "begin" or (kind == "rotate" and of[0] == "treasury"):
            keys.add(entry.number)
    return own | keys if own else set()


def _is_named(content: dict[str, Any], client: str) -> bool:
    """Return whether an entry makes a client an offer, or names its terms in an unsigned run."""
    if content["kind"] == "offer":
        named = canonical_text({"client": client})[1:-1]  # of 200,000 offers, none is parsed
        return any(named in text for text, _ in content["offers"])
    return any(client == name for name, *_ in content.get("terms", ()))


def _lines(chain: list[Entry], shown: set[int], client: str | None) -> Iterator[str]:
    for entry in chain:
        line = entry.line()
        if entry.number not in shown:
            line = {"number": entry.number, "client": client, "hash": entry.hash}
            line["signature"] = entry.signature
        yield canonical_bytes(line).decode() + "\n"


def _beancount(chain: list[Entry], unit: str, date: datetime.date) -> Iterator[str]:
    yield f'option "operating_currency" {_quoted(unit)}\n'
    opened: set[str] = set()
    for entry in chain:
        for account, _ in entry.postings:
            if account not in opened:
                opened.add(account)
                yield f"\n{date} open {_account(account)} {unit}\n  name: {_quoted(account)}\n"
        if entry.postings:
            yield f"\n{date} * {_quoted(entry_title(entry.content))}\n  entry: {entry.number}\n"
            yield f"  hash: {_quoted(entry.hash)}\n"
            for account, amount in entry.postings:
                yield f"  {_account(account)}  {money(amount)} {unit}\n"


def _quoted(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)


def _account(account: str) -> str:
    """Return a name that Beancount takes; different accounts get different ones.

    Examples
    --------
    >>> _account("treasury"), _account("client:=a-1")
    ('Assets:Treasury', 'Assets:Client:N-3D-a-2D-1')
    """
    kind, _, name = account.partition(":")
    if not name:
        return {"world": "Equity:World", "treasury": "Assets:Treasury"}[kind]
    plain = re.sub(r"[^A-Za-z0-9]", lambda found: f"-{ord(found[0]):X}-", name)
    return f"Assets:{kind.title()}:N{plain if plain.startswith('-') else '-' + plain}"
