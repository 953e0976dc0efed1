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

from fedprice.cli.console import StoppedError, show_warnings, stderr
from fedprice.cli.progress import rounds_bar
from fedprice.errors import InputError, nearest, require

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.calibration import Calibration
    from fedprice.cli.what import What
    from fedprice.learning import Clock
    from fedprice.pricing import Outcome, Scheme
    from fedprice.rounds import Aggregator, History, ServerStep
    from fedprice.trackers import Tracker

__all__ = ["AggregatorName", "AvailabilityText", "CoinsName", "Kept", "Manner", "ServerStepName",
           "Track", "WorkFolder", "calibrated", "counted", "kept_in", "measures", "read_calibrated",
           "run_pilots", "train", "warn"]  # fmt: skip

TAKEN = {"status", "spend", "expected_loss", "expected_spend", "spend_std", "joiners", "time"}

AggregatorName = Annotated[
    str | None,
    typer.Option(
        "--aggregator",
        metavar="NAME",
        help="How updates are combined: memory (the default), unbiased-memory, fedvarp, fedstale, "
        "mifa, horvitz-thompson, trotter-tukey, hajek or fedavg.",
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
CoinsName = Annotated[
    str,
    typer.Option(
        "--coins",
        metavar="NAME",
        help="How rounds are drawn at the same levels: independent; or evenly spaced, which is "
        "less random: spaced, blocks or shared.",
    ),
]
AvailabilityText = Annotated[
    str | None,
    typer.Option(
        "--availability",
        metavar="KIND:NUMBERS|FILE",
        help="When clients can be reached: independent:SHARE, markov:SHARE,LENGTH, "
        "cyclic:PERIOD,SHARE, diurnal:PERIOD,SHARE, by-label:PERIOD,SHARE, or CSV with the columns "
        "client, from, to in rounds; by default always.",
    ),
]
Track = Annotated[
    str | None,
    typer.Option(
        "--track",
        metavar="TOOL:DIR",
        help="Write every round to mlflow, prometheus, tensorboard or wandb, in this directory.",
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
        """Return the aggregator and the server step with these names."""
        from fedprice.rounds import Adam, Bounded, Momentum, Plain, aggregator_of

        steps: dict[str, Callable[[], ServerStep]]
        steps = {"plain": Plain, "momentum": Momentum, "adam": Adam, "bounded": Bounded}
        if server_step not in steps:
            raise InputError(
                f"there is no server step {server_step!r}. {nearest(server_step, steps)}"
            )
        chosen = None if aggregator is None else aggregator_of(aggregator)
        return cls(chosen, steps[server_step]())

    def check(self, scheme: Scheme) -> None:
        """Refuse, before the work, a scheme whose aggregator does not exist."""
        from fedprice.rounds import aggregator_of

        if scheme.aggregator is not None:
            aggregator_of(scheme.aggregator)

    @property
    def usual(self) -> Aggregator:
        """The aggregator of pilots, and of schemes that name none."""
        from fedprice.rounds import aggregator_of

        return aggregator_of(self.aggregator)

    def aggregator_for(self, outcome: Outcome) -> Aggregator:
        """Return the aggregator that trains under an outcome's prices."""
        from fedprice.rounds import aggregator_of

        if self.aggregator is None and outcome.aggregator is not None:
            return aggregator_of(outcome.aggregator)
        return self.usual


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
    found.require_same(manner.usual, manner.server_step)
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
            aggregator=manner.usual,
            server_step=manner.server_step,
            progress=counted(tell, total),
            **given,
        )


def train(
    what: What,
    outcome: Outcome,
    *,
    seed: int,
    rounds: int,
    kept: Kept,
    manner: Manner,
    tracker: Tracker | None = None,
    **conditions: Any,
) -> History:
    """Return the history of training at an outcome's levels.

    The conditions, such as the delivery rate, are settings of `training_fingerprint`.
    """
    from fedprice.rounds import simulate, training_fingerprint

    conditions |= {"rounds": rounds, "clock": what.clock()}
    aggregator = manner.aggregator_for(outcome)
    show_warnings(_large_and_rare(outcome, aggregator))
    # Without the aggregator: a run that diverged may resume with another one.
    name = training_fingerprint(what.task, outcome.levels, seed=seed, **conditions)
    with rounds_bar("training") as tell:
        history = simulate(
            what.task,
            outcome.levels,
            seed=seed,
            checkpoint=kept.file(".npz", name, what.source),
            progress=counted(tell, rounds),
            aggregator=aggregator,
            server_step=manner.server_step,
            tracker=tracker,
            **conditions,
        )
    warn(outcome, history)
    return history


def _large_and_rare(outcome: Outcome, aggregator: Aggregator) -> list[str]:
    """Return a warning if remembered updates of a large and rare client may derail training."""
    from fedprice.rounds import Memory

    usual, joins = Memory(), outcome.levels > 0
    if not (isinstance(aggregator, Memory) and aggregator.cap > usual.cap and joins.any()):
        return []
    clients = outcome.game.clients
    weights = np.where(joins, clients.weight / np.where(joins, outcome.levels, 1), 0)
    largest = int(weights.argmax())
    if weights[largest] <= usual.cap:
        return []
    return [
        f"{outcome.scheme}: the weight a/q of client {clients.ids[largest]} is "
        f"{weights[largest]:.2g}; above {usual.cap}, {aggregator.name} can take training along in "
        "one step. Lower --max-weight, or use --aggregator memory."
    ]


def warn(outcome: Outcome, history: History) -> None:
    """Print the alarms of a run, one line each."""
    for alarm in history.alarms:
        stderr().print(f"{outcome.scheme}: {alarm}", markup=False)


def measures(history: History, clock: Clock | None, taken: Container[str]) -> dict[str, float]:
    """Return a run's final measures by name; a metric must not have a name that is taken."""
    columns = {"joiners": float(history.joined.mean())}
    for name, values in history.metrics.items():
        if name in TAKEN or name in taken:
            raise InputError(f"a metric must not be called {name!r}; rename it in `evaluate`.")
        columns[name] = float(values[-1])
    if clock is not None:
        columns["time"] = float(history.time[-1])
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
