"""Lemma 2 and Theorem 1 in training: a strongly convex problem with the theory's schedule."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from fedprice import Bound, Clients
from fedprice.data import Federation
from fedprice.data.synthetic import synthetic
from fedprice.learning import LogisticRegression, TheoryRate, Training, oracle
from fedprice.learning.draws import batch_rows, coin_uniforms
from fedprice.learning.optimum import best_loss, optimum
from fedprice.learning.prepared import padded
from fedprice.learning.theory import theory_constants
from fedprice.rounds import simulate_runs

FloatArray = npt.NDArray[np.float64]
L2, STEPS = 0.5, 5
LEVELS = np.array([0.15, 0.3, 0.9, 0.5, 0.25, 0.6])


class Problem(NamedTuple):
    federation: Federation
    training: Training
    smoothness: float


@pytest.fixture(scope="module")
def problem() -> Problem:
    federation = synthetic(num_clients=6, samples=400, seed=4)
    smoothness = theory_constants(LogisticRegression(federation, Training(l2=L2))).smoothness
    rate = TheoryRate(smoothness, L2, STEPS)
    training = Training(local_steps=STEPS, rate=rate, l2=L2)
    return Problem(federation, training, smoothness)


def test_lemma_2_bounds_the_variance_of_rounds(problem: Problem) -> None:
    """10,000 coins a round. The mean lies below the bound by more than ten standard errors."""
    federation, training, _ = problem
    x, y, a = oracle.with_bias(federation.features), federation.labels, federation.weight
    w = np.zeros((federation.num_classes, x.shape[1]))
    for r in range(0, 30, 3):
        updates, norms = [], []
        for n in range(6):
            own = slice(federation.offsets[n], federation.offsets[n + 1])
            rows = batch_rows(1, r, n, STEPS, 24, int(federation.samples[n]))
            update, squares = oracle.local_update(w, x[own], y[own], rows, training.rate(r), L2)
            updates.append(update.ravel())
            norms.append(np.sqrt(squares.max()))
        full = a @ np.array(updates)
        coins = np.array([coin_uniforms(s, r, 6) < LEVELS for s in range(10_000)])
        steps = (coins * a / LEVELS) @ np.array(updates)
        distances = ((steps - full) ** 2).sum(axis=1)
        clients = Clients(samples=federation.samples, grad_norm=np.array(norms), cost=1, value=0)
        bound = Bound(alpha=1, rounds=1).variance(
            clients, LEVELS, learning_rate=training.rate(r), local_steps=STEPS
        )
        assert distances.mean() + 10 * distances.std() / 100 < bound
        assert distances.mean() > bound / 100  # loose, but of the same order: ‖Δ‖ ≤ η E G, and a 4
        w += full.reshape(w.shape)


def test_theorem_1_bounds_the_loss(problem: Problem) -> None:
    """40 runs; the bound holds for their mean loss at every evaluation, at low and full levels."""
    federation, training, smoothness = problem
    a, classes = federation.weight, federation.num_classes
    x, y = padded(federation.features), federation.labels
    least = best_loss(federation, L2)
    best, _ = optimum(x, y, classes, L2)
    own_least = np.array(
        [
            optimum(x[one], y[one], classes, L2)[1]
            for one in map(slice, federation.offsets[:-1], federation.offsets[1:])
        ]
    )
    gaps = {}
    for name, levels in (("low", LEVELS), ("full", np.ones(6))):
        histories = simulate_runs(
            LogisticRegression(federation, training),
            [(levels, s) for s in range(40)],
            rounds=200,
            evaluate_every=50,
        )
        grad_norm = np.max([h.grad_norm_max for h in histories], axis=0)
        clients = Clients(samples=federation.samples, grad_norm=grad_norm, cost=1, value=0)
        rounds = histories[0].rounds[1:]
        losses = np.array([h.loss[1:] for h in histories])
        gaps[name] = losses.mean(axis=0) - least
        error = losses.std(axis=0) / np.sqrt(40)
        for i, after in enumerate(rounds):
            bound = Bound.from_theory(
                clients,
                rounds=int(after),
                local_steps=STEPS,
                smoothness=smoothness,
                convexity=L2,
                grad_std=grad_norm,  # σ_n ≤ G_n
                heterogeneity=least - float(a @ own_least),
                initial_distance=float(np.linalg.norm(best)),
            )
            limit = bound.expected_loss(clients, levels) + bound.beta / after
            assert 0 < gaps[name][i] + 6 * error[i] < limit
        assert gaps[name][-1] < gaps[name][0] / 2  # it converges: unbiased at any levels
    assert (gaps["low"] > gaps["full"]).all()  # what the first term of the bound is about
