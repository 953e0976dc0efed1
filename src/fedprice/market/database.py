"""The database behind a ledger: one writer at a time, and its errors as one line each.

SQLite writes ahead (WAL) and waits for the disk at every commit; a transaction that writes
excludes all other writers. PostgreSQL locks the entries for the writer, and waits for its disk
whatever the settings of the role or the database are. Migrations are alembic's.
"""

from __future__ import annotations

import shlex
import sqlite3
import time
import weakref
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedprice.errors import FedpriceError, require
from fedprice.market.database_url import PASSWORDS, PRIVATE, engine_of, milliseconds, secrets_of
from fedprice.market.ledger_errors import DamagedError, LedgerError, NoLedgerError
from fedprice.market.schema import SCHEMA, sa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, RootTransaction

__all__ = ["Database"]

_SCHEMA_LOCK = 0x66656470  # arbitrary: locks the creation of tables on PostgreSQL
_MIGRATIONS = Path(__file__).parent / "migrations"

# One row per table, column, constraint, index, trigger and rewrite rule. Constraints that make
# columns NOT NULL have rows of their own since PostgreSQL 18; the column has it in all versions.
_POSTGRES_DEFINITIONS = """
    WITH own AS (
        SELECT oid, relname, relkind, relpersistence, relrowsecurity
        FROM pg_class WHERE oid IN (
            to_regclass('accounts'), to_regclass('entries'), to_regclass('postings'),
            to_regclass('states'), to_regclass('state_parts'), to_regclass('metrics'),
            to_regclass('alembic_version')
        )
    )
    SELECT concat_ws(' ', 'table', relname, relkind, relpersistence, relrowsecurity,
        (SELECT count(*) FROM pg_inherits WHERE oid IN (inhrelid, inhparent))) FROM own
    UNION ALL SELECT concat_ws(' ', 'column', relname, attname, format_type(atttypid, atttypmod),
        attnotnull, nullif(attidentity, ''), nullif(attgenerated, ''), pg_get_expr(adbin, adrelid))
        FROM own JOIN pg_attribute ON attrelid = own.oid AND attnum > 0 AND NOT attisdropped
        LEFT JOIN pg_attrdef ON adrelid = own.oid AND adnum = attnum
    UNION ALL SELECT concat_ws(' ', 'constraint', relname, conname, convalidated,
        pg_get_constraintdef(c.oid)) FROM own JOIN pg_constraint c ON conrelid = own.oid
        WHERE contype <> 'n'
    UNION ALL SELECT concat_ws(' ', 'index', indisvalid AND indisready,
        pg_get_indexdef(indexrelid, 0, true)) FROM own JOIN pg_index ON indrelid = own.oid
    UNION ALL SELECT concat_ws(' ', 'trigger', tgenabled IN ('O', 'A'),
        CASE WHEN tgisinternal THEN relname ELSE pg_get_triggerdef(t.oid, true) END,
        proname, lanname, prosecdef, proconfig, btrim(prosrc))
        FROM own JOIN pg_trigger t ON tgrelid = own.oid JOIN pg_proc p ON p.oid = tgfoid
        JOIN pg_language l ON l.oid = prolang
    UNION ALL SELECT concat_ws(' ', 'rule', relname, rulename)
        FROM own JOIN pg_rewrite ON ev_class = own.oid
"""

# In a transaction that writes. `remote_apply` waits for more than the disk.
_POSTGRES_WRITER = sa.text("""
    SELECT set_config('statement_timeout', :most, true), set_config(
        'synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply'
        ELSE 'on' END,
        true
    )
""")

PAGE = 1 << 13  # bytes: large models are stored faster than with 4 KiB, and small rounds no slower


