"""The engine: equal to the oracle, to itself on any threads, and to itself after a stop."""

import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedprice import InputError
from fedprice._plumbing.rows import CHUNK
from fedprice.data import Federation
from fedprice.data.synthetic import synthetic
from fedprice.learning import Clock, Decay, LogisticRegression, Training, oracle
from fedprice.learning.draws import DELIVERIES, batch_rows, joiners, key, uniform
from fedprice.learning.evaluation import Spare, thread_pool
from fedprice.rounds import (
    AGGREGATORS,
    Aggregator,
    History,
    HorvitzThompson,
    Memory,
    simulate,
    simulate_runs,
)
from fedprice.rounds.aggregation.stored import bytes_needed
from fedprice.rounds.oracle import train

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
LEVELS = np.linspace(0.2, 0.9, 8)
TRAINING = Training(local_steps=20)
ROUNDS: dict[str, Any] = {"rounds": 12, "evaluate_every": 5}


def many_features() -> Federation:
    """Few and many samples of many features, so that both forms of an update occur."""
    rng = np.random.default_rng(5)
    w = rng.normal(size=(400, 17))

    def draw(count: int) -> tuple[FloatArray, IntArray]:
        x = rng.normal(0.1, 1, (count, 400)).astype(np.float32) / np.float32(6)
        return x, (x @ w).argmax(axis=1).astype(np.int32)

    clients = [draw(count) for count in (2, 7, 30, 61, 90, 250, 400, 401)]
    return Federation.of("many features", clients, draw(200), num_classes=17)


@pytest.fixture(scope="module", params=["few features", "many features"])
def federation(request: pytest.FixtureRequest) -> Federation:
    few = request.param == "few features"
    return synthetic(num_clients=8, samples=1200, seed=2) if few else many_features()


@pytest.fixture(scope="module")
def task(federation: Federation) -> LogisticRegression:
    return LogisticRegression(federation, TRAINING)


def same(one: History, other: History) -> bool:
    names = ("rounds", "loss", "accuracy", "time", "joined", "largest_weight")
    return (
        all(np.array_equal(getattr(one, n), getattr(other, n)) for n in names)
        and all(
            np.array_equal(getattr(one, n), getattr(other, n), equal_nan=True)
            for n in ("update_norm", "grad_norm", "grad_norm_max")
        )
        and all(map(np.array_equal, one.model, other.model))
    )


@pytest.mark.parametrize("aggregator", AGGREGATORS.values())
@pytest.mark.parametrize("l2", [0.0, 0.01])
@pytest.mark.parametrize("batch", [24, 7, 37])
def test_engine_is_the_oracle(
    federation: Federation, aggregator: Aggregator, l2: float, batch: int
) -> None:
    task = LogisticRegression(federation, replace(TRAINING, l2=l2, batch=batch))
    history = simulate(task, LEVELS, aggregator=aggregator, seed=4, **ROUNDS)
    model, evaluations = train(task, LEVELS, aggregator, seed=4, **ROUNDS)
    assert history.rounds.tolist() == [r for r, _, _ in evaluations] == [0, 5, 10, 12]
    assert history.loss == pytest.approx([loss for _, loss, _ in evaluations], abs=2e-5)
    assert history.accuracy == pytest.approx([a for _, _, a in evaluations], abs=0.01)
    assert np.abs(history.model[0] - model).max() < 1e-5 * np.abs(model).max()


def test_both_forms_are_used_and_agree() -> None:
    """Few samples take the Gram form, many the direct one; both give the oracle's update."""
    task = LogisticRegression(many_features(), Training(local_steps=100, l2=0.01))
    at = task.prepare().gram_at
    assert (at >= 0).any()
    assert (at < 0).any()
    history = simulate(task, 1.0, rounds=1, seed=1)
    model, _ = train(task, np.ones(8), HorvitzThompson(), rounds=1, seed=1, evaluate_every=1)
    assert np.abs(history.model[0] - model).max() < 2e-5 * np.abs(model).max()


