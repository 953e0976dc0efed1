"""Horvitz–Thompson: the unbiased aggregation of Lemma 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedprice.learning.aggregation.base import State, weighted_sum

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fedprice.arrays import FloatArray


__all__ = ["HorvitzThompson"]


@dataclass(frozen=True)
class HorvitzThompson:
    """w ← w + Σ_joined (a_n / q_n)(w_n − w): unbiased for independent coins with any levels."""

    name: str = "horvitz-thompson"

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
        """Return Σ (a_n / q_n ρ_n) Δ_n over those who joined."""
        return weighted_sum(weight[joined] / arrival[joined], updates)
