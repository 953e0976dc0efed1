"""Accounts, entries with their postings, the states that runs resume from, and metrics.

There is no migration from earlier schemas: the entries of fedprice_0001 have another format, and
are not signed; fedprice_0002 kept each state as one value, of which SQLite refuses large ones; the
offers of fedprice_0003 have a price instead of a tariff; the runs of fedprice_0004 have independent
coins, and pay by rounds.
"""

from alembic import op

from fedprice.market.schema import metadata

revision = "fedprice_0005"
down_revision = None


def upgrade() -> None:
    """Create the tables; the database itself refuses overdrafts and changes of recorded rows."""
    metadata.create_all(op.get_bind())
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
