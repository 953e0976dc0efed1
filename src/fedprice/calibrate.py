"""`calibrate`: the constants of the bound, measured by pilots rather than guessed.

The bound says F_R(q) − F* ≤ (α A(q) + β) / R with A(q) = Σ (1 − q_n) a_n² G_n² / q_n. Two pilots at
different levels, same rounds and same random numbers, differ by α (A(q¹) − A(q²)) / R, whatever F*
and β are; so α is identified, and the theory's α, far too loose to price with, is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.bound import Bound, random_loss
from fedprice.errors import InputError
from fedprice.learning import Training, simulate_runs
from fedprice.learning.draws import PILOTS, key
from fedprice.learning.optimum import best_loss
from fedprice.learning.oracle import gradient, with_bias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from fedprice.arrays import FloatArray
    from fedprice.data.federation import Federation


__all__ = ["Calibration", "Theory", "calibrate", "fit_alpha", "theory_constants"]

CHECKPOINTS = (20, 30, 50)
LEVELS = (0.1, 0.3)


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the pilots measured.

    Attributes
    ----------
    alpha, interval
        α and its 95 % confidence interval over the repeats.
    beta
        What the bound then leaves to β, from the pilots at the highest level.
    grad_norm, grad_norm_max
        G_n: root mean square, and maximum, of the stochastic gradients' norms, a client each.
    pilots
        Mean loss of each pilot at each checkpoint, shape (levels, checkpoints).
    """

    alpha: float
    interval: tuple[float, float]
    beta: float
    grad_norm: FloatArray
    grad_norm_max: FloatArray
    pilots: FloatArray

    def bound(self, rounds: int) -> Bound:
        """Return the bound with the measured constants."""
        return Bound(alpha=self.alpha, rounds=rounds, beta=self.beta)


