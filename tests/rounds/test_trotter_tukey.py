"""The partly normalised estimator: its bias by enumeration, and its two ends."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice._plumbing.arrays import FloatArray
from fedprice.errors import InputError
from fedprice.rounds import AGGREGATORS, Aggregator, Hajek, HorvitzThompson, TrotterTukey
from fedprice.rounds.aggregation.base import Arrivals

CLIENTS = 5


def estimate(
    aggregator: Aggregator,
    joined: Any,
    weight: FloatArray,
    levels: FloatArray,
    updates: FloatArray,
    parts: int = 1,
) -> FloatArray:
    size = updates.shape[1]
    clients = np.flatnonzero(joined)
    collector = aggregator.begin(
        aggregator.start(weight.size, size), Arrivals(clients, weight, levels, size)
    )
    for some in np.array_split(clients, parts):
        collector.add(some, updates[some])
    return collector.finish()


def federation(seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.full(CLIENTS, 0.7))
    return weight, rng.uniform(0.05, 1.0, CLIENTS), rng.normal(size=(CLIENTS, 3))


@given(seed=st.integers(0, 10**6), share=st.floats(0.01, 0.99))
def test_bias_is_the_covariance_with_the_total_weight_and_within_its_bound(
    seed: int, share: float
) -> None:
    weight, levels, updates = federation(seed)
    full, bias, covariance = weight @ updates, -(weight @ updates), np.zeros(3)
    for joined in itertools.product([False, True], repeat=CLIENTS):
        chance = np.where(joined, levels, 1 - levels).prod()
        step = estimate(TrotterTukey(share), joined, weight, levels, updates)
        bias = bias + chance * step
        covariance += chance * step * ((weight / levels)[list(joined)].sum() - 1)
    scale = np.linalg.norm(full) + np.linalg.norm(updates, axis=1).max()
    assert np.linalg.norm(bias + share * covariance) < 1e-10 * scale
    variance = (weight**2 * (1 - levels) / levels).sum()
    bound = share * np.sqrt(variance) * np.sqrt(1 + (1 - share) ** 2 * variance)
    assert np.linalg.norm(bias) <= bound * np.linalg.norm(updates, axis=1).max() + 1e-12
    assert variance <= (weight / levels).max()


@pytest.mark.parametrize(("share", "end"), [(1e-12, HorvitzThompson()), (1 - 1e-12, Hajek())])
def test_its_ends_are_horvitz_thompson_and_hajek(share: float, end: Aggregator) -> None:
    weight, levels, updates = federation(3)
    joined = np.array([True, False, True, True, False])
    own = estimate(TrotterTukey(share), joined, weight, levels, updates)
    np.testing.assert_allclose(own, estimate(end, joined, weight, levels, updates), rtol=1e-9)


def test_parts_change_no_bit_and_no_joiner_makes_no_step() -> None:
    weight, levels, updates = federation(4)
    everyone, nobody = np.ones(CLIENTS, bool), np.zeros(CLIENTS, bool)
    whole = estimate(TrotterTukey(), everyone, weight, levels, updates)
    np.testing.assert_array_equal(
        whole, estimate(TrotterTukey(), everyone, weight, levels, updates, parts=3)
    )
    assert not estimate(TrotterTukey(), nobody, weight, levels, updates).any()


def test_a_refused_update_counts_in_neither_sum() -> None:
    weight, levels, updates = federation(5)
    collector = TrotterTukey().begin({}, Arrivals(np.arange(CLIENTS), weight, levels, 3))
    came = np.array([0, 3])
    collector.add(came, updates[came])
    joined = np.isin(np.arange(CLIENTS), came)
    np.testing.assert_array_equal(
        collector.finish(), estimate(TrotterTukey(), joined, weight, levels, updates)
    )


@pytest.mark.parametrize("share", [0, 1, -0.5, float("nan"), "half"])
def test_share_must_lie_between_0_and_1(share: Any) -> None:
    with pytest.raises(InputError, match="`share` must lie between 0 and 1; got"):
        TrotterTukey(share)


def test_another_share_has_another_name() -> None:
    assert AGGREGATORS["trotter-tukey"] == TrotterTukey()
    assert TrotterTukey(0.25).name == "trotter-tukey-0.25"
