"""Runs that diverge: the round, the client and the weight are named, and a run can go on."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprice import Bound, Clients, Game, InputError, Ledger, simulate_market, solve
from fedprice._plumbing.arrays import Arrays, IntArray
from fedprice.data.synthetic import synthetic
from fedprice.learning import Clock, Decay, FunctionTask, LogisticRegression, Task, Training
from fedprice.learning.task import Updates
from fedprice.rounds import (
    Bounded,
    DivergedError,
    FedAvg,
    History,
    HorvitzThompson,
    Momentum,
    Plain,
    simulate,
)
from fedprice.rounds import simulation as simulation_module
from fedprice.rounds.loop import Rounds

IDS = ["ann", "bob", "cid"]
SAMPLES = [10, 20, 70]


def throwing(size: float, at: int = 5, client: int | None = None) -> FunctionTask:
    """A task of which some update is very long in one round, counted from 0; loss is |w|."""

    def update(model: Arrays, who: int, round_: int, seed: int) -> Arrays:
        wild = round_ == at and client in (None, who)
        return [np.full(2, size if wild else 0.1, np.float32)]

    return Task.of(
        initial=[np.ones(2, np.float32)],
        samples=SAMPLES,
        ids=IDS,
        update=update,
        evaluate=lambda model: {"loss": float(np.abs(model[0]).max())},
    )


def test_an_update_that_is_not_finite_names_its_client() -> None:
    federation = synthetic(num_clients=8, samples=1200, seed=2)
    wild = Training(local_steps=20, rate=Decay(10.0, 1.0), l2=1.0)
    with pytest.raises(DivergedError, match=r"round \d+: the update of client '\d+' is not finite"):
        simulate(LogisticRegression(federation, wild), 0.3, rounds=50, evaluate_every=50)


def test_a_study_measures_a_loss_that_explodes() -> None:
    """Uniform prices as published make Setup 2 explode; a study must go on and say so."""
    task = throwing(size=500)
    with pytest.raises(DivergedError, match="round 6: the longest step"):
        simulate(task, 0.9, rounds=30, evaluate_every=10)
    history = simulate(task, 0.9, rounds=30, evaluate_every=10, stop_on_explosion=False)
    assert history.rounds.tolist() == [0, 10, 20, 30]
    assert history.loss[1] > 100
    assert any(line.startswith("round 6: the longest step") for line in history.alarms)
    with pytest.raises(DivergedError, match="no longer finite"):
        simulate(
            throwing(size=3.4e38), 0.9, rounds=30, aggregator=HorvitzThompson(),
            stop_on_explosion=False,
        )  # fmt: skip


class Fixed:
    """Participation with given heads and probabilities."""

    def __init__(self, heads: IntArray, arrival: list[float]) -> None:
        self._heads, self._arrival = heads, np.array(arrival)

    def heads(self, round_: int) -> IntArray:
        return self._heads

    def arrival(self) -> np.ndarray:
        return self._arrival


@pytest.mark.parametrize("parts", [[[0, 1, 2]], [[0], [1], [2]], [[1], [2]]])
def test_the_weight_in_the_message_is_one_that_was_used(parts: list[list[int]]) -> None:
    """Once weights were named that no update of the round had: of the refused, or at q without ρ.

    Weights are 5, 1 and 0.875; the update of the first client is refused, or never comes.
    """
    loop = Rounds(
        [np.zeros(2, np.float32)],
        ids=IDS,
        weight=np.array([0.1, 0.2, 0.7]),
        total=3,
        participation=Fixed(np.array([0, 1, 2]), [0.02, 0.2, 0.8]),
        aggregator=HorvitzThompson(),
        server_step=Plain(),
        admit=lambda round_, clients, values: clients != 0,
    )
    round_ = loop.begin()
    for part in parts:
        values = np.full((len(part), 2), 3e38, np.float32)
        round_.arrive(np.array(part), Updates(values))
    with pytest.raises(DivergedError) as error:
        round_.close()
    assert str(error.value) == (
        "round 1: the model is no longer finite; its largest weight a/q was 1, of client 'bob', "
        "whose updates arrive with probability 0.2. Set a largest weight in pricing (it raises low "
        "levels), lower the learning rate, or bound the server's steps."
    )
    assert loop.done == 0
    assert np.array_equal(loop.vector, np.zeros(2))


def test_the_weight_counts_delivery_and_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Driven by `simulate`, in parts of one update: the heaviest is in the first part."""
    monkeypatch.setattr(simulation_module, "PART", 1)
    levels, delivery = [0.5, 1.0, 1.0], [0.1, 1.0, 1.0]
    task = throwing(3e38)
    with pytest.raises(DivergedError) as error:
        simulate(
            task,
            levels,
            delivery=delivery,
            rounds=400,
            seed=1,
            evaluate_every=400,
            aggregator=HorvitzThompson(),
        )
    # Cid's 0.7 alone does not overflow; whether ann is in decides.
    match = re.search(r"^round 6: .* was ([\d.]+), of client '(\w+)'", str(error.value))
    assert match is not None
    before = simulate(
        throwing(0.1),
        levels,
        delivery=delivery,
        rounds=6,
        seed=1,
        evaluate_every=400,
        aggregator=HorvitzThompson(),
    )
    weight = before.largest_weight[5]
    assert float(match[1]) == pytest.approx(weight, rel=1e-2)
    assert match[2] == ("ann" if weight == pytest.approx(2.0) else "cid")