def test_gradient_norms_are_the_oracles(federation: Federation) -> None:
    task = LogisticRegression(federation, Training(local_steps=30, l2=0.1))
    history = simulate(task, 1.0, rounds=1)
    x = oracle.with_bias(federation.features)
    for n in range(8):
        own = slice(federation.offsets[n], federation.offsets[n + 1])
        rows = batch_rows(0, 0, n, 30, 24, int(federation.samples[n]))
        start = np.zeros((federation.num_classes, x.shape[1]))
        update, squares = oracle.local_update(start, x[own], federation.labels[own], rows, 0.1, 0.1)
        assert history.update_norm[n] == pytest.approx(np.linalg.norm(update), rel=1e-4)
        assert history.grad_norm[n] == pytest.approx(np.sqrt(squares.mean()), rel=1e-4)
        assert history.grad_norm_max[n] == pytest.approx(np.sqrt(squares.max()), rel=1e-4)


def test_gradient_by_differences() -> None:
    rng = np.random.default_rng(0)
    x, y, w = (
        rng.normal(size=(9, 4)),
        rng.integers(0, 3, 9).astype(np.int32),
        rng.normal(size=(3, 4)),
    )
    g = oracle.gradient(w, x, y, 0.3)
    for i in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[i] = 1e-6
        rise = oracle.evaluate(w + step, x, y, 0.3)[0] - oracle.evaluate(w - step, x, y, 0.3)[0]
        assert g[i] == pytest.approx(rise / 2e-6, abs=1e-7)


def test_threads_and_company_do_not_change_a_bit(task: LogisticRegression) -> None:
    settings = ROUNDS | {"aggregator": Memory()}
    alone = simulate(task, LEVELS, seed=3, threads=1, **settings)
    for threads in (2, 5):
        other = simulate(task, LEVELS, seed=3, threads=threads, **settings)
        assert same(alone, other)
    many = simulate_runs(task, [(LEVELS, 3), (LEVELS, 4), (0.5, 3)], **settings)
    assert same(alone, many[0])
    assert not same(alone, many[1])


def test_the_last_of_several_runs_gets_the_spare_threads(task: LogisticRegression) -> None:
    alone = simulate(task, LEVELS, seed=3, threads=1, **ROUNDS)
    with thread_pool(2) as helpers:
        spare = Spare(helpers, runs=2, threads=2)
        assert spare.pool() is None
        assert same(alone, simulate(task, LEVELS, seed=3, threads=spare, **ROUNDS))
        spare.release()
        assert spare.pool() is helpers
        assert same(alone, simulate(task, LEVELS, seed=3, threads=spare, **ROUNDS))
    runs: list[tuple[npt.ArrayLike, int]] = [(0.05, 3), (LEVELS, 3)]
    assert same(alone, simulate_runs(task, runs, threads=2, **ROUNDS)[1])


