"""The search for pilots that measure α well enough.

First, scouts of a few repeats each look for levels and checkpoints at which α stands out from the
noise; a design that diverges is replaced by one with higher levels. Since scouts choose the design,
their measurements are not used again. Then the chosen pilots are repeated with fresh random numbers
until α's interval is narrow enough or the limit is reached.

An interval that is examined repeatedly until it looks good misses too often. The 5 % are therefore
split evenly over all the looks that the limit allows: by Bonferroni's inequality all intervals are
valid at once, and so is the last one, whenever the search stops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.bound import random_loss
from fedprice.calibration.fits import half_width, quantile, single_alphas
from fedprice.calibration.searched import Search, Step
from fedprice.errors import DivergedError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray

__all__ = [
    "FIRST",
    "LIMIT",
    "WIDTH",
    "Design",
    "Pilots",
    "check_search",
    "looks",
    "most_rounds",
    "search",
    "why_alpha_does_not_matter",
]

WIDTH = 1.0  # an α wrong by half changes losses and spends by a few percent (docs/learning.md)
LIMIT = 80
ERROR = 0.05
SCOUTS, SCOUTINGS, FIRST_LOOK = 5, 5, 10
HIGHEST_LOW = 0.5  # the lower of two levels is at most this
ANY_WIDTH = 2.0  # an interval that is narrower than 2 α excludes 0


@dataclass(frozen=True)
class Design:
    """The levels of two pilots, and the rounds after which they are compared."""

    low: float
    high: float
    checkpoints: tuple[int, ...]

    def higher(self) -> Design:
        """Return a design with higher levels, for when these diverged."""
        return Design(min(2 * self.low, HIGHEST_LOW), 1.0, self.checkpoints)

    def clearer(self) -> Design:
        """Return a design whose pilots differ more, at a higher cost."""
        if self.high < 1:
            return Design(self.low, 1.0, self.checkpoints)
        if max(self.checkpoints) <= 50:
            return Design(self.low, 1.0, tuple(2 * one for one in self.checkpoints))
        return Design(self.low / 2, 1.0, self.checkpoints)


FIRST = Design(0.1, 0.3, (20, 30, 50))


@dataclass(frozen=True, eq=False)
class Pilots:
    """The results of pilots.

    Attributes
    ----------
    weight
        The clients' shares of the data, shape (num_clients,).
    vectors
        The levels of each pilot, rising, shape (levels, num_clients).
    rounds
        The checkpoints.
    losses
        The loss of each pilot, repeat and checkpoint, shape (levels, repeats, checkpoints).
    norms
        The norms of the kind used for prices: one row per run, shape (levels × repeats,
        num_clients); NaN where a client joined none of its rounds.
    """

    weight: FloatArray
    vectors: FloatArray
    rounds: IntArray
    losses: FloatArray
    norms: FloatArray

    def single_alphas(self) -> FloatArray:
        """Return the α that each repeat gives by itself, shape (repeats,)."""
        seen = ~np.isnan(self.norms)
        mean_square = np.nansum(self.norms**2, axis=0) / np.maximum(seen.sum(axis=0), 1)
        spreads = [random_loss(self.weight**2 * mean_square, q) for q in self.vectors]
        return single_alphas(self.losses, np.array(spreads), self.rounds)


def check_search(width: float, limit: int) -> None:
    """Refuse a width or a limit that makes no sense."""
    if not 0 < width < ANY_WIDTH:
        raise InputError(
            f"`width` must be above 0 and below {ANY_WIDTH:g}, where the interval of α would reach "
            f"0; got {width:g}."
        )
    if limit < FIRST_LOOK:
        raise InputError(f"`limit` must be at least {FIRST_LOOK} repeats; got {limit}.")


def looks(limit: int) -> list[int]:
    """Return after how many repeats α's interval is looked at.

    >>> looks(80), looks(50)
    ([10, 20, 40, 80], [10, 20, 40, 50])
    """
    found = [FIRST_LOOK]
    while found[-1] < limit:
        found.append(min(2 * found[-1], limit))
    return found


def most_rounds(limit: int) -> int:
    """Return the most rounds that a search runs, if its first scouts are promising."""
    return 2 * (SCOUTS + limit) * max(FIRST.checkpoints)


def search(
    run: Callable[[Design, int, int], Pilots],
    *,
    first: Design = FIRST,
    width: float = WIDTH,
    limit: int = LIMIT,
    value: npt.ArrayLike | None = None,
    report: Callable[[Step], None] | None = None,
) -> Search:
    """Return the steps until pilots measured α well enough; the last step is the result.

    Parameters
    ----------
    run
        Runs the pilots of a design: how many repeats, and which series of random numbers they
        use. More repeats of a series include the earlier ones.
    first
        The design that is scouted first.
    width
        The width of α's interval, relative to α, at which it is narrow enough.
    limit
        The most repeats.
    value
        The clients' values, if they are known. Where all are equal, what clients are paid does not
        depend on α, and its interval only has to exclude 0.
    report
        Called with each step.
    """
    check_search(width, limit)
    reason = why_alpha_does_not_matter(value)
    schedule = looks(limit)
    log = _Log(run, ERROR / len(schedule), report)
    wanted = ANY_WIDTH if reason else width
    design, series = _scout(log, first, wanted, schedule), SCOUTINGS
    while True:
        series += 1
        for count in schedule:
            found = log.attempt("measure", design, count, series)
            if found is None:
                design = design.higher()
                break
            relative = found.relative_width
            narrow = relative < ANY_WIDTH if reason else relative <= width
            if narrow or count == schedule[-1]:
                ended = reason if narrow and reason else "narrow enough" if narrow else "limit"
                log.note(found, f"{ended} reached" if ended == "limit" else ended)
                return Search(width, limit, log.error, ended, series, tuple(log.steps))
            log.note(found, "going on")


def _scout(log: _Log, design: Design, width: float, schedule: list[int]) -> Design:
    """Return the first design that promises the width within the limit, or else the clearest."""
    tried: dict[Design, float] = {}
    for series in range(SCOUTINGS):
        found = log.attempt("scout", design, SCOUTS, series)
        if found is None:
            design = design.higher()
            continue
        noise = _noise(found, log.error)
        needed = next((n for n in schedule if _predicted(noise, n, log.error) <= width), None)
        if needed is not None:
            log.note(found, f"promising, with about {needed} repeats")
            return design
        tried[design] = noise
        log.note(found, "too noisy")
        design = design.clearer()
    return min(tried, key=tried.__getitem__) if tried else design


def _noise(step: Step, error: float) -> float:
    """Return the standard deviation of a single repeat relative to α, from a step's interval."""
    half = step.relative_width / 2
    return half / quantile(step.repeats, error) * math.sqrt(step.repeats)


