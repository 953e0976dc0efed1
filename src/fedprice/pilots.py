"""`calibrate`: the constants of the bound, measured by pilots rather than guessed.

The bound says F_R(q) − F* ≤ (α A(q) + β) / R with A(q) = Σ (1 − q_n) a_n² D_n² / q_n, D_n the norms
of updates or the paper's G_n, those of gradients. Two pilots at different levels, same rounds and
same random numbers, differ by α (A(q¹) − A(q²)) / R, whatever F* and β are; so α is identified, and
the theory's α, far too loose to price with, is not needed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fedprice.bound import random_loss
from fedprice.calibration import Calibration, Fit, Slope
from fedprice.errors import InputError
from fedprice.learning.draws import PILOTS, key
from fedprice.rounds import Plain, simulate_runs, usual_aggregator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.learning.task import Task
    from fedprice.rounds import Aggregator, History, ServerStep

__all__ = ["calibrate", "fit_alpha", "fit_slope"]

CHECKPOINTS = (20, 30, 50)
LEVELS = (0.1, 0.3)


def calibrate(
    task: Task,
    *,
    levels: Sequence[float] = LEVELS,
    checkpoints: Sequence[int] = CHECKPOINTS,
    repeats: int = 10,
    max_weight: float = 1.0,
    seed: int = 0,
    aggregator: Aggregator | None = None,
    server_step: ServerStep | None = None,
    impact: str = "updates",
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Measure α, β and the clients' norms by pilots.

    Parameters
    ----------
    task
        What is learned, and from whom.
    levels
        Two or more levels for all clients, one per pilot.
    checkpoints
        Rounds after which pilots are compared.
    repeats
        Runs of each pilot; pilots of the same repeat share their random numbers.
    max_weight
        Raises levels to a_n / max_weight where needed, so that no pilot diverges.
    seed, aggregator, server_step, threads, progress
        As for `simulate_runs`.
    impact
        Which norms prices are made of: "updates", or "gradients" as in the paper. Both are measured
        where the task knows gradients; `Calibration.with_impact` changes it afterwards.

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
    aggregator, server_step = aggregator or usual_aggregator(task), server_step or Plain()
    weight = task.weight
    vectors = [np.clip(weight / max_weight, q, 1.0) for q in sorted(levels)]
    for low, high in itertools.pairwise(vectors):
        if np.array_equal(low, high):
            raise InputError(
                f"`max_weight` {max_weight:g} raises the levels of two pilots to the same ones, "
                f"{low.min():.3g} or more; use levels above that, or a larger `max_weight`."
            )
    # Seeds of their own: pilots share no coin with the runs that they price.
    seeds = [key(seed, PILOTS, repeat, 0) >> 1 for repeat in range(repeats)]
    histories = simulate_runs(
        task,
        [(q, one) for q in vectors for one in seeds],
        rounds=int(rounds[-1]),
        evaluate_every=int(np.gcd.reduce(rounds)),
        aggregator=aggregator,
        server_step=server_step,
        threads=threads,
        progress=progress,
    )
    losses = np.array([h.loss[np.searchsorted(h.rounds, rounds)] for h in histories])
    losses = losses.reshape(len(vectors), repeats, rounds.size)
    silent = np.array([np.isnan(h.update_norm) for h in histories]).all(axis=0)
    if silent.any():
        raise InputError(
            f"client {task.ids[int(np.argmax(silent))]!r} joined no pilot; raise the levels or the "
            "repeats."
        )
    least = task.least_loss()

    def fit(norms: FloatArray) -> Fit:
        norm = np.sqrt(np.nanmean(norms**2, axis=0))
        spreads = np.array([random_loss((weight * norm) ** 2, q) for q in vectors])
        alpha, (low, high) = fit_alpha(losses, spreads, rounds)
        random = float(alpha * spreads[-1])
        beta = 0.0
        if least is not None:
            left = rounds * (losses[-1].mean(axis=0) - least) - random
            beta = max(float(left.mean()), 0.0)
        error = float((rounds * losses[-1]).mean(axis=1).std(ddof=1) / np.sqrt(repeats))
        return Fit(alpha, low, high, beta, norm, random, error)

    norms = np.array([h.grad_norm for h in histories])
    known = not np.isnan(norms).all()
    return Calibration(
        name=task.name,
        ids=task.ids,
        samples=task.samples,
        task=task.fingerprint,
        aggregator=aggregator.name,
        server_step=server_step.name,
        gradients=fit(norms) if known else None,
        updates=fit(np.array([h.update_norm for h in histories])),
        grad_norm_max=np.nanmax([h.grad_norm_max for h in histories], axis=0) if known else None,
        rounds=rounds,
        pilots=losses.mean(axis=1),
        accuracy=_late_slope(histories, repeats),
        norms=impact,
    )


def _late_slope(histories: Sequence[History], repeats: int) -> Slope | None:
    """Fit accuracy against loss over the later half of the pilots; None if there is none."""
    late = 2 * histories[0].rounds >= histories[0].rounds[-1]
    # Pilots of one repeat share their random numbers, so a repeat is a row.
    loss, accuracy = (
        np.array([metric[late] for metric in metrics])
        .reshape(-1, repeats, int(late.sum()))
        .swapaxes(0, 1)
        .reshape(repeats, -1)
        for metrics in ([h.loss for h in histories], [h.accuracy for h in histories])
    )
    if not ((accuracy >= 0) & (accuracy <= 1)).all() or np.ptp(loss) == 0:
        return None
    points, (low, high) = fit_slope(loss, 100 * accuracy)
    return Slope(points, low, high)


def fit_slope(loss: FloatArray, points: FloatArray) -> tuple[float, tuple[float, float]]:
    """Fit by how many points the accuracy rises per unit of loss that falls, with a 95 % interval.

    Parameters
    ----------
    loss, points
        Of each repeat and evaluation, shape (repeats, evaluations).

    Returns
    -------
    slope, interval
        Least squares over everything. Repeats are independent, evaluations within one are not: the
        standard error is the jackknife's, which leaves out one repeat at a time.
    """
    from scipy.stats import t

    def slope(rows: slice | IntArray) -> float:
        x = loss[rows] - loss[rows].mean()
        return -float((x * points[rows]).sum() / (x**2).sum())

    repeats = len(loss)
    estimate = slope(slice(None))
    without = np.array([slope(np.delete(np.arange(repeats), one)) for one in range(repeats)])
    error = np.sqrt((repeats - 1) / repeats * ((without - without.mean()) ** 2).sum())
    half = float(t.ppf(0.975, repeats - 1) * error)
    return estimate, (estimate - half, estimate + half)


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
