"""Verification in the background: as far as it says, to the end, and no longer than its server."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedprice.market import verification as module
from fedprice.market.database import Database
from fedprice.market.inspection import Inspection
from fedprice.market.ledger import DamagedError, Ledger
from fedprice.market.ledger_errors import NoLedgerError
from fedprice.market.verification import Checked, Counts, Verification
from fedprice.verify import Books, describe
from tests.market.test_following import record, unsigned
from trials.markets import NAMES, ROUNDS, small_market

PATIENCE = 60.0  # seconds, on a busy machine


def until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def told(books: Books) -> tuple[object, ...]:
    """All that books say; coins are objects that equal themselves alone."""
    runs = {
        name: replace(run, clients={n: replace(own, coins=None) for n, own in run.clients.items()})
        for name, run in books.runs.items()
    }
    return runs, books.hashes, books.balances, books.keys, books.signatures, [*describe(books)]


def test_some_entries_at_a_time_give_the_books_of_all(url: str) -> None:
    """Whatever the number at a time, and while the ledger grows."""
    with pytest.raises(NoLedgerError):
        Database(url, read_only=True)
    ledger = Ledger(url)
    small_market(ledger, delivery=0.7)
    database = Database(url, read_only=True)
    inspection = Inspection(database)
    turns = 0
    while not inspection.go_on(7):
        turns += 1
        assert len(inspection.books.hashes) == 7 * turns
    assert told(inspection.books) == told(ledger.verify())
    unsigned(ledger, "more", 5)
    record(ledger, "more", 0, 5)
    assert not inspection.go_on(2)
    assert inspection.go_on(100)
    assert inspection.go_on(100)
    assert told(inspection.books) == told(ledger.verify())
    database.close()
    ledger.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE entries SET content = replace(content, 'missed', 'mised') WHERE round = 2",
         "entry 6 .* hash"),
        ("UPDATE entries SET content = 'x' WHERE round = 2", "cannot be read|is not JSON"),
        ("UPDATE accounts SET balance = balance + 1 WHERE name = 'treasury'",
         "the balances are not the sums"),
        ("UPDATE postings SET line = 66 WHERE line = (SELECT max(line) FROM postings)",
         "are not numbered in order"),
        ("UPDATE entries SET round = 77 WHERE round = 3", "the entry known as"),
        ("DELETE FROM postings WHERE entry > 4; DELETE FROM entries WHERE number > 4",
         "the balances are not the sums|state"),
        ("DELETE FROM postings WHERE entry IN (5, 6); DELETE FROM entries WHERE number IN (5, 6)",
         "number must be 5; found 7|entry 5 is missing"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("most", [1, 1000])
def test_the_first_thing_that_is_wrong_is_said(
    tmp_path: Path, change: str, said: str, most: int
) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    unsigned(ledger, "run", 6)
    record(ledger, "run", 0, 6)
    ledger.close()
    raw = sqlite3.connect(path, isolation_level=None)
    for name in (
        "entries_no_update",
        "entries_no_delete",
        "postings_no_update",
        "postings_no_delete",
    ):
        raw.execute(f"DROP TRIGGER {name}")
    raw.executescript(change)
    raw.close()
    database = Database(str(path), read_only=True)
    inspection = Inspection(database)
    with pytest.raises(DamagedError, match=said):
        any(inspection.go_on(most) for _ in range(20))
    database.close()


def test_a_ledger_that_is_cut_short_while_it_is_watched_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    unsigned(ledger, "run", 6)
    database = Database(str(path), read_only=True)
    inspection = Inspection(database)
    assert inspection.go_on(100)
    for file in tmp_path.iterdir():
        file.unlink()
    Ledger(str(path)).close()
    with pytest.raises(DamagedError, match="entry 2 is missing"):
        inspection.go_on(100)
    database.close()
    ledger.close()


def test_a_process_verifies_to_the_end_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "market.db"
    checking = Verification(str(path))
    try:
        assert checking.checked() == Checked()
        until(lambda: not checking._asked or checking.checked() == Checked())
        ledger = Ledger(str(path))
        small_market(ledger, delivery=0.7)
        until(lambda: checking.checked("run").is_verified)
        found, books = checking.checked("run"), ledger.verify()
        assert found.entries == found.of == len(books.hashes)
        assert found.rounds == ROUNDS
        assert found.clients == {
            name: Counts(own.heads, own.joined, own.missed, own.refused, own.paid)
            for name, own in books.runs["run"].clients.items()
        }
        assert list(found.clients or {}) == NAMES
        unsigned(ledger, "more", 5)
        record(ledger, "more", 0, 5)
        last = len(ledger.verify().hashes)
        until(lambda: checking.checked().entries == last)
        assert checking.checked("none").clients is None
        ledger.close()
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute("UPDATE accounts SET balance = balance + 1 WHERE name = 'treasury'")
        raw.close()
        until(lambda: checking.checked().is_damaged)
        assert "balances are not the sums" in str(checking.checked())
    finally:
        checking.close()
    assert not checking._process.is_alive()


PROGRAM = """
import sys, time
from fedprice.market.verification import Verification
if __name__ == "__main__":
    checking = Verification(sys.argv[1])
    while not checking.checked().is_verified:
        time.sleep(0.05)
    print(checking._process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.first_case
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_stays_behind(tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / "market.db"
    Ledger(str(path)).close()
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.send_signal(how)
    process.wait(60)
    process.stdout.close()
    until(lambda: not _is_there(child))


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that nobody waits for has ended.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_a_verification_that_rests_goes_on_afterwards(tmp_path: Path) -> None:
    url = str(tmp_path / "market.db")
    ledger = Ledger(url)
    small_market(ledger)
    verification = Verification(url)
    verification.rest()
    until(lambda: verification.checked().is_verified)
    verification.rest()
    unsigned(ledger, "more", 5)
    until(lambda: verification.checked().entries == ledger.head().number)
    verification.close()
    ledger.close()


def test_what_is_said_of_it() -> None:
    assert str(Checked()) == "not verified yet"
    assert str(Checked(5, 9)) == "verified to entry 5 of 9"
    assert str(Checked(5, 9, "entry 6 is missing.", True)) == "entry 6 is missing."
    assert module.PAUSE >= module.TURN


def test_ctrl_c_while_the_process_starts_shows_no_traceback(tmp_path: Path) -> None:
    program = f"""
import time
from fedprice.market.verification import Verification

try:
    verification = Verification("sqlite:///{tmp_path / "market.db"}")
    print("started", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    verification.close()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
