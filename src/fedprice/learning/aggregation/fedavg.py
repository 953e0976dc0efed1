"""Plain FedAvg over those who joined: biased, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprice.learning.aggregation.base import State, weighted_sum

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.arrays import FloatArray


__all__ = ["FedAvg"]


@dataclass(frozen=True)
class FedAvg:
    """w ← w + Σ_joined a_n (w_n − w) / Σ_joined a_n.

    Warnings
    --------
    Dividing by the weights of whoever joined leans towards those who join often.
    """

    name: str = "fedavg"

    def start(self, num_clients: int, size: int) -> State:
        """Remember nothing."""
        return {}

    def step(
        self,
        state: State,
        joined: npt.NDArray[np.int64],
        updates: npt.NDArray[np.float32],
        weight: FloatArray,
        arrival: FloatArray,
        everyone: npt.NDArray[np.int64] | None = None,
    ) -> FloatArray:
        """Return the weighted mean of the updates, or no step if nobody joined."""
        if not joined.size:
            return np.zeros(updates.shape[1])
        total = weight[joined if everyone is None else everyone].sum()
        return weighted_sum(weight[joined] / total, updates)
