"""Databases that cannot be used: one clear line each, and nothing lost."""

import json
import os
import resource
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from fedprice.errors import InputError
from fedprice.market import schema
from fedprice.market.ledger import DamagedError, Ledger, LedgerError
from fedprice.market.money import LEVEL_ONE
from trials.markets import at_price
from trials.power import HAS_COMPILER, preloaded

MODEL = "ab" * 32


def test_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    Ledger(url).close()
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == schema.SCHEMA
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


# The tables that earlier versions made, as far as it matters here.
OLD_TABLES = """
    CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
    INSERT INTO alembic_version VALUES ('fedprice_0002');
    CREATE TABLE accounts (
        id BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL UNIQUE, balance BIGINT NOT NULL
    );
    CREATE TABLE entries (
        number BIGINT NOT NULL PRIMARY KEY, key TEXT NOT NULL UNIQUE, run TEXT, round BIGINT,
        content TEXT NOT NULL, hash TEXT NOT NULL
    );
    INSERT INTO entries VALUES (1, '["begin"]', NULL, NULL, '{"kind":"begin"}', 'ab');
"""
OLD = (
    r"is a ledger of the schema fedprice_0002; this fedprice knows fedprice_0005\. "
    r"Export and verify it with the version that wrote it, and start a new ledger\.$"
)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("in_use", [True, False])
def test_an_old_ledger_is_refused_untouched(tmp_path: Path, create: bool, in_use: bool) -> None:
    """Also where the program that wrote it was killed, and its log is still beside it."""
    path = tmp_path / "was" / "market.db"
    path.parent.mkdir()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.executescript(OLD_TABLES)
    if in_use:
        shutil.copytree(path.parent, tmp_path / "is")
        (tmp_path / "is" / "market.db-shm").unlink()
    writer.close()
    if not in_use:
        shutil.copytree(path.parent, tmp_path / "is")
    before = {p.name: p.read_bytes() for p in (tmp_path / "is").iterdir()}
    assert set(before) == {"market.db", *(["market.db-wal"] if in_use else [])}
    for _ in range(2):
        with pytest.raises(LedgerError, match=OLD):
            Ledger(str(tmp_path / "is" / "market.db"), create=create)
    after = {p.name: p.read_bytes() for p in (tmp_path / "is").iterdir()}
    after.pop("market.db-shm", None)  # not a part of it
    assert after == before


def test_an_old_ledger_on_postgresql_is_refused(postgres: str) -> None:
    engine = fresh_postgres(postgres)
    with engine.begin() as connection:
        connection.exec_driver_sql(OLD_TABLES)
    with pytest.raises(LedgerError, match=OLD):
        Ledger(postgres)
    with engine.begin() as connection:
        tables = sqlalchemy.inspect(connection).get_table_names()
    assert sorted(tables) == ["accounts", "alembic_version", "entries"]
    engine.dispose()


def fresh_postgres(url: str) -> sqlalchemy.Engine:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return engine


@pytest.mark.parametrize(
    "change",
    [
        """CREATE OR REPLACE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RETURN NULL; END $$""",
        """DROP TRIGGER entries_append_only ON entries;
            CREATE TRIGGER entries_append_only BEFORE TRUNCATE ON entries
            FOR EACH STATEMENT EXECUTE FUNCTION append_only()""",
        "ALTER TABLE postings DISABLE TRIGGER postings_append_only",
        "ALTER TABLE postings DISABLE TRIGGER ALL",
        """ALTER TABLE accounts DROP CONSTRAINT no_overdraft;
            ALTER TABLE accounts ADD CONSTRAINT no_overdraft CHECK (true)""",
        """ALTER TABLE accounts DROP CONSTRAINT no_overdraft;
            ALTER TABLE accounts ADD CONSTRAINT no_overdraft
            CHECK (balance >= 0 OR name = 'world') NOT VALID""",
        "ALTER TABLE postings DROP CONSTRAINT postings_account_fkey",
        "ALTER TABLE entries ALTER signature DROP NOT NULL",
        "ALTER TABLE entries ALTER hash SET DEFAULT 'ab'",
        "DROP INDEX entries_of_run; CREATE INDEX entries_of_run ON entries (run)",
        "CREATE RULE quiet AS ON INSERT TO postings DO INSTEAD NOTHING",
        "ALTER TABLE states SET UNLOGGED",
        "ALTER TABLE entries ENABLE ROW LEVEL SECURITY",
        "CREATE TABLE more () INHERITS (postings)",
        "ALTER TABLE accounts ADD COLUMN more TEXT",
    ],
)
def test_changed_rules_on_postgresql_are_found_by_what_they_say(postgres: str, change: str) -> None:
    engine = fresh_postgres(postgres)
    ledger = Ledger(postgres)
    ledger.deposit("treasury", 5, "first")
    ledger.verify()
    with engine.begin() as connection:
        connection.exec_driver_sql(change)
    with pytest.raises(DamagedError, match="has other tables or rules than were created"):
        ledger.verify()
    ledger.close()
    engine.dispose()


