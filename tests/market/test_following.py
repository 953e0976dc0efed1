"""A ledger that is followed: what `Ledger` says of it, read only, at the same cost to the end."""

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy

from benchmarks.large_ledger import large_ledger
from fedprice.market import following as module
from fedprice.market import period_reader
from fedprice.market.database import Database
from fedprice.market.following import Following
from fedprice.market.keys import simulation_key
from fedprice.market.ledger import DamagedError, Delivered, Ledger, Refused
from fedprice.market.ledger_errors import LedgerError, NoLedgerError, NoRunError
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.offers import Terms
from fedprice.market.simulation import simulate_market
from fedprice.market.tariffs import Tariff
from trials.honest import hash_of
from trials.markets import (
    NAMES,
    ROUNDS,
    agreed,
    at_price,
    offered,
    small_market,
    small_outcome,
    small_task,
)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken from the last half second."""
    monkeypatch.setattr(module, "FRESH", 0.0)


@pytest.fixture
def followed(url: str) -> Iterator[Following]:
    found = Following(url)
    yield found
    found.close()


def compare(ledger: Ledger, followed: Following) -> None:
    """Everything that is followed is what the replayed books say."""
    books = ledger.books
    seen = {own.name: own for own in followed.runs()}
    assert list(seen) == sorted(
        [*books.runs, *books.offered], key=lambda name: next(ledger.entries(name)).number
    )
    for name, run in books.runs.items():
        own, view = seen[name], followed.run(name)
        assert view.summary == own
        assert (own.rounds, own.done, own.clients) == (run.rounds, run.done, len(run.clients))
        assert (own.budget, own.follows) == (run.budget, run.follows)
        assert own.state == ("settled" if run.settled else "open")
        paid = [client.paid for client in run.clients.values()]
        assert own.paid_out == sum(amount for amount in paid if amount > 0)
        assert own.paid_in == -sum(amount for amount in paid if amount < 0)
        for client, terms in view.terms.items():
            expected = run.clients[client]
            assert (terms.level, terms.payment) == (expected.level, expected.payment)
            assert (terms.samples, terms.key) == (expected.samples, expected.key)
        assert list(view.terms) == list(run.clients)
        rounds = [own for own in ledger.entries(name) if own.content["kind"] == "round"]
        for seen_round, entry in zip(view.newest, rounds[::-1], strict=False):
            assert entry.content["of"] == [name, seen_round.round]
            assert seen_round.joined == tuple(entry.content["joined"])
            assert seen_round.missed == tuple(entry.content["missed"])
            reasons = {client: own[0] for client, own in entry.content["refused"].items()}
            assert seen_round.refused == reasons
            assert seen_round.paid == sum(amount for _, amount in entry.postings if amount > 0)
        assert len(view.newest) == min(run.done, period_reader.NEWEST)
        total, sums = 0, {}
        for done, entry in enumerate(rounds, start=1):
            total += sum(amount for _, amount in entry.postings if amount > 0)
            counts = (len(entry.content[what]) for what in ("joined", "missed", "refused"))
            sums[done] = (done, total, *counts)
        assert [tuple(point) for point in view.history] == [
            sums[point.done] for point in view.history
        ]
        assert (view.history[-1].done if view.history else 0) == run.done
        known = ledger.metrics(name)
        assert [own for own in view.metrics if own in known] == list(view.metrics)
        assert view.metrics[-1:] == tuple(known[-1:])


def test_a_market_is_followed_as_it_is_recorded(url: str, followed: Following) -> None:
    """From outside while it is trained, after every round; then a second one beside it."""
    ledger, task = Ledger(url), small_task()
    for name, delivery in (("run", 0.7), ("<b>second</b>", 1.0)):
        watching: list[int] = []

        def look(done: int, watching: list[int] = watching) -> None:
            compare(ledger, followed)
            watching.append(done)

        simulate_market(
            task, small_outcome(task.federation), ledger=ledger, run=name, evaluate_every=5,
            delivery=np.full(4, delivery), seed=3, threads=1, progress=look, metrics=True,
        )  # fmt: skip
        assert watching[-1] == ROUNDS
        compare(ledger, followed)
    view = followed.run("run")
    assert [own.round for own in view.metrics] == [0, 5, 10, 12]
    assert set(view.terms) == set(NAMES)
    assert (view.unit, view.goes_on, view.ends) == ("CREDIT", "", "")
    ledger.close()


def test_periods_are_followed_as_a_chain(url: str, followed: Following) -> None:
    ledger, task = Ledger(url), small_task()
    outcome = small_outcome(task.federation)
    how: dict[str, Any] = {"ledger": ledger, "threads": 1, "metrics": True}
    simulate_market(task, outcome, run="run", rounds=5, **how)
    compare(ledger, followed)
    simulate_market(task, outcome, run="run#2", follows="run", rounds=7, **how)
    compare(ledger, followed)
    first, second = followed.run("run"), followed.run("run#2")
    assert first.periods == second.periods == (first.summary, second.summary)
    assert (first.before, second.before) == (0, 5)
    assert (second.summary.run, second.summary.period) == ("run", 2)
    assert second.metrics[-1].round == second.summary.run_rounds == ROUNDS
    ledger.close()


def test_offers_and_refusals_are_followed(url: str, followed: Following) -> None:
    ledger = Ledger(url)
    terms = {"alice": at_price(3 * MICRO, LEVEL_ONE), "bob": at_price(MICRO, LEVEL_ONE)}
    bargain = offered(ledger, terms, "signed")
    (own,) = followed.runs()
    assert (own.state, own.clients, own.rounds, own.done) == ("offered", 2, 7, 0)
    assert followed.run("signed").terms == {}
    del bargain
    ledger.settle("signed")
    assert [own.state for own in followed.runs()] == ["settled"]
    ledger.deposit("treasury", 9 * MICRO, "own")
    bare = {name: Terms(Tariff.flat(MICRO, LEVEL_ONE), LEVEL_ONE) for name in terms}
    ledger.open_unsigned("bare", 2 * MICRO, bare, rounds=3)
    compare_open = followed.run("bare")
    assert (compare_open.history, compare_open.newest, compare_open.metrics) == ((), (), ())
    ledger.record_round(
        "bare", 0, model="0" * 64, missed=["bob"], refused={"alice": Refused("<i>too long</i>")}
    )
    view = followed.run("bare")
    assert view.newest[0].refused == {"alice": "<i>too long</i>"}
    assert view.newest[0].heads == 2
    ledger.close()


def quick(url: str) -> Ledger:
    """A ledger that does not wait for the disk: it writes many rounds, and no power is cut."""
    ledger = Ledger(url)
    ledger._database._engine.dispose()
    if url.startswith("sqlite") or "://" not in url:
        sqlalchemy.event.listen(
            ledger._database._engine,
            "connect",
            lambda raw, _: raw.execute("PRAGMA synchronous = OFF"),
        )
    return ledger


def unsigned(ledger: Ledger, run: str, rounds: int) -> None:
    """Open a run with two clients that are paid in every round."""
    ledger.deposit("treasury", 2 * MICRO, run)
    terms = {n: Terms(Tariff.flat(MICRO, LEVEL_ONE), LEVEL_ONE) for n in ("alice", "bob")}
    ledger.open_unsigned(run, 2 * MICRO, terms, rounds=rounds)


def record(ledger: Ledger, run: str, first: int, end: int) -> None:
    """Record rounds with metrics; bob misses some."""
    for r in range(first, end):
        names = ["alice"] if r % 5 == 0 else ["alice", "bob"]
        weights = {name: repr(ledger.run(run).weight(name)) for name in names}
        joined = {n: Delivered(hash_of(f"{n} {r}"), weights[n], "1") for n in names}
        ledger.record_round(
            run, r, model="0" * 64, joined=joined, missed=["bob"] if r % 5 == 0 else []
        )
        if r % 3 == 0:
            ledger.record_metrics(run, r + 1, "server", {"loss": 1 / (r + 1)})


def test_a_long_history_is_thinned_evenly(
    followed: Following, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the rounds come: all at once to one who looks late, or one by one."""
    monkeypatch.setattr(period_reader, "POINTS", 16)
    monkeypatch.setattr(period_reader, "NEWEST", 4)
    ledger = quick(url)
    unsigned(ledger, "run", 200)
    for done in (*range(1, 40, 3), 90, 151, 200):
        record(ledger, "run", ledger.rounds_done("run"), done)
        compare(ledger, followed)
        late = Following(url)
        view, other = followed.run("run"), late.run("run")
        late.close()
        assert view.history == other.history
        assert [own.round for own in view.metrics] == [own.round for own in other.metrics]
        assert len(view.history) <= 17
        steps = np.diff([point.done for point in view.history])
        assert set(steps[:-1].tolist()) <= {steps[0]} if len(steps) else True
        assert done < 16 or len(view.history) >= 8
        assert len(view.metrics) <= 18
    ledger.close()


