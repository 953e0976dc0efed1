"""Trackers show each round where people watch: MLflow, Weights & Biases, TensorBoard, Prometheus.

A tracker is any object with a method `on_round(record)`. `simulate`, `PricedParticipation` and
`study` call it after each round, or after the rounds in which the model was evaluated. Those below
are opened by a text such as "mlflow:DIR", and closed by who opened them.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedprice.errors import InputError, nearest, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "KINDS",
    "OpenTracker",
    "RoundRecord",
    "Tracker",
    "WithSpend",
    "check_tracker",
    "open_tracker",
    "tracking",
]


@dataclass(frozen=True)
class RoundRecord:
    """What a round did.

    Attributes
    ----------
    round
        Counted from 1; 0 is the model before the first.
    joined
        The clients whose updates were used.
    metrics
        The loss, the accuracy and whatever else was measured after it.
    largest_weight, total_weight
        Of a/q, the weights of these updates; their total is 1 on average.
    spend
        Money paid to clients so far; None where nothing is paid.
    coefficient
        The mean over the clients of what `Memory` expects their last updates to predict of the next
        ones, from 0 to 1; None without a memory.
    """

    round: int
    joined: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    largest_weight: float | None = None
    total_weight: float | None = None
    spend: float | None = None
    coefficient: float | None = None

    def numbers(self) -> dict[str, float]:
        """Return everything that is known and finite, by name.

        Examples
        --------
        >>> RoundRecord(3, joined=("1", "7"), metrics={"loss": 0.5}, spend=2.0).numbers()
        {'joiners': 2.0, 'spend': 2.0, 'loss': 0.5}
        """
        known: dict[str, Any] = {
            "joiners": len(self.joined) if self.round else None,
            "largest_weight": self.largest_weight,
            "total_weight": self.total_weight,
            "spend": self.spend,
            "memory_coefficient": self.coefficient,
            **self.metrics,
        }
        real = {name: x for name, x in known.items() if isinstance(x, int | float)}
        return {name: float(x) for name, x in real.items() if math.isfinite(x)}


class Tracker(Protocol):
    """Anything that wants to know what each round did."""

    def on_round(self, record: RoundRecord) -> None:
        """Take note of a round that is over."""


class WithSpend:
    """Tells a tracker, in addition, what was paid so far: a function of each record."""

    def __init__(self, tracker: Tracker, spend: Callable[[RoundRecord], float]) -> None:
        self._tracker, self._spend = tracker, spend

    def on_round(self, record: RoundRecord) -> None:
        """Add the money to a record, and pass it on."""
        self._tracker.on_round(replace(record, spend=self._spend(record)))


class OpenTracker:
    """A tracker that writes a run's numbers with a function until it is closed."""

    def __init__(
        self, write: Callable[[int, dict[str, float]], Any], close: Callable[[], Any]
    ) -> None:
        self._write, self.close = write, close

    def on_round(self, record: RoundRecord) -> None:
        """Write a round's numbers."""
        self._write(record.round, record.numbers())


def _mlflow(place: Path, run: str) -> OpenTracker:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    known = client.get_experiment_by_name("fedprice")
    experiment = known.experiment_id if known else client.create_experiment("fedprice")
    number = client.create_run(experiment, run_name=run).info.run_id

    def write(round_: int, numbers: dict[str, float]) -> None:
        now = client.get_run(number).info.start_time
        metrics = [mlflow.entities.Metric(name, x, now, round_) for name, x in numbers.items()]
        client.log_batch(number, metrics=metrics)

    return OpenTracker(write, lambda: client.set_terminated(number))


def _wandb(place: Path, run: str) -> OpenTracker:
    import wandb

    own = wandb.init(project="fedprice", name=run, dir=str(place), mode="offline")
    return OpenTracker(lambda round_, numbers: own.log(numbers, step=round_), own.finish)


def _tensorboard(place: Path, run: str) -> OpenTracker:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(place / run))

    def write(round_: int, numbers: dict[str, float]) -> None:
        for name, x in numbers.items():
            writer.add_scalar(name, x, round_)

    return OpenTracker(write, writer.close)


def _prometheus(place: Path, run: str) -> OpenTracker:
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

    registry, gauges = CollectorRegistry(), dict[str, Gauge]()

    def write(round_: int, numbers: dict[str, float]) -> None:
        for name, x in {"round": float(round_), **numbers}.items():
            metric = f"fedprice_{''.join(c if c.isalnum() else '_' for c in name)}"
            if metric not in gauges:
                gauges[metric] = Gauge(metric, name, ["run"], registry=registry)
            gauges[metric].labels(run).set(x)
        write_to_textfile(str(place / f"{run}.prom"), registry)

    return OpenTracker(write, lambda: None)


KINDS: dict[str, Callable[[Path, str], OpenTracker]] = {
    "mlflow": _mlflow,
    "prometheus": _prometheus,  # files for the textfile collector of its node exporter
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
LIBRARIES = {"prometheus": "prometheus_client", "tensorboard": "tensorboardX"}


def open_tracker(text: str, run: str) -> OpenTracker:
    """Return the tracker of a run that a text such as "mlflow:DIR" describes.

    Parameters
    ----------
    text
        Which tool, and the directory that it writes to, which is created.
    run
        The name of the run in that tool.

    Examples
    --------
    >>> open_tracker("mlfow:runs", "first")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: there is no tracker 'mlfow'. Did you mean 'mlflow'?
    """
    kind, folder = check_tracker(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the directory {folder}: {error.strerror}.") from error
    return KINDS[kind](folder, run.replace("/", "-"))


def check_tracker(text: str) -> tuple[str, Path]:
    """Return the tool and the directory that a text names, if the tool is installed."""
    kind, _, place = text.partition(":")
    if kind not in KINDS:
        raise InputError(f"there is no tracker {kind!r}. {nearest(kind, KINDS)}")
    if not place:
        raise InputError(f"a tracker needs a directory, such as {kind}:runs; got {text!r}.")
    require(LIBRARIES.get(kind, kind), kind)
    return kind, Path(place)


@contextmanager
def tracking(text: str | None, run: str) -> Iterator[OpenTracker | None]:
    """Open the tracker that a text describes, if one is wanted, and close it afterwards."""
    tracker = None if text is None else open_tracker(text, run)
    try:
        yield tracker
    finally:
        if tracker is not None:
            tracker.close()
