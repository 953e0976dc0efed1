"""The engine: equal to the oracle, to itself on any threads, and to itself after a stop."""

import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fedprice import InputError
from fedprice.data import Federation
from fedprice.data.synthetic import synthetic
from fedprice.learning import (
    Aggregator,
    Clock,
    Decay,
    Difference,
    DivergedError,
    FedAvg,
    History,
    HorvitzThompson,
    Training,
    engine,
    oracle,
    simulate,
    simulate_runs,
)
from fedprice.learning.draws import DELIVERIES, batch_rows, joiners, key, uniform
from fedprice.learning.layout import prepared

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
LEVELS = np.linspace(0.2, 0.9, 8)
TRAINING = Training(rounds=12, local_steps=20, evaluate_every=5)


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


def same(one: History, other: History) -> bool:
    names = ("rounds", "loss", "accuracy", "time", "joined", "largest_weight", "model")
    return all(np.array_equal(getattr(one, n), getattr(other, n)) for n in names) and all(
        np.array_equal(getattr(one, n), getattr(other, n), equal_nan=True)
        for n in ("grad_norm", "grad_norm_max")
    )


@pytest.mark.parametrize("aggregator", [HorvitzThompson(), FedAvg(), Difference()])
@pytest.mark.parametrize("l2", [0.0, 0.01])
@pytest.mark.parametrize("batch", [24, 7])
def test_engine_is_the_oracle(
    federation: Federation, aggregator: Aggregator, l2: float, batch: int
) -> None:
    training = replace(TRAINING, l2=l2, batch=batch)
    history = simulate(federation, LEVELS, training=training, aggregator=aggregator, seed=4)
    model, evaluations = oracle.train(federation, LEVELS, training, aggregator, 4)
    assert history.rounds.tolist() == [r for r, _, _ in evaluations] == [0, 5, 10, 12]
    assert history.loss == pytest.approx([loss for _, loss, _ in evaluations], abs=2e-5)
    assert history.accuracy == pytest.approx([a for _, _, a in evaluations], abs=0.01)
    assert np.abs(history.model - model).max() < 1e-5 * np.abs(model).max()


def test_both_forms_are_used_and_agree() -> None:
    """Few samples take the Gram form, many the direct one; both give the oracle's update."""
    federation = many_features()
    training = Training(rounds=1, local_steps=100, l2=0.01)
    at = prepared(federation, training.seen).gram_at
    assert (at >= 0).any()
    assert (at < 0).any()
    history = simulate(federation, 1.0, training=training, seed=1)
    model, _ = oracle.train(federation, np.ones(8), training, HorvitzThompson(), 1)
    assert np.abs(history.model - model).max() < 2e-5 * np.abs(model).max()


def test_gradient_norms_are_the_oracles(federation: Federation) -> None:
    history = simulate(federation, 1.0, training=Training(rounds=1, local_steps=30, l2=0.1))
    x = oracle.with_bias(federation.features)
    for n in range(8):
        own = slice(federation.offsets[n], federation.offsets[n + 1])
        rows = batch_rows(0, 0, n, 30, 24, int(federation.samples[n]))
        start = np.zeros((federation.num_classes, x.shape[1]))
        _, squares = oracle.local_update(start, x[own], federation.labels[own], rows, 0.1, 0.1)
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


def test_threads_and_company_do_not_change_a_bit(federation: Federation) -> None:
    settings = {"training": TRAINING, "aggregator": Difference()}
    alone = simulate(federation, LEVELS, seed=3, threads=1, **settings)  # type: ignore[arg-type]
    for threads in (2, 5):
        other = simulate(federation, LEVELS, seed=3, threads=threads, **settings)  # type: ignore[arg-type]
        assert same(alone, other)
    many = simulate_runs(federation, [(LEVELS, 3), (LEVELS, 4), (0.5, 3)], **settings)  # type: ignore[arg-type]
    assert same(alone, many[0])
    assert not same(alone, many[1])