def test_long_entries_are_read_a_few_at_a_time(
    followed: Following, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of 10,000 clients takes megabytes; fifty of them would take seconds."""
    ledger = quick(url)
    unsigned(ledger, "run", 100)
    record(ledger, "run", 0, 100)
    monkeypatch.setattr(period_reader, "NEWEST_TEXT", 1000)
    monkeypatch.setattr(period_reader, "POINTS_TEXT", 1000)
    view = followed.run("run")
    assert 1 <= len(view.newest) < 10
    assert 10 < len(view.history) <= 21
    assert view.newest[0].round == 99
    ledger.close()


def test_an_update_costs_the_same_at_the_end_as_at_the_beginning(tmp_path: Path) -> None:
    """By the steps of SQLite's virtual machine, which neither caches nor other programs change."""
    url, steps = str(tmp_path / "market.db"), 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    ledger = quick(url)
    unsigned(ledger, "other", 1)
    unsigned(ledger, "run", 10_000)
    followed = Following(url)
    followed.runs()
    assert followed._database is not None
    sqlalchemy.event.listen(
        followed._database._engine, "connect", lambda raw, _: raw.set_progress_handler(step, 1)
    )
    costs = []
    done = 0
    for until in (300, 1500):
        record(ledger, "run", done, until)
        followed.run("run")
        steps = 0
        for r in range(until, until + 20):
            record(ledger, "run", r, r + 1)
            followed.run("run")
        costs.append(steps)
        done = until + 20
        steps = 0
        followed.runs()
        listed = steps
        assert listed < 3000
    assert costs[1] < 1.5 * costs[0]
    followed.close()
    ledger.close()


@pytest.mark.parametrize("log", [False, True], ids=["closed", "with a log"])
def test_following_writes_nothing(tmp_path: Path, log: bool) -> None:
    """A connection that can write would move the log into the file when it is closed."""
    ledger = Ledger(str(tmp_path / "market.db"))
    small_market(ledger)
    names = ["market.db"]
    if not log:
        ledger.close()
    else:
        names.append("market.db-wal")
    there = tmp_path / "there"
    there.mkdir()
    for name in names:
        (there / name).write_bytes((tmp_path / name).read_bytes())
        (there / name).chmod(0o400)
    ledger.close()
    before = {name: (there / name).read_bytes() for name in names}
    followed = Following(str(there / "market.db"))
    assert followed.run("run").summary.done == ROUNDS
    followed.close()
    key = simulation_key("server")
    reader = Ledger(str(there / "market.db"), read_only=True, key=key)
    assert reader.verify().runs["run"].done == ROUNDS
    with pytest.raises(LedgerError, match="cannot be written"):
        reader.deposit("treasury", 1, "more")
    reader.close()
    assert {name: (there / name).read_bytes() for name in names} == before
    assert {path.name for path in there.iterdir()} <= {*names, "market.db-wal", "market.db-shm"}


def test_nothing_is_written_on_postgresql(postgres: str, url: str) -> None:
    if not url.startswith("postgresql"):
        pytest.skip("of PostgreSQL")
    Ledger(url).close()
    database = Database(url, read_only=True)
    with pytest.raises(LedgerError, match="read-only"), database.reading() as connection:
        connection.exec_driver_sql("DELETE FROM metrics")
    database.close()


def test_what_cannot_be_followed_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoLedgerError, match="there is no ledger"):
        Following(str(tmp_path / "none.db")).runs()
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "empty.db").touch()
    with pytest.raises(NoLedgerError, match="holds no ledger"):
        Following(str(tmp_path / "empty.db")).runs()
    (tmp_path / "text.db").write_text("no database, but a text that is long enough\n" * 100)
    with pytest.raises(LedgerError, match="is not an SQLite database"):
        Following(str(tmp_path / "text.db")).runs()
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE things (id)")
    other.close()
    with pytest.raises(LedgerError, match="another program"):
        Following(str(tmp_path / "other.db")).runs()
    Ledger(str(tmp_path / "market.db")).close()
    with pytest.raises(NoRunError, match=r"has no run 'x'. It has none yet"):
        Following(str(tmp_path / "market.db")).run("x")
    followed = Following(str(tmp_path / "none.db"))
    with pytest.raises(NoLedgerError):
        followed.runs()
    Ledger(str(tmp_path / "none.db")).close()
    assert followed.runs() == []
    followed.close()


