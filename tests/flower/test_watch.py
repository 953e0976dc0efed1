"""The live view: what a run records, and what is wrong with its ledger."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedprice.flower.watch import Watch
from fedprice.market.ledger import Ledger
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import Terms
from tests.market.markets import small_market

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
        (unreadable, "market.db is damaged: a message is not JSON"),
        (other_content, "cannot be understood"),
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
    ledger.open_run("run", 10, {"alice": Terms(10, LEVEL_ONE)}, rounds=2)
    ledger.record_round("run", 0, model=MODEL, refused={"alice": "it is not finite."})
    watch, told = watched(tmp_path / "market.db")
    watch()
    assert told[-1] == "round 1: joined -, refused alice: it is not finite.; paid 0.000000"
    watch.close()
    ledger.close()


def test_entries_that_carry_signatures_are_told_as_well() -> None:
    """Conditions are in the offers, secrets in the opening, and more than a reason in refusals."""
    contents: list[dict[str, Any]] = [
        {"kind": "offer", "of": ["run", 0], "conditions": json.dumps({"rounds": 2})},
        {"kind": "commit", "of": ["run", 0]},
        {"kind": "open", "of": ["run"], "secrets": {"alice": ["ab", "cd"]}},
        {
            "kind": "round",
            "of": ["run", 0],
            "joined": {},
            "missed": [],
            "refused": {"alice": ["its norm is 9, above 5.", "ab", "9", "cd"]},
        },
    ]

    class Signed:
        def opening(self, run: str) -> object:
            return contents[2] if run == "run" else None

        def entries(self, run: str) -> list[SimpleNamespace]:
            return [SimpleNamespace(content=content, postings=[]) for content in contents]

    told: list[str] = []
    watch = Watch("", "run", told.append)
    watch._ledger = Signed()  # type: ignore[assignment]
    watch()
    assert told == [
        "1 clients agreed, for 2 rounds",
        "round 1: joined -, refused alice: its norm is 9, above 5.; paid 0.000000",
    ]
