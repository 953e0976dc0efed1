"""Replies as Flower's strategies expect them: one record of arrays, and one with the same metrics.

Flower ends a run if replies differ in their records or metrics. In a market no client may end the
run of the others, so replies are made consistent first.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedprice.flower.wire import MARKET, with_content

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["consistent", "with_weight"]

_log = logging.getLogger("flwr")


def consistent(replies: Sequence[Message], key: str) -> list[Message]:
    """Return copies of replies that agree in their records and metrics, without the market's.

    Records get the name that most replies use, and metrics that are not in all of them are left
    out. The number of examples, under `key`, is 1 in all of them unless each has one.
    """
    found = [
        {name: v for record in reply.content.metric_records.values() for name, v in record.items()}
        for reply in replies
    ]
    names = dict.fromkeys(name for own in found for name in own if name != key)
    shared = [name for name in names if len({_kind(own.get(name)) for own in found}) == 1]
    if len(shared) < len(names):
        left_out = ", ".join(repr(name) for name in names if name not in set(shared))
        _log.warning("metrics that differ between replies are left out: %.200s", left_out)
    counts = [own.get(key) for own in found]
    counted = all(_is_count(count) for count in counts) and any(counts)
    of_arrays = _usual([list(reply.content.array_records) for reply in replies], "arrays")
    of_metrics = _usual([list(reply.content.metric_records) for reply in replies], "metrics")
    messages = []
    for reply, own, count in zip(replies, found, counts, strict=True):
        records: dict[str, Any] = {}
        for name, record in reply.content.items():
            if isinstance(record, ArrayRecord):
                records[of_arrays] = record.copy()  # strategies empty the records they get
            elif isinstance(record, ConfigRecord) and name not in (MARKET, of_arrays):
                records[name] = record
        records[of_metrics] = MetricRecord({name: own[name] for name in shared})
        records[of_metrics][key] = count if counted else 1
        messages.append(with_content(reply, RecordDict(records)))
    return messages


def with_weight(content: RecordDict, key: str, weight: float | int) -> RecordDict:
    """Return a consistent reply's content with a weight in place of the number of examples."""
    ((name, metrics),) = content.metric_records.items()
    return RecordDict({**content, name: MetricRecord({**metrics, key: weight})})


def _kind(value: Any) -> int | None:
    """Return the kind of a value, to compare: None if missing, −1 for a number, a list's length."""
    if value is None:
        return None
    return len(value) if isinstance(value, list) else -1


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _usual(names: list[list[str]], default: str) -> str:
    counted = Counter(name for own in names for name in own)
    return counted.most_common(1)[0][0] if counted else default
