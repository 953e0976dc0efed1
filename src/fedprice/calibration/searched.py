"""The steps of a search for good pilots, and how a file stores them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["Search", "Step"]


@dataclass(frozen=True)
class Step:
    """One step of a search for good pilots.

    Attributes
    ----------
    purpose
        "scout", to find levels and checkpoints, or "measure".
    levels, checkpoints, repeats
        What ran.
    alpha, low, high
        The result, for the norms used for prices; NaN if a pilot diverged.
    said
        What followed.
    """

    purpose: str
    levels: tuple[float, float]
    checkpoints: tuple[int, ...]
    repeats: int
    alpha: float
    low: float
    high: float
    said: str = ""

    @property
    def relative_width(self) -> float:
        """The width of the interval relative to α; infinite where α is not above 0."""
        return (self.high - self.low) / self.alpha if self.alpha > 0 else np.inf

    def __str__(self) -> str:
        low, high = self.levels
        rounds = ", ".join(map(str, self.checkpoints))
        line = (
            f"{self.purpose}: levels {low:g} and {high:g}, rounds {rounds}, {self.repeats} repeats"
        )
        if not np.isnan(self.alpha):
            line += f": α = {self.alpha:.3g}, from {self.low:.3g} to {self.high:.3g}"
        return f"{line}: {self.said}"


@dataclass(frozen=True)
class Search:
    """How pilots were searched for.

    Attributes
    ----------
    width, limit
        The requested relative width of α's interval, and the most repeats.
    error
        The probability with which the interval of one look may miss; all together miss in at most
        5 %.
    ended
        Why it ended: "narrow enough", "limit", or why α does not matter.
    series
        Which series of random numbers the result uses.
    steps
        What was done, in order; the last one is the result.
    """

    width: float
    limit: int
    error: float
    ended: str
    series: int
    steps: tuple[Step, ...]

    def content(self) -> dict[str, Any]:
        """Return this in the form of JSON, without NaN."""
        found = asdict(self)
        for step in found["steps"]:
            for name in ("alpha", "low", "high"):
                step[name] = None if np.isnan(step[name]) else step[name]
        return found

    @classmethod
    def of(cls, content: dict[str, Any] | None) -> Search | None:
        """Return the search that `content` returned, or None if there was none."""
        if content is None:
            return None
        return cls(
            width=float(content["width"]),
            limit=int(content["limit"]),
            error=float(content["error"]),
            ended=str(content["ended"]),
            series=int(content["series"]),
            steps=tuple(_step(step) for step in content["steps"]),
        )


def _step(content: dict[str, Any]) -> Step:
    low, high = map(float, content["levels"])
    numbers = {
        name: np.nan if content[name] is None else float(content[name])
        for name in ("alpha", "low", "high")
    }
    return Step(
        purpose=str(content["purpose"]),
        levels=(low, high),
        checkpoints=tuple(int(one) for one in content["checkpoints"]),
        repeats=int(content["repeats"]),
        said=str(content["said"]),
        **numbers,
    )
