"""Spaced coins: exact counts, exact probabilities, and independent coins bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprice import InputError
from fedprice.data.synthetic import synthetic
from fedprice.learning import LogisticRegression, Training
from fedprice.learning.draws import joiners
from fedprice.rounds import History, run_fingerprint, simulate, simulate_runs, training_fingerprint
from fedprice.rounds.aggregation import HorvitzThompson
from fedprice.rounds.coins import WHOLE, BlockCoins, SpacedCoins, coins_of, picked
from tests.tasks import small_task

LEVELS = np.array([0.0, 1e-3, 0.1, 0.25, 1 / 3, 0.5, 0.77, 1.0])
KINDS = ["spaced", "blocks", "shared"]
ROUNDS: dict[str, Any] = {"rounds": 12, "evaluate_every": 5, "seed": 3}


def heads(kind: str, levels: np.ndarray, rounds: int, seed: int = 5) -> np.ndarray:
    """Return who draws heads, shape (rounds, num_clients)."""
    coins = coins_of(kind, levels, seed, small_task(levels.size))
    found = np.zeros((rounds, levels.size), bool)
    for r in range(rounds):
        found[r, coins.heads(r)] = True
    return found


def windows(drawn: np.ndarray, length: int) -> np.ndarray:
    """Return the number of heads in every window, shape (windows, num_clients)."""
    sums = np.cumsum(np.vstack([np.zeros(drawn.shape[1], int), drawn]), axis=0)
    found: np.ndarray = sums[length:] - sums[:-length]
    return found


@pytest.mark.parametrize("length", [1, 2, 7, 40, 333])
def test_spaced_windows_have_the_floor_or_the_ceiling(length: int) -> None:
    counts = windows(heads("spaced", LEVELS, 2000), length)
    whole = np.rint(LEVELS * WHOLE).astype(int) * length
    assert (counts >= whole // WHOLE).all()
    assert (counts <= -(-whole // WHOLE)).all()


def test_blocks_have_one_join_each() -> None:
    """Windows of k blocks have k − 1 to k + 1 joins, and all places of a block are used."""
    drawn = heads("blocks", np.full(50, 0.1), 5000)
    counts = windows(drawn, 100)
    assert counts.min() == 9
    assert counts.max() == 11
    gaps = np.diff(np.flatnonzero(drawn[:, 0]))
    assert set(gaps) == set(range(1, 20))


@pytest.mark.parametrize("kind", KINDS)
def test_levels_0_and_1_are_certain(kind: str) -> None:
    drawn = heads(kind, LEVELS, 300)
    assert not drawn[:, 0].any()
    assert drawn[:, -1].all()


@pytest.mark.parametrize("kind", ["spaced", "blocks"])
@pytest.mark.parametrize("level", [0.1, 1 / 3, 0.77])
def test_every_round_has_probability_q(kind: str, level: float) -> None:
    """100,000 clients, in the first rounds and a late one: six standard errors."""
    coins = coins_of(kind, np.full(100_000, level), 0, small_task(100_000))
    for round_ in (0, 1, 2, 10**6):
        assert coins.heads(round_).size / 100_000 == pytest.approx(level, abs=0.01)


@pytest.mark.parametrize("whole", [12, 17])
def test_probabilities_are_exact_over_all_phases(whole: int) -> None:
    phases = np.arange(whole)
    for number in range(whole + 1):
        level = np.full(whole, number)
        spaced = SpacedCoins(level, phases, step=level, whole=whole)
        shared = SpacedCoins(level, phases - 5, step=7, whole=whole)
        for round_ in range(3 * whole):
            assert spaced.heads(round_).size == shared.heads(round_).size == number
            for luck in np.linspace(0, 2**31 - 1, 30).astype(int):
                lucks = np.full(whole, luck)
                total = phases + round_ * level
                assert picked(total, level, lucks, whole).sum() == number


def test_places_in_a_block_are_equally_likely() -> None:
    """A level of 3 in 12: blocks of four rounds, of which each is picked a quarter of the time."""
    luck = np.arange(0, 2**31, 2**23)
    for phase in range(12):
        for round_ in range(8):
            total = np.full(luck.size, phase + 3 * round_)
            assert picked(total, np.full(luck.size, 3), luck, 12).mean() == 0.25


def test_shared_coins_have_a_fixed_number_of_joiners() -> None:
    levels = np.random.default_rng(0).random(40)
    for kind, fixed in (("shared", True), ("spaced", False)):
        counts = set(heads(kind, levels, 500).sum(axis=1).tolist())
        both = {int(levels.sum()), int(levels.sum()) + 1}
        assert (counts == both) == fixed


def test_shared_coins_spread_over_labels() -> None:
    """Twenty clients with two labels, in turn: a quarter of either kind joins, or one more."""
    task = LogisticRegression(synthetic(num_clients=20, samples=2000))
    order = task.label_order()
    coins = coins_of("shared", np.full(20, 0.25), 0, task)
    common = [np.bincount(task.federation.client(n)[1]).argmax() for n in order]
    assert common == sorted(common)
    for round_ in range(50):
        places = np.flatnonzero(np.isin(order, coins.heads(round_)))
        assert set(np.diff(places)) == {4}


def test_a_hundred_thousand_clients() -> None:
    levels = np.random.default_rng(1).random(100_000)
    for kind in KINDS:
        coins = coins_of(kind, levels, 1, small_task(100_000))
        assert coins.heads(999).size == pytest.approx(levels.sum(), abs=1000)
        assert coins.levels == pytest.approx(levels, abs=2**-33)


def test_places_differ_between_clients_and_blocks() -> None:
    coins = BlockCoins(np.full(1000, WHOLE // 10), np.zeros(1000, np.int64), seed=0)
    counts = [coins.heads(r).size for r in range(20)]
    assert min(counts) > 50
    assert max(counts) < 150


def test_independent_coins_are_those_of_before() -> None:
    drawn = heads("independent", LEVELS, 50)
    assert all(
        np.flatnonzero(drawn[r]).tolist() == joiners(5, r, LEVELS).tolist() for r in range(50)
    )


@pytest.fixture(scope="module")
def task() -> LogisticRegression:
    return LogisticRegression(synthetic(num_clients=8, samples=800), Training(local_steps=5))


def same(one: History, other: History) -> bool:
    return np.array_equal(one.loss, other.loss) and np.array_equal(one.joined, other.joined)


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_is_uninterrupted(task: LogisticRegression, tmp_path: Path, kind: str) -> None:
    def stop(done: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    path, settings = tmp_path / "run.npz", ROUNDS | {"coins": kind}
    with pytest.raises(KeyboardInterrupt):
        simulate(task, LEVELS, checkpoint=path, progress=stop, **settings)
    resumed = simulate(task, LEVELS, checkpoint=path, **settings)
    assert same(resumed, simulate(task, LEVELS, **settings))
    assert same(resumed, simulate_runs(task, [(LEVELS, 3)], rounds=12, evaluate_every=5,
                                       coins=kind)[0])  # fmt: skip
    with pytest.raises(InputError, match="the checkpoint of another run"):
        simulate(task, LEVELS, checkpoint=path, **ROUNDS)


def test_fingerprints_contain_the_coins() -> None:
    task, settings = small_task(), dict[str, Any](rounds=9, seed=1)
    # Made by the version before there were spaced coins.
    known = "019274acedc09cfc616af22ed1c5faeebb7d725b66762d218b24b21d515c0c3f"
    assert training_fingerprint(task, 0.5, **settings) == known
    assert training_fingerprint(task, 0.5, coins="independent", **settings) == known
    found = {training_fingerprint(task, 0.5, coins=kind, **settings) for kind in KINDS} | {known}
    assert len(found) == 4
    of_runs = {run_fingerprint(task, 0.5, aggregator=HorvitzThompson(), coins=kind, **settings)
               for kind in KINDS}  # fmt: skip
    assert len(of_runs) == 3


def test_unknown_coins_are_refused(task: LogisticRegression) -> None:
    with pytest.raises(InputError, match="must be independent, spaced, blocks or shared; got 'x'"):
        simulate(task, 0.5, coins="x")