@pytest.mark.parametrize("chunk", [64, CHUNK])
@pytest.mark.parametrize("form", ["32 bits", "8 bits", "groups"])
def test_resumed_is_uninterrupted(
    task: LogisticRegression,
    tmp_path: Path,
    form: str,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedprice._plumbing.rows.CHUNK", chunk)
    path = tmp_path / "run.npz"
    size = sum(array.size for array in task.initial)
    memory = {
        "32 bits": Memory(),
        "8 bits": Memory(limit=bytes_needed(8, size, 32) - 1),
        "groups": Memory(groups=np.arange(8) // 2),
    }[form]

    def stop(done: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    settings = ROUNDS | {"aggregator": memory, "seed": 3}
    whole = simulate(task, LEVELS, **settings)
    with pytest.raises(KeyboardInterrupt):
        simulate(task, LEVELS, checkpoint=path, progress=stop, **settings)
    seen: list[int] = []
    resumed = simulate(task, LEVELS, checkpoint=path, progress=seen.append, **settings)
    assert seen[0] == 6  # the last checkpoint was after five rounds
    assert same(whole, resumed)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]
    with pytest.raises(InputError, match="the checkpoint of another run"):
        simulate(task, 0.5, checkpoint=path, **settings)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match="is not a checkpoint"):
        simulate(task, LEVELS, checkpoint=path, **settings)


def test_one_failed_run_stops_the_others(task: LogisticRegression) -> None:
    """An error, or Ctrl-C, in one of many runs ends all of them at their next round."""
    seen = 0

    def progress(done: int) -> None:
        nonlocal seen
        seen += 1
        if done == 3:
            raise KeyboardInterrupt

    runs = [(LEVELS, seed) for seed in range(40)]
    with pytest.raises(KeyboardInterrupt):
        simulate_runs(task, runs, progress=progress, threads=2, **ROUNDS)
    assert seen < 40
    with pytest.raises(InputError, match="`checkpoint` belongs to one run"):
        simulate_runs(task, runs, checkpoint="x.npz")
    with pytest.raises(InputError, match="one file for each of the 1 runs; got 2"):
        simulate_runs(task, [(0.5, 0)], checkpoints=["a.npz", "b.npz"])


@pytest.mark.slow
def test_a_process_that_compiles_gives_the_same_bits(tmp_path: Path) -> None:
    """Without a compiled cache, with one, and again: the same model."""
    program = (
        "from fedprice.data.synthetic import synthetic; "
        "import fedprice as fp; import hashlib; "
        "f = synthetic(num_clients=6, samples=600); "
        "task = fp.LogisticRegression(f, fp.Training(local_steps=30)); "
        "h = fp.simulate(task, 0.7, rounds=4); "
        "print(hashlib.sha256(h.model[0].tobytes()).hexdigest())"
    )
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    prints = {
        subprocess.run(
            [sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True
        ).stdout
        for _ in range(3)
    }
    assert len(prints) == 1


def test_checkpoints_know_their_learning_rate(federation: Federation, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    settings = ROUNDS | {"aggregator": HorvitzThompson()}  # with memory, a cut file goes on earlier

    def with_rate(rate: float) -> LogisticRegression:
        return LogisticRegression(federation, replace(TRAINING, rate=lambda _: rate))

    simulate(with_rate(0.1), LEVELS, checkpoint=path, **settings)
    with pytest.raises(InputError, match="the checkpoint of another run"):
        simulate(with_rate(0.02), LEVELS, checkpoint=path, **settings)
    again = with_rate(0.1)
    whole = simulate(again, LEVELS, **settings)
    assert same(whole, simulate(again, LEVELS, checkpoint=path, **settings))
    for cut in (10, 1000, 3000):
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(InputError, match="is not a checkpoint"):
            simulate(again, LEVELS, checkpoint=path, **settings)


def test_lost_deliveries_are_weighed_up(task: LogisticRegression) -> None:
    all_come = simulate(task, 1.0, **ROUNDS)
    half = simulate(task, 1.0, delivery=0.5, **ROUNDS)
    assert all_come.joined.tolist() == [8] * 12
    assert 0 < half.joined.mean() < 8
    assert half.largest_weight.max() == pytest.approx(task.weight.max() / 0.5)


def test_the_aggregator_gets_levels_times_delivery(task: LogisticRegression) -> None:
    """One round: the model is the sum of a / (q ρ) times the updates of those who delivered."""
    rho = np.linspace(0.4, 0.9, 8)
    once: dict[str, Any] = {"rounds": 1, "seed": 5, "aggregator": HorvitzThompson()}
    alone = [simulate(task, np.eye(8)[n], **once).model[0] / task.weight[n] for n in range(8)]
    history = simulate(task, LEVELS, delivery=rho, **once)
    heads = [n for n in joiners(5, 0, LEVELS) if uniform(key(5, DELIVERIES, 0, int(n))) < rho[n]]
    assert history.joined.tolist() == [len(heads)]
    expected = sum(task.weight[n] / (LEVELS[n] * rho[n]) * alone[n] for n in heads)
    assert history.model[0] == pytest.approx(expected, abs=1e-5 * np.abs(expected).max())


def test_the_largest_gradient_is_that_of_all_rounds(task: LogisticRegression) -> None:
    found = [simulate(task, 1.0, rounds=rounds, seed=5).grad_norm_max for rounds in (1, 4, 12)]
    assert (np.diff(found, axis=0) >= 0).all()


def test_who_does_not_deliver_still_takes_time(task: LogisticRegression) -> None:
    clock = Clock(compute=np.arange(1.0, 9.0), transfer=np.ones(8))
    lost = np.ones(8)
    lost[7] = 0.0
    history = simulate(task, 1.0, delivery=lost, clock=clock, **ROUNDS)
    assert history.time[-1] == pytest.approx(12 * 9.0)


def test_nobody_joins_nothing_changes(task: LogisticRegression) -> None:
    history = simulate(task, 0.0, **ROUNDS)
    assert history.joined.sum() == 0
    assert (history.model[0] == 0).all()
    assert np.isnan(history.grad_norm).all()
    assert history.loss == pytest.approx(np.full(4, np.log(task.federation.num_classes)))


def test_drawn_clocks_compute_every_step_and_move_the_model_both_ways() -> None:
    equal = Clock.draw(3, model_size=1000, local_steps=50, step_time=0.01, link=4000, spread=0)
    assert equal.compute == pytest.approx(np.full(3, 0.5))
    assert equal.transfer == pytest.approx(np.full(3, 2.0))  # 4,000 bytes each way
    many = Clock.draw(100_000, model_size=1000, local_steps=50, step_time=0.01, link=4000)
    assert many.compute.mean() == pytest.approx(0.5, rel=0.01)
    assert many.transfer.mean() == pytest.approx(2.0, rel=0.01)


def test_simulated_time(task: LogisticRegression) -> None:
    clock = Clock.draw(8, model_size=610, seed=1)
    history = simulate(task, LEVELS, clock=clock, **ROUNDS)
    assert (np.diff(history.time) > 0).all()
    shared = replace(clock, shared=True)
    both = np.array([1, 4])
    assert shared.round_time(both) == max(clock.compute[both]) + clock.transfer[both].sum()
    own = clock.compute[both] + clock.transfer[both]
    assert clock.round_time(both) == own.max()
    assert clock.round_time(np.array([2])) == clock.compute[2] + clock.transfer[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"levels": 1.5}, "`levels` must lie between 0 and 1"),
        ({"levels": [0.5, 0.5]}, r"`levels` must have shape \(8,\)"),
        ({"levels": 0.5, "delivery": np.nan}, "`delivery` must lie between 0 and 1"),
        ({"levels": 0.5, "clock": Clock([1.0], [1.0])}, "`clock` must have 8 clients; got 1"),  # type: ignore[arg-type]
        ({"levels": 0.5, "threads": -1}, "`threads` must be at least 1"),
        ({"levels": 0.5, "seed": 2**63}, "`seed` must be a whole number from 0"),
        ({"levels": 0.5, "rounds": 0}, "`rounds` must be a whole number, at least 1; got 0"),
        ({"levels": 0.5, "evaluate_every": 0}, "`evaluate_every` must be a whole number"),
        ({"levels": "half"}, "`levels` must be numbers"),
    ],
)
def test_bad_input(task: LogisticRegression, change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(task, **(ROUNDS | change))


def test_bad_training() -> None:
    with pytest.raises(InputError, match="`local_steps` must be a whole number"):
        Training(local_steps=0)
    for l2 in (-1, 1e7):
        with pytest.raises(InputError, match=r"`l2` must be at least 0 and below 1e6; got -?1"):
            Training(l2=l2)
    with pytest.raises(InputError, match="`rate` must be a function"):
        Training(rate=0.1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`rate` must be above 0"):
        Training(rate=Decay(-1, 2))
    assert Training(local_steps=np.int64(5)).local_steps == 5  # type: ignore[arg-type]


def test_whole_numbers_of_numpy_are_whole_numbers(task: LogisticRegression) -> None:
    assert simulate(task, 0.5, rounds=np.int64(2)).rounds.tolist() == [0, 2]  # type: ignore[arg-type]


def test_what_is_no_task_is_refused(federation: Federation) -> None:
    with pytest.raises(InputError, match=r"`task` must be a Task; got Federation\. Make one with"):
        simulate(federation, 0.5)  # type: ignore[arg-type]


def test_many_clients_in_one_process() -> None:
    """100,000 clients, a thousandth joins: coins and updates cost only what joins."""
    count = 100_000
    x = np.random.default_rng(0).random((count, 5), dtype=np.float32)
    y = (x[:, 0] > 0.5).astype(np.int32)
    federation = Federation("many", x, y, np.arange(count + 1), x[:10], y[:10], num_classes=2)
    task = LogisticRegression(federation, Training(local_steps=2))
    history = simulate(task, 1e-3, rounds=3, evaluate_every=3)
    assert 50 < history.joined.mean() < 150


def test_memory_does_not_grow_with_the_joiners() -> None:
    """2,000 updates of 40 kB a round, but no more than a few of them at a time."""
    x = np.random.default_rng(0).random((2000, 400), dtype=np.float32)
    y = np.arange(2000, dtype=np.int32) % 25
    federation = Federation("wide", x, y, np.arange(2001), x[:1], y[:1], num_classes=25)
    task = LogisticRegression(federation, Training(local_steps=1, batch=1))
    simulate(task, 0.01, rounds=1)  # compiles, and pads the data
    tracemalloc.start()
    simulate(task, 1.0, rounds=1, aggregator=HorvitzThompson())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 15e6