def test_postgresql_waits_for_the_disk_whatever_it_is_set_to(postgres: str) -> None:
    engine = fresh_postgres(postgres)
    name = engine.url.database
    show = "SELECT current_setting('synchronous_commit'), current_setting('statement_timeout')"
    for given, used in (("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")):
        with engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = {given}")
        try:
            ledger = Ledger(postgres, timeout=7)
            with ledger._database.writing() as connection:
                assert connection.exec_driver_sql(show).one() == (used, "14s")
            ledger.close()
        finally:
            with engine.begin() as connection:
                connection.exec_driver_sql(f"ALTER DATABASE {name} RESET synchronous_commit")
    engine.dispose()


@pytest.mark.slow
def test_a_locked_postgresql_is_not_waited_for_forever(postgres: str) -> None:
    engine = fresh_postgres(postgres)
    ledger = Ledger(postgres, timeout=1)
    with engine.begin() as other:
        other.exec_driver_sql("LOCK TABLE entries IN EXCLUSIVE MODE")
        with pytest.raises(LedgerError, match="in use by another program"):
            ledger.deposit("treasury", 5, "first")
        assert ledger.balances() == {}  # reading goes on
        other.exec_driver_sql("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LedgerError, match="in use by another program"):
            ledger.balances()
    with (
        pytest.raises(LedgerError, match=r"took too long\. Nothing was recorded"),
        ledger._database.writing() as connection,
    ):
        connection.exec_driver_sql("SELECT pg_sleep(20)")
    ledger.deposit("treasury", 5, "first")
    assert ledger.balance("treasury") == 5
    ledger.close()
    engine.dispose()


@contextmanager
def cut_at_commit(url: str, forwarded: bool) -> Iterator[str]:
    """A way to PostgreSQL that breaks when a writer commits, before or after that is passed on."""
    address = sqlalchemy.make_url(url)
    folder = str(address.query["host"])
    (there,) = Path(folder).glob(".s.PGSQL.*[0-9]")
    listening = socket.create_server(("127.0.0.1", 0))
    done, answered = threading.Event(), threading.Event()
    threads = list[threading.Thread]()

    def pass_on(client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        writing = False
        with suppress(OSError):
            while data := client.recv(65536):
                writing = writing or b"LOCK TABLE entries" in data
                if b"COMMIT\0" in data and writing and not done.is_set():
                    done.set()
                    cut.set()
                    if forwarded:
                        server.sendall(data)
                        assert answered.wait(60)  # it is recorded; the answer is not passed on
                    break
                server.sendall(data)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def pass_back(client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError), client, server:
            while data := server.recv(65536):
                if cut.is_set():
                    answered.set()
                else:
                    client.sendall(data)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(there))
                ends = (client, server, threading.Event())
                for target in (pass_on, pass_back):
                    threads.append(threading.Thread(target=target, args=ends))
                    threads[-1].start()

    accepting = threading.Thread(target=serve)
    accepting.start()
    host, port = listening.getsockname()
    try:
        yield address.set(host=host, port=port, query={}).render_as_string(hide_password=False)
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for thread in (accepting, *threads):
            thread.join(timeout=60)


UNKNOWN = "outcome unknown; run the same command again"


@pytest.mark.parametrize("forwarded", [True, False])
def test_a_connection_lost_in_a_commit_leaves_the_outcome_unknown(
    postgres: str, forwarded: bool
) -> None:
    fresh_postgres(postgres).dispose()
    Ledger(postgres).close()
    with cut_at_commit(postgres, forwarded) as url:
        ledger = Ledger(url)
        with pytest.raises(LedgerError, match=UNKNOWN):
            ledger.deposit("treasury", 5, "first")
        assert ledger.deposit("treasury", 5, "first") is not forwarded
        assert ledger.balance("treasury") == 5
        ledger.close()


DISK = """
import ctypes, json, shutil, sys
from pathlib import Path
from fedprice.market.ledger import Ledger, LedgerError
disk, found = ctypes.CDLL(None), []
for n in range(1, 100):
    folder = Path(sys.argv[1]) / str(n)
    folder.mkdir()
    ledger = Ledger(str(folder / "market.db"))
    ledger.deposit("treasury", 5, "first")
    ledger.close()
    disk.disk_record(str(folder).encode(), b"/dev/null")
    ledger, other = (Ledger(str(folder / "market.db")) for _ in range(2))
    disk.disk_fail(n)
    try:
        ledger.deposit("treasury", 7, "second")
        said = ""
    except LedgerError as error:
        said = str(error)
    disk.disk_fail(0)
    image = folder / "image"  # what the disk holds, if the computer stops now
    image.mkdir()
    for name in ("market.db", "market.db-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, image)
    kept = Ledger(str(image / "market.db"), create=False)
    recorded = kept.balance("treasury") == 12
    kept.close()
    ledger.deposit("treasury", 7, "second")
    found.append([said, recorded, ledger.balance("treasury"), len(ledger.verify().hashes)])
    ledger.close()
    other.close()
    if not said:
        break
print(json.dumps(found))
"""


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler (cc)")
def test_a_failed_sync_does_not_say_that_nothing_was_recorded(tmp_path: Path) -> None:
    """Each write and sync of a deposit fails in turn; some that failed are on the disk."""
    command = [sys.executable, "-c", DISK, str(tmp_path)]
    done = subprocess.run(
        command, env=preloaded(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    *failed, (last, recorded, *_) = json.loads(done.stdout)
    assert (last, recorded) == ("", True)
    assert len(failed) >= 3
    assert any(recorded for _, recorded, *_ in failed)
    for said, recorded, balance, entries in failed:
        assert UNKNOWN in said or ("Nothing was recorded" in said and not recorded), said
        assert (balance, entries) == (12, 3)


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
    with pytest.raises(LedgerError, match="is not an SQLite database"):
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


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite:///file:{}?mode=rwc&uri=true"])
def test_a_device_is_refused_and_keeps_its_permissions(tmp_path: Path, form: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for name in (pipe, link):
        before = pipe.stat().st_mode
        with pytest.raises(InputError, match=f"{name} is not a regular file"):
            Ledger(form.format(name))
        assert pipe.stat().st_mode == before


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///{}?mode=ro", "of an SQLite URL.*'mode'"),
        ("sqlite:///{}?timeout=0", "of an SQLite URL.*'timeout'"),
        ("sqlite:///{}?foo=bar", "of an SQLite URL.*'foo'"),
        ("sqlite:///{}?uri=false", "of an SQLite URL.*'uri'"),
        ("sqlite:///file:{}?nolock=1&uri=true", "of an SQLite URL.*'nolock'"),
        ("sqlite:///file:{}?vfs=unix-none&uri=true", "of an SQLite URL.*'vfs'"),
        ("sqlite:///file:{}?immutable=1&uri=true", "of an SQLite URL.*'immutable'"),
        ("sqlite:///file:{}?mode=memory&uri=true", "of an SQLite URL.*'mode'"),
        ("sqlite:///file:{}?mode=ro&mode=rwc&uri=true", "of an SQLite URL.*'mode'"),
        ("sqlite://host/{}", "not a valid database URL"),
        ("sqlite://user:word@/{}", "not a valid database URL"),
        ("{}\nmore", "printable"),
        ("{}" + "x" * 300, "cannot open .*: File name too long"),
    ],
)
def test_odd_sqlite_urls_are_refused_and_leave_nothing(
    tmp_path: Path, url: str, message: str
) -> None:
    """Among them what would turn off locks, or what would be ignored."""
    with pytest.raises(InputError, match=message) as found:
        Ledger(url.format(tmp_path / "market.db"))
    assert "\n" not in str(found.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["full", "locked", "readonly", "malformed"])
def test_no_postgresql_there(tmp_path: Path, name: str) -> None:
    """Whatever the directory is called: a word in its name is no reason."""
    with pytest.raises(LedgerError, match="database error in "):
        Ledger(f"postgresql+psycopg:///market?host={tmp_path / name}")


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


def test_a_reader_that_cannot_write_sees_what_is_in_the_log_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    ledger.deposit("treasury", 5, "first")
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    reader = Ledger(str(path), create=False)
    assert reader.balance("treasury") == 5
    reader.close()
    ledger.close()
    reader = Ledger(str(path), create=False)
    assert reader.balance("treasury") == 5
    reader.close()
    assert [p.name for p in tmp_path.iterdir()] == ["market.db"]


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


def test_a_new_ledger_did_not_wait_for_its_log(tmp_path: Path) -> None:
    """SQLite refuses at once to start a log while somebody else is about to write."""
    path = tmp_path / "new.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    ends = threading.Timer(0.5, other.execute, ["ROLLBACK"])
    ends.start()
    Ledger(f"sqlite:///{path}").close()
    ends.join()
    other.close()


FILL = """
import resource, sys
import numpy as np
from fedprice.market.ledger import DamagedError, Delivered, Ledger, LedgerError
ledger = Ledger(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for r in range(ledger.rounds_done("run"), 40):
    try:
        joined = {"alice": Delivered(f"{r:064x}", "1.0", "1")}
        state = {"model": np.full(3_750, float(r))}
        ledger.record_round("run", r, model="ab" * 32, joined=joined, state=state)
    except LedgerError as error:
        print(r, error)
        sys.exit(5)
"""


def test_a_full_disk_leaves_no_partial_round_and_the_run_goes_on(tmp_path: Path) -> None:
    """The operating system refuses to let the files grow; then it lets them."""
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    ledger.deposit("treasury", 10**7, "first")
    ledger.open_unsigned("run", 10**7, {"alice": at_price(10**7, LEVEL_ONE)}, rounds=40)
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
        ledger.open_unsigned(name, 0, {}, rounds=1)
    with pytest.raises(InputError, match="1 to 200 printable characters"):
        ledger.open_unsigned("run", 0, {name: at_price(0, 0)}, rounds=1)
    with pytest.raises(InputError, match="an account must be treasury or client:NAME"):
        ledger.deposit("escrow:run", 5, "first")
    assert len(ledger.verify().hashes) == 1


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_databases_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    empty = tmp_path / "empty.db"
    empty.touch(0o666)
    before = os.umask(umask)
    try:
        names = [str(tmp_path / "market.db"), str(empty)]
        if umask != 0o777:  # SQLite itself could not open what it creates
            names.append(f"sqlite:///file:{tmp_path / 'uri.db'}?mode=rwc&uri=true")
        for name in names:
            ledger = Ledger(name)
            ledger.deposit("treasury", 5, "first")
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
            assert {modes[n] for n in modes if n.startswith(Path(ledger.name).name)} == {0o600}
            assert len(modes) >= 3
            ledger.close()
    finally:
        os.umask(before)


SECRET = "s3cr3tpassword"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://market:{SECRET}@127.0.0.1:1/market",
        f"postgresql://market@127.0.0.1:1/market?password={SECRET}&sslpassword={SECRET}",
        f"postgresql://market:{SECRET}@127.0.0.1:{SECRET}/market",
        f"postgresql://market:odd@{SECRET}@127.0.0.1:1/market",
        f"postgresql://market:{SECRET}@127.0.0.1:1/market?sslmode={SECRET}&password={SECRET}",
        f"postgresql:/market:{SECRET}@127.0.0.1:1/market",
        f"market:{SECRET}@127.0.0.1:1/market",
        f"sqlite:///postgresql://market:{SECRET}@127.0.0.1:1/market",
        f"mysql://market:{SECRET}@127.0.0.1:1/market",
    ],
)
def test_no_error_shows_a_password(url: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((LedgerError, InputError)) as caught:
        Ledger(url, timeout=2)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert not list(tmp_path.iterdir())


def test_a_ledger_whose_creation_lost_power_is_created_again(tmp_path: Path) -> None:
    """Nothing opened it until another program had: its journal was hot, beside a log."""
    begun, path = tmp_path / "begun.db", tmp_path / "market.db"
    raw = sqlite3.connect(begun, isolation_level=None)
    for text in ("PRAGMA cache_size = 1", "BEGIN", "CREATE TABLE first (x)"):
        raw.execute(text)
    raw.executemany("INSERT INTO first VALUES (?)", [("x" * 500,)] * 500)
    for end in ("", "-journal"):
        Path(f"{path}{end}").write_bytes(Path(f"{begun}{end}").read_bytes())
    raw.close()
    Path(f"{path}-wal").write_bytes(bytes(100))
    ledger = Ledger(str(path))
    ledger.deposit("treasury", 5, "first")
    assert ledger.verify().balances["treasury"] == 5
    ledger.close()
