"""Aggregators: how the updates of the clients that joined become one step of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.errors import InputError, nearest
from fedprice.rounds.aggregation.base import Aggregator, Arrivals, Collector
from fedprice.rounds.aggregation.difference import Difference
from fedprice.rounds.aggregation.fedavg import FedAvg
from fedprice.rounds.aggregation.hajek import Hajek
from fedprice.rounds.aggregation.horvitz_thompson import HorvitzThompson
from fedprice.rounds.aggregation.outside import Outside
from fedprice.rounds.aggregation.trotter_tukey import TrotterTukey

if TYPE_CHECKING:
    from fedprice.learning.task import Task

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "Arrivals",
    "Collector",
    "Difference",
    "FedAvg",
    "Hajek",
    "HorvitzThompson",
    "Outside",
    "TrotterTukey",
    "aggregator_of",
    "usual_aggregator",
]

AGGREGATORS: dict[str, Aggregator] = {
    a.name: a for a in (HorvitzThompson(), TrotterTukey(), Hajek(), FedAvg(), Difference())
}


def usual_aggregator(task: Task) -> Aggregator:
    """Return the most faithful aggregator that is safe for a task (docs/stability.md).

    Horvitz–Thompson is unbiased, and safe where the loss is convex; elsewhere the fluctuating total
    weight of its rounds can make training collapse, which Trotter and Tukey's estimator prevents.
    """
    return HorvitzThompson() if task.convex else TrotterTukey()


def aggregator_of(name: str) -> Aggregator:
    """Return an aggregator by its name."""
    if name not in AGGREGATORS:
        raise InputError(f"there is no aggregator {name!r}. {nearest(name, AGGREGATORS)}")
    return AGGREGATORS[name]
