"""Accounts, entries with their postings, the states that runs resume from, and metrics.

There is no migration from earlier schemas: the entries of fedprice_0001 have another format, and
are not signed; fedprice_0002 kept each state as one value, of which SQLite refuses large ones; the
offers of fedprice_0003 have a price instead of a tariff.
"""

import sqlalchemy as sa
from alembic import op

revision = "fedprice_0004"
down_revision = None


def upgrade() -> None:
    """Create the tables; the database itself refuses overdrafts and changes of recorded rows."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("balance", sa.BigInteger, nullable=False),
        sa.CheckConstraint("balance >= 0 OR name = 'world'", name="no_overdraft"),
    )
    op.create_table(
        "entries",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("run", sa.Text),
        sa.Column("round", sa.BigInteger),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
    )
    op.create_index("entries_of_run", "entries", ["run", "round"])
    op.create_table(
        "postings",
        sa.Column("entry", sa.BigInteger, sa.ForeignKey("entries.number"), primary_key=True),
        sa.Column("line", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("account", sa.BigInteger, sa.ForeignKey("accounts.id"), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,  # one tree instead of two
    )
    op.create_table(
        "states",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("arrays", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
    )
    op.create_table(
        "state_parts",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("bytes", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "metrics",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("who", sa.Text, primary_key=True),
        sa.Column("metrics", sa.Text, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for table in ("entries", "postings"):
            for change in ("UPDATE", "DELETE"):
                op.execute(
                    f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
                )
        # REPLACE deletes without asking the triggers above.
        for table, same in (
            ("entries", "number = NEW.number OR key = NEW.key"),
            ("postings", "entry = NEW.entry AND line = NEW.line"),
        ):
            op.execute(
                f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
                f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
                f"BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
            )
    else:
        op.execute(
            "CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% are append-only', TG_TABLE_NAME; END $$"
        )
        for table in ("entries", "postings"):
            op.execute(
                f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE "
                f"ON {table} FOR EACH STATEMENT EXECUTE FUNCTION append_only()"
            )
