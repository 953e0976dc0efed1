"""The accounts of a ledger, inside a transaction: their numbers, and their balances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprice.market.database import accounts, postings, sa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

__all__ = ["Posting", "account_ids", "add_postings", "balances_of"]

Posting = tuple[str, int]
_AT_ONCE = 500  # names in a query

_BALANCES = sa.select(accounts.c.name, accounts.c.balance).where(
    accounts.c.name.in_(sa.bindparam("names", expanding=True))
)
_IDS = sa.select(accounts.c.name, accounts.c.id).where(
    accounts.c.name.in_(sa.bindparam("names", expanding=True))
)
_SUMS = (
    sa.select(
        postings.c.account,
        sa.cast(sa.func.sum(postings.c.amount), sa.BigInteger).label("amount"),
    )
    .where(postings.c.entry == sa.bindparam("of_entry"))
    .group_by(postings.c.account)
    .subquery()
)
_ADD = (
    sa.update(accounts)
    .where(accounts.c.id == _SUMS.c.account)
    .values(balance=accounts.c.balance + _SUMS.c.amount)
)


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


def add_postings(connection: Connection, entry: int, rows: list[tuple[int, int, int, int]]) -> None:
    """Add the postings of an entry, and add them to the balances of their accounts.

    Parameters
    ----------
    rows
        Entry, line, account's number and amount of each.
    """
    # Straight to the driver: SQLAlchemy would take as long over each row as the database.
    insert = postings.insert().compile(dialect=connection.dialect)
    names = [column.name for column in postings.c]
    given: list[Any] = list(rows)
    if not insert.positional:
        given = [dict(zip(names, row, strict=True)) for row in rows]
    connection.exec_driver_sql(str(insert), given)
    connection.execute(_ADD, {"of_entry": entry})


def _chunks(names: list[str]) -> Iterable[list[str]]:
    return (names[first : first + _AT_ONCE] for first in range(0, len(names), _AT_ONCE))
