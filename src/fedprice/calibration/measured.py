"""`Calibration`: what pilots measured about a task, and the games made from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedprice._plumbing.table_limits import limited_content
from fedprice._plumbing.tables import check_output, whole_file
from fedprice.bound import Bound
from fedprice.calibration.searched import Search
from fedprice.clients import LARGEST_WEIGHT, Clients
from fedprice.errors import InputError, number_like
from fedprice.learning.functions import client_names, sample_counts

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.rounds import Aggregator, ServerStep

__all__ = ["IMPACTS", "Calibration", "Fit", "Slope"]

FORMAT = "fedprice calibration 1"
IMPACTS = ("updates", "gradients")  # norms from which impacts can be computed


@dataclass(frozen=True, eq=False)
class Fit:
    """The bound's constants for one kind of norm.

    Attributes
    ----------
    alpha, low, high
        α and its 95 % confidence interval over the repeats, which is valid however often a search
        looked at it.
    beta
        The part of the bound that remains for β, from the pilots at the highest level; 0 where the
        least loss is not known.
    norm
        The norm of each client that the constants belong to, shape (num_clients,).
    random
        α A(q) of the pilots at the highest level: the part of their loss, times rounds, that does
        not belong to β. NaN in older files.
    error
        The standard error of β + `random` over the repeats; NaN in older files.
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
    """Points of accuracy (hundredths) gained per unit less of loss, with a 95 % interval."""

    points: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """What the pilots measured.

    Only the product α · norm² enters prices, so α is valid only with the norms that it was fitted
    with. The variance of a round is exactly Σ a² (1 − q) / q ‖Δ‖² in the clients' updates Δ, so
    impacts are computed from their norms unless the paper's are requested (docs/theory.md, "Which
    norms").

    Attributes
    ----------
    name, ids, samples
        What was measured: the task, and its clients with their numbers of samples.
    task, aggregator, server_step
        The fingerprint of the task, and the names of the aggregator and server step of the pilots:
        α depends on all of them.
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
    norms
        The norms used for prices: "updates", or "gradients" as in the paper.
    search
        How the pilots were found; None where levels, checkpoints or repeats were given.
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
    norms: str = "updates"
    search: Search | None = None

    def __post_init__(self) -> None:
        self._fit_of(self.norms)

    def __repr__(self) -> str:
        fit = self.fit
        return (
            f"Calibration({self.name!r}, num_clients={len(self.ids)}, norms={self.norms!r}, "
            f"alpha={fit.alpha:.4g} ({fit.low:.4g} to {fit.high:.4g}))"
        )

    def _fit_of(self, impact: str | None) -> Fit:
        """Return the constants for one kind of norm, by default the kind used for prices."""
        impact = self.norms if impact is None else impact
        if impact not in IMPACTS:
            raise InputError(f"`impact` must be 'updates' or 'gradients'; got {impact!r}.")
        if impact == "updates":
            return self.updates
        if self.gradients is None:
            raise InputError(
                f"{self.name} has no gradient norms to compute impacts from; use the norms of "
                "updates, the default."
            )
        return self.gradients

    @property
    def fit(self) -> Fit:
        """The constants used for prices."""
        return self._fit_of(None)

    def with_impact(self, impact: str) -> Calibration:
        """Return the same calibration, pricing with the norms of "updates" or of "gradients"."""
        return replace(self, norms=impact)

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

    def bound(self, rounds: int, *, impact: str | None = None) -> Bound:
        """Return the bound with the measured constants; `impact` as for `clients`."""
        fit = self._fit_of(impact)
        return Bound(alpha=fit.alpha, rounds=rounds, beta=fit.beta, norms=impact or self.norms)

    def value(self, per_point: float) -> tuple[float, tuple[float, float]]:
        """Return the value of a unit of loss where a point of accuracy is worth `per_point`.

        The pilots convert: value = points of accuracy per unit of loss × money per point. The
        interval is the slope's, at 95 %.
        """
        worth = number_like("per_point", per_point)
        if not 0 <= worth < np.inf:
            raise InputError(f"`per_point` must be a finite number, at least 0; got {worth}.")
        slope = self.accuracy
        if slope is None:
            raise InputError(
                f"the pilots of {self.name} recorded no accuracy: the calibration is too old, "
                'or the task reports no "accuracy" between 0 and 1. Calibrate again with one.'
            )
        if not slope.low > 0:
            raise InputError(
                "the pilots do not show how accuracy depends on the loss (95 % from "
                f"{slope.low:.3g} to {slope.high:.3g} points per unit); use more repeats or later "
                "checkpoints."
            )
        return worth * slope.points, (worth * slope.low, worth * slope.high)

    def with_alpha(self, alpha: float) -> Calibration:
        """Return the same calibration with another α, known exactly."""
        fit = replace(self.fit, alpha=alpha, low=alpha, high=alpha)
        return replace(self, **{self.norms: fit})  # type: ignore[arg-type]

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
        self,
        *,
        cost: npt.ArrayLike | None = None,
        value: npt.ArrayLike | None = None,
        max_weight: float = LARGEST_WEIGHT,
        impact: str | None = None,
    ) -> Clients:
        """Return the clients with what was measured, and with the given costs and values.

        Parameters
        ----------
        cost, value
            c_n and v_n, shape (num_clients,) or a scalar; left out where they are not known.
        max_weight
            Sets floors, so that no aggregation weight a_n / q_n exceeds it; infinity sets none.
        impact
            The norms that impacts are computed from: "updates", or "gradients" as in the paper; by
            default those of the calibration (`norms`). The bound must use the same.
        """
        fit = self._fit_of(impact)
        own = Clients(samples=self.samples, grad_norm=1.0, cost=cost, value=value, ids=self.ids)
        return own.with_norms(fit.norm, impact or self.norms).with_max_weight(max_weight)

    def to_frame(self) -> pl.DataFrame:
        """Return the clients as a polars table, one row per client."""
        import polars as pl

        columns: dict[str, Any] = {"client_id": list(self.ids), "samples": self.samples}
        if self.gradients is not None:
            columns["grad_norm"] = self.gradients.norm
            columns["grad_norm_max"] = self.grad_norm_max
        return pl.DataFrame(columns | {"update_norm": self.updates.norm})

    def to_json(self) -> str:
        """Return the calibration as JSON, which `read` reads."""
        content = {
            "format": FORMAT,
            "name": self.name,
            "task": self.task,
            "aggregator": self.aggregator,
            "server_step": self.server_step,
            "norms": self.norms,
            "gradients": None if self.gradients is None else _constants(self.gradients),
            "updates": _constants(self.updates),
            "rounds": self.rounds.tolist(),
            "pilots": self.pilots.tolist(),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            "search": None if self.search is None else self.search.content(),
            "clients": self.to_frame().to_dicts(),
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write the calibration to a .json file, atomically."""
        path = check_output(path, (".json",), force=force)
        with whole_file(path) as part:
            part.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a calibration that `write` wrote."""
        try:
            return cls.from_json(limited_content(Path(path)))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}.") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Make a calibration from what `to_json` returned."""
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
                accuracy=_slope(content.get("accuracy")),  # missing in older files
                norms=str(content.get("norms", "updates")),
                search=Search.of(content.get("search")),
            )
        except (
            KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
            InputError,
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
