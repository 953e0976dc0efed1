"""Aggregators: refusals change nothing but who is in, and the mean over all coins is exact."""

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray, State
from fedprice.learning import Task
from fedprice.learning.task import Updates
from fedprice.rounds import AGGREGATORS, Aggregator, FedAvg, Hajek, HorvitzThompson
from fedprice.rounds.aggregation import Arrivals
from fedprice.rounds.loop import Rounds
from fedprice.rounds.server_step import Plain
from tests.tasks import small_task

COUNT, SIZE = 10, 3
RNG = np.random.default_rng(9)
WEIGHT = RNG.dirichlet(np.ones(COUNT))
LEVELS = RNG.uniform(0.1, 0.95, COUNT)
UPDATES = RNG.normal(size=(COUNT, SIZE)).astype(np.float32)
FULL = WEIGHT @ UPDATES
EVERY = pytest.mark.parametrize("aggregator", AGGREGATORS.values(), ids=list(AGGREGATORS))


def taken(
    aggregator: Aggregator, state: State, joined: IntArray, updates: npt.NDArray[np.float32]
) -> tuple[FloatArray, State]:
    """Take a round in one part; the given state is left as is."""
    state = {name: array.copy() for name, array in state.items()}
    round_ = aggregator.begin(state, Arrivals(joined, WEIGHT, LEVELS, SIZE))
    round_.add(joined, updates)
    return round_.finish(), round_.state()


def moments(aggregator: Aggregator) -> tuple[np.ndarray, float]:
    """The exact mean, and mean squared distance from full participation, over all 2^N joins."""
    mean, spread = np.zeros(SIZE), 0.0
    state = aggregator.start(COUNT, SIZE)
    for joins in itertools.product([False, True], repeat=COUNT):
        joined = np.flatnonzero(joins)
        step, _ = taken(aggregator, state, joined, UPDATES[joined])
        probability = np.prod(np.where(joins, LEVELS, 1 - LEVELS))
        mean += probability * step
        spread += probability * float(((step - FULL) ** 2).sum())
    return mean, spread


def test_lemma_1_horvitz_thompson_is_unbiased() -> None:
    mean, spread = moments(HorvitzThompson())
    assert mean == pytest.approx(FULL, abs=1e-6)
    exact = np.sum(WEIGHT**2 * (1 - LEVELS) / LEVELS * (UPDATES**2).sum(axis=1))
    assert spread == pytest.approx(exact, rel=1e-5)


def test_fedavg_is_biased() -> None:
    mean, _ = moments(FedAvg())
    assert np.abs(mean - FULL).max() > 0.02


class Coins:
    """Participation that replays given coins, round by round."""

    def __init__(self, arrival: FloatArray, *heads: IntArray) -> None:
        self._arrival, self._heads = arrival, heads

    def heads(self, round_: int) -> IntArray:
        return self._heads[round_]

    def arrival(self) -> FloatArray:
        return self._arrival


class Refusing:
    """Admission that refuses given clients in the second round."""

    def __init__(self, refused: IntArray) -> None:
        self._refused = refused

    def __call__(self, round_: int, clients: IntArray, _: Updates) -> BoolArray:
        return np.array([round_ != 1 or n not in self._refused for n in clients.tolist()])


def loop_of(
    task: Task, aggregator: Aggregator, coins: Coins, refused: IntArray | None = None
) -> Rounds:
    return Rounds(
        task.initial,
        ids=task.ids,
        weight=task.weight,
        total=2,
        participation=coins,
        aggregator=aggregator,
        server_step=Plain(),
        admit=None if refused is None else Refusing(refused),
    )


def take(task: Task, loop: Rounds, parts: list[IntArray], expected: IntArray | None = None) -> None:
    round_ = loop.begin()
    if expected is not None:
        round_.expect(expected)
    for part in parts:
        round_.arrive(part, task.updates(round_.model, part, round_.number, 7))
    round_.close()


HEADS = np.array([0, 1, 3, 4, 6, 8, 9])
PARTS = {
    "one part": [HEADS],
    "parts": [HEADS[:2], HEADS[2:5], HEADS[5:]],
    "single ones": [HEADS[i : i + 1] for i in range(HEADS.size)],
}
REFUSED = {
    "first": HEADS[:1],
    "last": HEADS[-1:],
    "first and last": HEADS[[0, -1]],
    "a whole part": HEADS[2:5],
    "the first part": HEADS[:2],
    "the last part": HEADS[5:],
    "all but one": HEADS[[0, 1, 2, 4, 5, 6]],
    "everything": HEADS,
}


@EVERY
@pytest.mark.parametrize("parts", PARTS.values(), ids=list(PARTS))
@pytest.mark.parametrize("refused", REFUSED.values(), ids=list(REFUSED))
def test_a_refused_update_leaves_the_round_of_the_others(
    aggregator: Aggregator, parts: list[IntArray], refused: IntArray
) -> None:
    """Step and state are those of a round in which only the admitted ones were expected."""
    task = small_task(COUNT)
    coins = Coins(LEVELS, np.array([1, 2, 4, 8]), HEADS)
    admitted = np.setdiff1d(HEADS, refused)
    with_refusals = loop_of(task, aggregator, coins, refused)
    without = loop_of(task, aggregator, coins)
    for loop in (with_refusals, without):
        take(task, loop, [np.array([1, 2, 4, 8])])  # so that there is something to remember
    take(task, with_refusals, parts)
    take(task, without, [admitted] if admitted.size else [], expected=admitted)
    found, expected = with_refusals.state(), without.state()
    assert list(found) == list(expected)
    for name, array in expected.items():
        if isinstance(aggregator, FedAvg) and name == "model":  # it divides by another sum
            assert found[name] == pytest.approx(array, abs=1e-12)
        else:
            assert np.array_equal(found[name], array), name


