"""A ledger as files: the whole chain for `fedprice verify`, tables, and books."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from fedprice.market.canonical import canonical_bytes
from fedprice.market.money import money
from fedprice.market.statements import postings_of
from fedprice.tables import csv_text, whole_file
from fedprice.verify import entry_title

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator
    from pathlib import Path

    from fedprice.market.ledger import Entry, Ledger

__all__ = ["EXPORTS", "export"]

EXPORTS = (".jsonl", ".csv", ".parquet", ".beancount", ".hledger")


def export(ledger: Ledger, path: Path, *, date: datetime.date) -> int:
    """Write a ledger that verifies, in the format that the suffix names; return its entries.

    Parameters
    ----------
    path
        .jsonl has everything, for `fedprice verify`; .csv and .parquet have the postings;
        .beancount and .hledger are books for these programs. Rounds count from 0 in .jsonl, .csv
        and .parquet, as in the entries, and from 1 in the titles of books.
    date
        The date that books give all transactions: a ledger counts rounds, not days.
    """
    chain = ledger.verified()[1]
    with whole_file(path, private=True) as part:
        if path.suffix == ".parquet":
            postings_of(chain).write_parquet(part)
            return len(chain)
        with part.open("w", encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                file.write(csv_text(postings_of(chain)))
            else:
                write = {".jsonl": _lines, ".beancount": _beancount, ".hledger": _hledger}
                file.writelines(write[path.suffix](chain, ledger.unit, date))
    return len(chain)


def _lines(chain: list[Entry], unit: str, date: datetime.date) -> Iterator[str]:
    for entry in chain:
        yield canonical_bytes(entry.line()).decode() + "\n"


def _beancount(chain: list[Entry], unit: str, date: datetime.date) -> Iterator[str]:
    yield f'option "operating_currency" {_quoted(unit)}\n'
    opened: set[str] = set()
    for entry in chain:
        for account, _ in entry.postings:
            if account not in opened:
                opened.add(account)
                yield f"\n{date} open {_account(account)} {unit}\n  name: {_quoted(account)}\n"
        if entry.postings:
            yield f"\n{date} * {_quoted(_title(entry))}\n  entry: {entry.number}\n"
            yield f"  hash: {_quoted(entry.hash)}\n"
            yield from _transfers(entry, unit)


def _hledger(chain: list[Entry], unit: str, date: datetime.date) -> Iterator[str]:
    yield f"commodity 1000.000000 {unit}\n"
    for entry in chain:
        if entry.postings:
            title = re.sub(r"[;|]", "_", _title(entry))
            yield f"\n{date} * {title}  ; entry:{entry.number}, hash:{entry.hash}\n"
            yield from _transfers(entry, unit)


def _transfers(entry: Entry, unit: str) -> Iterator[str]:
    for account, amount in entry.postings:
        yield f"  {_account(account)}  {money(amount)} {unit}\n"


def _title(entry: Entry) -> str:
    return entry_title(entry.content)


def _quoted(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)


def _account(account: str) -> str:
    """Return a name that both programs take; different accounts get different ones.

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
