"""The accounts of a ledger, inside a transaction: their numbers, and their balances."""

from __future__ import annotations

from itertools import count, repeat
from typing import TYPE_CHECKING, Any

from fedprice.market.schema import accounts, postings, sa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

__all__ = ["Posting", "account_ids", "add_postings", "balances_of"]

Posting = tuple[str, int]
_AT_ONCE = 500  # names in a query
_ROWS_AT_ONCE = 200  # postings in a statement; each has four values, and SQLite may take only 999
_INSERT_ROW = "INSERT INTO postings (entry, line, account, amount) VALUES (?,?,?,?)"

_BALANCES = sa.select(accounts.c.name, accounts.c.balance).where(
    accounts.c.name.in_(sa.bindparam("names", expanding=True))
)
_IDS = sa.select(accounts.c.name, accounts.c.id).where(
    accounts.c.name.in_(sa.bindparam("names", expanding=True))
)
_ROWS = sa.select(postings.c.account, postings.c.amount).where(
    postings.c.entry == sa.bindparam("of_entry")
)
_SUMS = (
    sa.select(
        postings.c.account,
        sa.cast(sa.func.sum(postings.c.amount), sa.BigInteger).label("amount"),
    )
    .where(postings.c.entry == sa.bindparam("of_entry"))
    .group_by(postings.c.account)
)


def _adding(posted: Any) -> Any:
    """Return the statement that adds one amount to each of some accounts."""
    each = posted.subquery()
    added = accounts.c.balance + each.c.amount
    return sa.update(accounts).where(accounts.c.id == each.c.account).values(balance=added)


# Where no account is posted to twice, there is nothing to sum up: that takes half as long.
_ADD_ROWS, _ADD_SUMS = _adding(_ROWS), _adding(_SUMS)


def account_ids(
    connection: Connection, lines: list[Posting], known: dict[str, int]
) -> dict[str, int]:
    """Return the accounts' numbers, and open new accounts.

    Parameters
    ----------
    lines
        What is to be posted.
    known
        Numbers found before; those found now are added. New accounts are not, since the transaction
        may still be rolled back.
    """
    totals = dict(lines)
    unknown = [account for account in totals if account not in known]
    for some in _chunks(unknown):
        rows = connection.execute(_IDS, {"names": some})
        known |= {name: int(id_) for name, id_ in rows}
    new = [account for account in unknown if account not in known]
    if not new:
        return known
    first = connection.execute(sa.select(sa.func.count()).select_from(accounts)).scalar() or 0
    fresh = {account: first + i for i, account in enumerate(new)}
    connection.execute(
        accounts.insert(),
        [{"id": id_, "name": account, "balance": 0} for account, id_ in fresh.items()],
    )
    return known | fresh


def balances_of(connection: Connection, names: list[str]) -> dict[str, int]:
    """Return the balances of those of some accounts that are there."""
    found: dict[str, int] = {}
    for some in _chunks(names):
        rows = connection.execute(_BALANCES, {"names": some})
        found |= {name: int(balance) for name, balance in rows}
    return found


def add_postings(
    connection: Connection, entry: int, lines: list[Posting], ids: dict[str, int]
) -> None:
    """Add the postings of an entry, and add them to the balances of their accounts.

    Parameters
    ----------
    entry, lines
        The number of the entry, and what it posts.
    ids
        Numbers of the accounts.
    """
    numbers = [ids[account] for account, _ in lines]
    amounts = [amount for _, amount in lines]
    # Straight to the driver: SQLAlchemy would take as long over each row as the database.
    if connection.dialect.name == "sqlite":
        _insert_on_sqlite(connection, entry, numbers, amounts)
    else:
        insert = postings.insert().compile(dialect=connection.dialect)
        names = [column.name for column in postings.c]
        rows = zip(repeat(entry), count(), numbers, amounts)
        given = [dict(zip(names, row, strict=True)) for row in rows]
        connection.exec_driver_sql(str(insert), given)
    once = len(set(numbers)) == len(numbers)
    connection.execute(_ADD_ROWS if once else _ADD_SUMS, {"of_entry": entry})


def _insert_on_sqlite(
    connection: Connection, entry: int, numbers: list[int], amounts: list[int]
) -> None:
    """Insert postings, many with one statement: for one row each SQLite takes twice as long."""
    size = len(numbers)
    values = [entry] * (4 * size)
    values[1::4], values[2::4], values[3::4] = range(size), numbers, amounts
    cursor = connection.connection.cursor()
    for rows in (_ROWS_AT_ONCE, 1):
        whole = len(values) // (4 * rows) * (4 * rows)
        parts = [values[first : first + 4 * rows] for first in range(0, whole, 4 * rows)]
        cursor.executemany(_INSERT_ROW + ",(?,?,?,?)" * (rows - 1), parts)
        values = values[whole:]


def _chunks(names: list[str]) -> Iterable[list[str]]:
    return (names[first : first + _AT_ONCE] for first in range(0, len(names), _AT_ONCE))
