"""The difference estimator: unbiased like Horvitz–Thompson, with remembered updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.rounds.aggregation.base import Arrivals, State, WeightedSum

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.arrays import FloatArray, IntArray

__all__ = ["Difference"]


@dataclass(frozen=True)
class Difference:
    """w ← w + Σ a_n h_n + Σ_joined (a_n / q_n)(Δ_n − h_n), with h_n the last update of client n.

    It is unbiased for any h_n, because they are fixed before the coins are drawn; and its variance
    is far smaller where updates change slowly, because only the change of an update since the
    client last joined is scaled up. It remembers one update per client.
    """

    name: str = "difference"

    def start(self, num_clients: int, size: int) -> State:
        """Remember an update of 0 of every client, and their weighted sum."""
        return {"last": np.zeros((num_clients, size), np.float32), "expected": np.zeros(size)}

    def begin(self, state: State, arrivals: Arrivals) -> _Changes:
        """Begin a round."""
        return _Changes(state, arrivals)


class _Changes:
    def __init__(self, state: State, arrivals: Arrivals) -> None:
        self._last, self._expected = state["last"], state["expected"]
        self._arrivals = arrivals
        self._step, self._moved = WeightedSum(arrivals.size), WeightedSum(arrivals.size)
        self._seen: list[tuple[IntArray, npt.NDArray[Any]]] = []

    def add(self, clients: IntArray, updates: npt.NDArray[Any]) -> None:
        weight, last = self._arrivals.weight[clients], self._last[clients]
        self._step.add(weight / self._arrivals.probability[clients], updates - last)
        # Stored updates are rounded, so the sum in double precision must be of the rounded ones.
        kept = updates.astype(last.dtype, copy=False)
        self._moved.add(weight, np.subtract(kept, last, dtype=updates.dtype))
        self._seen.append((clients, np.array(kept)))

    def finish(self) -> FloatArray:
        return self._step.total + self._expected

    def state(self) -> State:
        for clients, updates in self._seen:
            self._last[clients] = updates
        return {"last": self._last, "expected": self._expected + self._moved.total}
