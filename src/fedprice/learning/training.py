"""`Training`: how a model is trained, and the learning rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Decay", "TheoryRate", "Training", "training_settings"]


@dataclass(frozen=True)
class Decay:
    """The learning rate initial · factor^r in round r; the paper has 0.1 · 0.996^r.

    Examples
    --------
    >>> Decay()(0), round(Decay()(100), 6)
    (0.1, 0.066978)
    """

    initial: float = 0.1
    factor: float = 0.996

    def __call__(self, round_: int) -> float:
        """Return the learning rate of a round."""
        return self.initial * self.factor**round_


@dataclass(frozen=True)
class TheoryRate:
    """The learning rate of Theorem 1, η_r = 2 / (max{8L, μE} + μ r).

    Examples
    --------
    >>> TheoryRate(smoothness=1.0, convexity=0.5, local_steps=10)(0)
    0.25
    """

    smoothness: float
    convexity: float
    local_steps: int

    def __call__(self, round_: int) -> float:
        """Return the learning rate of a round."""
        start = max(8 * self.smoothness, self.convexity * self.local_steps)
        return 2 / (start + self.convexity * round_)


@dataclass(frozen=True)
class Training:
    """How the clients train: local SGD.

    Parameters
    ----------
    local_steps, batch
        E and the batch size; the paper has 100 and 24.
    rate
        Learning rate as a function of the round: `Decay` or `TheoryRate`.
    l2
        Adds l2/2 ‖w‖² to every client's loss, bias included.
    """

    local_steps: int = 100
    batch: int = 24
    rate: Callable[[int], float] = field(default_factory=Decay)
    l2: float = 0.0

    @property
    def seen(self) -> int:
        """How many samples a client sees in a round."""
        return self.local_steps * self.batch

    def __post_init__(self) -> None:
        for name in ("local_steps", "batch"):
            value = getattr(self, name)
            if not (isinstance(value, int | np.integer) and value >= 1):
                raise InputError(
                    f"`{name}` must be a whole number, at least 1; got {getattr(self, name)}."
                )
        if not callable(self.rate):
            raise InputError(f"`rate` must be a function of the round; got {self.rate!r}.")
        if not 0 < self.rate(0) < np.inf:
            raise InputError(f"`rate` must be above 0 and finite; got {self.rate(0)} in round 1.")
        if not 0 <= self.l2 < 1e6:
            raise InputError(f"`l2` must be at least 0 and below 1e6; got {self.l2}.")


def training_settings(task: object) -> dict[str, int | float]:
    """Return how the clients of a task train, by name; empty for a task that does not say so."""
    training = getattr(task, "training", None)
    if not isinstance(training, Training):
        return {}
    return {
        "local_steps": training.local_steps,
        "batch": training.batch,
        "learning_rate": training.rate(0),
    }
