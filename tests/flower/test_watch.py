"""The live view: what a run records, and what is wrong with its ledger."""

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from fedprice.flower.watch import Watch
from fedprice.market.ledger import Delivered, Ledger, Refused
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import Proposal
from trials.markets import at_price, commit, conditions, offered, paying, reveal, small_market

MODEL = "ab" * 32


def watched(path: Path) -> tuple[Watch, list[str]]:
    told: list[str] = []
    return Watch(str(path), "run", told.append), told


def recorded(path: Path) -> Ledger:
    ledger = Ledger(str(path))
    small_market(ledger)
    return ledger


def test_a_ledger_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    watch, told = watched(tmp_path / "market.db")
    watch()
    (tmp_path / "market.db").touch()
    watch()
    ledger = Ledger(str(tmp_path / "market.db"))
    watch()
    assert told == []
    small_market(ledger)
    watch()
    assert told[0] == "4 clients agreed, for 12 rounds"
    assert [line.partition(":")[0] for line in told[1:-1]] == [f"round {r + 1}" for r in range(12)]
    assert told[-1] == "settled"
    watch()
    assert len(told) == 14
    watch.close()
    ledger.close()


def scribbled(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096] + b"scribble" * 4096)


def unreadable(path: Path) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.executescript(
        "DROP TRIGGER entries_no_update; UPDATE entries SET content = 'x' WHERE run IS NOT NULL"
    )
    writer.close()


def other_content(path: Path) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.executescript(
        "DROP TRIGGER entries_no_update;"
        """UPDATE entries SET content = '{"kind":"round","of":["run",0]}' WHERE round = 0"""
    )
    writer.close()


def another_program(path: Path) -> None:
    path.unlink()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("CREATE TABLE songs (title TEXT)")
    writer.close()


def old(path: Path) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("UPDATE alembic_version SET version_num = 'fedprice_0001'")
    writer.close()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (scribbled, "market.db is damaged"),
        (unreadable, "market.db is damaged at entry 3: a message is not JSON"),
        (other_content, "is damaged at entry 8: hash must be"),
        (another_program, "the database of another program"),
        (old, "a ledger of the schema fedprice_0001"),
    ],
)
def test_a_damaged_ledger_is_told_once(
    tmp_path: Path, damage: Callable[[Path], None], text: str
) -> None:
    recorded(tmp_path / "market.db").close()
    damage(tmp_path / "market.db")
    watch, told = watched(tmp_path / "market.db")
    for _ in range(3):
        watch()
    wrong = [line for line in told if line.startswith("the ledger cannot be read: ")]
    assert len(wrong) == 1
    assert text in wrong[0]
    watch.close()


def test_damage_that_comes_later_is_told(tmp_path: Path) -> None:
    path = tmp_path / "market.db"
    recorded(path).close()
    watch, told = watched(path)
    watch()
    assert len(told) == 14
    unreadable(path)
    for _ in range(3):
        watch()
    assert len(told) == 15
    assert "is damaged" in told[-1]
    watch.close()


def test_refusals_are_told_with_their_reasons(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "market.db"))
    ledger.deposit("treasury", 10, "first")
    ledger.open_unsigned("run", 10, {"alice": at_price(10, LEVEL_ONE)}, rounds=2)
    ledger.record_round("run", 0, model=MODEL, refused={"alice": Refused("it is not finite.")})
    watch, told = watched(tmp_path / "market.db")
    watch()
    assert told[-1] == "round 1: joined -, refused alice: it is not finite.; paid 0.000000"
    watch.close()
    ledger.close()


