"""How the server applies the unbiased estimate of a round: plainly, or with momentum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from fedprice.arrays import Arrays


__all__ = ["Momentum", "Plain", "ServerStep"]


class ServerStep(Protocol):
    """Turns the estimate of a round into a change of the model; its state survives a restart."""

    state: Arrays

    def __call__(self, estimate: Arrays) -> Arrays:
        """Return the change of each array, given the estimate Σ a/(qρ) Δ of each."""


@dataclass
class Plain:
    """Adds the estimate as it is: the paper's aggregation."""

    state: Arrays = field(default_factory=list)

    def __call__(self, estimate: Arrays) -> Arrays:
        """Return the estimate."""
        return estimate


@dataclass
class Momentum:
    """Server momentum: v ← β v + estimate, and the model moves by rate · v.

    Examples
    --------
    >>> step = Momentum(beta=0.5)
    >>> step([np.ones(1)])[0], step([np.ones(1)])[0]
    (array([1.]), array([1.5]))
    """

    beta: float = 0.9
    rate: float = 1.0
    state: Arrays = field(default_factory=list)

    def __call__(self, estimate: Arrays) -> Arrays:
        """Return rate · v."""
        before = self.state or [np.zeros_like(part) for part in estimate]
        self.state = [self.beta * v + part for v, part in zip(before, estimate, strict=True)]
        return [self.rate * v for v in self.state]
