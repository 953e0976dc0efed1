"""`Study`: a task, calibrated and priced under several schemes, and the cells that it needs.

::

    Study               any task: `fedprice.study`
    └── SetupStudy      a setup of the paper, with all that its section VI runs
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fedprice.calibration import Calibration, calibrate
from fedprice.errors import InputError
from fedprice.experiments.cells import Cell
from fedprice.experiments.code_version import code_version
from fedprice.experiments.measures import shortest_time
from fedprice.pricing import Status, find_schemes, solve
from fedprice.pricing.display import infeasible_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.experiments.cells import SetupSource, Store, TaskSource
    from fedprice.experiments.settings import StudySettings
    from fedprice.game import Game
    from fedprice.pricing import Outcome

__all__ = ["FULL", "Plan", "Study", "calibrated"]

FULL = "full"  # the scheme, and the runs of a study, in which everybody joins
FULL_SEEDS = 5  # no coins are thrown, so that runs differ little
FRACTION = 0.9  # share of the time at which the reference sets the target


class Plan(NamedTuple):
    """What is trained under one name: levels, rounds, aggregator, and initial number of seeds."""

    levels: FloatArray
    rounds: int
    evaluate_every: int
    seeds: int
    aggregator: str


@dataclass(frozen=True, eq=False)
class Study:
    """A task, calibrated and priced.

    Attributes
    ----------
    name
        The name of the task.
    settings, source
        What to run, and what is trained.
    calibration, priced
        The measured constants, and the game that they make with costs, values and the budget.
    own
        F(w_n*) of each client, the loss that it could reach alone, where it is known.
    seconds
        The time that calibration took.
    """

    name: str
    settings: StudySettings
    source: SetupSource | TaskSource
    calibration: Calibration
    priced: Game
    own: FloatArray | None
    seconds: float

    taken: ClassVar[tuple[str, ...]] = ()
    aggregator: ClassVar[str] = "memory"

    @property
    def title(self) -> str:
        """The study's name in tables."""
        return self.name

    @property
    def data_name(self) -> str:
        """What the data are."""
        return self.source.task.name

    @property
    def scheme_names(self) -> tuple[str, ...]:
        """The schemes: names, or FILE.py:FUNCTION."""
        return self.settings.schemes

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcome of each scheme."""
        return self.outcomes_of(self.priced)

    def outcomes_of(self, game: Game) -> dict[str, Outcome]:
        """Return the outcome of each scheme for a game."""
        outcomes = {}
        for scheme in find_schemes(self.scheme_names, taken=self.taken):
            outcome = outcomes[scheme.name] = scheme(game)
            if outcome.status is Status.INFEASIBLE:
                raise InputError(f"{self.name}: {infeasible_line(outcome)}")
        return outcomes

    @property
    def subject(self) -> str:
        """The scheme that is compared with all others: the first."""
        return next(iter(self.outcomes))

    @property
    def reference(self) -> str:
        """The scheme that sets targets: uniform pricing, or else the last."""
        return "uniform" if "uniform" in self.outcomes else list(self.outcomes)[-1]

    @property
    def timed_schemes(self) -> tuple[str, ...]:
        """The schemes whose runs all cover the evaluation time."""
        return tuple(self.outcomes)

    @property
    def time_label(self) -> str:
        """What the time of a run is."""
        return "rounds" if self.source.clock is None else "simulated time, s"

    def printed(self, what: str) -> Mapping[str, int]:
        """Return times that a paper prints for its target loss or accuracy, by scheme."""
        del what
        return {}

    def fraction(self, what: str) -> float:
        """Return the share of the time at which the reference sets the target."""
        del what
        return FRACTION

    def lasts(self, *names: str) -> float:
        """Return the time that runs under each of some schemes cover."""
        clock = self.source.clock
        if clock is None:
            return float(self.settings.rounds)
        levels = [self.outcomes[name].levels for name in names]
        seconds = clock.compute + clock.transfer
        return shortest_time(seconds, clock.idle, levels, self.settings.rounds)

    def scheme_plans(self) -> dict[str, Plan]:
        """Return what is trained under the schemes' prices."""
        settings = self.settings
        every = max(settings.rounds // 100, 1)
        return {
            name: Plan(outcome.levels, settings.rounds, every, settings.seeds,
                       outcome.aggregator or self.aggregator)
            for name, outcome in self.outcomes.items()
        }  # fmt: skip

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """What the study trains, by name: the schemes, and everybody joining beside them."""
        plans = self.scheme_plans()
        if FULL in plans:
            return plans
        usual, everybody = plans[self.subject], solve(self.priced, FULL)
        full = usual._replace(
            levels=everybody.levels,
            seeds=min(usual.seeds, FULL_SEEDS),
            aggregator=self.aggregator,
        )
        return plans | {FULL: full}

    def cells(self, seeds: Mapping[str, int]) -> list[Cell]:
        """Return all runs that the study needs.

        Parameters
        ----------
        seeds
            The number of runs, by name, where it is larger than planned.
        """
        return [
            Cell(
                self.source, name, seed, plan.levels, rounds=plan.rounds,
                evaluate_every=plan.evaluate_every, aggregator=plan.aggregator,
            )
            for name, plan in self.plans.items()
            for seed in range(max(plan.seeds, seeds.get(name, 0)))
        ]  # fmt: skip


def calibrated(
    source: SetupSource | TaskSource,
    store: Store,
    report: Callable[[str], None] | None,
    **settings: Any,
) -> tuple[Calibration, float]:
    """Return a calibration and the seconds that it took, from the store or by pilots.

    Parameters
    ----------
    source, store
        What is calibrated, and where results are kept.
    report
        Called with a line before pilots run; without it, they must not run.
    **settings
        As for `fedprice.calibrate`.
    """
    digest = hashlib.sha256(code_version("fedprice.calibration").encode())
    digest.update(f"{source.task.fingerprint}\0{source.code}".encode())
    digest.update("\0".join(map(str, settings.values())).encode())
    fingerprint = digest.hexdigest()
    stored = store.load(f"{source.name} calibration", fingerprint)
    if stored is None:
        if report is None:
            raise InputError(f"{store.folder} lacks the calibration of {source.name}.")
        report(f"calibrating {source.name}")
        start = time.perf_counter()
        calibration = calibrate(source.task, **settings)
        seconds = np.array(time.perf_counter() - start)
        stored = {"calibration": np.array(calibration.to_json()), "seconds": seconds}
        store.save(f"{source.name} calibration", fingerprint, stored)
    return Calibration.from_json(str(stored["calibration"])), float(stored["seconds"])
