"""Calibration: it recovers a known α, and says so when it cannot."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fedprice import InputError
from fedprice.bound import random_loss
from fedprice.calibrate import calibrate, fit_alpha, theory_constants
from fedprice.data import Federation
from fedprice.data.synthetic import synthetic
from fedprice.experiments import SETUPS, setup_of
from fedprice.learning import Training, oracle, simulate_runs
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
    # β is what is left at the highest level: R (F_R − F*) − α A.
    weight = federation.weight
    high = np.clip(weight, 0.3, 1.0)
    spread = random_loss((weight * found.grad_norm) ** 2, high)
    rounds = np.array([5, 10])
    left = rounds * (found.pilots[-1] - best_loss(federation, 1e-4)) - found.alpha * spread
    assert found.beta == pytest.approx(max(left.mean(), 0), rel=1e-3)
    for change, message in (
        ({"levels": (0.2,)}, "two or more different"),
        ({"repeats": 1}, "`repeats` must be at least 2"),
    ):
        with pytest.raises(InputError, match=message):
            calibrate(federation, **change)


def test_pilots_are_floored_and_share_their_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = synthetic(num_clients=10, samples=1500, seed=1)
    asked: list[tuple[np.ndarray, int]] = []

    def watch(federation: Federation, runs: list[tuple[np.ndarray, int]], **rest: object) -> object:
        asked.extend(runs)
        return simulate_runs(federation, runs, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr("fedprice.calibrate.simulate_runs", watch)
    calibrate(federation, training=Training(local_steps=20), repeats=6, checkpoints=(5, 10))
    low, high = asked[:6], asked[6:]
    assert [seed for _, seed in low] == [seed for _, seed in high]
    assert len({seed for _, seed in low}) == 6
    assert not {seed for _, seed in low} & set(range(100))
    for (levels, _), floor in ((low[0], 0.1), (high[0], 0.3)):
        assert levels == pytest.approx(np.maximum(federation.weight, floor))


def test_optima() -> None:
    federation = synthetic(num_clients=4, samples=400, seed=1)
    least = best_loss(federation, l2=0.01)
    own = own_optimum_losses(federation, l2=0.01)
    assert (own > least).all()  # a client's own model serves the others badly
    x, y = oracle.with_bias(federation.features), federation.labels
    for n in range(4):  # by the oracle's loss and gradient, in double precision
        rows = slice(federation.offsets[n], federation.offsets[n + 1])
        w = exact_optimum(x[rows], y[rows], 0.01)
        assert own[n] == pytest.approx(oracle.evaluate(w, x, y, 0.0)[0], rel=1e-3)
    assert least == pytest.approx(oracle.evaluate(exact_optimum(x, y, 0.01), x, y, 0.01)[0])


def exact_optimum(x: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    shape = (10, x.shape[1])

    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape)
        return oracle.evaluate(w, x, y, l2)[0], oracle.gradient(w, x, y, l2).ravel()

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(both, np.zeros(10 * x.shape[1]), jac=True, method="L-BFGS-B", options=options)
    w: np.ndarray = found.x.reshape(shape)
    return w


def test_theory_constants() -> None:
    """L bounds every Hessian, nearly reached; σ is the spread of single gradients at 0."""
    federation = synthetic(num_clients=4, samples=400, seed=1)
    theory = theory_constants(federation, Training(l2=0.01, batch=24))
    assert theory.convexity == 0.01
    x, y = oracle.with_bias(federation.features), federation.labels
    start = np.zeros((10, x.shape[1]))
    rng = np.random.default_rng(0)
    steepest = 0.0
    for n in range(4):
        rows = slice(federation.offsets[n], federation.offsets[n + 1])
        own, labels = x[rows], y[rows]
        singles = np.array(
            [
                oracle.gradient(start, own[i : i + 1], labels[i : i + 1], 0.0)
                for i in range(len(own))
            ]
        ).reshape(len(own), -1)
        spread = ((singles - singles.mean(axis=0)) ** 2).sum(axis=1).mean()
        assert theory.grad_std[n] == pytest.approx(np.sqrt(spread / 24))
        top = np.linalg.eigh(own.T @ own)[1][:, -1]
        for _ in range(20):
            w = rng.normal(size=start.shape) * rng.choice([0.0, 0.01, 0.1])
            # Two classes that share all the probability bend the most.
            w[2:] -= 50 * np.sign(own.mean(axis=0) @ top) * top
            direction = np.zeros_like(w)
            direction[0], direction[1] = top, -top
            step = 1e-4 * direction / np.linalg.norm(direction)
            change = oracle.gradient(w + step, own, labels, 0.01)
            change -= oracle.gradient(w - step, own, labels, 0.01)
            steepest = max(steepest, float(np.linalg.norm(change)) / 2e-4)
    assert steepest <= theory.smoothness * (1 + 1e-6)
    assert steepest > 0.3 * theory.smoothness


def test_setups_take_about_as_long_as_in_the_paper() -> None:
    x, y = np.zeros((40, 784), np.float32), np.zeros(40, np.int32)
    images = Federation("images", x, y, np.arange(41), x, y, num_classes=10)
    for setup, federation in zip(SETUPS.values(), (synthetic(), images, images), strict=True):
        clock = setup.clock(federation)
        rng = np.random.default_rng(0)
        times = [clock.round_time(np.flatnonzero(rng.random(40) < 0.3)) for _ in range(1000)]
        assert setup.time / 2 < sum(times) < 2 * setup.time
    assert list(SETUPS) == ["setup1", "setup2", "setup3"]
    with pytest.raises(InputError, match="there is no setup 'setup'"):
        setup_of("setup")
