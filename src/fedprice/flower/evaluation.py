"""How a model on Flower is evaluated: by its clients' metrics, and by the loss on the server.

Metrics are averaged as Flower averages them, by the clients' numbers of examples.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from flwr.app import MetricRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    from flwr.app import Message

    from fedprice.rounds.loop import Round, Rounds

__all__ = ["EXAMPLES", "LossWatch", "is_count", "mean_metrics", "metrics_of", "tell_unusual"]

_log = logging.getLogger("flwr")

LONGEST = 10_000  # most numbers in a client's metrics, so that logs stay readable
MOST = 1e15  # examples that a client may say it used
EXAMPLES = "num-examples"  # the metric that Flower weights by
Value = int | float | list[int] | list[float]


def mean_metrics(
    answers: Iterable[tuple[str, Message]], samples: Mapping[str, float]
) -> MetricRecord | None:
    """Return the clients' metrics, weighted by their numbers of examples; None if there are none.

    Numbers and lists of numbers are averaged; a metric that one client lacks is averaged over the
    others. A client that does not say how many examples it used counts with its `samples`.
    """
    sums: dict[str, npt.NDArray[np.float64]] = {}
    weights: dict[str, float] = {}
    for client, reply in answers:
        if reply.has_error():
            _log.info("\t> Received error in reply from %s: %.200r", client, reply.error.reason)
            continue
        found = metrics_of(reply)
        weight = found.pop(EXAMPLES, None)
        if not is_count(weight):
            weight = samples[client]
        room = LONGEST
        for name, value in found.items():
            room -= len(value) if isinstance(value, list) else 1
            if room < 0:
                _log.warning("%s has more than %s metrics; some are left out", client, LONGEST)
                break
            try:
                own = np.asarray(value, np.float64)
            except OverflowError:  # a whole number too large for a float
                own = np.asarray(math.inf)
            if name in sums and own.shape != sums[name].shape:
                _log.warning("the metric %r of %s is of another length; left out", name, client)
                continue
            sums[name] = sums.get(name, np.zeros(own.shape)) + weight * own
            weights[name] = weights.get(name, 0.0) + weight
    means = MetricRecord()
    for name, total in sums.items():
        if weights[name]:
            means[name] = (total / weights[name]).tolist()
    return means or None


def is_count(value: object) -> TypeGuard[float]:
    """Return whether a metric is a number of examples."""
    return isinstance(value, int | float) and 0 <= value < MOST


def metrics_of(reply: Message) -> dict[str, Value]:
    """Return all metrics of a reply."""
    records = reply.content.metric_records.values()
    return {name: value for record in records for name, value in record.items()}


def tell_unusual(what: str, metrics: MetricRecord | None) -> None:
    """Warn about metrics that are not finite; they are passed on unchanged."""
    for name, value in (metrics or {}).items():
        if not np.isfinite(np.asarray(value, np.float64)).all():
            _log.warning("%s: the metric %r is not finite: %s", what, name, value)


class LossWatch:
    """Stops a run before it accepts a round whose loss explodes; warns if the loss rises much."""

    def __init__(self) -> None:
        self._start: float | None = None

    def look(
        self, server_round: int, found: MetricRecord, loop: Rounds, round_: Round | None
    ) -> None:
        """Check the metrics of the model that a round proposes, or of the initial one."""
        loss = found.get("loss")
        if not isinstance(loss, int | float):
            return
        if "first_loss" in loop.notes:  # from a run that was stopped
            self._start = float(loop.notes["first_loss"][0])
        elif self._start is None:
            self._start = float(loss)
        loop.notes["first_loss"] = np.array([self._start])
        if round_ is not None and math.isfinite(self._start):  # else nothing to compare with
            alarm = round_.judge(self._start, float(loss), server_round)
            if alarm is not None:
                _log.warning("%s", alarm)
