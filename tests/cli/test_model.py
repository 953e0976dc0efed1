"""`fedprice flower model`, and metrics in `fedprice ledger show`, as typed."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from fedprice.market.ledger import Ledger
from tests.conftest import Run
from tests.market.test_periods import period as add_period
from trials.markets import agreed, paying, small_market


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPRICE_LEDGER", raising=False)
    return tmp_path


def arrays_in(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def test_the_model_of_a_run(run: Run, home: Path) -> None:
    ledger = Ledger("market.db")
    history = small_market(ledger)
    ledger.close()
    code, out, err = run("flower", "model", "run", "-o", "model.npz")
    assert (code, out) == (0, ""), err
    assert err.startswith("wrote model.npz: 1 array, 610 numbers, after round 12 of run")
    (stored,) = arrays_in(home / "model.npz").values()
    assert stored.dtype == history.model[0].dtype
    assert np.array_equal(stored, history.model[0])
    code, _, err = run("flower", "model", "run", "-o", "model.npz")
    assert code == 2
    assert "model.npz exists; choose another name, or overwrite it with --force." in err
    code, _, err = run("flower", "model", "run", "-o", "model.npz", "--force")
    assert code == 0, err


def test_the_model_of_each_period(run: Run, home: Path) -> None:
    ledger = Ledger("sqlite:///two.db")
    first, second = add_period(ledger, "run"), add_period(ledger, "run#2", "run")
    ledger.close()
    for name, wanted in (("run", second), ("run#2", second)):
        code, _, err = run("flower", "model", name, "-o", "m.npz", "--ledger", "two.db", "--force")
        assert code == 0, err
        assert "of run#2" in err
        (stored,) = arrays_in(home / "m.npz").values()
        assert np.array_equal(stored, wanted.model[0])
    assert not np.array_equal(first.model[0], second.model[0])


def test_arrays_may_have_any_name(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are parameters of the function that usually writes such files."""
    ledger = Ledger("market.db")
    small_market(ledger)
    ledger.close()
    names = ["file", "allow_pickle", "a/b", "conv1.weight.npy", "ü"]
    model = {name: np.array(n, np.float32) for n, name in enumerate(names)}
    monkeypatch.setattr("fedprice.market.participation.model_of", lambda *_: model)
    code, _, err = run("flower", "model", "run", "-o", "model.npz")
    assert code == 0, err
    assert arrays_in(home / "model.npz") == model


def test_bad_input_is_one_line(run: Run, home: Path) -> None:
    ledger = Ledger("market.db")
    small_market(ledger)
    agreed(ledger, 0, {"alice": paying(0)}, "begun")
    ledger.close()
    for arguments, code, text in (
        (("run", "-o", "model.npz", "--ledger", "none.db"), 2, "there is no ledger none.db"),
        (("runn", "-o", "model.npz"), 2, "has no run 'runn'. Did you mean 'run'"),
        (("run#2", "-o", "model.npz"), 2, "has no run 'run#2'"),
        (("begun", "-o", "model.npz"), 5, "run 'begun' has no model yet"),
        (("run", "-o", "model.csv"), 2, "use one of .npz"),
        (("run", "-o", "none/model.npz"), 2, "there is no directory none"),
    ):
        found, out, err = run("flower", "model", *arguments)
        assert (found, out) == (code, ""), (arguments, err)
        assert text in err.splitlines()[-1]
    with sqlite3.connect("market.db") as raw:
        raw.execute("UPDATE state_parts SET bytes = zeroblob(length(bytes))")
    raw.close()
    code, out, err = run("flower", "model", "run", "-o", "model.npz")
    assert (code, out) == (4, "")
    assert "the state of run 'run' is damaged" in err
    assert not (home / "model.npz").exists()


def test_the_last_metrics_are_shown_with_a_run(run: Run, home: Path) -> None:
    ledger = Ledger("market.db")
    small_market(ledger)
    ledger.record_metrics("run", 11, "server", {"loss": 3.0})
    ledger.record_metrics("run", 12, "server", {"loss": 0.5, "accuracy": float("nan")})
    ledger.record_metrics("run", 12, "train", {"seconds": 0.5})
    ledger.close()
    code, out, err = run("ledger", "show", "run")
    assert code == 0, err
    assert "round 12: loss 0.5, accuracy nan" in out.splitlines()
    assert "loss 3" not in out
