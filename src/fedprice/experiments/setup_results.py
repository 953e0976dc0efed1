"""`SetupResult`: a setup of the paper with all its runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fedprice.experiments.results import Result
from fedprice.experiments.settings import PUBLISHED_SCHEMES
from fedprice.experiments.setup_study import SWEEP_TIME, SWEEPS

if TYPE_CHECKING:
    from fedprice.experiments.cells import Curve
    from fedprice.experiments.measures import Timed
    from fedprice.experiments.setup_study import SetupStudy

__all__ = ["SetupResult"]


@dataclass(frozen=True, eq=False)
class SetupResult(Result):
    """A setup with all its runs, by name and seed."""

    study: SetupStudy

    @property
    def compared(self) -> list[str]:
        """The schemes in figures; the published baselines would hide all others."""
        return [name for name in self.study.outcomes if name not in PUBLISHED_SCHEMES]

    @cached_property
    def published_end(self) -> float:
        """The evaluation time with the published baselines, which have fewer joiners."""
        return self.study.lasts("equilibrium", *PUBLISHED_SCHEMES)

    def published(self, what: str) -> Timed:
        """Return times to a target that uniform pricing as published sets."""
        names = ("equilibrium", *PUBLISHED_SCHEMES)
        return self.race(what, names, "uniform-published", self.published_end, None)

    def races(self, what: str) -> dict[str, Timed]:
        """Return times to targets with both kinds of baselines, where both were trained."""
        if self.study.only_times:
            return super().races(what)
        return {"sound": self.timed(what), "as published": self.published(what)}

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
