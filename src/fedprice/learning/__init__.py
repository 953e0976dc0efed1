"""Federated learning from whoever shows up: Federation + levels → History."""

from fedprice.learning.aggregation import Aggregator, Difference, FedAvg, HorvitzThompson
from fedprice.learning.clock import Clock
from fedprice.learning.engine import (
    DivergedError,
    local_update,
    run_fingerprint,
    simulate,
    simulate_runs,
)
from fedprice.learning.history import History
from fedprice.learning.training import Decay, TheoryRate, Training

__all__ = [
    "Aggregator",
    "Clock",
    "Decay",
    "Difference",
    "DivergedError",
    "FedAvg",
    "History",
    "HorvitzThompson",
    "TheoryRate",
    "Training",
    "local_update",
    "run_fingerprint",
    "simulate",
    "simulate_runs",
]
