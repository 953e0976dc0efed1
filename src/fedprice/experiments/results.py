"""`Result`: a setup with all its runs, and what is read off them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments import paper
from fedprice.experiments.looks import error_of_a_look
from fedprice.experiments.measures import Estimate, Timed
from fedprice.experiments.settings import PAPER_SCHEMES, PUBLISHED_SCHEMES
from fedprice.experiments.study import SWEEP_TIME, SWEEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedprice.arrays import FloatArray
    from fedprice.experiments.cells import Curve
    from fedprice.experiments.settings import Settings
    from fedprice.experiments.study import Study


__all__ = ["SETUP_TITLES", "Result", "basis", "mean", "spread", "title_of"]

SETUP_TITLES = {"setup1": "Setup 1", "setup2": "Setup 2", "setup3": "Setup 3"}


@dataclass(frozen=True, eq=False)
class Result:
    """A setup with all its runs, by name and seed."""

    study: Study
    curves: dict[str, list[Curve]]

    @property
    def name(self) -> str:
        """The setup's name."""
        return self.study.setup.name

    @property
    def title(self) -> str:
        """The setup's name as the paper writes it."""
        return SETUP_TITLES[self.name]

    @cached_property
    def schemes(self) -> dict[str, list[Curve]]:
        """The runs of the pricing schemes."""
        return {name: self.curves[name] for name in self.study.outcomes}

    @cached_property
    def end(self) -> float:
        """The evaluation time: what every run of the paper's schemes covers."""
        return self.study.lasts(*PAPER_SCHEMES)

    @cached_property
    def published_end(self) -> float:
        """The evaluation time with the baselines as published, who join less: shorter rounds."""
        return self.study.lasts("equilibrium", *PUBLISHED_SCHEMES)

    def timed(self, what: str, fraction: float | None = None, *, published: bool = False) -> Timed:
        """Return times to a target loss or accuracy.

        Parameters
        ----------
        what
            "loss" or "accuracy".
        fraction
            At which share of the evaluation time uniform pricing sets the target; by default the
            paper's: 903 of 1,000 s, and so on.
        published
            Whether the baselines are those as published, the target included.
        """
        if fraction is None:
            printed = paper.TIME_TO_LOSS if what == "loss" else paper.TIME_TO_ACCURACY
            fraction = printed[self.name]["uniform"] / self.study.setup.time
        own = ("equilibrium", *PUBLISHED_SCHEMES)
        chosen = [n for n in self.schemes if (n in own if published else n not in own[1:])]
        return Timed.measure(
            {name: self.curves[name] for name in chosen},
            what,
            fraction,
            self.published_end if published else self.end,
            reference="uniform-published" if published else "uniform",
            error=self.error,
        )

    def seeds(self, *names: str) -> int:
        """Return how many seeds some runs have in common."""
        return min(len(self.curves[name]) for name in names)

    def error(self, *names: str) -> float:
        """Return how likely one interval for these runs may miss, as seeds may be added later."""
        settings, plans = self.study.settings, self.study.plans
        firsts = [plans[name].seeds for name in names]
        return error_of_a_look(settings.seeds, settings.most_seeds, firsts)

    @cached_property
    def sweep_names(self) -> dict[float, str]:
        """The names of the runs of Figure 5, 6 or 7, by the mean or budget that varies."""
        what, values = SWEEPS[self.name]
        usual = getattr(self.study.setup, what)
        return {v: "equilibrium" if v == usual else f"{what}={v:g}" for v in values}

    @cached_property
    def sweep(self) -> dict[float, list[Curve]]:
        """The runs of Figure 5, 6 or 7, by the mean or budget that varies."""
        return {value: self.curves[name] for value, name in self.sweep_names.items()}

    @property
    def sweep_end(self) -> float:
        """The simulated seconds that those runs are shown for."""
        return min(SWEEP_TIME, *(float(c.time[-1]) for runs in self.sweep.values() for c in runs))

    @property
    def seconds(self) -> float:
        """What calibration and all runs took, summed over workers."""
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


def mean(values: FloatArray) -> Any:
    """Return the mean over seeds, the last axis."""
    return values.mean(axis=-1)


def spread(values: FloatArray) -> Any:
    """Return the mean absolute deviation from the median over seeds, the last axis.

    Brown and Forsythe (1974) compare it rather than the standard deviation: one seed far from the
    others would decide that.
    """
    middle = np.median(values, axis=-1, keepdims=True)
    return np.abs(values - middle).mean(axis=-1)


def title_of(name: str) -> str:
    """Return a scheme's name in words.

    >>> title_of("uniform-published"), title_of("equilibrium")
    ('uniform as published', 'equilibrium')
    """
    return name.removesuffix("-published") + " as published" if name in PUBLISHED_SCHEMES else name


def basis(settings: Settings, seeds: int | None = None, rounds: int | None = None) -> str:
    """Return in words what runs something stands on, by default those of the schemes."""
    least, most = seeds or settings.seeds, max(seeds or settings.seeds, settings.most_seeds)
    words = f"{least} seeds" if least == most else f"{least} to {most} seeds"
    return words if rounds is None else f"{words}, {rounds:,} rounds"
