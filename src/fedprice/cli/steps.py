"""`fedprice calibrate --steps`: how many local steps a round should have."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.columns import check_columns, renamed
from fedprice._plumbing.tables import json_text, number_column, read_table, text_column
from fedprice.cli.training import run_pilots
from fedprice.cli.what import WhatOptions, find_with_steps
from fedprice.clients import require_same
from fedprice.commands.feasible import require_feasible
from fedprice.commands.measured import reading
from fedprice.errors import InputError
from fedprice.pricing.display import facts_table, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.calibration import Calibration
    from fedprice.cli.console import Delivery
    from fedprice.cli.training import Manner
    from fedprice.cli.what import What
    from fedprice.steps import Steps

__all__ = ["StepsOptions", "find_steps", "numbers"]

SPLIT = ("client_id", "compute", "communication", "value")
COLUMNS = (*SPLIT, "level_min", "level_max")
SLOW = 1.5  # warn if β grows by more than this factor over the checkpoints


@dataclass(frozen=True)
class StepsOptions:
    """The options of `fedprice calibrate` that belong to --steps; None where not given."""

    budget: float | None
    rounds: int | None
    time_limit: float | None
    step_time: float | None
    round_time: float | None
    exponent: float | None
    plot: Path | None

    def refuse(self) -> None:
        """Refuse all of them, as there is no --steps."""
        for field in fields(self):
            if getattr(self, field.name) is not None:
                raise InputError(
                    f"--{field.name.replace('_', '-')} requires --steps E,E,…; leave it out."
                )


def find_steps(
    counts: str,
    what: str | None,
    given: WhatOptions,
    clients: Path | None,
    renaming: dict[str, str],
    more: StepsOptions,
    manner: Manner,
    pilots: dict[str, Any],
    impact: str | None,
    delivery: Delivery,
) -> None:
    """Find the best number of local steps under a budget and a time limit, and send it.

    Joining all R rounds of E local steps costs R (compute · E + communication). The bound's
    constants are measured at some E, or read from files, and interpolated between them; every E in
    between is priced.
    """
    if clients is None or more.budget is None:
        raise InputError(
            "--steps needs --budget and --clients FILE, with the columns client_id, compute (cost "
            "of a local step), communication (cost of a round apart from its steps) and value."
        )
    if more.rounds is not None and more.time_limit is not None:
        raise InputError("--rounds cannot be combined with --time-limit.")
    if more.time_limit is None and (more.step_time is not None or more.round_time is not None):
        raise InputError("--step-time and --round-time require --time-limit.")
    files = "=" in counts
    if files != (what is None):
        raise InputError(
            "--steps E,E,… needs WHAT, whose pilots it runs; --steps E=FILE,E=FILE,… reads "
            "calibrations instead; leave out WHAT."
        )
    found: What | None = None
    if what is None:
        measured = _read_calibrations(counts)
    else:
        wanted = [int(count) for count in numbers("--steps", counts, int)]
        if min(wanted) < 1 or len(set(wanted)) < 2:
            raise InputError(f"--steps must be two or more whole numbers above 0; got {counts!r}.")
        tasks = {count: find_with_steps(what, given, count) for count in sorted(set(wanted))}
        found = tasks[max(tasks)]
        _read_split(clients, found.task.ids, renaming)  # before the work
        measured = {count: _pilots(one, manner, count, pilots) for count, one in tasks.items()}
    if impact is not None:
        measured = {count: one.with_impact(impact) for count, one in measured.items()}
    step_time, round_time = more.step_time, more.round_time
    if more.time_limit is not None:
        step_time, round_time = _times(found, step_time, round_time)
    from fedprice.steps import best_steps

    table = best_steps(
        measured,
        budget=more.budget,
        rounds=None if more.time_limit is not None else more.rounds or 1000,
        time_limit=more.time_limit,
        step_time=step_time or 0.0,
        round_time=round_time or 0.0,
        cost_exponent=2.0 if more.exponent is None else more.exponent,
        max_weight=pilots["max_weight"],
        **_read_split(clients, next(iter(measured.values())).ids, renaming),
    )
    if not np.isfinite(table.loss).any():
        require_feasible(table.outcomes[0])
    rows = table.to_frame()
    best = {
        "steps": table.best,
        "beta_growth": table.beta_growth,
        "assumed_least_loss": table.assumed_least_loss,
    }
    delivery.send(
        rows,
        to_json=lambda: json_text(best=best, steps=rows, clients=table.quotes()),
        to_screen=lambda: _screen(table),
        to_figure=table.plot,
    )


def numbers(option: str, text: str, kind: type[float] | type[int]) -> list[float] | list[int]:
    """Return numbers that are separated by commas."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        example = "0.1,0.3" if kind is float else "20,30,50"
        raise InputError(f"{option} must be numbers such as {example}; got {text!r}.") from None


