"""Lemma 1 by enumeration of all joins, FedAvg's bias by the same, and the difference estimator."""

import itertools

import numpy as np
import pytest

from fedprice.learning import Aggregator, Difference, FedAvg, HorvitzThompson

COUNT, SIZE = 10, 3
RNG = np.random.default_rng(9)
WEIGHT = RNG.dirichlet(np.ones(COUNT))
LEVELS = RNG.uniform(0.1, 0.95, COUNT)
UPDATES = RNG.normal(size=(COUNT, SIZE)).astype(np.float32)
FULL = WEIGHT @ UPDATES


def moments(aggregator: Aggregator, last: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """The exact mean, and mean squared distance from full participation, over all 2^N joins."""
    mean, spread = np.zeros(SIZE), 0.0
    for joins in itertools.product([False, True], repeat=COUNT):
        joined = np.flatnonzero(joins)
        state = aggregator.start(COUNT, SIZE)
        if last is not None:
            state["last"][:] = last
            state["expected"][:] = WEIGHT @ last
        step = aggregator.step(state, joined, UPDATES[joined], WEIGHT, LEVELS)
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


def test_difference_is_unbiased_and_far_less_random() -> None:
    last = UPDATES + 0.1 * RNG.normal(size=UPDATES.shape).astype(np.float32)
    mean, spread = moments(Difference(), last)
    assert mean == pytest.approx(FULL, abs=1e-6)
    assert spread < moments(HorvitzThompson())[1] / 20


def test_difference_remembers() -> None:
    state = Difference().start(COUNT, SIZE)
    joined = np.array([1, 4])
    Difference().step(state, joined, UPDATES[joined], WEIGHT, LEVELS)
    assert np.array_equal(state["last"][joined], UPDATES[joined])
    assert state["expected"] == pytest.approx(WEIGHT @ state["last"], abs=1e-7)


@pytest.mark.parametrize("aggregator", [HorvitzThompson(), FedAvg(), Difference()])
def test_a_round_in_parts_is_the_round(aggregator: Aggregator) -> None:
    joined = np.array([0, 2, 3, 5, 8, 9])
    states = [aggregator.start(COUNT, SIZE) for _ in range(2)]
    for state in states:  # so that there is something to remember
        aggregator.step(state, joined[2:4], UPDATES[joined[2:4]], WEIGHT, LEVELS)
    whole = aggregator.step(states[0], joined, UPDATES[joined] + 1, WEIGHT, LEVELS)
    parts = sum(
        aggregator.step(states[1], some, UPDATES[some] + 1, WEIGHT, LEVELS, joined)
        for some in (joined[:1], joined[1:4], joined[4:])
    )
    assert parts == pytest.approx(whole, abs=1e-7)
    for name, array in states[0].items():
        assert states[1][name] == pytest.approx(array, abs=1e-7)