def calibrate(
    federation: Federation,
    *,
    training: Training | None = None,
    levels: Sequence[float] = LEVELS,
    checkpoints: Sequence[int] = CHECKPOINTS,
    repeats: int = 10,
    max_weight: float = 1.0,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Measure α, β and the gradient norms by pilots.

    Parameters
    ----------
    federation
        The clients' data.
    training
        As in the runs to be priced; only the rounds are cut to the last checkpoint.
    levels
        Two or more levels, one a pilot, for all clients.
    checkpoints
        Rounds after which pilots are compared.
    repeats
        Runs of each pilot; pilots of the same repeat share their random numbers.
    max_weight
        Raises levels to a_n / max_weight where needed, so that no pilot diverges.
    seed, threads, progress
        As for `simulate_runs`.

    Raises
    ------
    InputError
        If the pilots cannot tell α from noise; the message says what to do.
    """
    if len(set(levels)) < 2 or not all(0 < q <= 1 for q in levels):
        raise InputError(f"`levels` must be two or more different ones in (0, 1]; got {levels}.")
    if not checkpoints or min(checkpoints) < 1:
        raise InputError(f"`checkpoints` must be rounds, at least 1; got {checkpoints}.")
    if repeats < 2:
        raise InputError(f"`repeats` must be at least 2; got {repeats}.")
    rounds = np.array(sorted(checkpoints))
    every = int(np.gcd.reduce(rounds))
    pilot = replace(training or Training(), rounds=int(rounds[-1]), evaluate_every=every)
    weight = federation.weight
    vectors = [np.clip(weight / max_weight, q, 1.0) for q in sorted(levels)]
    # Seeds of their own: pilots share no coin with the runs that they price.
    seeds = [key(seed, PILOTS, repeat, 0) >> 1 for repeat in range(repeats)]
    runs = [(q, one) for q in vectors for one in seeds]
    histories = simulate_runs(federation, runs, training=pilot, threads=threads, progress=progress)

    losses = np.array([h.loss[np.searchsorted(h.rounds, rounds)] for h in histories])
    losses = losses.reshape(len(vectors), repeats, rounds.size)
    norms = np.array([h.grad_norm for h in histories])
    largest = np.array([h.grad_norm_max for h in histories])
    if np.isnan(norms).all(axis=0).any():
        silent = int(np.argmax(np.isnan(norms).all(axis=0)))
        raise InputError(f"client {silent} joined no pilot; raise the levels or the repeats.")
    grad_norm = np.sqrt(np.nanmean(norms**2, axis=0))
    spreads = np.array([random_loss((weight * grad_norm) ** 2, q) for q in vectors])
    alpha, interval = fit_alpha(losses, spreads, rounds)
    least = best_loss(federation, pilot.l2 or 1e-4)
    beta = float((rounds * (losses[-1].mean(axis=0) - least) - alpha * spreads[-1]).mean())
    return Calibration(
        alpha=alpha,
        interval=interval,
        beta=max(beta, 0.0),
        grad_norm=grad_norm,
        grad_norm_max=np.nanmax(largest, axis=0),
        pilots=losses.mean(axis=1),
    )


def fit_alpha(
    losses: FloatArray, spreads: FloatArray, rounds: npt.NDArray[np.int64]
) -> tuple[float, tuple[float, float]]:
    """Fit α to differences of pilots, with its 95 % interval; refuse what identifies nothing.

    Parameters
    ----------
    losses
        Of each pilot, repeat and checkpoint, shape (levels, repeats, checkpoints); pilots of one
        repeat share their random numbers.
    spreads
        A(q) of each pilot, shape (levels,).
    rounds
        Of each checkpoint, shape (checkpoints,).

    Returns
    -------
    alpha, interval
        Least squares through all differences from the last pilot. Repeats are independent, so the
        interval is Student's over the estimates that each of them gives.
    """
    from scipy.stats import t

    gaps = (spreads[:-1] - spreads[-1])[:, None, None]
    rises = rounds * (losses[:-1] - losses[-1])
    if not (gaps > 0).all():
        raise InputError("pilots must be ordered by rising levels, each with a smaller spread.")
    single = (gaps * rises).sum(axis=(0, 2)) / ((gaps**2).sum() * rounds.size)
    alpha, repeats = float(single.mean()), single.size
    half = float(t.ppf(0.975, repeats - 1) * single.std(ddof=1) / np.sqrt(repeats))
    if not alpha - half > 0:
        raise InputError(
            f"the pilots cannot tell alpha from 0 (estimate {alpha:.3g} ± {half:.2g}); use more "
            "repeats, a lower first level, or later checkpoints."
        )
    return alpha, (alpha - half, alpha + half)


@dataclass(frozen=True, eq=False)
class Theory:
    """The constants that Theorem 1 is stated with.

    Attributes
    ----------
    smoothness, convexity
        L and μ. Without l2, μ is 0 and the theory's α infinite.
    grad_std
        σ_n at w₀ = 0, shape (num_clients,).
    """

    smoothness: float
    convexity: float
    grad_std: FloatArray


def theory_constants(federation: Federation, training: Training | None = None) -> Theory:
    """Return L, μ and σ_n of multinomial logistic regression on these data.

    The Hessian of the cross-entropy is at most ½ Xᵀ X / n, so L is half the largest eigenvalue of
    any client's Xᵀ X / n, plus l2; μ is l2.
    """
    training = training or Training()
    x, y = with_bias(federation.features), federation.labels
    start = np.zeros((federation.num_classes, x.shape[1]))
    smoothness, stds = 0.0, np.empty(federation.num_clients)
    for n in range(federation.num_clients):
        own = slice(federation.offsets[n], federation.offsets[n + 1])
        rows, labels = x[own], y[own]
        top = float(np.linalg.eigvalsh(rows.T @ rows / labels.size)[-1])
        smoothness = max(smoothness, top / 2)
        # ‖∇ of one sample‖² at w₀ = 0 is ‖x‖² ‖p − e_y‖², with p uniform.
        error = 1 - 1 / federation.num_classes
        second = error * float((rows**2).sum(axis=1).mean())
        mean = float((gradient(start, rows, labels, 0.0) ** 2).sum())
        stds[n] = np.sqrt(max(second - mean, 0.0) / training.batch)
    return Theory(smoothness + training.l2, training.l2, stds)