def test_a_round_of_many_clients_fits_80_columns(tmp_path: Path) -> None:
    """With loss and accuracy: names become numbers, first of those who joined."""
    names = [f"hospital {n}" for n in range(40)]
    ledger = Ledger(str(tmp_path / "market.db"))
    ledger.deposit("treasury", 10, "first")
    ledger.open_unsigned("run", 10, {n: at_price(0, LEVEL_ONE) for n in names}, rounds=3)
    for round_, missed in enumerate(([], names[:1], names[:9])):
        joined = {
            n: Delivered("ab" * 32, ledger.books.runs["run"].usual_weights[n], "1", "", "", "")
            for n in names[10:]
        }
        ledger.record_round("run", round_, model=MODEL, joined=joined, missed=missed)
        measured = {"loss": 0.41234, "accuracy": 0.871}
        ledger.record_metrics("run", round_ + 1, "server", measured)
    watch, told = watched(tmp_path / "market.db")
    watch()
    end = "; paid 0.000000; loss 0.4123, accuracy 0.871"
    assert told[1:] == [
        f"round 1: joined 30 clients{end}",
        f"round 2: joined 30 clients, missed 1 client{end}",
        f"round 3: joined 30 clients, missed 9 clients{end}",
    ]
    watch.close()
    ledger.close()


def test_losses_and_accuracies_are_told_once(tmp_path: Path) -> None:
    """On the line of their round if they are there already, or else on one of their own."""
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    ledger.deposit("treasury", 10, "first")
    watch, told = watched(path)
    ledger.record_metrics("run", 0, "server", {"loss": 2.5, "seconds": 3.0})
    ledger.open_unsigned("run", 10, {"alice": at_price(0, LEVEL_ONE)}, rounds=4)
    ledger.record_round("run", 0, model=MODEL)
    ledger.record_metrics("run", 1, "server", {"loss": 0.41234, "accuracy": 0.871})
    ledger.record_metrics("run", 1, "clients", {"eval_loss": 0.5, "per class": [1.0]})
    ledger.record_metrics("run", 1, "train", {"seconds": 1.0})
    watch()
    assert told[1:] == [
        "before round 1: loss 2.5",
        "round 1: joined -; paid 0.000000; clients: eval_loss 0.5; loss 0.4123, accuracy 0.871",
    ]
    ledger.record_round("run", 1, model=MODEL)
    watch()
    ledger.record_metrics("run", 2, "server", {"loss": math.nan, "accuracy": 0.1})
    ledger.record_metrics("run", 2, "train", {"seconds": 1.0})
    watch()
    ledger.record_metrics("run", 2, "server", {"loss": math.nan, "accuracy": 0.1})
    watch()
    assert told[3:] == ["round 2: joined -; paid 0.000000", "round 2: loss nan, accuracy 0.1"]
    ledger.record_round("run", 2, model=MODEL)
    ledger.record_metrics("run", 3, "server", {"loss": 1.0})
    ledger.record_round("run", 3, model=MODEL)
    watch()
    assert told[5:] == [
        "round 3: joined -; paid 0.000000; loss 1",
        "round 4: joined -; paid 0.000000",
    ]
    watch.close()
    ledger.close()


def test_rounds_are_told_even_if_metrics_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "market.db"
    ledger = recorded(path)
    ledger.record_metrics("run", 1, "server", {"loss": 1.0})
    ledger.close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE metrics SET metrics = 'x'")
    raw.close()
    watch, told = watched(path)
    for _ in range(3):
        watch()
    assert len(told) == 15
    assert [line for line in told if "is damaged: its metrics cannot be read" in line] == told[:1]
    watch.close()


def test_offers_that_failed_and_clients_left_out_are_told(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "market.db"))
    ledger.deposit("treasury", 100, "first")
    terms = {"alice": paying(10), "bob": paying(20), "carol": paying(-5)}
    bargain = offered(ledger, terms)
    del terms["carol"]
    again = {name: Proposal(own.tariff, own.level) for name, own in terms.items()}
    bargain.offer(conditions(ledger, rounds=7, seed=1), again, "'carol' does not pay")
    commit(bargain, "alice", terms["alice"])
    bargain.close()
    reveal(bargain)
    bargain.open(50)
    watch, told = watched(tmp_path / "market.db")
    watch()
    assert told == [
        "offered again: 'carol' does not pay",
        "bob is not in it: it did not answer",
        "1 client agreed, for 7 rounds",
    ]
    watch.close()
    ledger.close()