def same(one: History, other: History) -> bool:
    return (
        np.array_equal(one.metrics["loss"], other.metrics["loss"])
        and np.array_equal(one.time, other.time)
        and np.array_equal(one.joined, other.joined)
        and np.array_equal(one.largest_weight, other.largest_weight)
        and all(map(np.array_equal, one.model, other.model))
    )


SETTINGS: dict[str, Any] = {
    "aggregator": HorvitzThompson(),
    "rounds": 12,
    "evaluate_every": 4,
    "seed": 1,
    "clock": Clock(np.array([0.1, 0.7, 0.3]), np.array([0.01, 0.02, 0.05])),
}


def test_a_diverged_run_goes_on_from_the_round_before(tmp_path: Path) -> None:
    """With another server step; with the same settings it fails again, in the same words."""
    path, task = tmp_path / "run.npz", throwing(3e38)
    lines = []
    for _ in range(3):
        with pytest.raises(DivergedError) as error:
            simulate(task, 0.5, checkpoint=path, **SETTINGS)
        lines.append(str(error.value))
    assert lines[0].startswith("round 6: the model is no longer finite; its largest weight a/q was")
    assert len(set(lines)) == 1
    with pytest.raises(InputError, match="the checkpoint of another run"):
        simulate(task, 0.6, checkpoint=path, **SETTINGS)
    seen: list[int] = []
    step = Bounded(factor=2, window=1)
    bounded = simulate(
        task, 0.5, checkpoint=path, server_step=Momentum(beta=0.0, rate=1e-38),
        progress=seen.append, **SETTINGS,
    )  # fmt: skip
    assert seen == list(range(6, 13))
    assert bounded.rounds.tolist() == [0, 4, 8, 12]
    calm = simulate(throwing(0.1), 0.5, **SETTINGS)
    assert np.array_equal(bounded.time, calm.time)  # the failed round left no trace
    assert np.array_equal(bounded.joined, calm.joined)
    assert bounded.loss[1] == calm.loss[1]
    assert [part.name for part in tmp_path.iterdir()] == ["run.npz"]
    with pytest.raises(InputError, match="the checkpoint of another run"):
        simulate(task, 0.5, checkpoint=path, server_step=step, **SETTINGS)  # it is over, and well