class Database:
    """A database with the tables of this version, created where needed.

    Parameters
    ----------
    url
        A URL of SQLAlchemy, or the path of an SQLite file.
    create
        Whether to create a missing database.
    read_only
        Whether nothing may be written, not even by SQLite itself: a connection that can write moves
        the log into the file when it is closed. Nothing is created then, either.
    timeout
        Seconds to wait for other writers, and for a connection; on PostgreSQL a statement that
        writes may take twice as long.
    """

    def __init__(
        self, url: str, *, create: bool = True, read_only: bool = False, timeout: float = 30.0
    ) -> None:
        create = create and not read_only
        self._engine, self.name = engine_of(url, create, read_only, timeout)
        # Whoever forgets to close it leaves no connection behind.
        weakref.finalize(self, self._engine.dispose).atexit = False
        self._timeout = timeout
        try:
            with self._explained():
                self._migrate(create)
        except FedpriceError:
            self.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Begin a transaction as the only writer; it is committed if the block raises no error.

        An error inside the block, or before it, means that nothing was recorded. Whether a commit
        that failed was recorded is unknown, and the error says so.
        """
        with self._explained(), self._engine.connect() as connection:
            transaction = self._begin(connection)
            if self._engine.dialect.name == "postgresql":
                connection.exec_driver_sql("LOCK TABLE entries IN EXCLUSIVE MODE")
            yield connection
            self._commit(connection, transaction)

    def _begin(self, connection: Connection) -> RootTransaction:
        """Begin a transaction that writes."""
        if self._engine.dialect.name == "sqlite":
            connection.info["begin"] = "BEGIN IMMEDIATE"
        transaction = connection.begin()
        if self._engine.dialect.name == "postgresql":
            connection.execute(_POSTGRES_WRITER, {"most": f"{milliseconds(2 * self._timeout)}"})
        return transaction

    def _commit(self, connection: Connection, transaction: RootTransaction) -> None:
        try:
            transaction.commit()
        except (sa.exc.DBAPIError, sqlite3.Error) as error:
            connection.invalidate()  # its state is unknown, too
            raise LedgerError(
                f"{self.name}: the commit failed ({self._reason(error)}), outcome unknown; run the "
                "same command again. What was recorded is not recorded twice."
            ) from self._cause(error)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Begin a transaction that reads one snapshot of the whole database."""
        with self._explained(), self._engine.connect() as connection:
            if self._engine.dialect.name == "postgresql":
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with connection.begin():
                yield connection

    def copy_to(self, path: Path) -> None:
        """Write a snapshot of the whole SQLite database into a file."""
        with self._explained():
            source, target = self._engine.raw_connection(), sqlite3.connect(path)
            try:
                source.driver_connection.backup(target)  # type: ignore[union-attr]
            finally:
                target.close()
                source.close()

    @property
    def file(self) -> Path | None:
        """The SQLite file; None in memory, and on PostgreSQL."""
        if self._engine.dialect.name != "sqlite":
            return None
        with self._engine.connect() as connection:
            (_, _, path), *_ = connection.exec_driver_sql("PRAGMA database_list").all()
        return Path(path) if path else None

    def last_written(self) -> float | None:
        """Return when an SQLite file was last written, in seconds since 1970; None if unknown."""
        if self._engine.dialect.name != "sqlite":
            return None
        try:
            written = [Path(self.name).stat().st_mtime]
            log = Path(f"{self.name}-wal")
            if log.is_file() and (found := log.stat()).st_size:  # readers create an empty one
                written.append(found.st_mtime)
            return max(written)
        except OSError:
            return None

    def dump_command(self, path: Path) -> str | None:
        """Return the command that copies a database on PostgreSQL; None for SQLite."""
        if self._engine.dialect.name != "postgresql":
            return None
        own = self._engine.url
        query = {n: v for n, v in own.query.items() if n not in (*PASSWORDS, "connect_timeout")}
        address = sa.URL.create(
            "postgresql", own.username, None, own.host, own.port, own.database, query
        ).render_as_string()
        return shlex.join(["pg_dump", "--format=custom", f"--file={path}", address])

    def check(self, connection: Connection) -> None:
        """Look for damage below the level of rows, and for missing rules."""
        if self._engine.dialect.name == "postgresql":
            there = connection.exec_driver_sql(_POSTGRES_DEFINITIONS).scalars()
            if sorted(there) != (_MIGRATIONS / "postgresql.txt").read_text("utf-8").splitlines():
                raise DamagedError(f"{self.name} has other tables or rules than were created.")
            return
        found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        if found != ["ok"]:
            reason = " ".join(str(found[0]).split()).removeprefix("*** in database main *** ")
            raise DamagedError(f"{self.name} is damaged: {reason}.")
        if _definitions(connection) != self._fresh_definitions():
            raise DamagedError(f"{self.name} has other tables or rules than were created.")

    @staticmethod
    @cache
    def _fresh_definitions() -> list[tuple[Any, ...]]:
        fresh = Database("sqlite://")
        with fresh.reading() as connection:
            found = _definitions(connection)
        fresh.close()
        return found

    def _migrate(self, create: bool) -> None:
        self._look()
        with self._engine.connect() as connection, connection.begin():
            if self._schema(connection) == SCHEMA:
                return
        if not create:
            raise NoLedgerError(
                f"{self.name} holds no ledger; create one with: fedprice ledger open URL"
            )
        if self._engine.dialect.name == "sqlite":
            raw = self._engine.raw_connection()  # outside a transaction
            if (path := self.file) is not None:  # a new ledger: its log gets the same permissions
                path.chmod(PRIVATE)
            raw.cursor().execute(f"PRAGMA page_size = {PAGE}")  # of a new file
            _write_ahead(raw.cursor(), self._timeout)
            raw.close()
        with self._engine.connect() as connection:
            transaction = self._begin(connection)
            if self._engine.dialect.name == "postgresql":
                connection.execute(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK).select())
            if self._schema(connection) is None:  # another process may have been faster
                self._upgrade(connection)
            self._commit(connection, transaction)

    def _look(self) -> None:
        """Refuse an SQLite file with another schema before its log is touched.

        A connection that can write moves the log into the file when it is closed.
        """
        path = Path(self._engine.url.database or "")
        log = Path(f"{path}-wal")
        if self._engine.dialect.name == "sqlite" and log.is_file() and log.stat().st_size:
            reader = sa.create_engine(f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true")
            try:
                with reader.connect() as connection:
                    self._schema(connection)
            except sa.exc.OperationalError as error:
                # A power loss while it was created: whoever writes rolls that back, no reader can.
                if "readonly database" not in str(error):
                    raise
            finally:
                reader.dispose()

    def _schema(self, connection: Connection) -> str | None:
        """Return the version of the existing tables; refuse those of another program."""
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
        if str(found) < SCHEMA:
            raise LedgerError(
                f"{self.name} is a ledger of the schema {found}; this fedprice knows {SCHEMA}. "
                "Export and verify it with the version that wrote it, and start a new ledger."
            )
        return str(found)

    def _upgrade(self, connection: Connection) -> None:
        require("alembic", "market")
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    def _reason(self, error: Exception) -> str:
        """Return the first line of a database's error, without the passwords of the URL."""
        first = (str(getattr(error, "orig", error)).splitlines() or ["no reason given"])[0]
        reason = first.strip().rstrip(".")
        for secret in secrets_of(self._engine.url):
            reason = reason.replace(secret, "***")
        return reason

    def _cause(self, error: Exception) -> Exception | None:
        """Return a database's error as the cause of ours, unless it contains a password."""
        return None if any(own in str(error) for own in secrets_of(self._engine.url)) else error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the database's errors into one line with advice."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise DamagedError(f"{self.name} is damaged; restore it from a copy.") from error
        except (sa.exc.DBAPIError, sqlite3.Error) as error:
            reason = self._reason(error)
            for word in ("is malformed", "Could not decode"):
                if word in reason:
                    raise DamagedError(
                        f"{self.name} is damaged; restore it from a copy."
                    ) from error
            full = "cannot grow: the disk is full. Nothing was recorded; free some space"
            broken = "cannot be used: the disk fails or is full. Nothing was recorded"
            busy = "is in use by another program; try again when it is done"
            known = (
                ("is locked", busy),
                ("lock timeout", busy),
                ("statement timeout", "took too long. Nothing was recorded; try again"),
                ("readonly database", "cannot be written; check its permissions"),
                ("disk is full", full),
                ("No space left", full),
                ("disk I/O error", broken),
                ("is not a database", "is not an SQLite database; choose another file"),
            )
            for word, text in known:
                if word in reason:
                    raise LedgerError(f"{self.name} {text}.") from self._cause(error)
            raise LedgerError(f"database error in {self.name}: {reason}.") from self._cause(error)


def _write_ahead(cursor: Any, timeout: float) -> None:
    """Let a file have a log; SQLite itself does not wait for others that do the same."""
    until = time.monotonic() + timeout
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _definitions(connection: Connection) -> list[tuple[Any, ...]]:
    rows = connection.exec_driver_sql(
        "SELECT type, name, tbl_name, sql FROM sqlite_master UNION ALL "
        "SELECT 'version', version_num, '', '' FROM alembic_version ORDER BY 1, 2"
    )
    return [tuple(row) for row in rows]