def test_damage_is_said_to_be_damage(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "market.db"))
    unsigned(ledger, "run", 4)
    record(ledger, "run", 0, 2)
    ledger.close()
    raw = sqlite3.connect(tmp_path / "market.db", isolation_level=None)
    raw.execute("DROP TRIGGER entries_no_update")
    raw.execute("UPDATE entries SET content = 'x' WHERE round = 1")
    raw.close()
    followed = Following(str(tmp_path / "market.db"))
    assert followed.runs()[0].done == 2
    with pytest.raises(DamagedError, match="cannot be understood; run: fedprice ledger verify"):
        followed.run("run")
    followed.close()


def test_another_ledger_in_its_place_is_read_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    unsigned(ledger, "run", 4)
    record(ledger, "run", 0, 2)
    ledger.close()
    followed = Following(str(path))
    assert followed.run("run").summary.done == 2
    for file in tmp_path.iterdir():
        file.unlink()
    other = Ledger(str(path), unit="EUR")
    unsigned(other, "another", 4)
    other.close()
    followed.runs()
    assert [own.name for own in followed.runs()] == ["another"]
    assert followed.unit == "EUR"
    followed.close()


def test_a_stopped_run_says_how_it_goes_on(tmp_path: Path) -> None:
    """A run counts as stopped when nothing was written for a minute; a reader's files do not."""
    path = tmp_path / "my market.db"
    ledger = Ledger(str(path))
    ledger.deposit("treasury", 3 * MICRO, "own")
    agreed(ledger, 3 * MICRO, {"alice": at_price(MICRO, LEVEL_ONE // 2)}, "o'run", rounds=4)
    unsigned(ledger, "bare", 4)
    record(ledger, "bare", 0, 2)
    ledger.close()
    followed = Following(str(path))
    assert [own.state for own in followed.runs()] == ["open", "open"]
    assert followed.run("bare").goes_on == ""
    followed.close()
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))
    followed = Following(str(path))
    assert [own.state for own in followed.runs()] == ["stopped", "stopped"]
    view = followed.run("o'run")
    assert "resumes from its offers" in view.goes_on
    assert f"fedprice simulate … --ledger '{path}'" in view.goes_on
    assert view.ends == f"fedprice ledger settle 'o'\"'\"'run' --ledger '{path}' --key FILE"
    bare = followed.run("bare")
    assert "resumes after round 2" in bare.goes_on
    assert bare.ends == f"fedprice ledger settle bare --ledger '{path}'"
    again = Ledger(str(path), key=simulation_key("server"))
    record(again, "bare", 2, 4)
    assert {own.name: own.state for own in followed.runs()} == {"o'run": "stopped", "bare": "open"}
    assert followed.run("bare").goes_on == ""
    again.settle("bare")
    assert [own.state for own in followed.runs()] == ["stopped", "settled"]
    again.close()
    followed.close()


def test_the_large_ledger_of_the_benchmarks_is_a_real_one(tmp_path: Path) -> None:
    """It verifies, is followed as any other, and goes on where it was left."""
    path = str(tmp_path / "market.db")
    large_ledger(path, rounds=40, clients=5, stop_after=25)
    followed = Following(path)
    assert followed.run("large").summary.done == 25
    large_ledger(path, rounds=40, clients=5)
    ledger = Ledger(path, read_only=True)
    books = ledger.verify()
    assert books.runs["large"].settled
    assert [own.round for own in ledger.metrics("large")] == [10, 20, 30, 40]
    compare(ledger, followed)
    ledger.close()
    followed.close()


def test_a_longer_ledger_that_takes_the_place_of_another_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "market.db"

    def write(run: str, rounds: int) -> None:
        ledger = Ledger(str(path))
        ledger.open_unsigned(run, 0, {}, rounds=rounds)
        for round_ in range(rounds):
            ledger.record_round(run, round_, model="0" * 64)
        ledger.close()

    write("old", 3)
    following = Following(str(path))
    assert [run.name for run in following.runs()] == ["old"]
    for file in tmp_path.iterdir():
        file.unlink()
    write("new", 5)
    assert [(run.name, run.done) for run in following.runs()] == [("new", 5)]
    following.close()