def test_only_what_diverged_may_change_its_server_step(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    simulate(throwing(0.1), 0.5, checkpoint=path, **SETTINGS)
    for change in ({"server_step": Momentum()}, {"aggregator": FedAvg()}):
        with pytest.raises(InputError, match="the checkpoint of another run"):
            simulate(throwing(0.1), 0.5, checkpoint=path, **(SETTINGS | change))


def fragile(model: Arrays, who: int, round_: int, seed: int) -> Arrays:
    """Fail where the model has gone too far."""
    far = np.abs(model[0]).max() > 50
    return [np.full(2, np.nan if far else 60.0 if round_ == 5 else 0.1, np.float32)]


def test_after_an_update_that_is_not_finite_a_run_goes_on_from_its_evaluation(
    tmp_path: Path,
) -> None:
    """The round before would fail whatever the server does: the model has gone too far already."""
    path = tmp_path / "run.npz"
    task = Task.of(
        initial=[np.ones(2, np.float32)],
        samples=SAMPLES,
        ids=IDS,
        update=fragile,
        evaluate=lambda model: {"loss": 1.0},
    )
    lines = set()
    for _ in range(2):
        with pytest.raises(DivergedError, match="round 7: the update of client 'ann' is") as error:
            simulate(task, 1.0, checkpoint=path, **SETTINGS)
        lines.add(str(error.value))
    assert len(lines) == 1
    seen: list[int] = []
    simulate(
        task, 1.0, checkpoint=path, server_step=Momentum(beta=0.0, rate=0.1), progress=seen.append,
        **SETTINGS,
    )  # fmt: skip
    assert seen[0] == 5


def test_loss_explosions_are_named(tmp_path: Path) -> None:
    """Above ten times the start it is an alarm, above a hundred times an error."""
    history = simulate(throwing(20.0), 1.0, **SETTINGS)
    assert len(history.alarms) == 2  # at rounds 8 and 12
    assert history.alarms[0].startswith(
        "round 6: the longest step since the last evaluation; the loss is 21.7 after round 8 (it "
        "began at 1); its largest weight a/q was 0.7, of client 'cid', whose updates arrive with "
        "probability 1."
    )
    assert "bound the server's steps" in history.alarms[0]
    assert simulate(throwing(5.0), 1.0, **SETTINGS).alarms == ()
    path = tmp_path / "run.npz"
    lines = set()
    for _ in range(2):
        with pytest.raises(DivergedError) as error:
            simulate(throwing(500.0), 1.0, checkpoint=path, **SETTINGS)
        lines.add(str(error.value))
    (line,) = lines
    assert re.match(r"round 6: the longest .*; the loss is [\d.e+]+ after round 8 \(it began", line)
    assert "(it began at 1); its largest weight a/q was 0.7" in line
    seen: list[int] = []
    gone = simulate(
        throwing(500.0), 1.0, checkpoint=path, server_step=Bounded(factor=2, window=1),
        progress=seen.append, **SETTINGS,
    )  # fmt: skip
    assert seen[0] == 5  # from the evaluation before
    assert gone.loss[-1] < 1000
    assert gone.loss[1] == simulate(throwing(0.1), 1.0, **SETTINGS).loss[1]


def test_a_loss_that_is_not_a_number_is_an_explosion() -> None:
    task = Task.of(
        initial=[np.ones(2)],
        samples=SAMPLES,
        update=lambda model, client, round_, seed: [np.ones(2)],
        evaluate=lambda model: {"loss": 1.0 if (model[0] == 1).all() else np.nan},
    )
    with pytest.raises(DivergedError, match=r"the longest .*; the loss is nan after round 4 "):
        simulate(task, 1.0, **(SETTINGS | {"clock": None}))


def test_a_market_does_not_record_the_round_of_an_explosion() -> None:
    """It stops before, and goes on from there with another server step."""
    task = throwing(500.0)
    clients = Clients(samples=SAMPLES, grad_norm=2, cost=[1, 1, 1], value=0, ids=IDS)
    outcome = solve(Game(clients, bound=Bound(alpha=3, rounds=12), budget=1000.0))
    with closing(Ledger("sqlite://")) as ledger:
        for _ in range(2):
            with pytest.raises(DivergedError, match="round 6: the loss is"):
                simulate_market(task, outcome, ledger=ledger, run="run", evaluate_every=1)
            assert ledger.rounds_done("run") == 5
        step = Momentum(beta=0.0, rate=0.01)
        simulate_market(task, outcome, ledger=ledger, run="run", evaluate_every=1, server_step=step)
        assert ledger.verify().runs["run"].done == 12


@pytest.mark.parametrize(("start", "later"), [(0.0, np.inf), (-1.0, np.inf), (0.0, np.nan)])
def test_a_loss_without_a_scale_explodes_where_it_is_not_finite(start: float, later: float) -> None:
    task = Task.of(
        initial=[np.ones(2)],
        samples=SAMPLES,
        update=lambda model, client, round_, seed: [np.ones(2)],
        evaluate=lambda model: {"loss": start if (model[0] == 1).all() else later},
    )
    with pytest.raises(DivergedError, match="the loss is"):
        simulate(task, 1.0, rounds=4)


def test_a_first_loss_must_be_finite() -> None:
    task = Task.of(
        initial=[np.ones(2)],
        samples=SAMPLES,
        update=lambda model, client, round_, seed: [np.ones(2)],
        evaluate=lambda model: {"loss": np.nan},
    )
    with pytest.raises(InputError, match="loss of the initial model must be finite"):
        simulate(task, 1.0, rounds=4)


def test_arrays_of_small_numbers_do_not_limit_the_others() -> None:
    """A counter of eight bits beside weights of 200."""
    task = Task.of(
        initial=[np.full(3, 200.0, np.float32), np.array([1], np.int8)],
        samples=SAMPLES,
        update=lambda model, client, round_, seed: [np.ones(3, np.float32), np.zeros(1)],
        evaluate=lambda model: {"loss": 1.0},
    )
    assert simulate(task, 1.0, rounds=4).model[0] == pytest.approx(204.0)