def test_fedavg_is_right_as_soon_as_an_update_is_refused() -> None:
    """Once it was wrong: weights counted updates that never reached the model."""
    task, coins = small_task(COUNT), Coins(LEVELS, HEADS, HEADS)
    refused = HEADS[[1, 4]]
    admitted = np.setdiff1d(HEADS, refused)
    loop = loop_of(task, FedAvg(), coins, refused)
    take(task, loop, [HEADS])
    before = loop.vector
    second = task.updates(loop.model, admitted, 1, 7).values
    take(task, loop, [HEADS[:3], HEADS[3:]])
    own = task.weight[admitted]
    assert loop.vector - before == pytest.approx(own @ second / own.sum(), abs=1e-6)


class Enumeration(NamedTuple):
    """All outcomes of one round: probability, step, total weight of the admitted."""

    probability: FloatArray
    step: FloatArray
    total: FloatArray
    full: FloatArray
    updates: FloatArray
    weight: FloatArray
    arrival: FloatArray

    @property
    def mean(self) -> FloatArray:
        mean: FloatArray = self.probability @ self.step
        return mean


def enumeration(aggregator: Aggregator, seed: int = 0, count: int = 6) -> Enumeration:
    """All coins of the second round, and all refusals: half of the clients are refused at times."""
    task, rng = small_task(count, seed), np.random.default_rng([seed, 1])
    levels = rng.uniform(0.1, 0.9, count)
    kept = np.where(np.arange(count) % 2, 1.0, rng.uniform(0.4, 0.9, count))  # ρ
    weight, arrival, everyone = task.weight, levels * kept, np.arange(count)
    first = np.array([1, 2, 4])
    start = loop_of(task, aggregator, Coins(arrival, first))
    take(task, start, [first])
    begun, model, before = start.state(), start.model, start.vector
    updates = task.updates(model, everyone, 1, 7).values
    found = []
    for coins in itertools.product([False, True], repeat=count):
        heads = np.flatnonzero(coins)
        sometimes = heads[kept[heads] < 1]
        for refusals in itertools.product([False, True], repeat=sometimes.size):
            refused = sometimes[list(refusals)]
            loop = loop_of(task, aggregator, Coins(arrival, first, heads), refused)
            loop.restore({name: array.copy() for name, array in begun.items()})
            take(task, loop, [heads[:2], heads[2:]])
            probability = np.prod(np.where(coins, levels, 1 - levels))
            probability *= np.prod(np.where(refusals, 1 - kept[sometimes], kept[sometimes]))
            admitted = np.setdiff1d(heads, refused)
            total = float((weight[admitted] / arrival[admitted]).sum())
            found.append((probability, loop.vector - before, total))
    chances, steps, totals = map(np.array, zip(*found, strict=True))
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    return Enumeration(chances, steps, totals, weight @ updates, updates, weight, arrival)


UNBIASED = [
    HorvitzThompson(),
    *(AGGREGATORS[n] for n in ("unbiased-memory", "fedvarp", "fedstale")),
]


@pytest.mark.parametrize("aggregator", UNBIASED, ids=lambda one: one.name)
@pytest.mark.parametrize("seed", range(3))
def test_unbiased_over_all_coins_and_refusals(aggregator: Aggregator, seed: int) -> None:
    found = enumeration(aggregator, seed)
    assert found.mean == pytest.approx(found.full, abs=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_the_bias_of_hajek_is_the_stated_one(seed: int) -> None:
    """E[H] − Δ̄ = −Cov(H, W) with H = 0 where W = 0, and it is within the bound."""
    found = enumeration(Hajek(), seed)
    p, step, total = found.probability, found.step, found.total
    assert p @ total == pytest.approx(1, abs=1e-12)
    assert (total == 0).any()
    assert np.abs(step[total == 0]).max() == 0
    covariance = p @ (step * total[:, None]) - (p @ step) * (p @ total)
    bias = found.mean - found.full
    assert bias == pytest.approx(-covariance, abs=1e-13)
    spread = np.sum(found.weight**2 * (1 - found.arrival) / found.arrival)
    furthest = np.linalg.norm(found.updates - found.full, axis=1).max()
    bound = max(float(np.linalg.norm(found.full)), float(furthest)) * np.sqrt(spread)
    assert 1e-3 < np.linalg.norm(bias) < bound
    longest = np.linalg.norm(found.updates, axis=1).max()
    assert np.linalg.norm(step, axis=1).max() <= longest + 1e-12  # inside the convex hull


def test_fedavg_is_biased_over_all_coins_and_refusals() -> None:
    found = enumeration(FedAvg())
    assert np.abs(found.mean - found.full).max() > 0.02
