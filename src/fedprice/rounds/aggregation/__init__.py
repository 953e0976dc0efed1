"""Aggregators: how the updates of the clients that joined become one step of the model."""

from __future__ import annotations

import math

from fedprice.errors import InputError, nearest
from fedprice.rounds.aggregation.base import Aggregator, Arrivals, Collector
from fedprice.rounds.aggregation.fedavg import FedAvg
from fedprice.rounds.aggregation.hajek import Hajek
from fedprice.rounds.aggregation.horvitz_thompson import HorvitzThompson
from fedprice.rounds.aggregation.memory import Memory
from fedprice.rounds.aggregation.outside import Outside
from fedprice.rounds.aggregation.trotter_tukey import TrotterTukey

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "Arrivals",
    "Collector",
    "FedAvg",
    "Hajek",
    "HorvitzThompson",
    "Memory",
    "Outside",
    "TrotterTukey",
    "aggregator_of",
]

AGGREGATORS: dict[str, Aggregator] = {
    a.name: a
    for a in (
        Memory(),
        Memory(cap=math.inf, share=0.0),
        Memory(1.0, cap=math.inf, share=0.0),
        Memory(0.5, cap=math.inf, share=0.0),
        Memory(1.0, cap=0.0, share=0.0),
        HorvitzThompson(),
        TrotterTukey(),
        Hajek(),
        FedAvg(),
    )
}
AGGREGATORS["difference"] = AGGREGATORS["fedvarp"]  # its name in statistics


def aggregator_of(choice: str | Aggregator | None) -> Aggregator:
    """Return an aggregator by its name, the one that is given, or `Memory` by default."""
    if not isinstance(choice, str):
        return choice or Memory()
    if choice not in AGGREGATORS:
        raise InputError(f"there is no aggregator {choice!r}. {nearest(choice, AGGREGATORS)}")
    return AGGREGATORS[choice]