def test_resumed_is_uninterrupted(federation: Federation, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"

    def stop(done: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    settings = {"training": TRAINING, "aggregator": Difference(), "seed": 3}
    whole = simulate(federation, LEVELS, **settings)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        simulate(federation, LEVELS, checkpoint=path, progress=stop, **settings)  # type: ignore[arg-type]
    seen: list[int] = []
    resumed = simulate(federation, LEVELS, checkpoint=path, progress=seen.append, **settings)  # type: ignore[arg-type]
    assert seen[0] == 6  # the last checkpoint was after five rounds
    assert same(whole, resumed)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]
    with pytest.raises(InputError, match="the checkpoint of another run"):
        simulate(federation, 0.5, checkpoint=path, **settings)  # type: ignore[arg-type]
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match="is no checkpoint"):
        simulate(federation, LEVELS, checkpoint=path, **settings)  # type: ignore[arg-type]


def test_divergence_names_client_round_and_weight(federation: Federation) -> None:
    wild = Training(rounds=50, local_steps=20, rate=Decay(10.0, 1.0), l2=1.0)
    with pytest.raises(DivergedError, match=r"after round \d+: the update of client \d+ is not"):
        simulate(federation, 0.3, training=wild)
    run = engine._Run(
        federation, LEVELS, np.ones(8), TRAINING, HorvitzThompson(), clock=None, seed=0
    )
    largest = int(np.argmax(federation.weight[:3] / LEVELS[:3]))
    message = f"after round 5; the largest weight a/q .*, of client {largest} at level"
    with pytest.raises(DivergedError, match=message):
        run.require_finite(np.array([np.inf]), np.arange(3), np.zeros((3, 1), np.float32), 4)


def test_one_failed_run_stops_the_others(federation: Federation) -> None:
    """An error, or Ctrl-C, in one of many runs ends all of them at their next round."""
    seen = 0

    def progress(done: int) -> None:
        nonlocal seen
        seen += 1
        if done == 3:
            raise KeyboardInterrupt

    runs = [(LEVELS, seed) for seed in range(40)]
    with pytest.raises(KeyboardInterrupt):
        simulate_runs(federation, runs, training=TRAINING, progress=progress, threads=2)
    assert seen < 40
    with pytest.raises(InputError, match="`checkpoint` belongs to one run"):
        simulate_runs(federation, runs, checkpoint="x.npz")


