"""Audit without shared coins: whether a client joins as often as it declared, checked at any time.

A betting e-process: start with one unit and bet, round by round, that the client joins less often
than declared. If it is honest the wealth is a non-negative supermartingale, so it ever reaches 1/α
with probability at most α (Ville), however long the audit runs and whenever it stops. The bets are
a mixture over alternatives: likelihood ratios of levels below the declared one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.arrays import FloatArray, IntArray


__all__ = ["LevelAudit"]

# The alternatives bet on, relative to the declared level: never, half as often, …
BELOW = np.array([0.0, 0.25, 0.5, 0.7, 0.85, 0.95])


@dataclass(eq=False)
class LevelAudit:
    """Running tests of the declared levels of a fleet, one per client.

    Parameters
    ----------
    levels
        The declared levels, shape (num_clients,).
    two_sided
        Whether joining more often than declared counts, too.
    tolerance
        The share of joins that may fail through nobody's fault: joining counts as too rare below
        (1 − tolerance) times the declared level.

    Examples
    --------
    >>> audit = LevelAudit(np.array([0.5, 0.5]))
    >>> for _ in range(20):
    ...     audit.observe(np.array([True, False]))
    >>> audit.suspects(alpha=0.01)
    array([1])
    """

    levels: FloatArray
    two_sided: bool = False
    tolerance: float = 0.0
    rounds: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.levels = np.asarray(self.levels, np.float64)
        if self.levels.ndim != 1 or not ((self.levels > 0) & (self.levels <= 1)).all():
            raise InputError("`levels` must lie in (0, 1], one per client.")
        if not 0 <= self.tolerance < 1:
            raise InputError(f"`tolerance` must lie in [0, 1); got {self.tolerance}.")
        low = self.levels * (1 - self.tolerance)
        bets = [(share * low, low) for share in BELOW]
        if self.two_sided:
            # As far above the declared level as below, in odds, as far as possible.
            bets += [(1 - share * (1 - self.levels), self.levels) for share in BELOW]
        other, null = (np.array(side) for side in zip(*bets, strict=True))
        with np.errstate(divide="ignore", invalid="ignore"):
            self._on_join = np.log(other / null)
            self._on_miss = np.where(null < 1, np.log((1 - other) / (1 - null)), 0.0)
        self._on_miss[other == null] = self._on_join[other == null] = 0.0
        self._log = np.zeros_like(other)
        # Where every round must be joined, a miss proves the client wrong at once.
        self._sure, self._proven = low == 1, np.zeros(self.levels.size, np.bool_)

    def observe(self, joined: npt.NDArray[np.bool_]) -> None:
        """Add a round: who joined, shape (num_clients,)."""
        joined = np.asarray(joined, np.bool_)
        if joined.shape != self.levels.shape:
            raise InputError(f"`joined` must have shape {self.levels.shape}; got {joined.shape}.")
        self._log += np.where(joined, self._on_join, self._on_miss)
        self._proven |= self._sure & ~joined
        self.rounds += 1

    def observe_counts(self, joined: IntArray, rounds: int) -> None:
        """Add several rounds at once: how often each client joined in them.

        The evidence after them depends on nothing else.

        Examples
        --------
        >>> audit = LevelAudit(np.array([0.5, 0.5]))
        >>> audit.observe_counts(np.array([20, 0]), rounds=20)
        >>> audit.suspects(alpha=0.01)
        array([1])
        """
        joined = np.asarray(joined, np.int64)
        if joined.shape != self.levels.shape or not ((joined >= 0) & (joined <= rounds)).all():
            raise InputError(f"`joined` must lie between 0 and {rounds}, one per client.")
        with np.errstate(invalid="ignore"):  # 0 times an infinite log-ratio
            for count, each in ((joined, self._on_join), (rounds - joined, self._on_miss)):
                self._log += np.where(count > 0, count * each, 0.0)
        self._proven |= self._sure & (joined < rounds)
        self.rounds += rounds

    @property
    def log_evidence(self) -> FloatArray:
        """The logarithm of each client's wealth, shape (num_clients,): evidence against it."""
        total: FloatArray = np.logaddexp.reduce(self._log, axis=0)
        return np.where(self._proven, np.inf, total - math.log(len(self._log)))

    def suspects(self, alpha: float, *, fleet: bool = True) -> npt.NDArray[np.int64]:
        """Return the clients against whom there is enough evidence.

        Parameters
        ----------
        alpha
            The false alarm rate: of the whole fleet, however many clients and rounds, or with
            `fleet` off of each client by itself.
        """
        if not 0 < alpha < 1:
            raise InputError(f"`alpha` must lie in (0, 1); got {alpha}.")
        count = self.levels.size if fleet else 1
        return np.flatnonzero(self.log_evidence >= np.log(count / alpha))
