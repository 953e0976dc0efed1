"""The round loop: from levels and a task to a trained model, over any transport."""

from fedprice.errors import DivergedError
from fedprice.rounds.aggregation import (
    AGGREGATORS,
    Aggregator,
    FedAvg,
    Hajek,
    HorvitzThompson,
    Memory,
    TrotterTukey,
    aggregator_of,
)
from fedprice.rounds.history import History
from fedprice.rounds.loop import Rounds
from fedprice.rounds.server_step import Adam, Bounded, Momentum, Plain, ServerStep
from fedprice.rounds.simulation import (
    run_fingerprint,
    simulate,
    simulate_runs,
    training_fingerprint,
)

__all__ = [
    "AGGREGATORS",
    "Adam",
    "Aggregator",
    "Bounded",
    "DivergedError",
    "FedAvg",
    "Hajek",
    "History",
    "HorvitzThompson",
    "Memory",
    "Momentum",
    "Plain",
    "Rounds",
    "ServerStep",
    "TrotterTukey",
    "aggregator_of",
    "run_fingerprint",
    "simulate",
    "simulate_runs",
    "training_fingerprint",
]
