"""`reproduce`: run the missing parts of the paper's evaluation, and gather the results."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice import __version__
from fedprice._plumbing.table_limits import limited_content
from fedprice._plumbing.tables import whole_file
from fedprice.errors import InputError
from fedprice.experiments.cells import Store
from fedprice.experiments.missing_runs import Work
from fedprice.experiments.settings import PAPER_SCHEMES, Settings
from fedprice.experiments.setup_claims import claims_of
from fedprice.experiments.setup_results import SetupResult
from fedprice.experiments.setup_study import OTHER_RUNS, SetupStudy, begin
from fedprice.experiments.setups import setup_of
from fedprice.pricing import find_schemes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Reproduction", "gather", "reproduce"]

SETTINGS, RUN = "settings.toml", "run.json"
_Work = Work[SetupStudy, SetupResult]


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A reproduction in a directory.

    Attributes
    ----------
    settings, results
        What was run, and one result per setup.
    wall_seconds, finished
        Wall-clock time of all calls with these settings, including stopped ones, and the date of
        the last one.
    machine, version
        The machine, and the version of fedprice.
    """

    settings: Settings
    results: list[SetupResult]
    wall_seconds: float
    finished: str
    machine: str
    version: str


def reproduce(
    settings: Settings,
    folder: Path,
    *,
    data: str | None = None,
    workers: int | str | None = None,
    report: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int, int, int], None] = lambda *_: None,
) -> Reproduction:
    """Run what is missing, and return everything.

    Work that a directory already holds, from these or other settings, is reused: a cell is computed
    only if there is no file with its fingerprint.

    Parameters
    ----------
    settings
        What to run.
    folder
        Where cells, settings and later the report are kept.
    data
        Where image data are (see `load_images`).
    workers
        Processes, by default one per core, or "ray".
    report
        Called with one line about each event.
    progress
        Called with the rounds done, all rounds, the cells done and all cells.
    """
    start = time.monotonic()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the directory {folder}: {error.strerror}.") from error
    store = Store(folder / "cells", report)
    store.clean()
    work = _load(settings, data, store, report)
    missing = work.missing()  # also prices: a scheme that fails does so before anything is written
    with whole_file(folder / SETTINGS) as part:
        part.write_text(settings.to_toml(), encoding="utf-8")
    computed = False
    try:
        while True:
            computed = computed or bool(missing)
            if missing:
                work.compute(missing, workers, progress)
            if not work.add_seeds(report):
                break
            missing = work.missing()
    finally:
        if computed:
            _note_time(folder, settings, time.monotonic() - start)
    return _finish(settings, work, folder)


def gather(folder: Path, data: str | None = None) -> Reproduction:
    """Return a reproduction from what is stored; nothing is computed."""
    if not (folder / SETTINGS).is_file():
        raise InputError(
            f"{folder} has no study of the paper. Run: fedprice study paper --out {folder}"
        )
    settings = Settings.read(folder / SETTINGS)
    advice = f"Run: fedprice study paper --settings {folder / SETTINGS} --out {folder}"
    try:
        work = _load(settings, data, Store(folder / "cells", lambda _: None), None)
    except InputError as error:
        raise InputError(f"{error} {advice}") from error
    while True:
        missing = work.missing()
        if missing:
            raise InputError(
                f"{folder} lacks {len(missing)} of {len(work.cells())} results (first: "
                f"{missing[0].title}), or they are from other code. {advice}"
            )
        if not work.add_seeds(lambda _: None):
            return _finish(settings, work, folder)


def _load(
    settings: Settings, data: str | None, store: Store, report: Callable[[str], None] | None
) -> _Work:
    find_schemes(settings.schemes, taken=(*PAPER_SCHEMES, *OTHER_RUNS))  # before pilots run
    takers = [name for name in settings.setups if setup_of(name).takes_data]
    studies = []
    for name in settings.setups:
        # Setups that do not use `data` refuse it, so they get it only if none of them uses it.
        folder = data if name in takers or not takers else None
        studies.append(begin(settings, name, folder, store, report))
    return Work(studies, store, SetupResult, claims_of)


def machine() -> str:
    """Return a short description of this machine."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}"
    )


def _note_time(folder: Path, settings: Settings, seconds: float) -> None:
    """Add to the time that a reproduction took; other settings start from 0."""
    known = _run_facts(folder)
    spent = known.get("wall_seconds", 0.0) if known.get("settings") == settings.to_toml() else 0.0
    facts = {
        "settings": settings.to_toml(),
        "wall_seconds": spent + seconds,
        "finished": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "version": __version__,
    }
    with whole_file(folder / RUN) as part:
        part.write_text(json.dumps(facts) + "\n", encoding="utf-8")


def _run_facts(folder: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(limited_content(folder / RUN))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts


def _finish(settings: Settings, work: _Work, folder: Path) -> Reproduction:
    facts = _run_facts(folder)
    return Reproduction(
        settings=settings,
        results=work.results(),
        wall_seconds=float(facts.get("wall_seconds", 0.0)),
        finished=str(facts.get("finished", "")),
        machine=str(facts.get("machine", machine())),
        version=str(facts.get("version", __version__)),
    )
