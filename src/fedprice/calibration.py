"""`calibrate`: the constants of the bound, measured by pilots rather than guessed.

The bound says F_R(q) − F* ≤ (α A(q) + β) / R with A(q) = Σ (1 − q_n) a_n² G_n² / q_n. Two pilots at
different levels, same rounds and same random numbers, differ by α (A(q¹) − A(q²)) / R, whatever F*
and β are; so α is identified, and the theory's α, far too loose to price with, is not needed.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedprice.bound import Bound, random_loss
from fedprice.clients import LARGEST_WEIGHT, Clients
from fedprice.errors import InputError, number_like
from fedprice.learning.draws import PILOTS, key
from fedprice.learning.functions import client_names, sample_counts
from fedprice.rounds import Plain, simulate_runs, usual_aggregator
from fedprice.tables import check_output, whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import polars as pl

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.learning.task import Task
    from fedprice.rounds import Aggregator, History, ServerStep

__all__ = ["Calibration", "Fit", "Slope", "calibrate", "fit_alpha", "fit_slope", "usual_levels"]

FORMAT = "fedprice calibration 1"
CHECKPOINTS = (20, 30, 50)
LEVELS = (0.1, 0.3)


@dataclass(frozen=True, eq=False)
class Fit:
    """The bound's constants for one kind of norm.

    Attributes
    ----------
    alpha, low, high
        α and its 95 % confidence interval over the repeats.
    beta
        What the bound then leaves to β, from the pilots at the highest level; 0 where the least
        loss is not known.
    norm
        The norm of each client that the constants go with, shape (num_clients,).
    random
        α A(q) of the pilots at the highest level: the part of their loss, times rounds, that is not
        β's. NaN in files of before it was kept.
    error
        The standard error of β + `random` over the repeats; NaN likewise.
    """

    alpha: float
    low: float
    high: float
    beta: float
    norm: FloatArray
    random: float = np.nan
    error: float = np.nan


@dataclass(frozen=True)
class Slope:
    """Points of accuracy (hundredths) that one unit less of loss brings, with its 95 % interval."""

    points: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """What the pilots measured.

    Only the product α · norm² enters prices, so α goes with the norms that it was fitted with.

    Attributes
    ----------
    name, ids, samples
        What was measured: the task, and its clients with their numbers of samples.
    task, aggregator, server_step
        The fingerprint of the task, and the names of what combined the pilots' updates: α depends
        on all of them.
    gradients
        Constants for the paper's G_n, the root mean square norms of stochastic gradients; None
        where the task does not know them.
    updates
        Constants for the root mean square norms of the clients' updates.
    grad_norm_max
        The largest norms of stochastic gradients; None where they are not known.
    rounds, pilots
        The checkpoints, and the mean loss of each pilot there, shape (levels, checkpoints).
    accuracy
        What a unit of loss means in accuracy, over the later half of the pilots; None where the
        task reports no "accuracy" between 0 and 1.
    """

    name: str
    ids: tuple[str, ...]
    samples: IntArray
    task: str
    aggregator: str
    server_step: str
    gradients: Fit | None
    updates: Fit
    grad_norm_max: FloatArray | None
    rounds: IntArray
    pilots: FloatArray
    accuracy: Slope | None = None

    def __repr__(self) -> str:
        fit = self.fit
        return (
            f"Calibration({self.name!r}, num_clients={len(self.ids)}, norms={self.norms!r}, "
            f"alpha={fit.alpha:.4g} ({fit.low:.4g} to {fit.high:.4g}))"
        )

    @property
    def norms(self) -> str:
        """Which norms are priced with: "gradients" where they are known, else "updates"."""
        return "updates" if self.gradients is None else "gradients"

    @property
    def fit(self) -> Fit:
        """The constants that are priced with."""
        return self.updates if self.gradients is None else self.gradients

    @property
    def alpha(self) -> float:
        """The bound's α."""
        return self.fit.alpha

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of α."""
        return self.fit.low, self.fit.high

    @property
    def beta(self) -> float:
        """The bound's β."""
        return self.fit.beta

    @property
    def grad_norm(self) -> FloatArray:
        """What takes the place of the paper's G_n in prices, shape (num_clients,)."""
        return self.fit.norm

    def bound(self, rounds: int) -> Bound:
        """Return the bound with the measured constants."""
        return Bound(alpha=self.alpha, rounds=rounds, beta=self.beta)

    def value(self, per_point: float) -> tuple[float, tuple[float, float]]:
        """Return the value of a unit of loss to whom a point of accuracy is worth `per_point`.

        The pilots convert: value = points of accuracy per unit of loss × money per point. The
        interval is the slope's, at 95 %.
        """
        worth = number_like("per_point", per_point)
        if not 0 <= worth < np.inf:
            raise InputError(f"`per_point` must be a finite number, at least 0; got {worth}.")
        slope = self.accuracy
        if slope is None:
            raise InputError(
                f"the pilots of {self.name} kept no accuracy: the calibration is older than that, "
                'or the task reports no "accuracy" between 0 and 1. Calibrate again with one.'
            )
        if not slope.low > 0:
            raise InputError(
                "the pilots cannot tell how accuracy falls with the loss (95 % from "
                f"{slope.low:.3g} to {slope.high:.3g} points per unit); use more repeats or later "
                "checkpoints."
            )
        return worth * slope.points, (worth * slope.low, worth * slope.high)

    def with_alpha(self, alpha: float) -> Calibration:
        """Return the same calibration with another α, known exactly."""
        fit = replace(self.fit, alpha=alpha, low=alpha, high=alpha)
        if self.gradients is None:
            return replace(self, updates=fit)
        return replace(self, gradients=fit)

    def require_same(self, aggregator: Aggregator, server_step: ServerStep) -> None:
        """Refuse to price a run that combines updates in another way than the pilots did."""
        for what, pilots, run in (
            ("aggregator", self.aggregator, aggregator.name),
            ("server step", self.server_step, server_step.name),
        ):
            if pilots != run:
                raise InputError(
                    f"the calibration was made with the {what} {pilots!r}, and α depends on it; "
                    f"the run has {run!r}. Calibrate with the same one."
                )

    def clients(
        self, *, cost: npt.ArrayLike, value: npt.ArrayLike, max_weight: float = LARGEST_WEIGHT
    ) -> Clients:
        """Return the clients with what was measured of them, and what they say of themselves.

        Parameters
        ----------
        cost, value
            c_n and v_n, shape (num_clients,) or a scalar.
        max_weight
            Sets floors, so that no aggregation weight a_n / q_n exceeds it; infinity sets none.
        """
        measured = Clients(
            samples=self.samples, grad_norm=self.grad_norm, cost=cost, value=value, ids=self.ids
        )
        return measured.with_max_weight(max_weight)

    def to_frame(self) -> pl.DataFrame:
        """Return the clients as a polars table, one row per client."""
        import polars as pl

        columns: dict[str, Any] = {"client_id": list(self.ids), "samples": self.samples}
        if self.gradients is not None:
            columns["grad_norm"] = self.gradients.norm
            columns["grad_norm_max"] = self.grad_norm_max
        return pl.DataFrame(columns | {"update_norm": self.updates.norm})

    def to_json(self) -> str:
        """Return the calibration as JSON, from which `read` makes it again."""
        content = {
            "format": FORMAT,
            "name": self.name,
            "task": self.task,
            "aggregator": self.aggregator,
            "server_step": self.server_step,
            "gradients": None if self.gradients is None else _constants(self.gradients),
            "updates": _constants(self.updates),
            "rounds": self.rounds.tolist(),
            "pilots": self.pilots.tolist(),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            "clients": self.to_frame().to_dicts(),
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write the calibration to a .json file, whole or not at all."""
        path = check_output(path, (".json",), force=force)
        with whole_file(path) as part:
            part.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a calibration that `write` wrote."""
        try:
            return cls.from_json(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}.") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Make a calibration of what `to_json` returned."""
        try:
            content = json.loads(text)
            if content["format"] != FORMAT:
                raise ValueError(content["format"])
            rows = content["clients"]
            known = content["gradients"] is not None
            rounds = np.array(content["rounds"], np.int64)
            pilots = np.array(content["pilots"], np.float64)
            if (
                not isinstance(content["name"], str)
                or rounds.ndim != 1
                or pilots.shape != (len(pilots), rounds.size)
                or not ((rounds >= 1).all() and np.isfinite(pilots).all())
            ):
                raise ValueError(content["name"], rounds, pilots)
            return cls(
                name=content["name"],
                ids=client_names([row["client_id"] for row in rows], len(rows)),
                samples=sample_counts([row["samples"] for row in rows]),
                task=str(content["task"]),
                aggregator=str(content["aggregator"]),
                server_step=str(content["server_step"]),
                gradients=_fit(content["gradients"], rows, "grad_norm") if known else None,
                updates=_fit(content["updates"], rows, "update_norm"),
                grad_norm_max=_column(rows, "grad_norm_max") if known else None,
                rounds=rounds,
                pilots=pilots,
                accuracy=_slope(content.get("accuracy")),  # older files have none
            )
        except (
            KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
        ) as error:  # fmt: skip
            raise InputError(
                f"this is not a calibration of the format {FORMAT!r}; make one with `fedprice "
                "calibrate … -o calibration.json`."
            ) from error


def _column(rows: list[dict[str, Any]], name: str) -> FloatArray:
    column = np.array([float(row[name]) for row in rows])
    if not (np.isfinite(column) & (column >= 0)).all():
        raise ValueError(name)
    return column


def _fit(content: dict[str, float], rows: list[dict[str, Any]], norm: str) -> Fit:
    numbers = [float(content[k]) for k in ("alpha", "alpha_low", "alpha_high", "beta")]
    alpha, low, high, beta = numbers
    if not 0 < low <= alpha <= high < np.inf or not 0 <= beta < np.inf:
        raise ValueError(numbers)
    kept = [float(content.get(name, np.nan)) for name in ("random", "error")]  # not in older files
    if any(one < 0 or one == np.inf for one in kept):
        raise ValueError(kept)
    return Fit(alpha, low, high, beta, _column(rows, norm), *kept)


def _slope(content: dict[str, float] | None) -> Slope | None:
    if content is None:
        return None
    points, low, high = (float(content[name]) for name in ("points", "low", "high"))
    if not -np.inf < low <= points <= high < np.inf:
        raise ValueError(content)
    return Slope(points, low, high)


def _constants(fit: Fit) -> dict[str, float]:
    found = {"alpha": fit.alpha, "alpha_low": fit.low, "alpha_high": fit.high, "beta": fit.beta}
    kept = {"random": fit.random, "error": fit.error}
    return found | {name: one for name, one in kept.items() if not np.isnan(one)}


def usual_levels(weight: FloatArray, max_weight: float = 1.0) -> tuple[float, float]:
    """Return the levels of pilots that nobody chose: 0.1 and 0.3, more for fewer than ten clients.

    `max_weight` raises levels to a_n / max_weight, which is f on average; for three clients, it
    would raise 0.1 and 0.3 to the same levels. Where f is above 0.1, the second level is such that
    1/q − 1, to which A(q) is proportional, falls from f as much as it does from 0.1 to 0.3.

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
    checkpoints: Sequence[int] = CHECKPOINTS,
    repeats: int = 10,
    max_weight: float = 1.0,
    seed: int = 0,
    aggregator: Aggregator | None = None,
    server_step: ServerStep | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Measure α, β and the clients' norms by pilots.

    Parameters
    ----------
    task
        What is learned, and from whom.
    levels
        Two or more levels for all clients, one per pilot; by default as `usual_levels` has them.
    checkpoints
        Rounds after which pilots are compared.
    repeats
        Runs of each pilot; pilots of the same repeat share their random numbers.
    max_weight
        Raises levels to a_n / max_weight where needed, so that no pilot diverges.
    seed, aggregator, server_step, threads, progress
        As for `simulate_runs`.

    Raises
    ------
    InputError
        If the pilots cannot tell α from noise; the message says what to do.
    """
    if levels is None:
        levels = usual_levels(task.weight, max_weight)
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
            lowest = float(low.min())
            above = "levels above that, or " if lowest < 1 else ""
            raise InputError(
                f"`max_weight` {max_weight:g} raises the levels of two pilots to the same ones, "
                f"{lowest:.3g} or more; use {above}a larger `max_weight`."
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
            "repeats, later checkpoints, or a lower first level (for few clients with a larger "
            "`max_weight`, which allows it)."
        )
    return alpha, (alpha - half, alpha + half)
