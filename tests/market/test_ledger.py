"""The ledger: money adds up, nothing is recorded twice, and nothing changes unnoticed."""

import re
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Delivered, Ledger, LedgerError, Refused
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import Terms
from fedprice.market.simulation import simulation_key
from fedprice.market.tariffs import Tariff
from fedprice.verify import LARGEST
from trials.markets import NEVER, agreed, at_price, deliver, paying
from trials.operations import random_operations

MODEL = "ab" * 32
TERMS = {"alice": paying(4_000_001), "bob": paying(-1_000_000), "carol": paying(0, NEVER)}


def opened(ledger: Ledger, rounds: int = 7) -> Ledger:
    ledger.deposit("treasury", 10_000_000, "start")
    ledger.deposit("client:bob", 2_000_000, "own")
    agreed(ledger, 4_000_000, TERMS, rounds=rounds)
    return ledger


def test_a_run_pays_exactly_what_was_agreed(ledger: Ledger) -> None:
    opened(ledger)
    for r in range(7):
        deliver(ledger, r, MODEL)
        assert ledger.balance("client:alice") == TERMS["alice"].payment * (r + 1) // 7
    ledger.settle("run")
    pay, owed = TERMS["alice"].payment, -TERMS["bob"].payment
    assert ledger.balances() == {
        "client:alice": pay,
        "client:bob": 2_000_000 - owed,
        "escrow:run": 0,
        "treasury": 10_000_000 - pay + owed,
        "world": -12_000_000,
    }
    # beginning, the server's key, deposits, offers, commitments, opening, rounds, settlement
    assert len(ledger.verify().hashes) == 1 + 1 + 2 + 1 + 1 + 1 + 7 + 1


