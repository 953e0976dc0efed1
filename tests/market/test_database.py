"""Databases that cannot be used: one clear line each, and nothing lost."""

import resource
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from fedprice.errors import InputError
from fedprice.market import database
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import Terms

MODEL = "ab" * 32


def test_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    Ledger(url).close()
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, database._metadata) == []
        assert context.get_current_revision() == database.SCHEMA
    engine.dispose()


def test_sqlite_waits_for_the_disk(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "market.db"))
    with ledger._database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    ledger.close()


def test_a_newer_schema(url: str) -> None:
    Ledger(url).close()
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'fedprice_0999'")
    engine.dispose()
    with pytest.raises(LedgerError, match=r"newer fedprice .*pip install --upgrade fedprice"):
        Ledger(url)


def test_another_programs_database(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE songs (title TEXT)")
    with pytest.raises(LedgerError, match="the database of another program"):
        Ledger(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('ae1027a6acf')")
    with pytest.raises(LedgerError, match="the database of another program"):
        Ledger(url)
    with engine.begin() as connection:
        tables = sqlalchemy.inspect(connection).get_table_names()
    assert sorted(tables) == ["alembic_version", "songs"]
    engine.dispose()


def test_files_that_are_none(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to look at " * 50)
    with pytest.raises(LedgerError, match="is no SQLite database"):
        Ledger(str(text))
    assert text.read_text().startswith("not a database")
    with pytest.raises(InputError, match="is a directory"):
        Ledger(str(tmp_path))
    with pytest.raises(InputError, match="there is no directory"):
        Ledger(str(tmp_path / "none" / "market.db"))
    with pytest.raises(InputError, match=r"there is no ledger .*fedprice ledger open"):
        Ledger(str(tmp_path / "market.db"), create=False)
    (tmp_path / "empty.db").touch()
    with pytest.raises(LedgerError, match="holds no ledger"):
        Ledger(str(tmp_path / "empty.db"), create=False)
    with pytest.raises(InputError, match="not a valid database URL"):
        Ledger("sqlite//x://")
    with pytest.raises(InputError, match="SQLite or PostgreSQL"):
        Ledger("mysql://localhost/market")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.db", "notes.txt"]


def test_no_postgresql_there(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="does not work: "):
        Ledger(f"postgresql+psycopg:///market?host={tmp_path}")


def test_a_read_only_database_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    ledger.deposit("treasury", 5, "first")
    ledger.close()
    reader = Ledger(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert reader.balance("treasury") == 5
    assert len(reader.verify().hashes) == 2
    with pytest.raises(LedgerError, match="cannot be written"):
        reader.deposit("treasury", 5, "second")
    reader.close()


def test_a_locked_database(tmp_path: Path) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path), timeout=0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="in use by another program"):
        ledger.deposit("treasury", 5, "first")
    assert ledger.balances() == {}  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    ledger.deposit("treasury", 5, "first")
    assert ledger.balance("treasury") == 5
    ledger.close()


def test_many_open_a_new_ledger_at_once(url: str) -> None:
    problems: list[Exception] = []

    def open_it() -> None:
        try:
            Ledger(url).close()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert problems == []
    ledger = Ledger(url)
    assert len(ledger.verify().hashes) == 1
    ledger.close()


FILL = """
import resource, sys
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.offers import Terms
ledger = Ledger(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for r in range(ledger.rounds_done("run"), 40):
    try:
        ledger.record_round("run", r, model="ab" * 32, state=bytes(30_000))
    except LedgerError as error:
        print(r, error)
        sys.exit(5)
"""


def test_a_full_disk_leaves_no_partial_round_and_the_run_goes_on(tmp_path: Path) -> None:
    """The operating system refuses to let the files grow; then it lets them."""
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    ledger.deposit("treasury", 10**7, "first")
    ledger.open_run("run", 10**7, {"alice": Terms(10**7, LEVEL_ONE)}, rounds=40)
    ledger.close()
    command = [sys.executable, "-c", FILL, str(path), "400000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5, done.stderr
    assert "outcome unknown; run the same command again" in done.stdout
    stopped = int(done.stdout.split()[0])
    assert 0 < stopped < 40
    ledger = Ledger(str(path))
    done_rounds = ledger.rounds_done("run")
    assert done_rounds in (stopped, stopped + 1)
    assert len(ledger.verify().hashes) == 3 + done_rounds
    ledger.close()
    command[-1] = str(resource.RLIM_INFINITY)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ledger = Ledger(str(path))
    assert len(ledger.verify().hashes) == 3 + 40
    assert ledger.balance("client:alice") == 10**7
    ledger.close()


def test_units_do_not_mix(url: str) -> None:
    Ledger(url, unit="EUR").close()
    ledger = Ledger(url)
    assert ledger.unit == "EUR"
    ledger.close()
    with pytest.raises(LedgerError, match="is a ledger of EUR, not of USD"):
        Ledger(url, unit="USD")
    with pytest.raises(InputError, match="capital letters"):
        Ledger("sqlite://", unit="eur")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "", "a\u202eb", "\ud800", "x" * 201])
def test_names_that_cannot_be_shown(name: str) -> None:
    ledger = Ledger("sqlite://")
    with pytest.raises(InputError, match="1 to 200 printable characters"):
        ledger.deposit(f"client:{name}", 5, "first")
    with pytest.raises(InputError, match="1 to 200 printable characters"):
        ledger.open_run(name, 0, {}, rounds=1)
    with pytest.raises(InputError, match="1 to 200 printable characters"):
        ledger.open_run("run", 0, {name: Terms(0, 0)}, rounds=1)
    with pytest.raises(InputError, match="deposits go to treasury or client"):
        ledger.deposit("escrow:run", 5, "first")
    assert len(ledger.verify().hashes) == 1
