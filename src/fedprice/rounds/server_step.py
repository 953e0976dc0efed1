"""How the server applies the estimate of a round to the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, State

__all__ = ["Adam", "Bounded", "Momentum", "Plain", "ServerStep"]


class ServerStep(Protocol):
    """Turns the estimate of a round into a change of the model; its state survives a restart."""

    @property
    def name(self) -> str:
        """A name for checkpoints; another kind of step needs another name."""

    def start(self, size: int) -> State:
        """Return what it remembers before the first round."""

    def change(self, state: State, estimate: FloatArray) -> tuple[FloatArray, State]:
        """Return the change of the model and the state after it; the given state stays the same."""


@dataclass(frozen=True)
class Plain:
    """Adds the estimate as it is: the paper's aggregation."""

    name: str = "plain"

    def start(self, size: int) -> State:
        """Remember nothing."""
        return {}

    def change(self, state: State, estimate: FloatArray) -> tuple[FloatArray, State]:
        """Return the estimate."""
        return estimate, state


@dataclass(frozen=True)
class Momentum:
    """Server momentum: v ← β v + estimate, and the model moves by rate · v.

    Examples
    --------
    >>> step = Momentum(beta=0.5)
    >>> first, state = step.change(step.start(1), np.ones(1))
    >>> first, step.change(state, np.ones(1))[0]
    (array([1.]), array([1.5]))
    """

    beta: float = 0.9
    rate: float = 1.0

    @property
    def name(self) -> str:
        """A word for checkpoints."""
        return f"momentum {self.beta!r} {self.rate!r}"

    def __post_init__(self) -> None:
        _require_in("beta", self.beta, 0, 1)
        _require_in("rate", self.rate, 0, np.inf)

    def start(self, size: int) -> State:
        """Remember a velocity of 0."""
        return {"velocity": np.zeros(size)}

    def change(self, state: State, estimate: FloatArray) -> tuple[FloatArray, State]:
        """Return rate · v."""
        velocity = self.beta * state["velocity"] + estimate
        return self.rate * velocity, {"velocity": velocity}


@dataclass(frozen=True)
class Adam:
    """Adam on the server, with the estimate instead of the gradient (FedAdam).

    The moments are corrected for their start at 0, which the reference does not do.

    Warnings
    --------
    Dividing by √v̂ is not linear in the estimate, so the expected step is no longer that of full
    participation.

    References
    ----------
    Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
    """

    rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3

    @property
    def name(self) -> str:
        """A word for checkpoints."""
        return f"adam {self.rate!r} {self.beta1!r} {self.beta2!r} {self.epsilon!r}"

    def __post_init__(self) -> None:
        _require_in("beta1", self.beta1, 0, 1)
        _require_in("beta2", self.beta2, 0, 1)
        _require_in("rate", self.rate, 0, np.inf)
        _require_in("epsilon", self.epsilon, 0, np.inf)

    def start(self, size: int) -> State:
        """Remember moments of 0, and a count of 0 rounds."""
        return {"first": np.zeros(size), "second": np.zeros(size), "taken": np.zeros(1, np.int64)}

    def change(self, state: State, estimate: FloatArray) -> tuple[FloatArray, State]:
        """Return rate · m̂ / (√v̂ + ε)."""
        taken = state["taken"] + 1
        first = self.beta1 * state["first"] + (1 - self.beta1) * estimate
        second = self.beta2 * state["second"] + (1 - self.beta2) * estimate**2
        mean, spread = first / (1 - self.beta1**taken), second / (1 - self.beta2**taken)
        change = self.rate * mean / (np.sqrt(spread) + self.epsilon)
        return change, {"first": first, "second": second, "taken": taken}


@dataclass(frozen=True)
class Bounded:
    """Shortens an estimate that is much longer than recent ones, then steps as `inner` does.

    An estimate longer than `factor` times the median length of the last `window` ones (after they
    were shortened) is scaled down to that length; the first `window` rounds are left alone, and so
    is every estimate while lengths stay steady. With a factor of 1 lengths can only fall, and
    training slows down more and more.

    Warnings
    --------
    Shortening is biased: in a round in which it applies, the expected step is E[s H] with s < 1
    where H is long, so it favours the rounds with short estimates. The bias of a round is
    E[(1 − s) H], at most E[(‖H‖ − L)⁺] in length, with L the longest that is allowed; it is 0 where
    no estimate exceeds L.

    Examples
    --------
    >>> step, state = Bounded(factor=2, window=2), Bounded(factor=2, window=2).start(1)
    >>> for length in (1.0, 1.0, 10.0, 10.0):
    ...     change, state = step.change(state, np.array([length]))
    ...     print(change)
    [1.]
    [1.]
    [2.]
    [3.]
    """

    factor: float = 1.5
    window: int = 5
    inner: ServerStep = field(default_factory=Plain)

    @property
    def name(self) -> str:
        """A word for checkpoints."""
        return f"bounded {self.factor!r} {self.window} {self.inner.name}"

    def __post_init__(self) -> None:
        _require_in("factor", self.factor, 1, np.inf)
        if type(self.window) is not int or self.window < 1:
            raise InputError(f"`window` must be a whole number, at least 1; got {self.window!r}.")

    def start(self, size: int) -> State:
        """Remember no lengths."""
        inner = {f"inner.{name}": array for name, array in self.inner.start(size).items()}
        return {"lengths": np.zeros(0)} | inner

    def change(self, state: State, estimate: FloatArray) -> tuple[FloatArray, State]:
        """Return the change by the inner step of the shortened estimate."""
        lengths, length = state["lengths"], float(np.linalg.norm(estimate))
        if len(lengths) >= self.window:
            longest = self.factor * float(np.median(lengths))
            if length > longest:
                estimate, length = estimate * (longest / length), longest
        own = {name[6:]: array for name, array in state.items() if name.startswith("inner.")}
        change, own = self.inner.change(own, estimate)
        inner = {f"inner.{name}": array for name, array in own.items()}
        # A round without joiners has no length to compare with.
        kept = np.append(lengths, length)[-self.window :] if length else lengths
        return change, {"lengths": kept} | inner


def _require_in(name: str, value: float, low: float, high: float) -> None:
    if not (isinstance(value, int | float) and low <= value < high):
        raise InputError(f"`{name}` must be at least {low:g} and below {high:g}; got {value!r}.")
