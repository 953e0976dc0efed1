"""Pilots and training runs of a command, which resumes where it was stopped."""

from __future__ import annotations

import hashlib
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedprice.cli.console import StoppedError, stderr
from fedprice.cli.progress import rounds_bar
from fedprice.errors import InputError, nearest, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fedprice.arrays import FloatArray
    from fedprice.calibration import Calibration
    from fedprice.cli.what import What
    from fedprice.learning import Clock
    from fedprice.pricing import Outcome, Scheme
    from fedprice.rounds import Aggregator, History, ServerStep

__all__ = ["AggregatorName", "Kept", "Manner", "ServerStepName", "WorkFolder", "calibrated",
           "counted", "kept_in", "measures", "read_calibrated", "run_pilots", "train",
           "warn"]  # fmt: skip

TAKEN = {"scheme", "status", "spend", "expected_loss", "expected_spend", "spend_std", "joiners",
         "loss_std"}  # columns of results  # fmt: skip

AggregatorName = Annotated[
    str | None,
    typer.Option(
        "--aggregator",
        metavar="NAME",
        help="How updates are combined: horvitz-thompson, trotter-tukey, hajek, fedavg or "
        "difference; by default horvitz-thompson for setups and data files, trotter-tukey for "
        "other models.",
    ),
]
ServerStepName = Annotated[
    str,
    typer.Option(
        "--server-step",
        metavar="NAME",
        help="How the server moves the model: plain, momentum, adam or bounded.",
    ),
]
WorkFolder = Annotated[
    Path | None,
    typer.Option(
        "--work",
        metavar="DIR",
        help="Directory for the progress of a stopped command; by default the user's cache.",
    ),
]


@dataclass(frozen=True)
class Manner:
    """How the server turns updates into a model: an aggregator for all schemes, and its step."""

    aggregator: Aggregator | None
    server_step: ServerStep

    @classmethod
    def named(cls, aggregator: str | None, server_step: str) -> Manner:
        """Return the manner with these names."""
        from fedprice.rounds import Adam, Bounded, Momentum, Plain, aggregator_of

        steps: dict[str, Callable[[], ServerStep]]
        steps = {"plain": Plain, "momentum": Momentum, "adam": Adam, "bounded": Bounded}
        if server_step not in steps:
            raise InputError(
                f"there is no server step {server_step!r}. {nearest(server_step, steps)}"
            )
        chosen = None if aggregator is None else aggregator_of(aggregator)
        return cls(chosen, steps[server_step]())

    def check(self, schemes: Sequence[Scheme]) -> None:
        """Refuse, before the work, a scheme whose aggregator does not exist."""
        from fedprice.rounds import aggregator_of

        for one in schemes:
            if one.aggregator is not None:
                aggregator_of(one.aggregator)

    def usual(self, what: What) -> Aggregator:
        """Return the aggregator of pilots, and of schemes that name none."""
        from fedprice.rounds import usual_aggregator

        return self.aggregator or usual_aggregator(what.task)

    def aggregator_for(self, outcome: Outcome, what: What) -> Aggregator:
        """Return the aggregator that trains under an outcome's prices."""
        from fedprice.rounds import aggregator_of

        if self.aggregator is None and outcome.aggregator is not None:
            return aggregator_of(outcome.aggregator)
        return self.usual(what)


@dataclass
class Kept:
    """The files from which a stopped command resumes; removed once it has succeeded."""

    folder: Path
    files: list[Path] = field(default_factory=list)

    def file(self, suffix: str, *parts: object) -> Path:
        """Return the file of what these parts determine."""
        from fedprice import __version__

        text = "\0".join(map(str, (__version__, *parts)))
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}{suffix}"
        self.files.append(path)
        return path


@contextmanager
def kept_in(folder: Path | None) -> Iterator[Kept]:
    """Yield the files that a command resumes from, and say where they are if it is stopped."""
    own = folder is None
    if folder is None:
        folder = Path(require("pooch", "learn").os_cache("fedprice")) / "work"
    own = own or not folder.is_dir() or any(folder.iterdir())  # not an empty one that was there
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the directory {folder}: {error.strerror}.") from error
    kept = Kept(folder)
    try:
        yield kept
        for path in kept.files:
            path.unlink(missing_ok=True)
    except KeyboardInterrupt:
        if not any(path.exists() for path in kept.files):
            raise
        raise StoppedError(
            f"stopped; all progress is kept in {folder}. Run the same command again to resume."
        ) from None
    finally:
        if own:
            with suppress(OSError):  # it is not empty, or another command was quicker
                folder.rmdir()


def calibrated(
    what: What,
    path: Path | None,
    kept: Kept,
    manner: Manner,
    impact: str | None,
    value: FloatArray | None,
) -> Calibration:
    """Return the calibration in a file, or measure it by pilots, which are not run twice.

    `impact` says which of its norms to price with, if not those that it was made for. `value` are
    the clients' values, if they are known: pilots are then no more precise than necessary.
    """
    from fedprice.calibration import Calibration
    from fedprice.calibration.search import why_alpha_does_not_matter

    if path is not None:
        return read_calibrated(what, path, manner, impact)
    reason = why_alpha_does_not_matter(value)
    file = kept.file(".json", what.task.fingerprint, what.source, manner, impact, reason)
    if not file.exists():
        made = run_pilots(what, manner, value=value, impact=impact or "updates")
        file.parent.mkdir(parents=True, exist_ok=True)  # another command may have tidied up
        made.write(file, force=True)
    found = Calibration.read(file)
    return found if impact is None else found.with_impact(impact)


