"""`calibrate`: the constants of the bound, measured by pilots rather than guessed.

The bound says F_R(q) − F* ≤ (α A(q) + β) / R with A(q) = Σ (1 − q_n) a_n² D_n² / q_n, D_n the norms
of updates or the paper's G_n, those of gradients. Two pilots at different levels, same rounds and
same random numbers, differ by α (A(q¹) − A(q²)) / R, whatever F* and β are; so α is identified, and
the theory's α, which is far too loose for pricing, is not needed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.bound import random_loss
from fedprice.calibration.fits import fit_alpha, fit_slope
from fedprice.calibration.measured import IMPACTS, Calibration, Fit, Slope
from fedprice.calibration.search import FIRST, LIMIT, WIDTH, Design, Pilots, search
from fedprice.errors import InputError
from fedprice.learning.draws import PILOTS, key
from fedprice.rounds import Plain, aggregator_of, simulate_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.calibration.searched import Search, Step
    from fedprice.learning.task import Task
    from fedprice.rounds import Aggregator, History, ServerStep

__all__ = ["calibrate", "usual_levels"]

LEVELS = (0.1, 0.3)
CHECKPOINTS, REPEATS = (20, 30, 50), 10


def usual_levels(weight: FloatArray, max_weight: float = 1.0) -> tuple[float, float]:
    """Return the default levels of pilots: 0.1 and 0.3, or higher for fewer than ten clients.

    `max_weight` raises levels to a_n / max_weight, which is f on average; for three clients, it
    would raise 0.1 and 0.3 to the same levels. Where f is above 0.1, the second level is chosen so
    that 1/q − 1, to which A(q) is proportional, falls from f as much as it does from 0.1 to 0.3.

    Parameters
    ----------
    weight
        a, shape (clients,).
    max_weight
        As for `calibrate`.

    Examples
    --------
    >>> usual_levels(np.full(12, 1 / 12))
    (0.1, 0.3)
    >>> low, high = usual_levels(np.full(3, 1 / 3))
    >>> low, round(high, 3)
    (0.1, 0.659)
    """
    low, high = LEVELS
    floor = float(np.clip(weight / max_weight, 0.0, 1.0).mean())
    if floor <= low * (1 + 1e-9):
        return LEVELS
    spread = (1 / floor - 1) * (1 / high - 1) / (1 / low - 1)
    return low, 1 / (1 + spread)


def calibrate(
    task: Task,
    *,
    levels: Sequence[float] | None = None,
    checkpoints: Sequence[int] | None = None,
    repeats: int | None = None,
    width: float | None = None,
    limit: int | None = None,
    value: npt.ArrayLike | None = None,
    max_weight: float = 1.0,
    seed: int = 0,
    aggregator: Aggregator | str | None = None,
    server_step: ServerStep | None = None,
    impact: str = "updates",
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    report: Callable[[Step], None] | None = None,
) -> Calibration:
    """Measure α, β and the clients' norms by pilots.

    Unless one of `levels`, `checkpoints` and `repeats` is given, the pilots are searched for: until
    the interval of α is narrow enough, or the limit is reached (see `fedprice.calibration.search`).

    Parameters
    ----------
    task
        What is learned, and from whom.
    levels
        Two or more levels for all clients, one per pilot; by default those of `usual_levels`.
    checkpoints
        Rounds after which pilots are compared; 20, 30 and 50 unless given.
    repeats
        Runs of each pilot, 10 unless given; pilots of the same repeat share their random numbers.
    width
        For a search: the width of α's interval, relative to α, at which it is narrow enough; 1 by
        default, from α / 2 to 3 α / 2.
    limit
        For a search: the most repeats of a pilot; 80 by default.
    value
        For a search: the clients' values, if they are known. Where all are equal, what clients are
        paid does not depend on α, and the search only distinguishes it from 0.
    max_weight
        Raises levels to a_n / max_weight where needed, so that no pilot diverges.
    seed, aggregator, server_step, threads, progress
        As for `simulate_runs`.
    impact
        The norms used for prices: "updates", or "gradients" as in the paper. Both are measured
        where the task knows gradients; `Calibration.with_impact` changes it afterwards.
    report
        For a search: called with each step.

    Raises
    ------
    InputError
        If the pilots cannot distinguish α from noise; the message says what to do.
    """
    if impact not in IMPACTS:
        raise InputError(f"`impact` must be 'updates' or 'gradients'; got {impact!r}.")
    runs = _Runs(task, max_weight, seed, aggregator_of(aggregator),
                 server_step or Plain(), impact, threads, progress)  # fmt: skip
    if levels is None and checkpoints is None and repeats is None:
        first = runs.first_design()
        found = search(
            runs.pilots, first=first, width=WIDTH if width is None else width,
            limit=LIMIT if limit is None else limit, value=value, report=report,
        )  # fmt: skip
        last = found.steps[-1]
        histories = runs.kept[Design(*last.levels, last.checkpoints), found.series]
        return runs.calibration(last.levels, last.checkpoints, histories, found)
    for name, one in (("width", width), ("limit", limit), ("value", value), ("report", report)):
        if one is not None:
            raise InputError(
                f"`{name}` applies only to the search for good pilots; leave it out, or leave out "
                "`levels`, `checkpoints` and `repeats`, which replace the search."
            )
    chosen = sorted(usual_levels(task.weight, max_weight) if levels is None else levels)
    rounds = tuple(sorted(CHECKPOINTS if checkpoints is None else checkpoints))
    repeats = REPEATS if repeats is None else repeats
    if len(set(chosen)) < 2 or not all(0 < q <= 1 for q in chosen):
        raise InputError(f"`levels` must be two or more different numbers in (0, 1]; got {levels}.")
    if not rounds or rounds[0] < 1:
        raise InputError(f"`checkpoints` must be rounds, at least 1; got {checkpoints}.")
    if repeats < 2:
        raise InputError(f"`repeats` must be at least 2; got {repeats}.")
    histories = runs.run(chosen, rounds, range(repeats), series=0)
    return runs.calibration(chosen, rounds, histories, None)


@dataclass(frozen=True, eq=False)
class _Runs:
    """Runs pilots of a task, and fits the bound to them."""

    task: Task
    max_weight: float
    seed: int
    aggregator: Aggregator
    server_step: ServerStep
    impact: str
    threads: int | None
    progress: Callable[[int], None] | None
    kept: dict[tuple[Design, int], list[list[History]]] = field(default_factory=dict)

    def vectors(self, levels: Sequence[float]) -> list[FloatArray]:
        """Return the levels of each pilot's clients, high enough that no weight is too large."""
        return [np.clip(self.task.weight / self.max_weight, q, 1.0) for q in levels]

    def first_design(self) -> Design:
        """Return where a search starts: with levels that floors do not make equal."""
        low, high = usual_levels(self.task.weight, self.max_weight)
        return replace(FIRST, low=low, high=high)

    def run(
        self, levels: Sequence[float], checkpoints: Sequence[int], repeats: range, *, series: int
    ) -> list[list[History]]:
        """Return the histories of each pilot, one per repeat."""
        vectors = self.vectors(levels)
        for low, high in itertools.pairwise(vectors):
            if np.array_equal(low, high):
                lowest = float(low.min())
                above = "levels above that, or " if lowest < 1 else ""
                raise InputError(
                    f"`max_weight` {self.max_weight:g} raises two pilots to the same "
                    f"levels, {lowest:.3g} or more; use {above}a larger `max_weight`."
                )
        # Separate seeds: pilots share no coins with the runs that they price.
        seeds = [key(self.seed, PILOTS, repeat, series) >> 1 for repeat in repeats]
        histories = simulate_runs(
            self.task,
            [(q, one) for q in vectors for one in seeds],
            rounds=checkpoints[-1],
            evaluate_every=int(np.gcd.reduce(checkpoints)),
            aggregator=self.aggregator,
            server_step=self.server_step,
            threads=self.threads,
            progress=self.progress,
        )
        count = len(seeds)
        return [histories[i * count : (i + 1) * count] for i in range(len(vectors))]

    def pilots(self, design: Design, count: int, series: int) -> Pilots:
        """Return the results of a search's pilots; repeats that ran before are not run again."""
        levels, checkpoints = (design.low, design.high), design.checkpoints
        own = self.kept.setdefault((design, series), [[], []])
        # Series 0 is that of pilots without a search.
        new = self.run(levels, checkpoints, range(len(own[0]), count), series=series + 1)
        for pilot, more in zip(own, new, strict=True):
            pilot.extend(more)
        norms = np.array([_norm(h, self.impact) for pilot in own for h in pilot])
        if self.impact == "gradients" and np.isnan(norms).all():
            raise InputError(
                f"{self.task.name} has no gradient norms to compute impacts from; use the norms of "
                "updates, the default."
            )
        rounds = np.array(checkpoints)
        return Pilots(
            self.task.weight, np.array(self.vectors(levels)), rounds, _losses(own, rounds), norms
        )

    def calibration(
        self,
        levels: Sequence[float],
        checkpoints: Sequence[int],
        pilots: list[list[History]],
        search: Search | None,
    ) -> Calibration:
        """Return the constants of the bound that the pilots measured."""
        task, rounds, vectors = self.task, np.array(checkpoints), self.vectors(levels)
        weight, repeats, losses = task.weight, len(pilots[0]), _losses(pilots, rounds)
        histories = [history for pilot in pilots for history in pilot]
        silent = np.array([np.isnan(h.update_norm) for h in histories]).all(axis=0)
        if silent.any():
            raise InputError(
                f"client {task.ids[int(np.argmax(silent))]!r} joined no pilot; raise the levels or "
                "the repeats."
            )
        least = task.least_loss()
        error = 0.05 if search is None else search.error

        def fit(impact: str) -> Fit:
            norms = np.array([_norm(h, impact) for h in histories])
            norm = np.sqrt(np.nanmean(norms**2, axis=0))
            spreads = np.array([random_loss((weight * norm) ** 2, q) for q in vectors])
            alpha, (low, high) = fit_alpha(losses, spreads, rounds, error=error)
            random = float(alpha * spreads[-1])
            beta = 0.0
            if least is not None:
                left = rounds * (losses[-1].mean(axis=0) - least) - random
                beta = max(float(left.mean()), 0.0)
            spread = (rounds * losses[-1]).mean(axis=1).std(ddof=1)
            return Fit(alpha, low, high, beta, norm, random, float(spread / np.sqrt(repeats)))

        known = not np.isnan([h.grad_norm for h in histories]).all()
        largest = np.nanmax([h.grad_norm_max for h in histories], axis=0) if known else None
        return Calibration(
            name=task.name,
            ids=task.ids,
            samples=task.samples,
            task=task.fingerprint,
            aggregator=self.aggregator.name,
            server_step=self.server_step.name,
            gradients=fit("gradients") if known else None,
            updates=fit("updates"),
            grad_norm_max=largest,
            rounds=rounds,
            pilots=losses.mean(axis=1),
            accuracy=_late_slope(histories, repeats),
            norms=self.impact,
            search=search,
        )


def _norm(history: History, impact: str) -> FloatArray:
    return history.update_norm if impact == "updates" else history.grad_norm


def _losses(pilots: list[list[History]], rounds: IntArray) -> FloatArray:
    """Return the losses of each pilot, repeat and checkpoint."""
    return np.array(
        [[h.loss[np.searchsorted(h.rounds, rounds)] for h in pilot] for pilot in pilots]
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
