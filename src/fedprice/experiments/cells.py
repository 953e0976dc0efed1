"""Cells: the pieces of work of a study, and the files that keep their results.

A cell is one training run, identified by a fingerprint of everything that determines it: data,
levels, training, aggregation, clock, seed, and the code that is executed. A file that does not
carry the fingerprint of its cell is not trusted.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fedprice._plumbing.tables import BROKEN, load_arrays, whole_file
from fedprice.errors import InputError
from fedprice.experiments.code_version import code_version
from fedprice.experiments.setups import setup_of
from fedprice.learning import LogisticRegression, Training
from fedprice.rounds import aggregator_of, run_fingerprint, simulate
from fedprice.trackers import RoundRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.data import Federation
    from fedprice.learning import Clock, Task

    Arrays = dict[str, npt.NDArray[Any]]

__all__ = ["Cell", "Curve", "SetupSource", "Store", "TaskSource", "compute", "federation_of"]


@dataclass(frozen=True)
class SetupSource:
    """What a setup of the paper trains; created in every worker process.

    Attributes
    ----------
    name
        The name of the setup.
    num_clients, data, training
        The number of clients, where the image data are, and how clients train.
    """

    name: str
    num_clients: int
    data: str | None
    training: Training
    code: str = ""

    participation: ClassVar[dict[str, Any]] = {}

    @property
    def task(self) -> LogisticRegression:
        """What is trained."""
        return task_of(self.name, self.num_clients, self.data, self.training)

    @property
    def clock(self) -> Clock:
        """The simulated time."""
        return clock_of(self.name, self.num_clients, self.training.local_steps, self.data)


@dataclass(frozen=True, eq=False)
class TaskSource:
    """A user's task, which is trained in this process.

    Attributes
    ----------
    name
        The name of its runs.
    task, clock
        What is trained, and the simulated time if there is one.
    code
        A hash of the code that made the task, where the task's own fingerprint cannot know it.
    participation
        The settings of `simulate` that say who takes part.
    """

    name: str
    task: Task
    clock: Clock | None = None
    code: str = ""
    participation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Cell:
    """One training run of a study.

    Attributes
    ----------
    source, name, seed
        What is trained, what the run is for, and the seed of coins and batches.
    levels, rounds, evaluate_every, aggregator
        What `simulate` needs.
    """

    source: SetupSource | TaskSource
    name: str
    seed: int
    levels: FloatArray
    rounds: int
    evaluate_every: int
    aggregator: str = "horvitz-thompson"

    @property
    def title(self) -> str:
        """The cell's name in messages."""
        return f"{self.source.name} {self.name} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `simulate`."""
        return {
            "rounds": self.rounds,
            "evaluate_every": self.evaluate_every,
            "aggregator": aggregator_of(self.aggregator),
            "clock": self.source.clock,
            "seed": self.seed,
            **self.source.participation,
        }

    def fingerprint(self) -> str:
        """Return a hash of everything that determines the result."""
        run = run_fingerprint(self.source.task, self.levels, **self.settings)
        text = f"{code_version()}\0{run}{self.source.code}"
        return hashlib.sha256(text.encode()).hexdigest()


class Curve(NamedTuple):
    """What a cell keeps of its run: `History` without the model."""

    rounds: npt.NDArray[np.int64]
    time: FloatArray
    loss: FloatArray
    accuracy: FloatArray
    joined: npt.NDArray[np.int64]
    seconds: float

    def records(self) -> Iterator[RoundRecord]:
        """Yield what each evaluation found, and how many clients joined the round before it."""
        for round_, loss, accuracy in zip(self.rounds, self.loss, self.accuracy, strict=True):
            found = {"loss": float(loss), "accuracy": float(accuracy)}
            if round_:
                found["joiners"] = float(self.joined[round_ - 1])
            yield RoundRecord(int(round_), metrics=found)


def compute(cell: Cell, fingerprint: str, progress: Callable[[int], None] | None = None) -> Curve:
    """Run a cell on one thread; refuse if the code or the data here differ from those requested."""
    if cell.fingerprint() != fingerprint:
        raise InputError(
            f"{cell.title} cannot run here: this worker has other data, or other code of fedprice, "
            "than the main process. Start again."
        )
    start = time.perf_counter()
    history = simulate(
        cell.source.task, cell.levels, threads=1, progress=progress,
        stop_on_explosion=False,  # a scheme that makes the loss explode has that result
        **cell.settings,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    return Curve(
        history.rounds, history.time, history.loss, history.accuracy, history.joined, seconds
    )


@dataclass(frozen=True)
class Store:
    """Results in a directory, one file each, written atomically.

    Attributes
    ----------
    folder
        The directory, which is created with the first result.
    report
        Called with one line about each file that is damaged or foreign, and is recomputed.
    """

    folder: Path
    report: Callable[[str], None] = print

    def path(self, name: str, fingerprint: str) -> Path:
        """Return where a result is kept."""
        plain = re.sub(r"[^\w.=-]+", "-", name)
        return self.folder / f"{plain}-{fingerprint[:16]}.npz"

    def load(self, name: str, fingerprint: str) -> Arrays | None:
        """Return a stored result, or None if there is none with this fingerprint."""
        path = self.path(name, fingerprint)
        try:
            arrays = load_arrays(path)
        except FileNotFoundError:
            return None
        except BROKEN:
            self.report(f"{path} is damaged; it is recomputed.")
            return None
        if str(arrays.pop("fingerprint", "")) != fingerprint:
            self.report(f"{path} belongs to another result; it is recomputed.")
            return None
        return arrays

    def save(self, name: str, fingerprint: str, arrays: Arrays) -> None:
        """Store a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            whole_file(self.path(name, fingerprint)) as part,
            part.open("wb") as file,
        ):
            np.savez(file, **(arrays | {"fingerprint": np.array(fingerprint)}))  # type: ignore[arg-type]

    def load_curve(self, cell: Cell) -> Curve | None:
        """Return a cell's stored result, if there is one."""
        arrays = self.load(cell.title, cell.fingerprint())
        if arrays is None:
            return None
        try:
            return Curve(**(arrays | {"seconds": float(arrays["seconds"])}))  # type: ignore[arg-type]
        except (KeyError, TypeError):
            self.report(f"the result of {cell.title} is incomplete; it is recomputed.")
            return None

    def save_curve(self, cell: Cell, curve: Curve) -> None:
        """Store a cell's result."""
        arrays = {name: np.asarray(value) for name, value in curve._asdict().items()}
        self.save(cell.title, cell.fingerprint(), arrays)

    def clean(self) -> None:
        """Remove files that a killed run left half-written."""
        for part in self.folder.glob(".*.part"):
            part.unlink(missing_ok=True)


@lru_cache(maxsize=3)
def federation_of(setup: str, num_clients: int, data: str | None) -> Federation:
    """Return a setup's federation; the same object on every call."""
    return setup_of(setup).federation(data, num_clients=num_clients)


@lru_cache(maxsize=3)
def task_of(
    setup: str, num_clients: int, data: str | None, training: Training
) -> LogisticRegression:
    """Return a setup's task; the same object on every call."""
    return LogisticRegression(federation_of(setup, num_clients, data), training)


@lru_cache(maxsize=3)
def clock_of(setup: str, num_clients: int, local_steps: int, data: str | None) -> Clock:
    """Return a setup's clock; the same object on every call."""
    return setup_of(setup).clock(federation_of(setup, num_clients, data), local_steps)
