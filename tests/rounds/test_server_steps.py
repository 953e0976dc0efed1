"""Server steps: against a few lines of numpy, and the bound of `Bounded` with its bias."""

import numpy as np
import pytest

from fedprice import InputError
from fedprice._plumbing.arrays import FloatArray, State
from fedprice.rounds import Adam, Bounded, Momentum, Plain, ServerStep

RNG = np.random.default_rng(4)
ESTIMATES = RNG.normal(size=(25, 6))
HEAVY = ESTIMATES * RNG.pareto(1.0, 25)[:, None]


def changes(step: ServerStep, estimates: FloatArray) -> FloatArray:
    """Return what each estimate changes, one after the other; states are never changed in place."""
    state, found = step.start(estimates.shape[1]), []
    for estimate in estimates:
        kept = {name: array.copy() for name, array in state.items()}
        given = estimate.copy()
        change, after = step.change(state, estimate)
        assert np.array_equal(estimate, given)
        assert all(np.array_equal(state[name], array) for name, array in kept.items())
        state = after
        found.append(change)
    return np.array(found)


def test_plain() -> None:
    assert np.array_equal(changes(Plain(), ESTIMATES), ESTIMATES)


def test_momentum() -> None:
    count = len(ESTIMATES)
    expected = [
        0.5 * sum(0.8 ** (r - s) * ESTIMATES[s] for s in range(r + 1)) for r in range(count)
    ]
    assert changes(Momentum(beta=0.8, rate=0.5), ESTIMATES) == pytest.approx(np.array(expected))


def test_adam() -> None:
    """m̂ and v̂ are weighted means of all estimates and their squares so far."""
    expected = []
    for r in range(len(ESTIMATES)):
        past = ESTIMATES[: r + 1]
        one, two = 0.7 ** np.arange(r, -1, -1), 0.95 ** np.arange(r, -1, -1)
        mean, square = one @ past / one.sum(), two @ past**2 / two.sum()
        expected.append(0.1 * mean / (np.sqrt(square) + 0.01))
    step = Adam(rate=0.1, beta1=0.7, beta2=0.95, epsilon=0.01)
    assert changes(step, ESTIMATES) == pytest.approx(np.array(expected))


def test_bounded_holds_its_bound() -> None:
    """No change is longer than the factor times the median of the last ones."""
    step = Bounded(factor=1.5, window=5)
    lengths = np.linalg.norm(changes(step, HEAVY), axis=1)
    free = np.linalg.norm(HEAVY, axis=1)
    assert lengths[:5] == pytest.approx(free[:5])
    touched = 0
    for r in range(5, len(HEAVY)):
        longest = 1.5 * np.median(lengths[r - 5 : r])
        assert lengths[r] == pytest.approx(min(free[r], longest))
        touched += free[r] > longest
    assert touched >= 5
    found = changes(step, HEAVY)
    turned = found / lengths[:, None] - HEAVY / free[:, None]
    assert np.abs(turned).max() < 1e-12  # it shortens, and does not turn


def test_bounded_does_nothing_while_lengths_are_steady() -> None:
    steady = ESTIMATES / np.linalg.norm(ESTIMATES, axis=1)[:, None]
    steady *= RNG.uniform(0.8, 1.2, len(steady))[:, None]
    steady[[3, 9, 15]] = 0  # nobody joined
    for inner in (Plain(), Momentum(), Adam()):
        bounded = changes(Bounded(factor=2, window=4, inner=inner), steady)
        assert np.array_equal(bounded, changes(inner, steady))


def test_bounded_bounds_what_its_inner_step_gets() -> None:
    inner = Momentum(beta=0.5)
    shortened = changes(Bounded(factor=1.5, window=5), HEAVY)
    both = changes(Bounded(factor=1.5, window=5, inner=inner), HEAVY)
    assert np.array_equal(both, changes(inner, shortened))


@pytest.mark.parametrize("seed", range(5))
def test_the_bias_of_bounded_is_the_stated_one(seed: int) -> None:
    """Over all coins: ‖E[change] − E[H]‖ ≤ E[(‖H‖ − L)⁺], and 0 where no estimate exceeds L."""
    rng = np.random.default_rng(seed)
    updates, weight, levels = rng.normal(size=(7, 4)), rng.dirichlet(np.ones(7)), rng.random(7)
    coins = (np.arange(2**7)[:, None] >> np.arange(7)) % 2
    probability = np.prod(np.where(coins, levels, 1 - levels), axis=1)
    estimates = coins * (weight / levels) @ updates
    lengths = np.linalg.norm(estimates, axis=1)
    for longest in (0.5 * float(probability @ lengths), 1.01 * lengths.max()):
        step = Bounded(factor=1.0, window=3)
        state: State = {"lengths": np.array([0.1 * longest, longest, 5 * longest])}
        found = np.array([step.change(state, estimate)[0] for estimate in estimates])
        bias = float(np.linalg.norm(probability @ (found - estimates)))
        bound = float(probability @ np.maximum(lengths - longest, 0))
        assert bias <= bound
        assert (bias > 0) == (bound > 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Momentum(beta=1.0), "`beta` must be at least 0 and below 1; got 1.0"),
        (lambda: Momentum(rate=-1.0), "`rate` must be at least 0"),
        (lambda: Momentum(beta="0.9"), "`beta` must be at least 0 and below 1; got '0.9'"),  # type: ignore[arg-type]
        (lambda: Adam(beta2=np.nan), "`beta2` must be at least 0 and below 1; got nan"),
        (lambda: Adam(epsilon=np.inf), "`epsilon` must be at least 0"),
        (lambda: Bounded(factor=0.5), "`factor` must be at least 1"),
        (lambda: Bounded(window=0), "`window` must be a whole number, at least 1; got 0"),
        (lambda: Bounded(window=2.0), "`window` must be a whole number, at least 1"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InputError, match=message):
        make()
