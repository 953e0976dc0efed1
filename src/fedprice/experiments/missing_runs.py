"""`Work`: the runs of some studies, computed where no file has them, with seeds added as needed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from fedprice.experiments.results import Result
from fedprice.experiments.runner import run_cells
from fedprice.experiments.study import Study
from fedprice.experiments.verdicts import open_runs
from fedprice.trackers import tracking

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.experiments.cells import Cell, Curve, Store
    from fedprice.experiments.verdicts import Claim

__all__ = ["Work"]

StudyT = TypeVar("StudyT", bound=Study)
ResultT = TypeVar("ResultT", bound=Result)


@dataclass(frozen=True, eq=False)
class Work(Generic[StudyT, ResultT]):
    """The runs that are needed, and their results; seeds are added while verdicts are inconclusive.

    Attributes
    ----------
    studies, store
        What to run, and where results are kept.
    result_of, claims_of
        Make a result from a study and its runs, and claims from a result.
    seeds
        The number of seeds, by study and run, where it is larger than planned.
    found
        The results so far, by the title of their cell.
    """

    studies: list[StudyT]
    store: Store
    result_of: Callable[[StudyT, dict[str, list[Curve]]], ResultT]
    claims_of: Callable[[ResultT], list[Claim]]
    seeds: dict[str, dict[str, int]] = field(default_factory=dict)
    found: dict[str, Curve] = field(default_factory=dict)

    def cells(self) -> list[Cell]:
        """Return all runs that are needed so far."""
        return [c for study in self.studies for c in study.cells(self.seeds.get(study.name, {}))]

    def missing(self) -> list[Cell]:
        """Return the cells that are not stored; remember those that are."""
        missing = []
        for cell in self.cells():
            if cell.title not in self.found:
                curve = self.store.load_curve(cell)
                if curve is None:
                    missing.append(cell)
                else:
                    self.found[cell.title] = curve
        return missing

    def results(self) -> list[ResultT]:
        """Return the results of the runs, one per study."""
        curves: dict[str, dict[str, list[Curve]]] = {study.name: {} for study in self.studies}
        for cell in self.cells():  # in the order of the seeds
            curves[cell.source.name].setdefault(cell.name, []).append(self.found[cell.title])
        return [self.result_of(study, curves[study.name]) for study in self.studies]

    def add_seeds(self, report: Callable[[str], None]) -> bool:
        """Add seeds where a verdict is inconclusive; return whether there is any."""
        results = self.results()
        more = {result.name: open_runs(result, self.claims_of(result)) for result in results}
        for study, runs in more.items():
            self.seeds[study] = self.seeds.get(study, {}) | runs
            for count in sorted(set(runs.values())):
                names = ", ".join(name for name, wanted in runs.items() if wanted == count)
                report(f"{study}: some verdicts are inconclusive; raising {names} to {count} seeds")
        return any(more.values())

    def compute(
        self,
        cells: list[Cell],
        workers: int | str | None,
        progress: Callable[[int, int, int, int], None],
        track: str | None = None,
    ) -> None:
        """Compute cells, keep each result as it comes, and show it where it is tracked."""
        total = sum(cell.rounds for cell in cells)
        # The longest first, so that no worker is left with a long one at the end.
        ordered = sorted(cells, key=lambda c: -c.rounds * float(c.levels.sum()))
        computed = run_cells(
            ordered,
            workers or os.cpu_count() or 1,
            lambda rounds, done: progress(rounds, total, done, len(cells)),
        )
        for cell, curve in computed:
            self.store.save_curve(cell, curve)
            self.found[cell.title] = curve
            with tracking(track, cell.title) as tracker:
                if tracker is not None:
                    for record in curve.records():
                        tracker.on_round(record)
