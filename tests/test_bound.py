"""Theorem 1's constants and Lemma 2."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedprice import Bound, Clients, InputError

CLIENTS = Clients(samples=[1, 2, 3, 4], grad_norm=[1.0, 2.0, 0.5, 3.0], cost=1, value=0)


def test_theory_constants_by_hand() -> None:
    clients = Clients(samples=[1, 3], grad_norm=[2, 4], cost=1, value=0)
    bound = Bound.from_theory(
        clients,
        rounds=50,
        local_steps=5,
        smoothness=3,
        convexity=0.5,
        grad_std=[1, 2],
        heterogeneity=0.7,
        initial_distance=2,
    )
    drift = (1 / 16 * 1 + 9 / 16 * 4) + 8 * (1 / 4 * 4 + 3 / 4 * 16) * 16
    beta = 2 * 3 / (0.25 * 5) * drift + 12 * 9 / (0.25 * 5) * 0.7 + 4 * 9 / (0.5 * 5) * 4
    assert bound.alpha == pytest.approx(8 * 3 * 5 / 0.25)
    assert bound.beta == pytest.approx(beta)


def test_full_participation_leaves_no_randomness() -> None:
    bound = Bound(alpha=3, rounds=10)
    assert bound.expected_loss(CLIENTS, [1, 1, 1, 1]) == 0
    assert bound.variance(CLIENTS, [1, 1, 1, 1], learning_rate=1, local_steps=1) == 0
    assert bound.expected_loss(CLIENTS, [1, 0, 1, 1]) == np.inf


def test_lemma_2_bounds_the_exact_variance_of_a_round() -> None:
    """All 2^N joins: E‖w − w̄‖² of unbiased aggregation, updates as long as Assumption 3 allows."""
    rng = np.random.default_rng(5)
    rate, steps = 0.1, 7
    levels = np.array([0.3, 0.9, 0.5, 0.2])
    for _ in range(20):
        updates = rng.normal(size=(4, 6))
        updates *= (rate * steps * CLIENTS.norm / np.linalg.norm(updates, axis=1))[:, None]
        full = CLIENTS.weight @ updates
        variance, mean = 0.0, np.zeros(6)
        for joined in itertools.product([0, 1], repeat=4):
            probability = np.prod(np.where(joined, levels, 1 - levels))
            step = (CLIENTS.weight / levels * np.array(joined)) @ updates
            variance += probability * np.sum((step - full) ** 2)
            mean += probability * step
        assert mean == pytest.approx(full)  # Lemma 1
        bound = Bound(alpha=1, rounds=1)
        limit = bound.variance(CLIENTS, levels, learning_rate=rate, local_steps=steps)
        assert variance <= limit
        assert variance == pytest.approx(limit / 4)  # the factor 4 is slack when the norms are met


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": -1}, "`alpha` must be"),
        ({"alpha": np.nan}, "`alpha` must be"),
        ({"rounds": 0}, "`rounds` must be a whole number, at least 1; got 0"),
        ({"rounds": 2.5}, "`rounds` must be"),
        ({"beta": np.inf}, "`beta` must be"),
    ],
)
def test_bad_constants(change: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Bound(**({"alpha": 1.0, "rounds": 10} | change))  # type: ignore[arg-type]


NO_NUMBERS = ["3.3", b"3", True, np.True_, np.array("3"), None, [1], 1j]


@pytest.mark.parametrize("name", ["alpha", "rounds", "beta"])
@pytest.mark.parametrize("given", NO_NUMBERS)
def test_text_and_bool_as_a_constant_are_refused_at_once(name: str, given: Any) -> None:
    with pytest.raises(InputError) as caught:
        Bound(**({"alpha": 1.0, "rounds": 10} | {name: given}))
    assert str(caught.value) == f"`{name}` must be a number; got {given!r}."


def test_constants_are_kept_as_plain_numbers() -> None:
    bound = Bound(alpha=np.float32(0.5), rounds=np.int64(7), beta=Fraction(1, 4))  # type: ignore[arg-type]
    assert bound == Bound(alpha=0.5, rounds=7, beta=0.25)
    assert [type(x) for x in (bound.alpha, bound.rounds, bound.beta)] == [float, int, float]
    assert Bound(alpha=1, rounds=2**53 + 1).rounds == 2**53 + 1
    assert Bound(alpha=np.array(2.0), rounds=5.0).rounds == 5  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["local_steps", "smoothness", "convexity", "heterogeneity"])
@pytest.mark.parametrize("given", NO_NUMBERS)
def test_text_and_bool_in_theory_are_refused(name: str, given: Any) -> None:
    numbers = {"rounds": 10, "local_steps": 2, "smoothness": 3, "convexity": 1} | {name: given}
    with pytest.raises(InputError, match=f"`{name}` must be a number; got "):
        Bound.from_theory(CLIENTS, **numbers)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"convexity": 5}, "`convexity` must be at most `smoothness`"),
        ({"convexity": 0}, "`convexity` must be a finite number, above 0"),
        ({"grad_std": -1}, "`grad_std` must be"),
        ({"grad_std": "wide"}, "`grad_std` must be finite numbers"),
        ({"heterogeneity": -1}, "`heterogeneity` must be a finite number, at least 0"),
    ],
)
def test_bad_theory(change: dict[str, Any], message: str) -> None:
    given = {"rounds": 10, "local_steps": 2, "smoothness": 3, "convexity": 1} | change
    with pytest.raises(InputError, match=message):
        Bound.from_theory(CLIENTS, **given)
