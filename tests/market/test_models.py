"""A trained model, taken out of a ledger: as its clients get it, or not at all."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from fedprice.market.ledger import DamagedError, Ledger, LedgerError
from fedprice.market.money import LEVEL_ONE
from fedprice.market.participation import last_trained, model_of
from trials.markets import NEVER, agreed, at_price, offered, paying, small_market

MODEL = "ab" * 32


def test_the_model_of_a_run_is_the_one_that_its_clients_got(url: str) -> None:
    ledger = Ledger(url)
    history = small_market(ledger)
    model = model_of(ledger, "run")
    (trained,) = history.model
    (name,) = model
    assert model[name].dtype == trained.dtype
    assert np.array_equal(model[name], trained)
    ledger.close()


def test_the_last_period_with_a_round_counts() -> None:
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", 100, "first")
    terms = {"alice": at_price(10, LEVEL_ONE)}
    ledger.open_unsigned("run", 10, terms, rounds=1)
    assert last_trained(ledger, "run") == "run"
    assert last_trained(ledger, "other") == "other"  # whoever reads it says that it is not there
    assert last_trained(ledger, "run#2") == "run#2"
    ledger.close()


def test_runs_without_a_model() -> None:
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", 1000, "first")
    with pytest.raises(LedgerError, match=r"in memory has no run 'run'\. It has none yet"):
        model_of(ledger, "run")
    offered(ledger, {"alice": paying(10)}, "offered")
    agreed(ledger, 10, {"alice": paying(10)}, "begun")
    for period in ("offered", "begun"):
        with pytest.raises(LedgerError, match=f"run '{period}' has no model yet: none of its"):
            model_of(ledger, period)
    ledger.record_round("begun", 0, model=MODEL, missed=["alice"])
    ledger.open_unsigned("unsigned", 10, {"alice": at_price(10, LEVEL_ONE)}, rounds=1)
    ledger.record_round("unsigned", 0, model=MODEL, state={"model": np.zeros(3)})
    for period in ("begun", "unsigned"):
        with pytest.raises(LedgerError, match=f"run '{period}' kept no model: its rounds were"):
            model_of(ledger, period)
    ledger.close()


def test_a_model_that_is_not_the_recorded_one(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "market.db"))
    agreed(ledger, 0, {"alice": paying(0, NEVER)})
    ledger.record_round("run", 0, model=MODEL, state={"model": np.zeros(610)})
    with pytest.raises(DamagedError, match="the state of run 'run' has another model"):
        model_of(ledger, "run")
    for wrong in ({"model": np.zeros(609)}, {"model": np.zeros((2, 305))}, {"other": np.zeros(1)}):
        ledger.record_round("run", ledger.rounds_done("run"), model=MODEL, state=wrong)
        with pytest.raises(DamagedError, match="the state of run 'run' has another model"):
            model_of(ledger, "run")
    with sqlite3.connect(tmp_path / "market.db") as raw:
        raw.execute("UPDATE state_parts SET bytes = x'01'")
    raw.close()
    with pytest.raises(DamagedError, match="the state of run 'run' is damaged"):
        model_of(ledger, "run")
    ledger.close()