def _read_calibrations(files: str) -> dict[int, Calibration]:
    from fedprice.calibration import Calibration

    paths: dict[int, str] = {}
    for text in files.split(","):
        count, mark, path = text.partition("=")
        if not (mark and count.isdecimal() and int(count) >= 1):
            raise InputError(
                f"--steps must be E=FILE,E=FILE,…, such as 3=three.json,10=ten.json; got {text!r}."
            )
        if int(count) in paths:
            raise InputError(f"--steps has {count} local steps twice; give each once.")
        paths[int(count)] = path
    return {count: Calibration.read(path) for count, path in paths.items()}


def _read_split(path: Path, ids: Sequence[str], rename: Mapping[str, str]) -> dict[str, FloatArray]:
    """Return the columns of a file of clients, in the order of `ids`."""
    with reading(path, rename):
        frame = renamed(read_table(path), rename, COLUMNS)
        if "cost" in frame.columns:
            raise InputError(
                "unknown column 'cost'. The cost is split here into compute and communication."
            )
        missing = [name for name in SPLIT if name not in frame.columns]
        check_columns(frame.columns, COLUMNS, missing)
        names = text_column(frame["client_id"]).tolist()
        require_same(path, names, ids, "the pilots' task")
        if len(set(names)) != len(names):
            raise InputError("client ids must be distinct.")
        order = [names.index(name) for name in ids]
        columns = [name for name in frame.columns if name != "client_id"]
        return {name: number_column(frame[name])[order] for name in columns}


def _pilots(what: What, manner: Manner, count: int, settings: dict[str, Any]) -> Calibration:
    try:
        return run_pilots(what, manner, **settings)
    except InputError as error:
        raise InputError(f"with {count} local steps: {error}") from error


def _times(
    what: What | None, step_time: float | None, round_time: float | None
) -> tuple[float, float]:
    """Return the seconds of a step and of a round: those given, else those of a setup's clock."""
    clock = None if what is None else what.clock()
    if clock is None or what is None:
        if step_time is None or round_time is None:
            raise InputError("--time-limit needs --step-time and --round-time, in seconds.")
        return step_time, round_time
    slowest = (float(clock.compute.max()) / what.local_steps, float(clock.transfer.max()))
    return (
        slowest[0] if step_time is None else step_time,
        slowest[1] if round_time is None else round_time,
    )


def _screen(found: Steps) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in ("local\nsteps", "rounds", "α", "95 %", "β", "mean\nlevel", "loss", "over α", ""):
        table.add_column(name, justify="right", no_wrap=True)
    at = int(np.argmin(found.loss))
    for i in np.flatnonzero(np.isin(found.steps, [*found.pilots, found.best])):
        finite = bool(np.isfinite(found.loss[i]))
        table.add_row(
            number(found.steps[i]),
            number(found.rounds[i]),
            number(found.alpha[i]),
            f"{number(found.alpha_low[i])} to {number(found.alpha_high[i])}",
            number(found.beta[i]),
            number(float(found.outcomes[i].levels.mean())) if finite else "-",
            number(found.loss[i]) if finite else "infeasible",
            f"{number(found.loss_low[i])} to {number(found.loss_high[i])}" if finite else "-",
            "best" if i == at else ("as good" if found.as_good[i] else ""),
            style="bold" if i == at else None,
        )
    # Between pilots the constants are interpolated, so only the pilots themselves are evidence.
    others = [
        str(count)
        for count in found.steps[found.as_good].tolist()
        if count in found.pilots and count != found.best
    ]
    told = (
        f"no: {', '.join(others)} are as good within the errors of the pilots; more repeats help"
        if others
        else "yes: all other pilots are worse, beyond their errors"
    )
    pairs = [
        ("rounds", number(found.rounds[at])),
        ("loss", f"{number(found.loss[at])} above the least one, by the bound"),
        ("clear", told),
    ]
    if found.assumed_least_loss is not None:
        least = number(found.assumed_least_loss)
        pairs.append(("least loss", f"not known; {least}, the pilots' lowest, is used instead"))
    if found.beta_growth > SLOW:
        pairs.append(
            (
                "caution",
                f"β grows {number(found.beta_growth)}-fold from the first checkpoint to the last: "
                "the loss falls\nmore slowly than 1 / rounds, and the bound is too low for many "
                "rounds. Use later --checkpoints",
            )
        )
    return Group(table, facts_table(f"best number of local steps: {found.best}", pairs))