def read_calibrated(
    what: What, path: Path, manner: Manner, impact: str | None = None
) -> Calibration:
    """Return the calibration in a file, which must be for these clients."""
    from fedprice.calibration import Calibration

    found = Calibration.read(path)
    if impact is not None:
        found = found.with_impact(impact)
    same = found.ids == what.task.ids and np.array_equal(found.samples, what.task.samples)
    if not same:
        raise InputError(
            f"{path} is a calibration of {found.name} with other clients or samples than "
            f"{what.name} has; calibrate again."
        )
    found.require_same(manner.usual(what), manner.server_step)
    if found.task != what.task.fingerprint:
        stderr().print(
            f"{path} was made with other data or training settings than {what.name} has now; "
            "α may differ",
            markup=False,
        )
    return found


def run_pilots(what: What, manner: Manner, **settings: Any) -> Calibration:
    """Calibrate and show progress; a search for good pilots prints its steps."""
    from fedprice.calibration.pilots import CHECKPOINTS, LEVELS, REPEATS, calibrate
    from fedprice.calibration.search import LIMIT, most_rounds

    given = {name: one for name, one in settings.items() if one is not None}
    title, total = "pilots, at most", most_rounds(given.get("limit", LIMIT))
    if given.keys() & {"levels", "checkpoints", "repeats"}:
        levels, checkpoints = given.get("levels", LEVELS), given.get("checkpoints", CHECKPOINTS)
        title, total = "pilots", len(levels) * given.get("repeats", REPEATS) * max(checkpoints)
    else:
        # Not by a separate console: the bar below makes room for what is written to stderr.
        given["report"] = lambda step: sys.stderr.write(f"{step}\n")
    with rounds_bar(title) as tell:
        return calibrate(
            what.task,
            aggregator=manner.usual(what),
            server_step=manner.server_step,
            progress=counted(tell, total),
            **given,
        )


def train(
    what: What,
    outcomes: Sequence[Outcome],
    *,
    seeds: int,
    rounds: int,
    kept: Kept,
    manner: Manner,
    delivery: float = 1.0,
) -> list[list[History]]:
    """Return the histories of each outcome's levels, one per seed."""
    from fedprice.rounds import simulate_runs, training_fingerprint

    clock = what.clock()
    found = []
    with rounds_bar(f"{len(outcomes) * seeds} runs") as tell:
        progress = counted(tell, len(outcomes) * seeds * rounds)
        for outcome in outcomes:
            settings: dict[str, Any] = {
                "rounds": rounds,
                "aggregator": manner.aggregator_for(outcome, what),
                "server_step": manner.server_step,
                "delivery": delivery,
                "clock": clock,
            }
            # Without the aggregator: a run that diverged may resume with another one.
            names = [
                training_fingerprint(
                    what.task, outcome.levels, rounds=rounds, seed=seed, delivery=delivery,
                    clock=clock,
                )
                for seed in range(seeds)
            ]  # fmt: skip
            found.append(
                simulate_runs(
                    what.task,
                    [(outcome.levels, seed) for seed in range(seeds)],
                    checkpoints=[kept.file(".npz", name, what.source) for name in names],
                    progress=progress,
                    **settings,
                )
            )
    warn(outcomes, found)
    return found


def warn(outcomes: Sequence[Outcome], histories: Sequence[Sequence[History]]) -> None:
    """Print the alarms of runs, one line each."""
    for outcome, own in zip(outcomes, histories, strict=True):
        for seed, history in enumerate(own):
            for alarm in history.alarms:
                stderr().print(f"{outcome.scheme}, seed {seed}: {alarm}", markup=False)


def measures(histories: Sequence[History], clock: Clock | None) -> dict[str, float]:
    """Return the means of the runs' final measures, by column."""
    columns = {"joiners": float(np.mean([h.joined.mean() for h in histories]))}
    for name in histories[0].metrics:
        if name in TAKEN:
            raise InputError(f"a metric must not be called {name!r}; rename it in `evaluate`.")
        last = [h.metrics[name][-1] for h in histories]
        columns[name] = float(np.mean(last))
        if name == "loss":
            columns["loss_std"] = float(np.std(last))
    if clock is not None:
        columns["time"] = float(np.mean([h.time[-1] for h in histories]))
    return columns


def counted(tell: Callable[[int, int, str], None], total: int) -> Callable[[int], None]:
    """Return what runs call after each of their rounds, from any thread."""
    lock, done = threading.Lock(), 0

    def progress(_: int) -> None:
        nonlocal done
        with lock:
            done += 1
            tell(done, max(done, total), "")

    return progress
