"""Calibration: it recovers a known α, and says so when it cannot."""

import numpy as np
import pytest

from fedprice import InputError
from fedprice.calibrate import calibrate, fit_alpha, theory_constants
from fedprice.data import synthetic
from fedprice.experiments import SETUPS, setup_of
from fedprice.learning import Training
from fedprice.learning.optimum import best_loss, own_optimum_losses

ROUNDS = np.array([20, 30, 50])
SPREADS = np.array([9.0, 3.0, 1.0])


def pilots(alpha: float, noise: float, seed: int, repeats: int = 10) -> np.ndarray:
    """Losses of a problem whose bound is exact: F* + (α A + β) / R, and common noise a repeat."""
    rng = np.random.default_rng(seed)
    exact = 0.3 + (alpha * SPREADS[:, None, None] + 7) / ROUNDS
    common = rng.normal(size=(1, repeats, ROUNDS.size))
    losses: np.ndarray = exact + common
    return losses + noise * rng.normal(size=(SPREADS.size, repeats, ROUNDS.size))


def test_recovers_a_known_alpha_within_its_own_interval() -> None:
    """A 95 % interval over 200 problems; fewer than 178 hits have a chance below one in 1e6."""
    hits = 0
    for seed in range(200):
        alpha, (low, high) = fit_alpha(pilots(2.5, 0.05, seed), SPREADS, ROUNDS)
        assert low < alpha < high
        hits += low <= 2.5 <= high
    assert 178 <= hits < 200
    assert fit_alpha(pilots(2.5, 0.0, 0), SPREADS, ROUNDS)[0] == pytest.approx(2.5)


def test_recovers_the_alpha_of_a_quadratic_problem() -> None:
    """F(w) = ½‖w‖², a step 1/(r + 1) along w plus what random joining adds.

    After R rounds w is the mean of R independent errors, so that E F = ½ A / R: α is ½. A 95 %
    interval over 100 problems; fewer than 84 hits have a chance below one in 1e5.
    """
    clients, dimensions, repeats, hits = 40, 40, 20, 0
    levels = np.array([[0.1], [0.3]]) * np.ones(clients)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        pushes = rng.normal(size=(clients, dimensions))  # a_n times the clients' gradients at 0
        spreads = ((1 - levels) / levels * (pushes**2).sum(axis=1)).sum(axis=1)
        losses = np.empty((2, repeats, ROUNDS.size))
        for repeat in range(repeats):
            coins = rng.random((ROUNDS[-1], clients))  # common to both pilots
            for i, level in enumerate(levels):
                errors = ((coins < level) / level - 1) @ pushes
                w = np.cumsum(errors, axis=0)[ROUNDS - 1] / ROUNDS[:, None]
                losses[i, repeat] = (w**2).sum(axis=1) / 2
        _, (low, high) = fit_alpha(losses, spreads, ROUNDS)
        hits += low <= 0.5 <= high
    assert 84 <= hits < 100


def test_refuses_what_identifies_nothing() -> None:
    with pytest.raises(InputError, match=r"cannot tell alpha from 0 .* use more repeats"):
        fit_alpha(pilots(0.01, 1.0, 1), SPREADS, ROUNDS)
    with pytest.raises(InputError, match="must be ordered"):
        fit_alpha(pilots(2.5, 0.1, 1), SPREADS[::-1], ROUNDS)


def test_calibrates_a_small_federation() -> None:
    federation = synthetic(num_clients=10, samples=1500, seed=1)
    found = calibrate(federation, training=Training(local_steps=20), repeats=6, checkpoints=(5, 10))
    assert 0 < found.interval[0] < found.alpha < found.interval[1]
    assert (found.grad_norm <= found.grad_norm_max).all()
    assert found.pilots.shape == (2, 2)
    assert (found.pilots[0] > found.pilots[1]).all()  # joining less hurts
    assert found.bound(100).alpha == found.alpha
    for change, message in (
        ({"levels": (0.2,)}, "two or more different"),
        ({"repeats": 1}, "`repeats` must be at least 2"),
    ):
        with pytest.raises(InputError, match=message):
            calibrate(federation, **change)


def test_optima_and_theory() -> None:
    federation = synthetic(num_clients=4, samples=400, seed=1)
    least = best_loss(federation, l2=0.01)
    own = own_optimum_losses(federation, l2=0.01)
    assert (own > least).all()  # a client's own model serves the others badly
    theory = theory_constants(federation, Training(l2=0.01))
    assert theory.smoothness > theory.convexity == 0.01
    assert (theory.grad_std > 0).all()


def test_setups_take_about_as_long_as_in_the_paper() -> None:
    federation = synthetic()
    clock = setup_of("setup1").clock(federation)
    rng = np.random.default_rng(0)
    times = [clock.round_time(np.flatnonzero(rng.random(40) < 0.25)) for _ in range(1000)]
    assert 500 < sum(times) < 2000
    assert list(SETUPS) == ["setup1", "setup2", "setup3"]
    with pytest.raises(InputError, match="there is no setup 'setup'"):
        setup_of("setup")