def _predicted(noise: float, repeats: int, error: float) -> float:
    """Return the relative width of α's interval if repeats have this relative noise."""
    return 2 * quantile(repeats, error) * noise / math.sqrt(repeats)


@dataclass
class _Log:
    """Runs pilots and records their results."""

    run: Callable[[Design, int, int], Pilots]
    error: float
    report: Callable[[Step], None] | None
    steps: list[Step] = field(default_factory=list)

    def attempt(self, purpose: str, design: Design, count: int, series: int) -> Step | None:
        """Return the results of pilots, or None if they diverged and higher levels can be tried."""
        levels = (design.low, design.high)
        try:
            single = self.run(design, count, series).single_alphas()
        except DivergedError:
            if design.low >= HIGHEST_LOW:
                raise
            nothing = Step(purpose, levels, design.checkpoints, count, np.nan, np.nan, np.nan)
            self.note(nothing, "diverged, so the levels are raised")
            return None
        alpha, half = float(single.mean()), half_width(single, self.error)
        return Step(purpose, levels, design.checkpoints, count, alpha, alpha - half, alpha + half)

    def note(self, step: Step, said: str) -> None:
        """Record a step, with what follows from it."""
        self.steps.append(replace(step, said=said))
        if self.report is not None:
            self.report(self.steps[-1])


def why_alpha_does_not_matter(value: npt.ArrayLike | None) -> str:
    """Return why the clients' values make α irrelevant for what they are paid; empty if not.

    With one value v for all, k_n = α a_n² D_n² / R and no client at a limit, the payment of client
    n is proportional to k_n / q_n, hence to c_n^{1/(τ+1)} k_n^{τ/(τ+1)}, in which α cancels.

    Examples
    --------
    >>> why_alpha_does_not_matter(0)
    'all values are 0, so prices do not depend on α'
    >>> why_alpha_does_not_matter([0, 7])
    ''
    """
    if value is None:
        return ""
    values = np.atleast_1d(np.asarray(value, np.float64))
    if not (values == values[0]).all():
        return ""
    if values[0] == 0:
        return "all values are 0, so prices do not depend on α"
    return "all values are equal, so payments within floors and caps do not depend on α"