def test_a_process_that_compiles_gives_the_same_bits(tmp_path: Path) -> None:
    """Without a compiled cache, with one, and again: the same model."""
    program = (
        "from fedprice.data.synthetic import synthetic; "
        "import fedprice.learning as fl; import hashlib; "
        "f = synthetic(num_clients=6, samples=600); "
        "h = fl.simulate(f, 0.7, training=fl.Training(rounds=4, local_steps=30)); "
        "print(hashlib.sha256(h.model.tobytes()).hexdigest())"
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
    fast, slow = replace(TRAINING, rate=lambda _: 0.1), replace(TRAINING, rate=lambda _: 0.02)
    simulate(federation, LEVELS, training=fast, checkpoint=path)
    with pytest.raises(InputError, match="the checkpoint of another run"):
        simulate(federation, LEVELS, training=slow, checkpoint=path)
    again = replace(TRAINING, rate=lambda _: 0.1)
    whole = simulate(federation, LEVELS, training=again)
    assert same(whole, simulate(federation, LEVELS, training=again, checkpoint=path))
    for cut in (10, 1000, 3000):
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(InputError, match="is no checkpoint"):
            simulate(federation, LEVELS, training=again, checkpoint=path)


def test_lost_deliveries_are_weighed_up(federation: Federation) -> None:
    all_come = simulate(federation, 1.0, training=TRAINING)
    half = simulate(federation, 1.0, training=TRAINING, delivery=0.5)
    assert all_come.joined.tolist() == [8] * 12
    assert 0 < half.joined.mean() < 8
    assert half.largest_weight.max() == pytest.approx(federation.weight.max() / 0.5)


def test_the_aggregator_gets_levels_times_delivery(federation: Federation) -> None:
    """One round: the model is the sum of a / (q ρ) times the updates of those who delivered."""
    one = replace(TRAINING, rounds=1)
    rho = np.linspace(0.4, 0.9, 8)
    alone = [
        simulate(federation, np.eye(8)[n], training=one, seed=5).model / federation.weight[n]
        for n in range(8)
    ]
    history = simulate(federation, LEVELS, training=one, delivery=rho, seed=5)
    heads = [n for n in joiners(5, 0, LEVELS) if uniform(key(5, DELIVERIES, 0, int(n))) < rho[n]]
    assert history.joined.tolist() == [len(heads)]
    expected = sum(federation.weight[n] / (LEVELS[n] * rho[n]) * alone[n] for n in heads)
    assert history.model == pytest.approx(expected, abs=1e-5 * np.abs(expected).max())


def test_who_does_not_deliver_still_takes_time(federation: Federation) -> None:
    clock = Clock(compute=np.arange(1.0, 9.0), transfer=np.ones(8))
    lost = np.ones(8)
    lost[7] = 0.0
    history = simulate(federation, 1.0, training=TRAINING, delivery=lost, clock=clock)
    assert history.time[-1] == pytest.approx(12 * 9.0)


def test_nobody_joins_nothing_changes(federation: Federation) -> None:
    history = simulate(federation, 0.0, training=TRAINING)
    assert history.joined.sum() == 0
    assert (history.model == 0).all()
    assert np.isnan(history.grad_norm).all()
    assert history.loss == pytest.approx(np.full(4, np.log(federation.num_classes)))


def test_simulated_time(federation: Federation) -> None:
    clock = Clock.draw(8, model_size=610, seed=1)
    history = simulate(federation, LEVELS, training=TRAINING, clock=clock)
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
    ],
)
def test_bad_input(federation: Federation, change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(federation, training=TRAINING, **change)  # type: ignore[arg-type]


def test_bad_training() -> None:
    with pytest.raises(InputError, match="`rounds` must be a whole number"):
        Training(rounds=0)
    for l2 in (-1, 1e7):
        with pytest.raises(InputError, match=r"`l2` must be at least 0 and below 1e6; got -?1"):
            Training(l2=l2)
    with pytest.raises(InputError, match="`rate` must be a function"):
        Training(rate=0.1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`rate` must be above 0"):
        Training(rate=Decay(-1, 2))
    assert Training(rounds=np.int64(5)).rounds == 5  # type: ignore[arg-type]


def test_many_clients_in_one_process() -> None:
    """100,000 clients, a thousandth joins: coins and updates cost only what joins."""
    count = 100_000
    x = np.random.default_rng(0).random((count, 5), dtype=np.float32)
    y = (x[:, 0] > 0.5).astype(np.int32)
    federation = Federation("many", x, y, np.arange(count + 1), x[:10], y[:10], num_classes=2)
    history = simulate(
        federation, 1e-3, training=Training(rounds=3, local_steps=2, evaluate_every=3)
    )
    assert 50 < history.joined.mean() < 150


def test_memory_does_not_grow_with_the_joiners() -> None:
    """2,000 updates of 40 kB a round, but no more than a few of them at a time."""
    x = np.random.default_rng(0).random((2000, 400), dtype=np.float32)
    y = np.arange(2000, dtype=np.int32) % 25
    federation = Federation("wide", x, y, np.arange(2001), x[:1], y[:1], num_classes=25)
    training = Training(rounds=1, local_steps=1, batch=1)
    simulate(federation, 0.001, training=training)  # compiles, and pads the data
    tracemalloc.start()
    simulate(federation, 1.0, training=training)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 15e6
