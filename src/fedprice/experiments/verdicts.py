"""Verdicts: claims, the numbers found with their intervals, and whether each claim holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments.interim_looks import next_look
from fedprice.experiments.results import Result, spread, title_of
from fedprice.experiments.study_tables import utility_gain
from fedprice.experiments.table import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.experiments.measures import Estimate


__all__ = [
    "RULE",
    "RULES",
    "Claim",
    "Verdict",
    "claim_of",
    "open_runs",
    "own_claims",
    "ratio_of_spreads",
]

RULE = (
    "A claim says that a number lies on one side of a limit: it holds if our whole interval lies "
    "there, fails if the whole interval lies on the other side, and is inconclusive otherwise."
)
RULES = [
    "Numbers that differ from the limit by rounding errors only are equal to it. "
    "A ratio below 1 means that the first scheme is ahead. The probability that a claim's verdict "
    "is wrong is at most 5 %, however often seeds were added: seeds are added while a claim is "
    "inconclusive, and the 5 % are shared evenly among all looks at it. This holds per claim, not "
    "for all of them together. Numbers of payers come with the range of 90 % of the draws instead.",
]


class Verdict(StrEnum):
    """What we found about a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    EQUAL = "equal"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Claim:
    """A claim with both numbers.

    Attributes
    ----------
    setup, text
        Where it is made, and what it says.
    paper
        The paper's number, or its word where it prints none.
    ours
        Ours, with its interval.
    limit, below
        The limit, and whether the claim is that the number lies below it.
    runs
        The names of the runs that our number is based on, to which seeds can be added.
    seeds
        How many seeds they have in common; 0 if the number does not come from training.
    about
        What it compares, in a study of one's own: "loss", "accuracy", "time" or something else.
    """

    setup: str
    text: str
    paper: float | str
    ours: Estimate
    limit: float
    below: bool
    runs: tuple[str, ...] = ()
    seeds: int = 0
    about: str = ""

    @property
    def verdict(self) -> Verdict:
        """Apply the rule.

        Examples
        --------
        >>> from fedprice.experiments.measures import Estimate
        >>> [Claim("", "", "", Estimate(0.9, low, high), 1.0, True).verdict.value
        ...  for low, high in ((0.8, 0.99), (0.8, 1.1), (1.05, 1.1), (1.1, float("nan")))]
        ['holds', 'inconclusive', 'fails', 'inconclusive']
        >>> Claim("", "", "", Estimate(1.0, 1.0, 1.0), 1.0, True).verdict.value
        'equal'
        """
        low, high = self.ours.low, self.ours.high
        if math.isnan(low + high):
            return Verdict.INCONCLUSIVE
        if low == high == self.limit:
            return Verdict.EQUAL
        if high < self.limit:
            return Verdict.HOLDS if self.below else Verdict.FAILS
        if low > self.limit:
            return Verdict.FAILS if self.below else Verdict.HOLDS
        return Verdict.INCONCLUSIVE

    @property
    def difference(self) -> str:
        """A sentence about how our number differs from the paper's; empty if they agree."""
        if not isinstance(self.paper, str) and not self.ours.low <= self.paper <= self.ours.high:
            words = {
                Verdict.HOLDS: "The claim holds, but the paper's number lies outside our interval",
                Verdict.FAILS: "The claim fails here",
                Verdict.EQUAL: "Both sides are equal here",
                Verdict.INCONCLUSIVE: "The claim is inconclusive here, and the paper's number lies "
                "outside our interval",
            }[self.verdict]
        elif self.verdict is Verdict.FAILS:
            words = "The claim fails here"
        else:
            return ""
        numbers = f"{shown(self.paper)} in the paper, {shown(self.ours)} here"
        return f"{self.setup}. {self.text}: {numbers}. {words}."

    def row(self) -> dict[str, Any]:
        """Return the claim as a row of the verdict table."""
        return {
            "setup": self.setup,
            "claim": self.text,
            "paper": self.paper,
            "ours": self.ours,
            "seeds": self.seeds or "–",
            "verdict": self.verdict.value,
        }


def open_runs(result: Result, claims: Sequence[Claim]) -> dict[str, int]:
    """Return how many seeds runs need next, where a claim about them is still inconclusive."""
    settings = result.study.settings
    wanted: dict[str, int] = {}
    for claim in claims:
        more = next_look(claim.seeds, settings.seeds, settings.most_seeds)
        if claim.runs and claim.verdict is Verdict.INCONCLUSIVE and more is not None:
            for name in claim.runs:
                wanted[name] = max(more, wanted.get(name, 0))
    return {name: more for name, more in wanted.items() if more > result.seeds(name)}


def claim_of(
    result: Result,
    text: str,
    printed: float | str,
    ours: Estimate,
    limit: float,
    *,
    below: bool,
    runs: tuple[str, ...],
    about: str = "",
) -> Claim:
    """Return a claim about some runs of a result."""
    seeds, ours = result.seeds(*runs), replace(ours.resolved(limit, abs(limit)), limit=limit)
    return Claim(result.title, text, printed, ours, limit, below, runs, seeds, about)


def own_claims(result: Result) -> list[Claim]:
    """Return what a study asks: whether its first scheme is ahead of each of the others."""
    subject = result.study.subject
    others = [name for name in result.study.outcomes if name != subject]
    claims = []
    for other in others:
        words, runs = title_of(other), (subject, other)
        for what in result.measures:
            sooner = f"{subject} reaches the target {what} sooner than {words}: ratio of times"
            ratio = result.timed(what).ratios[other]
            used = tuple(dict.fromkeys((subject, result.study.reference, other)))
            claims.append(claim_of(result, sooner, "–", ratio, 1.0, below=True, runs=used,
                                   about="time" if what == "loss" else ""))  # fmt: skip
            lower = what == "loss"
            ends = f"{subject} ends at a {'lower' if lower else 'higher'} {what} than {words}"
            gain = result.difference(subject, other, what)
            text = f"{ends}: difference"
            claims.append(
                claim_of(result, text, "–", gain, 0.0, below=lower, runs=runs, about=what)
            )
        text = f"{subject} varies less than {words}: ratio of the spreads of the final loss"
        ratio = result.estimate(runs, ratio_of_spreads, log=True)
        claims.append(claim_of(result, text, "–", ratio, 1.0, below=True, runs=runs))
        text = f"Clients gain in total over {words}"
        gain = utility_gain(result, other)
        claims.append(claim_of(result, text, "–", gain, 0.0, below=False, runs=runs))
    return claims


def ratio_of_spreads(ours: FloatArray, others: FloatArray) -> Any:
    """Return the ratio of the spreads over seeds, the last axis; 1 where there are none."""
    mine, theirs = spread(ours), spread(others)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((mine == 0) & (theirs == 0), 1.0, mine / theirs)
