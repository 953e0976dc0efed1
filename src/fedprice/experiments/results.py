"""`Result`: a study with all of its runs, and the measures taken from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments.interim_looks import error_of_a_look
from fedprice.experiments.measures import RESOLUTION, Estimate, Timed
from fedprice.experiments.settings import PUBLISHED_SCHEMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.experiments.cells import Curve
    from fedprice.experiments.settings import StudySettings
    from fedprice.experiments.study import Study


__all__ = ["Result", "basis", "difference", "mean", "spread", "title_of"]


@dataclass(frozen=True, eq=False)
class Result:
    """A study with all its runs, by name and seed."""

    study: Study
    curves: dict[str, list[Curve]]

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.name

    @property
    def title(self) -> str:
        """The study's name in tables."""
        return self.study.title

    @property
    def compared(self) -> list[str]:
        """The schemes that figures show."""
        return list(self.study.outcomes)

    @property
    def measures(self) -> list[str]:
        """What was evaluated: "loss", and "accuracy" if the task has one."""
        known = np.isfinite(self.curves[self.study.subject][0].accuracy).all()
        return ["loss", "accuracy"] if known else ["loss"]

    @cached_property
    def end(self) -> float:
        """The evaluation time: what every run of the schemes covers."""
        return self.study.lasts(*self.study.timed_schemes)

    def timed(self, what: str, fraction: float | None = None) -> Timed:
        """Return times to a target loss or accuracy.

        Parameters
        ----------
        what
            "loss" or "accuracy".
        fraction
            The share of the evaluation time at which the reference sets the target; by default the
            study's.
        """
        return self.race(what, self.compared, self.study.reference, self.end, fraction)

    def race(
        self, what: str, names: Sequence[str], reference: str, end: float, fraction: float | None
    ) -> Timed:
        """Return times of some schemes to the target that one of them sets."""
        return Timed.measure(
            {name: self.curves[name] for name in names},
            what,
            self.study.fraction(what) if fraction is None else fraction,
            end,
            own=self.study.subject,
            reference=reference,
            error=self.error,
        )

    def races(self, what: str) -> dict[str, Timed]:
        """Return times to targets, by the kind of baselines if there are several."""
        return {"": self.timed(what)}

    def seeds(self, *names: str) -> int:
        """Return how many seeds some runs have in common."""
        return min(len(self.curves[name]) for name in names)

    def error(self, *names: str) -> float:
        """Return the probability with which one interval may miss, as seeds may be added later."""
        settings, plans = self.study.settings, self.study.plans
        firsts = [plans[name].seeds for name in names]
        return error_of_a_look(settings.seeds, settings.most_seeds, firsts)

    @property
    def seconds(self) -> float:
        """The time that calibration and all runs took, summed over workers."""
        return self.study.seconds + sum(c.seconds for runs in self.curves.values() for c in runs)

    def last(self, name: str, what: str = "loss") -> FloatArray:
        """Return the last loss or accuracy of each run."""
        return np.array([getattr(curve, what)[-1] for curve in self.curves[name]])

    def estimate(
        self,
        names: Sequence[str],
        measure: Callable[..., Any],
        what: str = "loss",
        *,
        log: bool = False,
    ) -> Estimate:
        """Return a measure of the last values of some runs over common seeds, with its interval.

        `measure` and `log` are as for `Estimate.jackknife`: it gets, for each name, values with the
        seeds along the last axis.
        """
        count = self.seeds(*names)
        last = [self.last(name, what)[:count] for name in names]
        return Estimate.jackknife(measure, last, error=self.error(*names), log=log)

    def difference(self, own: str, other: str, what: str = "loss") -> Estimate:
        """Return by how much the last values under one name exceed another's, on average."""
        pair = (own, other)
        count = self.seeds(*pair)
        return difference([self.last(n, what)[:count] for n in pair], self.error(*pair))


def difference(pair: Sequence[FloatArray], error: float) -> Estimate:
    """Return the mean difference of paired observations, the first minus the second."""
    scale = float(np.abs(pair).max())
    found = Estimate.jackknife(lambda a, b: (a - b).mean(axis=-1), pair, error=error)
    return found.resolved(0.0, scale)


def mean(values: FloatArray) -> Any:
    """Return the mean over seeds, the last axis."""
    return values.mean(axis=-1)


def spread(values: FloatArray) -> Any:
    """Return the mean absolute deviation from the median over seeds, the last axis.

    Brown and Forsythe (1974) compare it rather than the standard deviation, which a single outlying
    seed would dominate.
    """
    middle = np.median(values, axis=-1, keepdims=True)
    away = np.abs(values - middle).mean(axis=-1)
    return np.where(away > RESOLUTION * np.abs(middle[..., 0]), away, 0.0)


def title_of(name: str) -> str:
    """Return a scheme's name in words.

    >>> title_of("uniform-published"), title_of("equilibrium")
    ('uniform as published', 'equilibrium')
    """
    return name.removesuffix("-published") + " as published" if name in PUBLISHED_SCHEMES else name


def basis(settings: StudySettings, seeds: int | None = None, rounds: int | None = None) -> str:
    """Return in words which runs something is based on, by default those of the schemes."""
    least, most = seeds or settings.seeds, max(seeds or settings.seeds, settings.most_seeds)
    words = f"{least} seeds" if least == most else f"{least} to {most} seeds"
    return words if rounds is None else f"{words}, {rounds:,} rounds"
