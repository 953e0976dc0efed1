"""`study`: compare schemes on your own task, as on the paper's setups."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice import __version__
from fedprice.clients import LARGEST_WEIGHT
from fedprice.errors import InputError, require
from fedprice.experiments.budgets import (
    WITHIN,
    BudgetStudy,
    budget_claims,
    budget_report,
    checked_budgets,
)
from fedprice.experiments.cells import Store, TaskSource
from fedprice.experiments.missing_runs import Work
from fedprice.experiments.report import Report, duration, settings_text
from fedprice.experiments.report_lead import own_lead, seed_notes
from fedprice.experiments.results import Result
from fedprice.experiments.settings import PAPER_SCHEMES, StudySettings
from fedprice.experiments.study import FULL, Study, calibrated
from fedprice.experiments.study_figures import curves_figure, differences_figure, prices_figure
from fedprice.experiments.study_summary import summary_table
from fedprice.experiments.study_tables import (
    READING,
    levels_table,
    times_table,
    training_table,
    utility_table,
)
from fedprice.experiments.verdicts import RULES, own_claims
from fedprice.game import Game
from fedprice.learning.training import training_settings
from fedprice.pricing import find_schemes
from fedprice.rounds.availability import presence_of
from fedprice.rounds.coins import check_coins
from fedprice.trackers import check_tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.calibration import Calibration
    from fedprice.learning import Clock, Task
    from fedprice.rounds.availability import Availability

__all__ = ["shared_cells", "study"]


def study(
    task: Task,
    schemes: Sequence[str] | None = None,
    seeds: int = 20,
    *,
    most_seeds: int | None = None,
    rounds: int = 1000,
    budget: float = 200.0,
    budgets: Sequence[float] | None = None,
    within: float | None = None,
    cost: npt.ArrayLike = 50.0,
    value: npt.ArrayLike = 4000.0,
    max_weight: float = LARGEST_WEIGHT,
    game: Callable[[Calibration], Game] | None = None,
    calibration: Calibration | None = None,
    clock: Clock | None = None,
    coins: str = "independent",
    availability: Availability | None = None,
    name: str | None = None,
    code: str = "",
    cells: str | Path | None = None,
    workers: int | None = None,
    track: str | None = None,
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
        Names, or FILE.py:FUNCTION; by default equilibrium, weighted and uniform, and equilibrium
        alone with `budgets`.
    seeds, most_seeds
        The initial and the largest number of runs per scheme; by default the same.
    rounds
        The number of training rounds.
    budget
        The most to pay in total.
    budgets, within
        Several budgets instead, each compared with everybody joining (the scheme `full`) rather
        than scheme with scheme: which is the smallest whose loss exceeds everybody's by no more
        than this share of it, by default 0.01?
    cost, value
        One number per client; a single number is the mean of an exponential draw, as in the
        paper; the defaults are those of its Setup 1.
    max_weight
        Raises floors, so that no aggregation weight exceeds it; infinity sets none. Schemes that
        leave clients out need that.
    game
        Makes the game from a calibration; replaces budget, costs and values.
    calibration
        What was measured; by default pilots are run with the settings of `fedprice.calibrate`.
    clock
        Simulated time; without it, times are rounds.
    coins, availability
        How clients are drawn in training, and when they can be reached, as for `simulate`; in
        pilots, coins are independent, and all are there.
    name, code
        The study's name, and a hash of the code that made the task, if the task's own fingerprint
        cannot include it.
    cells
        Where runs are kept; by default in the user's cache, shared by all studies.
    workers
        The number of runs at the same time; by default one per core.
    track
        Where each run is shown once it is computed, such as "mlflow:runs" (`fedprice.trackers`).
    report, progress
        Called with one line about each event; and with the rounds done, all rounds, the runs done
        and all runs.

    Returns
    -------
    Report
        `claims`, `tables` and `results`, and `write(folder)` for tables in CSV, Markdown and LaTeX,
        figures, and a page.
    """
    if budgets is None and within is not None:
        raise InputError(f"`within` requires `budgets`; got {within} alone. Add `budgets`.")
    share = WITHIN if within is None else within
    amounts = None if budgets is None else checked_budgets(budgets, share)
    names = schemes or (PAPER_SCHEMES if amounts is None else ("equilibrium",))
    settings = StudySettings(tuple(names), seeds, most_seeds or seeds, rounds)
    if amounts is None and len(settings.schemes) < 2:
        raise InputError(f"a study needs at least two schemes; got {len(settings.schemes)}.")
    find_schemes(names)  # finds errors before the pilots run
    if track is not None:
        check_tracker(track)
    check_coins(coins)
    presence_of(availability, task, rounds, seed=0)  # finds errors before the pilots run
    participation = {"coins": coins, "availability": availability}
    source = TaskSource(name or task.name, task, clock, code, participation)
    store = Store(shared_cells() if cells is None else Path(cells), report)
    store.clean()
    rng = np.random.default_rng(0)
    costs, values = (
        _drawn(what, column, task.num_clients, rng)
        for what, column in (("cost", cost), ("value", value))
    )
    measured, seconds = (calibration, 0.0) if calibration else calibrated(source, store, report)
    if game is None:
        clients = measured.clients(cost=costs, value=values, max_weight=np.inf)
        priced = Game(clients, bound=measured.bound(rounds), budget=budget)
    else:
        priced = game(measured)
    priced = replace(priced, clients=priced.clients.with_max_weight(max_weight))
    studied = Study(source.name, settings, source, measured, priced, None, seconds)
    claims_of, report_of = own_claims, _report_of
    if amounts is not None:
        studied = BudgetStudy.of(studied, amounts)
        claims_of = partial(budget_claims, within=share)
        report_of = partial(budget_report, within=share)
    report_of = partial(report_of, in_force=_in_force(studied, max_weight))
    work = Work([studied], store, Result, claims_of)
    while True:
        missing = work.missing()
        if missing:
            work.compute(missing, workers, progress, track)
        if not work.add_seeds(report):
            return report_of(work.results()[0])


