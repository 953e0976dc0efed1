"""How a model on Flower is judged: by its clients, and by the loss that the server finds."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import MetricRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flwr.app import Message

    from fedprice.market.offers import Terms
    from fedprice.rounds.loop import Round, Rounds

__all__ = ["LossWatch", "mean_metrics"]

_log = logging.getLogger("flwr")


def mean_metrics(
    answers: Iterable[tuple[str, Message]], terms: Mapping[str, Terms]
) -> MetricRecord | None:
    """Return the clients' metrics, weighted by the samples that they agreed on."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for client, reply in answers:
        if reply.has_error():
            continue
        for record in reply.content.metric_records.values():
            for name, value in record.items():
                if isinstance(value, int | float) and math.isfinite(value):
                    weight = terms[client].samples
                    sums[name] = sums.get(name, 0.0) + weight * value
                    weights[name] = weights.get(name, 0.0) + weight
    means = MetricRecord()
    for name, total in sums.items():
        if weights[name]:
            means[name] = total / weights[name]
    return means or None


class LossWatch:
    """Stops a run before a round is taken that makes the loss explode; warns where it rises far."""

    def __init__(self) -> None:
        self._start: float | None = None

    def look(
        self, server_round: int, found: MetricRecord, loop: Rounds, round_: Round | None
    ) -> None:
        """Look at the metrics of the model that a round proposes, or of the first one."""
        loss = found.get("loss")
        if not isinstance(loss, int | float):
            return
        if "first_loss" in loop.notes:  # of a run that was stopped
            self._start = float(loop.notes["first_loss"][0])
        elif self._start is None:
            self._start = float(loss)
        loop.notes["first_loss"] = np.array([self._start])
        if round_ is not None:
            alarm = round_.judge(self._start, float(loss), server_round)
            if alarm is not None:
                _log.warning("%s", alarm)
