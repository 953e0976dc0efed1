"""Aggregation that happens outside the round loop: `Round.take` receives its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.rounds.aggregation.base import Arrivals, State

__all__ = ["Outside"]


@dataclass(frozen=True)
class Outside:
    """Leaves the model as it is, unless a new one is made from the updates elsewhere.

    Attributes
    ----------
    name
        What aggregates instead, for checkpoints.
    """

    name: str

    def start(self, num_clients: int, size: int) -> State:
        """Remember nothing."""
        return {}

    def begin(self, state: State, arrivals: Arrivals) -> _Nothing:
        """Begin a round."""
        return _Nothing(arrivals.size)


@dataclass(frozen=True)
class _Nothing:
    size: int

    def add(self, clients: IntArray, updates: npt.NDArray[Any]) -> None:
        pass

    def finish(self) -> FloatArray:
        return np.zeros(self.size)

    def state(self) -> State:
        return {}
