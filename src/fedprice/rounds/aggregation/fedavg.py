"""Plain FedAvg over the clients that joined: biased, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedprice.rounds.aggregation.base import Arrivals, State, WeightedSum

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray

__all__ = ["FedAvg"]


@dataclass(frozen=True)
class FedAvg:
    """w ← w + Σ_joined a_n (w_n − w) / Σ_joined a_n; no step if nobody joined.

    Warnings
    --------
    Dividing by the weights of the joiners favours clients that join often.
    """

    name: str = "fedavg"

    def start(self, num_clients: int, size: int) -> State:
        """Remember nothing."""
        return {}

    def begin(self, state: State, arrivals: Arrivals) -> _Mean:
        """Begin a round."""
        return _Mean(arrivals)


class _Mean:
    def __init__(self, arrivals: Arrivals) -> None:
        self._weight, self._sum = arrivals.weight, WeightedSum(arrivals.size)
        self._expected = float(arrivals.weight[arrivals.clients].sum())
        self._missing = arrivals.clients.size
        self._added = 0.0

    def add(self, clients: IntArray, updates: npt.NDArray[Any]) -> None:
        weight = self._weight[clients]
        if self._expected:  # clients without samples change nothing
            self._sum.add(weight / self._expected, updates)
        self._missing -= clients.size
        for own in weight.tolist():
            self._added += own

    def finish(self) -> FloatArray:
        if self._missing and self._added:  # some did not arrive, or were refused
            return self._sum.total * (self._expected / self._added)
        return self._sum.total

    def state(self) -> State:
        return {}
