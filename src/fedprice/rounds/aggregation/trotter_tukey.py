"""Trotter and Tukey's estimators: between Horvitz–Thompson and Hájek."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedprice.errors import InputError
from fedprice.rounds.aggregation.hajek import Normalised

if TYPE_CHECKING:
    from fedprice.rounds.aggregation.base import Arrivals, State

__all__ = ["TrotterTukey"]


@dataclass(frozen=True)
class TrotterTukey:
    """w ← w + Σ_joined (a_n / q_n)(w_n − w) / (1 − λ + λ W), with W = Σ_joined a_n / q_n.

    The total weight W of a round is 1 only on average. With `share` λ = 0 it would be left as it
    is, which is Horvitz–Thompson; with λ = 1 it would be divided out, which is Hájek. In between,
    the total weight of a step is W / (1 − λ + λ W), below 1 / λ in every round.

    Parameters
    ----------
    share
        λ, between 0 and 1.

    Warnings
    --------
    It is biased. With Δ̄ = Σ a_n Δ_n, the step of full participation, and H the estimate,
    E[H] − Δ̄ = −λ Cov(H, W), because E[H (1 − λ + λ W)] = Δ̄ and E[W] = 1. With
    V = Var(W) = Σ a_n² (1 − q_n) / q_n, its length is at most
    λ √V √(1 + (1 − λ)² V) max_n ‖Δ_n‖. Where no weight a_n / q_n exceeds w, V is below w.

    References
    ----------
    Trotter and Tukey, "Conditional Monte Carlo for normal samples", Symposium on Monte Carlo
    Methods, 1956. Khan and Ugander, "Adaptive normalization for IPW estimation", Journal of Causal
    Inference, 2023.

    Examples
    --------
    Two clients with half of the data each, at level 1/2. If both join, W = 2, and the step is 4/3
    of their mean, where Horvitz–Thompson would take 2 and Hájek 1:

    >>> import numpy as np
    >>> from fedprice.rounds.aggregation import Arrivals
    >>> both, half = np.arange(2), np.full(2, 0.5)
    >>> collector = TrotterTukey().begin({}, Arrivals(both, half, half, size=1))
    >>> collector.add(both, np.ones((2, 1)))
    >>> collector.finish()
    array([1.33333333])
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        if not (isinstance(self.share, int | float) and 0 < self.share < 1):
            raise InputError(f"`share` must lie between 0 and 1; got {self.share!r}.")

    @property
    def name(self) -> str:
        """A name for results and checkpoints, with the share unless it is the default."""
        return "trotter-tukey" if self.share == 0.5 else f"trotter-tukey-{self.share!r}"

    def start(self, num_clients: int, size: int) -> State:
        """Remember nothing."""
        return {}

    def begin(self, state: State, arrivals: Arrivals) -> Normalised:
        """Begin a round."""
        return Normalised(arrivals, self.share)