def shared_cells() -> Path:
    """Return where the runs of all studies are kept."""
    return Path(require("pooch", "learn").os_cache("fedprice")) / "cells"


def _drawn(what: str, column: npt.ArrayLike, count: int, rng: np.random.Generator) -> FloatArray:
    """Return one number per client; a single number is the mean of a draw."""
    draw = rng.exponential(size=count)
    numbers = np.asarray(column, np.float64)
    if numbers.ndim == 0:
        return numbers * draw
    if numbers.shape != (count,):
        raise InputError(
            f"`{what}` must be a number, or one per client, {count} in all; got {numbers.size}."
        )
    return numbers


def _in_force(study: Study, max_weight: float) -> dict[str, Any]:
    """Return the settings of a study by name, defaults included."""
    trained_by = {name: study.plans[name].aggregator for name in study.outcomes}
    same = len(set(trained_by.values())) == 1
    availability = study.source.participation["availability"]
    return {
        **asdict(study.settings),
        "schemes": ", ".join(study.settings.schemes),
        "budget": study.priced.budget,
        "largest_weight": "none" if max_weight == np.inf else max_weight,
        "norms": study.calibration.norms,
        "aggregator": next(iter(trained_by.values())) if same else trained_by,
        "server_step": "plain",
        "coins": study.source.participation["coins"],
        "availability": "always" if availability is None else availability,
        **training_settings(study.source.task),
    }


def _report_of(result: Result, in_force: dict[str, Any]) -> Report:
    study, claims, results = result.study, own_claims(result), [result]
    note = (
        f"When the mean over seeds gets to what {study.reference} reaches at "
        f"{study.fraction('loss'):.0%} of the evaluation time, which every run covers."
    )
    times = [
        times_table(results, what, f"table-time-{what}", f"Time to the target {what}", note)
        for what in result.measures
    ]
    utility = utility_table(results, "table-utility", "Gain in total client utility", {})
    return Report(
        title=f"{study.title}: {len(study.outcomes)} schemes compared",
        paragraphs=own_lead(result, claims),
        summary=summary_table(result, claims),
        first=[differences_figure(result), curves_figure(result), prices_figure(result)],
        claims=claims,
        tables=[
            table.without("setup")
            for table in (*times, utility, levels_table(results), training_table(results))
        ],
        others=[],
        notes=[
            f"A run has {study.settings.rounds:,} rounds. The bound's α is "
            f"{study.calibration.alpha:.3g}, measured by pilots.",
            f"Everybody joining was trained with {result.seeds(FULL)} seeds.",
            *seed_notes(study.settings),
            *RULES,
            *READING,
        ],
        ran=f"`fedprice study` with fedprice {__version__}. Work, summed over workers: "
        f"{duration(result.seconds)}.",
        settings=settings_text(in_force),
        results=results,
    )
