"""The database behind a ledger: its tables, one writer at a time, and its errors in one line each.

SQLite writes ahead (WAL) and waits for the disk at every commit; a transaction that writes begins
as the only one. PostgreSQL locks the entries for the writer. Migrations are alembic's.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedprice.errors import FedpriceError, InputError, UnverifiedError, require

sa: Any = require("sqlalchemy", "market")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

__all__ = [
    "DamagedError",
    "Database",
    "LedgerError",
    "accounts",
    "entries",
    "postings",
    "sa",
    "states",
]

SCHEMA = "fedprice_0001"  # the newest migration
_SCHEMA_LOCK = 0x66656470  # any number, the same for all: who creates the tables on PostgreSQL

# Constraints that hold, triggers that fire, indexes.
_POSTGRES_RULES = """
    SELECT conname FROM pg_constraint WHERE convalidated
    UNION ALL SELECT tgname FROM pg_trigger WHERE tgenabled IN ('O', 'A')
    UNION ALL SELECT indexname FROM pg_indexes
"""
_RULES = {"no_overdraft", "entries_append_only", "postings_append_only", "entries_of_run"}

_metadata = sa.MetaData()
accounts = sa.Table(
    "accounts",
    _metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("balance", sa.BigInteger, nullable=False),
)
entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("run", sa.Text),
    sa.Column("round", sa.BigInteger),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Index("entries_of_run", "run", "round"),
)
postings = sa.Table(
    "postings",
    _metadata,
    sa.Column("entry", sa.BigInteger, sa.ForeignKey(entries.c.number), primary_key=True),
    sa.Column("line", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("account", sa.BigInteger, sa.ForeignKey(accounts.c.id), nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
)
states = sa.Table(
    "states",
    _metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("done", sa.BigInteger, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)


class LedgerError(FedpriceError):
    """What the ledger refuses, or finds wrong with itself."""

    exit_code = 5


class DamagedError(LedgerError, UnverifiedError):
    """The ledger is not what was recorded."""

    exit_code = UnverifiedError.exit_code


class Database:
    """A database with the tables of this version, created or migrated where needed.

    Parameters
    ----------
    url
        As SQLAlchemy names it, or the path of an SQLite file.
    create
        Whether to create what is not there.
    timeout
        Seconds to wait for other writers.
    """

    def __init__(self, url: str, *, create: bool = True, timeout: float = 30.0) -> None:
        self._engine, self.name = _engine(url, create, timeout)
        try:
            with self._explained():
                self._migrate(create)
        except FedpriceError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Begin a transaction as the only writer; it is recorded when the block ends well."""
        with self._explained(), self._engine.connect() as connection:
            if self._engine.dialect.name == "sqlite":
                connection.info["begin"] = "BEGIN IMMEDIATE"
            with connection.begin():
                if self._engine.dialect.name == "postgresql":
                    connection.exec_driver_sql("LOCK TABLE entries IN EXCLUSIVE MODE")
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Begin a transaction that sees one state of the whole database."""
        with self._explained(), self._engine.connect() as connection:
            if self._engine.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    def check(self, connection: Connection) -> None:
        """Look for damage below the level of rows, and for rules that are gone."""
        if self._engine.dialect.name == "postgresql":
            rules = set(connection.exec_driver_sql(_POSTGRES_RULES).scalars())
            if not rules >= _RULES:
                raise DamagedError(f"{self.name} has other rules than were created.")
            return
        found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        if found != ["ok"]:
            reason = " ".join(str(found[0]).split()).removeprefix("*** in database main *** ")
            raise DamagedError(f"{self.name} is damaged: {reason}.")
        if _definitions(connection) != self._fresh_definitions():
            raise DamagedError(f"{self.name} has other tables or rules than were created.")

    @staticmethod
    def _fresh_definitions() -> list[tuple[Any, ...]]:
        fresh = Database("sqlite://")
        with fresh.reading() as connection:
            found = _definitions(connection)
        fresh.close()
        return found

    def _migrate(self, create: bool) -> None:
        with self._engine.connect() as connection, connection.begin():
            if self._schema(connection) == SCHEMA:
                return
        if self._engine.dialect.name == "sqlite" and create:
            raw = self._engine.raw_connection()  # outside a transaction
            raw.cursor().execute("PRAGMA journal_mode = WAL")
            raw.close()
        with self._engine.connect() as connection:
            connection.info["begin"] = "BEGIN IMMEDIATE"
            with connection.begin():
                if self._engine.dialect.name == "postgresql":
                    connection.execute(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK).select())
                found = self._schema(connection)  # another process may have been faster
                if found is None and not create:
                    raise LedgerError(
                        f"{self.name} holds no ledger; create one with: fedprice ledger open URL"
                    )
                if found != SCHEMA:
                    self._upgrade(connection)

    def _schema(self, connection: Connection) -> str | None:
        """Return the version of the tables that are there; refuse what is not ours."""
        tables = set(sa.inspect(connection).get_table_names())
        if not tables:
            return None
        found = None
        if "alembic_version" in tables:
            found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if found is None or not str(found).startswith("fedprice_"):
            raise LedgerError(
                f"{self.name} is the database of another program; choose another one."
            )
        if str(found) > SCHEMA:
            raise LedgerError(
                f"{self.name} was written by a newer fedprice ({found}; this one knows {SCHEMA}); "
                "run: pip install --upgrade fedprice"
            )
        return str(found)

    def _upgrade(self, connection: Connection) -> None:
        require("alembic", "market")
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        scripts = str(Path(__file__).parent / "migrations")
        config.set_main_option("script_location", scripts.replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise LedgerError(f"{self.name} cannot be upgraded: {error}.") from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the database's errors into one line that says what to do."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise DamagedError(f"{self.name} is damaged; restore it from a copy.") from error
        except (sa.exc.DBAPIError, sqlite3.Error) as error:
            reason = str(getattr(error, "orig", error)).splitlines()[0].strip().rstrip(".")
            for word in ("malformed", "Could not decode"):
                if word in reason:
                    raise DamagedError(
                        f"{self.name} is damaged; restore it from a copy."
                    ) from error
            known = (
                ("locked", "is in use by another program; try again when it is done"),
                ("readonly", "cannot be written; check its permissions"),
                ("full", "cannot grow: the disk is full. Nothing was recorded; free some space"),
                ("disk I/O", "cannot be used: the disk fails or is full. Nothing was recorded"),
                ("not a database", "is no SQLite database; choose another file"),
            )
            for word, text in known:
                if word in reason:
                    raise LedgerError(f"{self.name} {text}.") from error
            raise LedgerError(f"{self.name} does not work: {reason}.") from error


def _engine(url: str, create: bool, timeout: float) -> tuple[Engine, str]:
    if not url:
        raise InputError("a ledger needs a name; try sqlite:///market.db.")
    try:
        address = sa.engine.make_url(url if "://" in url else f"sqlite:///{url}")
        kind = address.get_backend_name()
        settings: dict[str, Any] = {}
        if kind == "sqlite":
            address, name = _sqlite(address.set(drivername="sqlite"), create)
            settings = {"connect_args": {"check_same_thread": False, "timeout": timeout}}
            if address.database in (None, "", ":memory:"):
                settings["poolclass"] = sa.pool.StaticPool
        elif kind == "postgresql":
            require("psycopg", "postgres")
            address = address.set(drivername="postgresql+psycopg")
            where = address.host or address.query.get("host", "this machine")
            name = f"the database {address.database or address.username!r} on {where}"
        else:
            raise InputError(f"a ledger lives in SQLite or PostgreSQL, not in {kind}.")
        engine: Engine = sa.create_engine(address, **settings)
    except InputError:
        raise
    except (sa.exc.ArgumentError, ValueError) as error:
        raise InputError("this names no database; try sqlite:///market.db.") from error
    if engine.dialect.name == "sqlite":

        def prepare(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # transactions are begun below, not by the driver
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")

        def begin(connection: Connection) -> None:
            connection.exec_driver_sql(connection.info.pop("begin", "BEGIN"))

        sa.event.listen(engine, "connect", prepare)
        sa.event.listen(engine, "begin", begin)
    return engine, name


def _sqlite(address: Any, create: bool) -> tuple[Any, str]:
    """Return where an SQLite file is, checked, and its name for messages."""
    if address.database in (None, "", ":memory:"):
        return address, "the ledger in memory"
    if address.query.get("uri"):
        return address, address.database
    path = Path(address.database)
    if path.is_dir():
        raise InputError(f"{path} is a directory; give the name of a file.")
    if not path.parent.is_dir():
        raise InputError(f"cannot open {path}: there is no directory {path.parent}.")
    if not create and not path.exists():
        raise InputError(
            f"there is no ledger {path}; create one with: fedprice ledger open sqlite:///{path}"
        )
    if path.exists() and not os.access(path, os.R_OK):
        raise InputError(f"cannot read {path}; check its permissions.")
    if not create and not (os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)):
        # A reader needs no files beside a database that nobody can write.
        query = {"mode": "ro", "immutable": "1", "uri": "true"}
        return address.set(database=f"file:{quote(str(path))}", query=query), str(path)
    return address, str(path)


def _definitions(connection: Connection) -> list[tuple[Any, ...]]:
    rows = connection.exec_driver_sql(
        "SELECT type, name, tbl_name, sql FROM sqlite_master UNION ALL "
        "SELECT 'version', version_num, '', '' FROM alembic_version ORDER BY 1, 2"
    )
    return [tuple(row) for row in rows]
