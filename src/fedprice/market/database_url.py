"""What the URL of a ledger means: which database is opened, how, and what of it may be shown."""

from __future__ import annotations

import math
import os
import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from fedprice.errors import InputError, require
from fedprice.market.ledger_errors import NoLedgerError
from fedprice.market.schema import sa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Engine

__all__ = [
    "PASSWORDS",
    "PRIVATE",
    "engine_of",
    "has_password",
    "masked",
    "milliseconds",
    "secrets_of",
]

PASSWORDS = ("password", "sslpassword")  # parameters of a URL
PRIVATE = 0o600  # permissions of a file with money in it


def engine_of(url: str, create: bool, read_only: bool, timeout: float) -> tuple[Engine, str]:
    """Return the engine of a database, as `Database` describes its parameters, and its name."""
    if not url:
        raise InputError("a ledger needs a name; try sqlite:///market.db.")
    try:
        address = sa.engine.make_url(url if "://" in url else f"sqlite:///{url}")
        kind = address.get_backend_name()
        settings: dict[str, Any] = {}
        if kind == "sqlite":
            address, name = _sqlite(address.set(drivername="sqlite"), create, read_only)
            settings = {"connect_args": {"check_same_thread": False, "timeout": timeout}}
            if address.database in (None, "", ":memory:"):
                settings["poolclass"] = sa.pool.StaticPool
            elif read_only and not address.query.get("uri"):
                settings = _reader(Path(address.database), timeout)
        elif kind == "postgresql":
            require("psycopg", "postgres")
            address = address.set(drivername="postgresql+psycopg")
            where = address.host or address.query.get("host", "this machine")
            if "@" in where:  # the end of a password
                raise InputError("an @ in the password of a database URL must be written as %40.")
            name = f"the database {address.database or address.username!r} on {where}"
            address = address.update_query_dict(
                {"connect_timeout": str(math.ceil(timeout))} | dict(address.query)
            )
        else:
            raise InputError(f"{kind} is not supported; use SQLite or PostgreSQL.")
        engine: Engine = sa.create_engine(address, **settings)
    except InputError:
        raise
    except (sa.exc.ArgumentError, ValueError):
        # The reason would quote parts of the URL, which may contain a password.
        raise InputError("not a valid database URL; try sqlite:///market.db.") from None
    if engine.dialect.name == "sqlite":

        def prepare(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # transactions are begun below, not by the driver
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            # KiB: the accounts stay in memory while the text of a large round is written.
            connection.execute("PRAGMA cache_size = -8000")

        def begin(connection: Connection) -> None:
            connection.exec_driver_sql(connection.info.pop("begin", "BEGIN"))

        sa.event.listen(engine, "connect", prepare)
    else:

        def begin(connection: Connection) -> None:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds(timeout)}")

    sa.event.listen(engine, "begin", begin)
    return engine, name


def milliseconds(seconds: float) -> int:
    """Return a time limit for PostgreSQL, for which 0 would mean none."""
    return max(1, round(1000 * seconds))


def secrets_of(address: Any) -> list[str]:
    """Return the passwords in a URL."""
    given = [address.password, *(address.query.get(name) for name in PASSWORDS)]
    return [str(secret) for secret in given if secret]


def has_password(url: str) -> bool:
    """Return whether a database's URL contains a password.

    Examples
    --------
    >>> has_password("postgresql://market:x@db.internal/market"), has_password("market.db")
    (True, False)
    """
    try:
        return bool(secrets_of(sa.engine.make_url(url)))
    except (sa.exc.ArgumentError, ValueError):  # the name of a file, or a mistyped URL
        return re.search(":.*@", url) is not None


def masked(url: str) -> str:
    """Return a database's URL without its passwords, to be shown.

    Examples
    --------
    >>> masked("postgresql://market:x%40y@db.internal/market?sslpassword=z&port=1")
    'postgresql://market:***@db.internal/market?sslpassword=***&port=1'
    """
    if not has_password(url):
        return url
    scheme, mark, rest = url.partition("://")
    rest = re.sub("(password=)[^&]*", r"\1***", rest)
    return scheme + mark + re.sub(":.*@", ":***@", rest)


def _sqlite(address: Any, create: bool, read_only: bool) -> tuple[Any, str]:
    """Return the checked address of an SQLite file, and its name for messages."""
    if any((address.host, address.port, address.username, address.password)):
        raise InputError("not a valid database URL; try sqlite:///market.db.")
    _require_known(address.query)
    if address.database in (None, "", ":memory:"):
        return address, "the ledger in memory"
    if address.query:
        _require_regular(Path(unquote(urlsplit(address.database).path)))
        if read_only:
            address = address.update_query_dict({"mode": "ro"})
        return address, address.database
    if re.search(":.*@", address.database):  # a mistyped URL, which may contain a password
        raise InputError(
            "neither the name of a file nor a valid database URL; try sqlite:///market.db."
        )
    path = Path(address.database)
    _require_regular(path)
    if not path.parent.is_dir():
        raise InputError(f"cannot open {path}: there is no directory {path.parent}.")
    if not create and not path.exists():
        raise NoLedgerError(
            f"there is no ledger {path}; create one with: fedprice ledger open sqlite:///{path}"
        )
    if path.exists() and not os.access(path, os.R_OK):
        raise InputError(f"cannot read {path}; check its permissions.")
    if read_only:
        return address, str(path)
    if not create and not (os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)):
        query = {"mode": "ro", "uri": "true"}
        if _is_fixed(path):
            query["immutable"] = "1"
        return address.set(database=f"file:{quote(str(path))}", query=query), str(path)
    try:  # SQLite would let everybody read the file, if the umask does
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
        os.fchmod(handle, PRIVATE)
        os.close(handle)
    except FileExistsError:
        pass
    except OSError as error:
        raise InputError(f"cannot create {path}: {error.strerror}.") from error
    return address, str(path)


def _require_known(query: Mapping[str, Any]) -> None:
    """Refuse parameters of an SQLite URL that would be ignored, or that turn off its locks."""
    known = {"mode": ("ro", "rw", "rwc"), "uri": ("true",)}
    for name, value in query.items():
        if value not in known.get(name, ()) or "uri" not in query:
            raise InputError(
                "the parameters of an SQLite URL can be mode=ro, mode=rw or mode=rwc, with "
                f"uri=true and a file: name; got {name!r}. Leave it out."
            )


def _require_regular(path: Path) -> None:
    """Refuse what cannot be an SQLite file: directories, devices, names that cannot be shown."""
    if not path.name.isprintable():
        raise InputError(f"the name of a ledger's file must be printable; got {path.name!r}.")
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory; give the name of a file.")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a regular file; give the name of another one.")
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}.") from error


def _reader(path: Path, timeout: float) -> dict[str, Any]:
    """Return how an SQLite file is opened for every read, without permission to write."""

    def connect() -> sqlite3.Connection:
        address = f"file:{quote(str(path))}?mode=ro"
        if _is_fixed(path):
            address += "&immutable=1"
        return sqlite3.connect(address, timeout=timeout, check_same_thread=False, uri=True)

    return {"creator": connect, "poolclass": sa.pool.NullPool}


def _is_fixed(path: Path) -> bool:
    """Return whether a reader needs no log files, because this database cannot be written here."""
    writable = os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)
    return not writable and not Path(f"{path}-wal").exists()