def test_skipped_heads_are_not_paid_and_every_update_is_when_it_is_delivered(
    ledger: Ledger,
) -> None:
    """Tails were paid to whoever skipped its heads: skipping paid."""
    ledger.deposit("treasury", 10_000_000, "start")
    pay = 4_000_001
    ledger.open_unsigned("run", pay, {"alice": at_price(pay, LEVEL_ONE)}, rounds=7)
    update = [
        Delivered("ab" * 32, repr(float(gap)), "1") for gap in (4, 1, 1)
    ]  # three heads skipped: the next one counts for four
    paid = []
    for r in range(7):
        missed = ["alice"] if r in (1, 3) else []
        refused = {"alice": Refused("not finite")} if r == 2 else {}
        joined = {"alice": update[r - 4]} if r in (4, 5) else {}
        ledger.record_round("run", r, model=MODEL, missed=missed, refused=refused, joined=joined)
        paid.append(ledger.balance("client:alice"))
    assert paid == [0, 0, 0, 0, pay // 7, pay * 2 // 7, pay * 2 // 7]
    ledger.settle("run")
    assert ledger.balance("client:alice") == pay * 2 // 7
    assert ledger.balance("treasury") == 10_000_000 - pay * 2 // 7
    ledger.verify()


def test_an_early_end_refunds_payers(ledger: Ledger) -> None:
    opened(ledger)
    for r in range(3):
        deliver(ledger, r, MODEL)
    ledger.settle("run")
    pay, owed = TERMS["alice"].payment, -TERMS["bob"].payment
    assert ledger.balance("client:alice") == pay * 3 // 7
    assert ledger.balance("client:bob") == 2_000_000 - owed + owed * 4 // 7
    assert ledger.balance("escrow:run") == 0
    ledger.verify()


def test_again_is_nothing_and_otherwise_is_an_error(ledger: Ledger) -> None:
    opened(ledger)
    ledger.record_round("run", 0, model=MODEL, missed=["alice"])
    before = list(ledger.entries())
    ledger.record_round("run", 0, model=MODEL, missed=["alice"])
    ledger.deposit("treasury", 10_000_000, "start")
    assert list(ledger.entries()) == before
    other: dict[str, Any]
    for other in ({"model": "cd" * 32}, {"refused": {"alice": Refused("x")}}):
        with pytest.raises(
            LedgerError, match="round 1 of run 'run' is already recorded with different"
        ):
            ledger.record_round("run", 0, **{"model": MODEL, "missed": ["alice"]} | other)
    with pytest.raises(LedgerError, match="is already recorded with different content"):
        ledger.deposit("treasury", 10_000_001, "start")
    with pytest.raises(LedgerError, match="is already recorded with different content"):
        ledger.open_unsigned("run", 4_000_000, {}, rounds=8)
    with pytest.raises(LedgerError, match=r"round 3 of run 'run': it does not follow: 1 of 7"):
        ledger.record_round("run", 2, model=MODEL)
    ledger.settle("run")
    ledger.settle("run")
    with pytest.raises(LedgerError, match="is settled"):
        ledger.record_round("run", 1, model=MODEL)


def test_no_more_than_there_is(ledger: Ledger) -> None:
    ledger.deposit("treasury", 3_000_000, "start")
    with pytest.raises(LedgerError, match="overdraws treasury: 3000000 micro-units are there, 4"):
        ledger.open_unsigned("run", 4_000_000, {"alice": at_price(1, LEVEL_ONE)}, rounds=2)
    with pytest.raises(LedgerError, match=r"can cost 11 micro-units; its budget is 10"):
        ledger.open_unsigned("run", 10, {"alice": at_price(11, LEVEL_ONE)}, rounds=2)
    with pytest.raises(LedgerError, match="has no run 'rum'"):
        ledger.settle("rum")
    assert ledger.balances() == {"treasury": 3_000_000, "world": -3_000_000}
    assert len(ledger.verify().hashes) == 2
    with pytest.raises(LedgerError, match="overdraws client:bob: 0 micro-units are there, 5 are"):
        agreed(ledger, 10, {"bob": paying(-5)})
    assert ledger.balances() == {"treasury": 3_000_000, "world": -3_000_000}


def test_a_run_that_nobody_signed_takes_no_clients_money(ledger: Ledger) -> None:
    ledger.deposit("client:bob", 50, "own")
    with pytest.raises(LedgerError, match="the payment of 'bob' must lie between 0 and"):
        ledger.open_unsigned("run", 10, {"bob": at_price(-5, LEVEL_ONE)}, rounds=2)
    assert ledger.balance("client:bob") == 50


@pytest.mark.parametrize("done", range(4))
def test_a_run_can_be_settled_after_any_round(ledger: Ledger, done: int) -> None:
    """Payers' refunds and payees' shares are rounded so that the escrow suffices."""
    for name in "bc":
        ledger.deposit(f"client:{name}", 50, "own")
    agreed(ledger, 0, {"a": paying(100), "b": paying(-50), "c": paying(-50)}, rounds=3)
    for r in range(done):
        deliver(ledger, r, MODEL)
    ledger.settle("run")
    assert ledger.balance("escrow:run") == 0
    assert ledger.balance("client:a") == 100 * done // 3
    assert ledger.balance("client:b") == 50 * (3 - done) // 3
    ledger.verify()


def test_what_payers_bring_stays_until_the_run_is_settled(ledger: Ledger) -> None:
    """A server that earns cannot spend what it may have to give back."""
    ledger.deposit("client:b", 100, "own")
    agreed(ledger, -60, {"b": paying(-100)}, rounds=2)
    assert ledger.balance("treasury") == 0
    with pytest.raises(LedgerError, match="overdraws treasury: 0 micro-units"):
        ledger.open_unsigned("other", 60, {}, rounds=1)
    ledger.settle("run")
    assert ledger.balance("client:b") == 100


@pytest.mark.parametrize("wrong", [True, 1.0, "10", None])
def test_whole_numbers_only(ledger: Ledger, wrong: Any) -> None:
    opened(ledger)
    before = [entry.hash for entry in ledger.entries()]
    for attempt in (
        partial(ledger.deposit, "treasury", wrong, "x"),
        partial(ledger.open_unsigned, "r", wrong, {}, rounds=1),
        partial(ledger.open_unsigned, "r", 0, {}, rounds=wrong),
        partial(ledger.record_round, "run", wrong, model=MODEL),
        partial(ledger.record_round, "run", 0, model=wrong),
    ):
        with pytest.raises(FedpriceError, match="must be"):
            attempt()
    assert [entry.hash for entry in ledger.entries()] == before


def test_verification_sees_one_moment(url: str) -> None:
    """Beside a writer that never rests."""
    ledger, stop = Ledger(url), threading.Event()

    def write() -> None:
        other = Ledger(url)
        for i in range(10_000):
            if stop.is_set():
                break
            other.deposit("treasury", 1 + i, str(i))
        other.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(15):
            ledger.verify()
            report, entries = ledger.verified()
            assert [entry.hash for entry in entries] == report.hashes
    finally:
        stop.set()
        thread.join(timeout=60)
        ledger.close()


def test_money_stays_within_whole_numbers(ledger: Ledger) -> None:
    ledger.deposit("treasury", LARGEST - 5, "all")
    for amount in (6, 10**30):
        with pytest.raises(LedgerError, match=r"overdraws world|`amount` must be a whole number"):
            ledger.deposit("treasury", amount, "more")
    ledger.open_unsigned("run", LARGEST - 5, {"a": at_price(LARGEST - 5, LEVEL_ONE)}, rounds=2)
    for r in range(2):
        joined = {"a": Delivered(f"{r:064x}", "1.0", "1")}
        ledger.record_round("run", r, model=MODEL, joined=joined)
    assert ledger.balance("client:a") == LARGEST - 5
    ledger.verify()
    with pytest.raises(FedpriceError, match="`level` must be a whole number"):
        Terms(Tariff.flat(1, LEVEL_ONE), LEVEL_ONE + 1)


def test_a_state_is_that_of_the_last_round(ledger: Ledger) -> None:
    deliver(opened(ledger), 0, MODEL, state={"model": np.arange(3.0)})
    state = ledger.progress("run")[1]
    assert state is not None
    assert {name: array.tolist() for name, array in state.items()} == {"model": [0.0, 1.0, 2.0]}
    deliver(ledger, 1, MODEL)
    rounds, state = ledger.progress("run")
    assert (len(rounds), state) == (2, None)
    assert ledger.rounds("run") == rounds
    ledger.verify()


def test_unknown_clients_are_named(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="names 'alise', which is not in the run"):
        opened(ledger).record_round("run", 0, model=MODEL, missed=["alise"])


def test_random_operations_keep_the_books(ledger: Ledger) -> None:
    """`make bench-market` does a million."""
    found = random_operations(ledger, 3000)
    assert (found["sum of postings"], found["overspent"]) == (0, 0)
    assert found["entries"] > 500
    assert found["refused"] > 500


class Books(RuleBasedStateMachine):
    """The ledger against the simplest model of it: a few numbers in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger("sqlite://")
        self.balances: dict[str, int] = {}
        self.runs: dict[str, tuple[int, dict[str, Terms], int, bool]] = {}
        self.deposits: dict[tuple[str, str], int] = {}
        self.delivered: dict[str, dict[str, int]] = {}
        self.paid: dict[str, dict[str, int]] = {}

    def move(self, account: str, amount: int) -> None:
        self.balances[account] = self.balances.get(account, 0) + amount

    @rule(
        account=st.sampled_from(["treasury", "client:a", "client:b", "client:c"]),
        amount=st.integers(1, 1000),
        reference=st.sampled_from("xyz"),
    )
    def deposit(self, account: str, amount: int, reference: str) -> None:
        before = self.deposits.setdefault((account, reference), amount)
        if before != amount:
            with pytest.raises(LedgerError):
                self.ledger.deposit(account, amount, reference)
            return
        if self.ledger.balance(account) == self.balances.get(account, 0):
            self.ledger.deposit(account, amount, reference)
            if self.ledger.balance(account) != self.balances.get(account, 0):
                self.move("world", -amount)
                self.move(account, amount)

    @rule(
        run=st.sampled_from("pq"),
        budget=st.integers(-300, 800),
        prices=st.dictionaries(st.sampled_from("abc"), st.integers(-300, 500)),
        rounds=st.integers(1, 4),
    )
    def open_run(self, run: str, budget: int, prices: dict[str, int], rounds: int) -> None:
        """Run p is one that nobody signed, in run q there may be payers."""
        if run == "p":
            prices = {name: abs(price) for name, price in prices.items()}
        terms = {name: paying(p) for name, p in prices.items()}
        owed = {f"client:{n}": -p for n, p in prices.items() if p < 0}
        possible = (
            run not in self.runs
            and sum(prices.values()) <= budget
            and budget <= max(0, self.balances.get("treasury", 0))
            and all(self.balances.get(account, 0) >= due for account, due in owed.items())
        )
        if run == "q" and not (possible and prices):
            return  # offers would remain
        if possible:
            if run == "p":
                self.ledger.open_unsigned(run, budget, terms, rounds=rounds)
            else:
                agreed(self.ledger, budget, terms, run, rounds)
            self.runs[run] = (rounds, terms, 0, False)
            self.delivered[run] = dict.fromkeys(terms, 0)
            self.paid[run] = dict.fromkeys(terms, 0)
            self.move("treasury", -max(budget, 0))
            self.move(f"escrow:{run}", max(budget, 0) + sum(owed.values()))
            for account, due in owed.items():
                self.move(account, -due)
        elif run not in self.runs:
            with pytest.raises(LedgerError):
                self.ledger.open_unsigned(run, budget, terms, rounds=rounds)

    @rule(run=st.sampled_from("pq"), missed=st.sets(st.sampled_from("abc")), skip=st.booleans())
    def record(self, run: str, missed: set[str], skip: bool) -> None:
        rounds, terms, done, settled = self.runs.get(run, (0, {}, 0, False))
        names = [name for name in missed if name in terms and run == "p"]
        if skip or settled or done >= rounds:
            with pytest.raises(LedgerError):
                self.ledger.record_round(run, done + skip, model=MODEL, missed=names)
            return
        books = self.ledger.run(run)
        joined = {n: Delivered("ab" * 32, repr(books.weight(n)), "1") for n in names}
        drew = [n for n, own in books.clients.items() if own.coins and own.coins.heads(done)]
        self.ledger.record_round(run, done, model=MODEL, joined=joined, missed=drew)
        self.runs[run] = (rounds, terms, done + 1, settled)
        for name, own in terms.items():
            self.delivered[run][name] += name in names
            due = max(0, own.payment) * self.delivered[run][name] // rounds
            share = due - self.paid[run][name]
            self.paid[run][name] += share
            self.move(f"client:{name}", share)
            self.move(f"escrow:{run}", -share)

    @rule(run=st.sampled_from("pq"))
    def settle(self, run: str) -> None:
        if run not in self.runs:
            with pytest.raises(LedgerError):
                self.ledger.settle(run)
            return
        self.ledger.settle(run)
        rounds, terms, done, settled = self.runs[run]
        if not settled:
            self.runs[run] = (rounds, terms, done, True)
            for name, own in terms.items():
                if own.payment < 0:
                    back = -own.payment * (rounds - done) // rounds
                    self.move(f"client:{name}", back)
                    self.move(f"escrow:{run}", -back)
            self.move("treasury", self.balances.get(f"escrow:{run}", 0))
            self.balances[f"escrow:{run}"] = 0

    @invariant()
    def agrees(self) -> None:
        there = {name: amount for name, amount in self.ledger.balances().items() if amount}
        assert there == {name: amount for name, amount in self.balances.items() if amount}

    def teardown(self) -> None:
        self.ledger.verify()
        self.ledger.close()


TestBooks = Books.TestCase
TestBooks.settings = settings(stateful_step_count=30)


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


CHANGES = [
    "UPDATE entries SET content = replace(content, 'alice', 'alicf') WHERE number = 5",
    "UPDATE entries SET hash = replace(hash, 'a', 'b') WHERE number = 2",
    "UPDATE entries SET signature = replace(signature, 'a', 'b') WHERE number = 8",
    "UPDATE entries SET signature = '' WHERE number = 8",
    "UPDATE entries SET key = '[]' WHERE number = 1",
    "UPDATE entries SET run = 'other' WHERE number = 8",
    "UPDATE entries SET round = 3 WHERE number = 8",
    "UPDATE entries SET number = 9 WHERE number = 8",
    "UPDATE entries SET content = x'00' WHERE number = 8",
    "DELETE FROM entries WHERE number = 2",
    "DELETE FROM entries WHERE number = 8",
    "UPDATE postings SET amount = amount + 1 WHERE entry = 8",
    "UPDATE postings SET account = 0 WHERE entry = 8 AND line = 1",
    "UPDATE postings SET entry = 6 WHERE entry = 8",
    "UPDATE postings SET line = 7 WHERE entry = 8 AND line = 0",
    "DELETE FROM postings WHERE entry = 8",
    "UPDATE accounts SET balance = balance + 1 WHERE name = 'client:alice'",
    "UPDATE accounts SET balance = 0.5 WHERE name = 'client:alice'",
    "DELETE FROM accounts WHERE name = 'world'",
    "UPDATE states SET run = 'other'",
    "UPDATE states SET done = 2",
    "UPDATE states SET done = 0.5",
    "UPDATE states SET arrays = CAST(arrays AS BLOB)",
    "UPDATE states SET arrays = replace(arrays, 'f8', 'i8')",
    "UPDATE states SET arrays = replace(arrays, 'model', 'modem')",
    "UPDATE states SET arrays = replace(arrays, '[3]', '[1,3]')",
    "UPDATE states SET arrays = replace(arrays, '[3]', '[4]')",
    "UPDATE states SET arrays = replace(arrays, '[3]', '[true]')",
    "UPDATE states SET arrays = replace(arrays, '[3]', '[-3]')",
    "UPDATE states SET arrays = replace(arrays, '[3]', '[999999999999]')",
    "UPDATE states SET arrays = replace(arrays, '<f8', '|O')",
    "UPDATE states SET arrays = replace(arrays, '<f8', '?!')",
    "UPDATE states SET arrays = '{}'",
    "UPDATE states SET arrays = '[1]'",
    "UPDATE states SET arrays = '['",
    "UPDATE states SET arrays = '[]'",
    "UPDATE states SET digest = replace(replace(digest, 'a', 'b'), '1', '2')",
    "DELETE FROM states",
    "UPDATE state_parts SET bytes = x'01'",
    "UPDATE state_parts SET bytes = zeroblob(24)",
    "UPDATE state_parts SET bytes = 123456789012345678901234",
    "UPDATE state_parts SET number = 1",
    "UPDATE state_parts SET run = 'other'",
    "INSERT INTO state_parts SELECT run, 1, bytes FROM state_parts",
    "INSERT INTO state_parts SELECT 'other', 0, bytes FROM state_parts",
    "DELETE FROM state_parts",
    "UPDATE alembic_version SET version_num = 'fedprice_0000'",
    "DROP INDEX entries_of_run",
    None,  # the triggers are gone
]
SQLITE_ONLY = [
    c for c in CHANGES if c and re.search("x'|zeroblob|bytes = [0-9]|done = 0.5|BLOB", c)
]


def open_and_verify(url: str) -> None:
    """Damage is found where a ledger is opened, or when it is inspected."""
    ledger = Ledger(url)
    try:
        ledger.verify()
    finally:
        ledger.close()


def test_changes_do_not_go_unnoticed(tmp_path: Path) -> None:
    """Each stored field of a ledger, changed by hand, is found."""
    path = tmp_path / "market.db"
    ledger = opened(Ledger(f"sqlite:///{path}", identity="ab" * 32))
    deliver(ledger, 0, MODEL, state={"model": np.arange(3.0)})
    ledger.verify()
    ledger.close()
    with sqlite3.connect(path) as source:
        triggers = source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        restore = dict(triggers.fetchall())
    source.close()
    for change in CHANGES:
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
        with pytest.raises(LedgerError):
            open_and_verify(f"sqlite:///{copy}")
        for part in tmp_path.glob("copy.db*"):
            part.unlink()


@pytest.mark.slow
def test_changes_do_not_go_unnoticed_on_postgresql(postgres: str) -> None:
    """The same changes, made by somebody who switches the rules off and on again."""
    address = sqlalchemy.make_url(postgres)

    def create(name: str, template: str = "template1") -> str:
        engine = sqlalchemy.create_engine(postgres, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        engine.dispose()
        return address.set(database=name).render_as_string(hide_password=False)

    ledger = opened(Ledger(create("unchanged"), identity="ab" * 32))
    deliver(ledger, 0, MODEL, state={"model": np.arange(3.0)})
    ledger.verify()
    ledger.close()
    for number, change in enumerate([*(c for c in CHANGES if c and c not in SQLITE_ONLY), *RULES]):
        url = create(f"changed{number}", "unchanged")
        engine = sqlalchemy.create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql("SET session_replication_role = replica")
            connection.exec_driver_sql(change)
            connection.exec_driver_sql("SET session_replication_role = DEFAULT")
        engine.dispose()
        with pytest.raises(LedgerError):
            open_and_verify(url)


RULES = (
    "ALTER TABLE accounts DROP CONSTRAINT no_overdraft",
    "DROP TRIGGER entries_append_only ON entries",
    "ALTER TABLE postings DISABLE TRIGGER postings_append_only",
)


def test_a_ledger_cut_short_is_known_by_its_head(tmp_path: Path) -> None:
    """What the chain cannot show by itself, a hash that somebody kept does."""
    path = tmp_path / "market.db"
    ledger = opened(Ledger(str(path)))
    ledger.close()
    before = path.read_bytes()
    ledger = Ledger(str(path), key=simulation_key("server"))
    deliver(ledger, 0, MODEL)
    head = ledger.verify().hashes[-1]
    ledger.close()
    path.write_bytes(before)
    ledger = Ledger(str(path))
    ledger.verify()
    with pytest.raises(LedgerError, match="truncated or rewritten"):
        ledger.verify(head)
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
        "INSERT INTO entries SELECT * FROM entries WHERE number = 1",
    ):
        with pytest.raises(sqlalchemy.exc.DBAPIError), engine.begin() as connection:
            connection.exec_driver_sql(change)
    if engine.dialect.name == "sqlite":
        for table in ("entries", "postings"):
            with pytest.raises(sqlalchemy.exc.DBAPIError), engine.begin() as connection:
                connection.exec_driver_sql(f"REPLACE INTO {table} SELECT * FROM {table} LIMIT 1")
    engine.dispose()
