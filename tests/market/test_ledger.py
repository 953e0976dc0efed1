"""The ledger: money adds up, nothing is recorded twice, and nothing changes unnoticed."""

import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import Terms

MODEL = "ab" * 32
TERMS = {
    "alice": Terms(8_000_001, LEVEL_ONE // 2),
    "bob": Terms(-3_000_000, LEVEL_ONE // 3),
    "carol": Terms(0, LEVEL_ONE),
}


def opened(ledger: Ledger, rounds: int = 7) -> Ledger:
    ledger.deposit("treasury", 10_000_000, "start")
    ledger.deposit("client:bob", 2_000_000, "own")
    ledger.open_run("run", 4_000_000, TERMS, rounds=rounds)
    return ledger


def test_a_run_pays_exactly_what_was_agreed(ledger: Ledger) -> None:
    opened(ledger)
    for r in range(7):
        ledger.record_round("run", r, model=MODEL)
    ledger.settle("run")
    pay, owed = TERMS["alice"].payment, -TERMS["bob"].payment
    assert ledger.balances() == {
        "client:alice": pay,
        "client:bob": 2_000_000 - owed,
        "escrow:run": 0,
        "treasury": 10_000_000 - pay + owed,
        "world": -12_000_000,
    }
    assert len(ledger.verify().hashes) == 1 + 2 + 1 + 7 + 1


def test_broken_words_earn_nothing_and_an_early_end_refunds_payers(ledger: Ledger) -> None:
    opened(ledger)
    ledger.record_round("run", 0, model=MODEL, missed=["alice"])
    ledger.record_round("run", 1, model=MODEL, refused={"alice": "not finite"})
    ledger.record_round("run", 2, model=MODEL)  # tails: it kept its word
    ledger.settle("run")
    pay, owed = TERMS["alice"].payment, -TERMS["bob"].payment
    assert ledger.balance("client:alice") == pay * 3 // 7 - pay * 2 // 7
    assert ledger.balance("client:bob") == 2_000_000 - owed * 3 // 7
    assert ledger.balance("escrow:run") == 0
    ledger.verify()


def test_again_is_nothing_and_otherwise_is_an_error(ledger: Ledger) -> None:
    opened(ledger)
    ledger.record_round("run", 0, model=MODEL)
    before = list(ledger.entries())
    ledger.record_round("run", 0, model=MODEL)
    ledger.deposit("treasury", 10_000_000, "start")
    ledger.open_run("run", 4_000_000, TERMS, rounds=7)
    assert list(ledger.entries()) == before
    for other in ({"missed": ["alice"]}, {"refused": {"alice": "x"}}, {"state": b"x"}):
        with pytest.raises(LedgerError, match="round run 0 is recorded already, with other"):
            ledger.record_round("run", 0, model=MODEL, **other)
    with pytest.raises(LedgerError, match="is recorded already, with other content"):
        ledger.deposit("treasury", 10_000_001, "start")
    with pytest.raises(LedgerError, match="is recorded already, with other content"):
        ledger.open_run("run", 4_000_000, TERMS, rounds=8)
    with pytest.raises(LedgerError, match=r"round 2 of run 'run' cannot follow: 1 of 7"):
        ledger.record_round("run", 2, model=MODEL)
    ledger.settle("run")
    ledger.settle("run")
    with pytest.raises(LedgerError, match="is settled"):
        ledger.record_round("run", 1, model=MODEL)


def test_no_more_than_there_is(ledger: Ledger) -> None:
    ledger.deposit("treasury", 3_000_000, "start")
    with pytest.raises(LedgerError, match="treasury has 3000000 micro-units; 4000000 are needed"):
        ledger.open_run("run", 4_000_000, {"alice": Terms(1, LEVEL_ONE)}, rounds=2)
    with pytest.raises(LedgerError, match="client:bob has 0 micro-units"):
        ledger.open_run("run", 10, {"bob": Terms(-5, LEVEL_ONE)}, rounds=2)
    with pytest.raises(LedgerError, match=r"needs 11 micro-units .* its budget is 10"):
        ledger.open_run("run", 10, {"alice": Terms(11, LEVEL_ONE)}, rounds=2)
    with pytest.raises(LedgerError, match="has no run 'rum'"):
        ledger.settle("rum")
    assert ledger.balances() == {"treasury": 3_000_000, "world": -3_000_000}
    assert len(ledger.verify().hashes) == 2


def test_unknown_clients_are_named(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="Did you mean 'alice'"):
        opened(ledger).record_round("run", 0, model=MODEL, missed=["alise"])


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
                ledger.record_round(run, int(rng.integers(6)), model=MODEL)
        except FedpriceError:
            refused += 1
    balances = ledger.balances()
    assert sum(balances.values()) == 0
    assert all(amount >= 0 for name, amount in balances.items() if name != "world")
    assert len(ledger.verify().hashes) > 50
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
    assert len(ledger.verify().hashes) == 201
    assert all(ledger.balance(f"client:{n}") == 325 for n in range(8))
    ledger.close()


def test_changes_do_not_go_unnoticed(tmp_path: Path) -> None:
    """Each stored field of a ledger, changed by hand, is found."""
    path = tmp_path / "market.db"
    ledger = opened(Ledger(f"sqlite:///{path}"))
    ledger.record_round("run", 0, model=MODEL, state=b"what the run needs")
    ledger.verify()
    ledger.close()
    with sqlite3.connect(path) as source:
        triggers = source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        restore = dict(triggers.fetchall())
    source.close()
    changes = [
        "UPDATE entries SET content = replace(content, 'alice', 'alicf') WHERE number = 4",
        "UPDATE entries SET hash = replace(hash, 'a', 'b') WHERE number = 2",
        "UPDATE entries SET key = '[]' WHERE number = 1",
        "UPDATE entries SET run = 'other' WHERE number = 5",
        "UPDATE entries SET round = 3 WHERE number = 5",
        "UPDATE entries SET number = 9 WHERE number = 5",
        "UPDATE entries SET content = x'00' WHERE number = 5",
        "DELETE FROM entries WHERE number = 2",
        "DELETE FROM entries WHERE number = 5",
        "UPDATE postings SET amount = amount + 1 WHERE entry = 5",
        "UPDATE postings SET account = 0 WHERE entry = 5 AND line = 1",
        "UPDATE postings SET entry = 6 WHERE entry = 5",
        "UPDATE postings SET line = 7 WHERE entry = 5 AND line = 0",
        "DELETE FROM postings WHERE entry = 5",
        "UPDATE accounts SET balance = balance + 1 WHERE name = 'client:alice'",
        "UPDATE accounts SET balance = 0.5 WHERE name = 'client:alice'",
        "DELETE FROM accounts WHERE name = 'world'",
        "UPDATE states SET state = x'01'",
        "UPDATE states SET run = 'other'",
        "DELETE FROM states",
        "UPDATE alembic_version SET version_num = 'fedprice_0000'",
        "DROP INDEX entries_of_run",
        None,  # the triggers are gone
    ]
    for change in changes:
        copy = tmp_path / "copy.db"
        with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
            source.backup(target)
            for name in restore:
                target.execute(f"DROP TRIGGER {name}")
            if change is not None:
                assert target.execute(change).rowcount != 0
                for text in restore.values():
                    target.execute(text)
            target.commit()
        source.close()
        target.close()
        with pytest.raises(LedgerError):  # where it is opened, or when it is inspected
            Ledger(f"sqlite:///{copy}").verify()
        for part in tmp_path.glob("copy.db*"):
            part.unlink()


def test_a_ledger_cut_short_is_known_by_its_head(tmp_path: Path) -> None:
    """What the chain cannot show by itself, a hash that somebody kept does."""
    path = tmp_path / "market.db"
    ledger = opened(Ledger(str(path)))
    ledger.close()
    before = path.read_bytes()
    ledger = Ledger(str(path))
    ledger.record_round("run", 0, model=MODEL)
    head = ledger.verify().hashes[-1]
    ledger.close()
    path.write_bytes(before)
    ledger = Ledger(str(path))
    ledger.verify()
    with pytest.raises(LedgerError, match="cut short or written anew"):
        ledger.verify(head=head)
    ledger.close()


def test_the_database_refuses_changes_and_overdrafts(url: str) -> None:
    """Even to whoever goes around this code."""
    ledger = opened(Ledger(url))
    ledger.close()
    engine = sqlalchemy.create_engine(url)
    for change in (
        "UPDATE entries SET hash = ''",
        "DELETE FROM entries WHERE number = 1",
        "UPDATE postings SET amount = 0",
        "DELETE FROM postings",
        "UPDATE accounts SET balance = -1 WHERE name = 'treasury'",
    ):
        with pytest.raises(sqlalchemy.exc.DBAPIError), engine.begin() as connection:
            connection.exec_driver_sql(change)
    engine.dispose()
