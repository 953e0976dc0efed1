"""What trackers are told by `simulate`, `study` and Flower, and what real tools make of it."""

import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import MetricRecord

import fedprice as fp
from fedprice import trackers
from fedprice.flower import InProcessGrid
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulate_market
from fedprice.trackers import OpenTracker, RoundRecord, open_tracker
from tests.conftest import Run
from tests.flower import apps
from trials.markets import ROUNDS, small_outcome, small_task

TASK = small_task()


class Told:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []

    def on_round(self, record: RoundRecord) -> None:
        self.records.append(record)


def test_simulate_tells_each_round() -> None:
    told = Told()
    history = fp.simulate(TASK, 0.5, rounds=20, evaluate_every=10, tracker=told)
    assert [record.round for record in told.records] == list(range(21))
    assert [len(record.joined) for record in told.records[1:]] == history.joined.tolist()
    losses = [record.metrics["loss"] for record in told.records if "loss" in record.metrics]
    assert losses == history.loss.tolist()
    for record in told.records[1:]:
        assert record.largest_weight == history.largest_weight[record.round - 1]
        assert (record.total_weight or 0) >= (record.largest_weight or 0)
        assert record.coefficient is not None
        assert 0 <= record.coefficient <= 1
        assert record.spend is None
    assert max(record.coefficient or 0 for record in told.records) > 0


def test_a_market_tells_what_it_paid() -> None:
    outcome = small_outcome(TASK.federation)
    ledger, told = Ledger("sqlite://"), Told()
    simulate_market(TASK, outcome, ledger=ledger, run="first", tracker=told)
    spends = [record.spend for record in told.records if record.spend is not None]
    assert spends == sorted(spends)
    paid = sum(own.paid for own in ledger.run("first").clients.values())
    assert spends[-1] == pytest.approx(paid / 1e6)


def test_flower_tells_what_it_paid_and_measured() -> None:
    ledger, told = Ledger("sqlite://"), Told()
    strategy = apps.strategy(ledger, tracker=told)
    result = strategy.start(
        InProcessGrid(apps.client_app(apps.train), 4),
        apps.initial(),
        num_rounds=ROUNDS,
        evaluate_fn=lambda round_, _: MetricRecord({"loss": 1.0 / (round_ + 1)}),
    )
    assert [record.round for record in told.records] == [n + 1 for n in range(ROUNDS)]
    assert told.records[-1].metrics["loss"] == result.evaluate_metrics_serverapp[ROUNDS]["loss"]
    paid = sum(own.paid for own in ledger.run(strategy.run).clients.values())
    assert told.records[-1].spend == pytest.approx(paid / 1e6)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[int, dict[str, float]]]:
    """A tool that keeps what it is told, by run and round, and which runs were closed."""
    kept: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)

    def tool(_: Path, run: str) -> OpenTracker:
        return OpenTracker(kept[run].__setitem__, lambda: kept[f"{run} closed"])

    monkeypatch.setitem(trackers.KINDS, "math", tool)  # a module that is there
    return kept


def test_a_study_shows_each_run(
    memory: dict[str, dict[int, dict[str, float]]], tmp_path: Path
) -> None:
    goals = np.array([0.0, 1.0, 5.0])

    def update(model: Any, client: int, round_: int, seed: int) -> Any:
        noise = np.random.default_rng([seed, round_, client]).normal(size=1)
        return [0.5 * (goals[client] - model[0]) + 0.1 * noise]

    def evaluate(model: Any) -> dict[str, float]:
        return {"loss": float(((goals - model[0]) ** 2).mean())}

    task = fp.Task.of(initial=[np.zeros(1)], samples=[10, 10, 20], update=update, evaluate=evaluate)
    calibration = fp.calibrate(task, levels=(0.1, 0.9), max_weight=4, aggregator="horvitz-thompson")
    fp.study(
        task, ["equilibrium", "uniform"], seeds=2, rounds=10, calibration=calibration, budget=4,
        cost=[4, 5, 3], value=[9, 1, 0], cells=tmp_path, workers=1, track=f"math:{tmp_path}",
    )  # fmt: skip
    runs = {name: told for name, told in memory.items() if not name.endswith(" closed")}
    assert len(runs) >= 4
    assert all({"loss", "joiners"} <= told[10].keys() for told in runs.values())
    assert all(f"{name} closed" in memory for name in runs)


def test_the_command_tracks_and_closes(
    run: Run,
    memory: dict[str, dict[int, dict[str, float]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    guide = Path(__file__).parents[1] / "examples" / "flower-app"
    code, _, err = run(
        "flower", "simulate", guide, "--clients", 4, "--rounds", 2, "--track", "math:told"
    )
    assert code == 0, err
    assert [*memory["first"]] == [1, 2]
    assert memory["first"][2]["spend"] != 0
    assert "first closed" in memory


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mlfow:runs", "there is no tracker 'mlfow'. Did you mean 'mlflow'?"),
        ("math", "a tracker needs a directory, such as math:runs; got 'math'."),
    ],
)
def test_a_wrong_tracker_is_refused_before_the_work(
    run: Run, memory: object, text: str, said: str
) -> None:
    code, _, err = run("simulate", "setup1", "--track", text)
    assert code == 2
    assert said in err


def test_a_tool_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trackers.LIBRARIES, "wandb", "no_such_module")
    with pytest.raises(fp.FedpriceError, match=r"pip install 'fedprice\[wandb\]'"):
        open_tracker("wandb:runs", "first")


def tell(text: str) -> None:
    tracker = open_tracker(text, "study/first")
    for round_ in range(3):
        metrics = {"loss": 1 / (round_ + 1), "accuracy": float("nan")}
        tracker.on_round(RoundRecord(round_, ("1", "2"), metrics, 2.0, 1.5, 0.25 * round_, 0.5))
    tracker.close()


@pytest.mark.slow
def test_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    tell(f"mlflow:{tmp_path}")
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        rows = database.execute("select key, step, value from metrics where key = 'loss'")
        assert sorted(rows) == [("loss", n, pytest.approx(1 / (n + 1))) for n in range(3)]
        assert database.execute("select name, status from runs").fetchall() == [
            ("study-first", "FINISHED")
        ]


@pytest.mark.slow
def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tell(f"wandb:{tmp_path}")
    (log,) = tmp_path.rglob("*.wandb")
    assert b"memory_coefficient" in log.read_bytes()


@pytest.mark.slow
def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tell(f"tensorboard:{tmp_path}")
    found = reading.EventAccumulator(str(tmp_path / "study-first")).Reload()
    assert [(own.step, own.value) for own in found.Scalars("loss")] == [
        (n, pytest.approx(1 / (n + 1))) for n in range(3)
    ]
    assert np.isclose(found.Scalars("spend")[-1].value, 0.5)


def test_prometheus(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    tell(f"prometheus:{tmp_path}")
    text = (tmp_path / "study-first.prom").read_text()
    assert 'fedprice_round{run="study-first"} 2.0' in text
    assert 'fedprice_memory_coefficient{run="study-first"} 0.5' in text
