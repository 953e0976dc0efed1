"""`study`: compare schemes on your own task, as on the paper's setups."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprice import __version__
from fedprice.errors import InputError, require
from fedprice.experiments.cells import Store, TaskSource
from fedprice.experiments.figures import curves_figure, differences_figure, prices_figure
from fedprice.experiments.lead import own_lead, seed_notes
from fedprice.experiments.report import Report, duration
from fedprice.experiments.results import Result
from fedprice.experiments.settings import PAPER_SCHEMES, StudySettings
from fedprice.experiments.study import Study, calibrated
from fedprice.experiments.tables import (
    TIMES,
    levels_table,
    times_table,
    training_table,
    utility_table,
)
from fedprice.experiments.verdicts import own_claims
from fedprice.experiments.work import Work
from fedprice.game import Game

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from fedprice.arrays import FloatArray
    from fedprice.calibration import Calibration
    from fedprice.learning import Clock, Task

__all__ = ["shared_cells", "study"]


def study(
    task: Task,
    schemes: Sequence[str] = PAPER_SCHEMES,
    seeds: int = 20,
    *,
    most_seeds: int | None = None,
    rounds: int = 1000,
    budget: float = 200.0,
    cost: npt.ArrayLike = 50.0,
    value: npt.ArrayLike = 4000.0,
    max_weight: float = np.inf,
    game: Callable[[Calibration], Game] | None = None,
    calibration: Calibration | None = None,
    clock: Clock | None = None,
    name: str | None = None,
    code: str = "",
    cells: str | Path | None = None,
    workers: int | None = None,
    report: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int, int, int], None] = lambda *_: None,
) -> Report:
    """Calibrate a task, price its clients by several schemes, train under each, and compare.

    The first scheme is compared with all others, in pairs of runs with the same seed; seeds are
    added where a comparison is inconclusive. Stored runs are not computed again, whichever study
    they were made for.

    Parameters
    ----------
    task
        What is learned, and from whom.
    schemes
        Names, or FILE.py:FUNCTION.
    seeds, most_seeds
        The initial and the largest number of runs per scheme; by default the same.
    rounds
        The number of training rounds.
    budget
        The most to pay in total.
    cost, value
        One number per client; a single number is the mean of an exponential draw, as in the
        paper; the defaults are those of its Setup 1.
    max_weight
        Sets floors, so that no aggregation weight exceeds it; by default none, as in the paper:
        schemes that leave clients out could not meet floors.
    game
        Makes the game from a calibration; replaces budget, costs, values and `max_weight`.
    calibration
        What was measured; by default pilots are run with the settings of `fedprice.calibrate`.
    clock
        Simulated time; without it, times are rounds.
    name, code
        The study's name, and a hash of the code that made the task, if the task's own fingerprint
        cannot include it.
    cells
        Where runs are kept; by default in the user's cache, shared by all studies.
    workers
        The number of runs at the same time; by default one per core.
    report, progress
        Called with one line about each event; and with the rounds done, all rounds, the runs done
        and all runs.

    Returns
    -------
    Report
        `claims`, `tables` and `results`, and `write(folder)` for tables in CSV, Markdown and LaTeX,
        figures, and a page.
    """
    settings = StudySettings(tuple(schemes), seeds, most_seeds or seeds, rounds)
    if len(settings.schemes) < 2:
        raise InputError(f"a study needs at least two schemes; got {len(settings.schemes)}.")
    source = TaskSource(name or task.name, task, clock, code)
    store = Store(shared_cells() if cells is None else Path(cells), report)
    store.clean()
    rng = np.random.default_rng(0)
    costs, values = (
        _drawn(what, given, task.num_clients, rng)
        for what, given in (("cost", cost), ("value", value))
    )
    measured, seconds = (calibration, 0.0) if calibration else calibrated(source, store, report)
    if game is None:
        clients = measured.clients(cost=costs, value=values, max_weight=max_weight)
        priced = Game(clients, bound=measured.bound(rounds), budget=budget)
    else:
        priced = game(measured)
    own = Study(source.name, settings, source, measured, priced, None, seconds)
    work = Work([own], store, Result, own_claims)
    while True:
        missing = work.missing()
        if missing:
            work.compute(missing, workers, progress)
        if not work.add_seeds(report):
            return _report_of(work.results()[0])


def shared_cells() -> Path:
    """Return where the runs of all studies are kept."""
    return Path(require("pooch", "learn").os_cache("fedprice")) / "cells"


def _drawn(what: str, given: npt.ArrayLike, count: int, rng: np.random.Generator) -> FloatArray:
    """Return one number per client; a single number is the mean of a draw."""
    draw = rng.exponential(size=count)
    numbers = np.asarray(given, np.float64)
    if numbers.ndim == 0:
        return numbers * draw
    if numbers.shape != (count,):
        raise InputError(
            f"`{what}` must be a number, or one per client, {count} in all; got {numbers.size}."
        )
    return numbers


def _report_of(result: Result) -> Report:
    study, claims, results = result.study, own_claims(result), [result]
    note = (
        f"The target is what {study.reference} reaches, on average, at "
        f"{study.fraction('loss'):.0%} of the evaluation time, which every run covers. {TIMES}"
    )
    times = [
        times_table(results, what, f"table-time-{what}", f"Time to the target {what}", note)
        for what in result.measures
    ]
    utility = utility_table(results, "table-utility", "Gain in total client utility", {})
    return Report(
        title=f"{study.title}: {len(study.outcomes)} schemes compared",
        paragraphs=own_lead(result, claims),
        first=[prices_figure(result), differences_figure(result), curves_figure(result)],
        claims=claims,
        tables=[*times, utility, levels_table(results), training_table(results)],
        others=[],
        notes=[
            f"A run has {study.settings.rounds:,} rounds. The bound's α is "
            f"{study.calibration.alpha:.3g}, measured by pilots.",
            *seed_notes(study.settings),
        ],
        ran=f"`fedprice study` with fedprice {__version__}. Work, summed over workers: "
        f"{duration(result.seconds)}.",
        settings="".join(f"{k} = {v}\n" for k, v in asdict(study.settings).items()),
        results=results,
    )
