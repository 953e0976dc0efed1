"""The tables of a ledger's database, as the migrations create them and as the code uses them."""

from __future__ import annotations

from typing import Any

from fedprice.errors import require

sa: Any = require("sqlalchemy", "market")

__all__ = [
    "SCHEMA",
    "accounts",
    "entries",
    "measured",
    "metadata",
    "postings",
    "sa",
    "state_parts",
    "states",
]

SCHEMA = "fedprice_0005"  # the newest migration

metadata = sa.MetaData()
accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("balance", sa.BigInteger, nullable=False),
    sa.CheckConstraint("balance >= 0 OR name = 'world'", name="no_overdraft"),
)
entries = sa.Table(
    "entries",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("run", sa.Text),
    sa.Column("round", sa.BigInteger),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
    sa.Index("entries_of_run", "run", "round"),
)
postings = sa.Table(
    "postings",
    metadata,
    sa.Column("entry", sa.BigInteger, sa.ForeignKey(entries.c.number), primary_key=True),
    sa.Column("line", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("account", sa.BigInteger, sa.ForeignKey(accounts.c.id), nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,  # one tree instead of two
)
states = sa.Table(
    "states",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("done", sa.BigInteger, nullable=False),
    sa.Column("arrays", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
state_parts = sa.Table(
    "state_parts",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("bytes", sa.LargeBinary, nullable=False),
)
measured = sa.Table(
    "metrics",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("who", sa.Text, primary_key=True),
    sa.Column("metrics", sa.Text, nullable=False),
)
