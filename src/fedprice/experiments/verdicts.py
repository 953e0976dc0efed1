"""Verdicts: each claim of the paper, its number, ours with an interval, and whether it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments import paper
from fedprice.experiments.beyond import rank_correlation
from fedprice.experiments.measures import Estimate, on_grid, resample_indices
from fedprice.experiments.results import Result, shown, std
from fedprice.experiments.study import SWEEPS
from fedprice.experiments.tables import timed, utility_gain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.arrays import FloatArray


__all__ = ["RULE", "Claim", "Verdict", "all_claims"]

RULE = (
    "A claim says that a number lies on one side of a limit. It holds if our whole 95 % interval "
    "lies there, and fails if the whole interval lies on the other side; otherwise it is "
    "inconclusive. Numbers of payers come with the range of 90 % of the draws instead."
)


class Verdict(StrEnum):
    """What we found of a claim."""

    HOLDS = "holds"
    FAILS = "fails"
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
        It claims a number below this limit, or above.
    """

    setup: str
    text: str
    paper: float | str
    ours: Estimate
    limit: float
    below: bool

    @property
    def verdict(self) -> Verdict:
        """Apply the rule.

        Examples
        --------
        >>> [Claim("", "", "", Estimate(0.9, low, high), 1.0, True).verdict.value
        ...  for low, high in ((0.8, 0.99), (0.8, 1.1), (1.05, 1.1), (1.1, float("nan")))]
        ['holds', 'inconclusive', 'fails', 'inconclusive']
        """
        low, high = self.ours.low, self.ours.high
        if math.isnan(low + high):
            return Verdict.INCONCLUSIVE
        if high < self.limit:
            return Verdict.HOLDS if self.below else Verdict.FAILS
        if low > self.limit:
            return Verdict.FAILS if self.below else Verdict.HOLDS
        return Verdict.INCONCLUSIVE

    @property
    def difference(self) -> str:
        """What we found other than the paper, in a sentence; nothing if the numbers agree."""
        if not isinstance(self.paper, str) and not self.ours.low <= self.paper <= self.ours.high:
            words = {
                Verdict.HOLDS: "The claim holds, but the paper's number lies outside our interval",
                Verdict.FAILS: "The claim fails here",
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
            "verdict": self.verdict.value,
        }


def all_claims(results: Sequence[Result]) -> list[Claim]:
    """Return every claim that the results speak to."""
    claims: list[Claim] = []
    for result in results:
        claims += _time_claims(result) + _variance_claims(result) + _utility_claims(result)
    for result in results:
        if result.name == "setup1":
            claims += _payer_claims(result)
    for result in results:
        claims += _sweep_claims(result) + _bias_claims(result)
        if result.study.compares_bound:
            text = "The bound orders levels as training does: rank correlation"
            claims.append(Claim(result.title, text, "–", rank_correlation(result), 0.0, False))
    return claims


def _time_claims(result: Result) -> list[Claim]:
    claims = []
    for what, printed in (("loss", paper.TIME_TO_LOSS), ("accuracy", paper.TIME_TO_ACCURACY)):
        ratios, theirs = timed(result, what).ratios, printed[result.name]
        claims += [
            Claim(
                result.title,
                f"Proposed reaches the target {what} sooner than {other}: ratio of times",
                theirs["equilibrium"] / theirs[other],
                ratios[other],
                1.0,
                below=True,
            )
            for other in ("uniform", "weighted")
        ]
    return claims


def _variance_claims(result: Result) -> list[Claim]:
    def ratio(own: FloatArray, others: FloatArray) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return std(own) / std(others)

    return [
        Claim(
            result.title,
            f"Proposed varies less than {other}: ratio of the final losses' std",
            "smaller",
            result.estimate(["equilibrium", other], ratio),
            1.0,
            below=True,
        )
        for other in ("uniform", "weighted")
    ]


def _utility_claims(result: Result) -> list[Claim]:
    return [
        Claim(
            result.title,
            f"Clients gain in total over {other}",
            gain,
            utility_gain(result, other),
            0.0,
            below=False,
        )
        for other, gain in paper.UTILITY_GAIN[result.name].items()
    ]


def _payer_claims(result: Result) -> list[Claim]:
    return [
        Claim(
            result.title,
            f"Some clients pay at a mean value of {mean_value:,}: how many",
            paper.PAYERS[mean_value],
            counted,
            0.5,
            below=False,
        )
        for mean_value, counted in result.study.payers.items()
        if mean_value > 0
    ]


def _sweep_claims(result: Result) -> list[Claim]:
    """Return what Figures 5 to 7 claim: the first against the last value that is varied."""
    what, values = SWEEPS[result.name]
    # A lower cost, a higher value and a higher budget are each said to help.
    worse, better = (values[-1], values[0]) if what == "mean_cost" else (values[0], values[-1])
    word = {"mean_value": "mean value", "mean_cost": "mean cost", "budget": "budget"}[what]
    end = result.sweep_end
    claims = []
    for measure, falls in (("loss", True), ("accuracy", False)):
        ends = [on_grid(result.sweep[value], measure, end)[:, -1] for value in (better, worse)]
        chosen = resample_indices(len(ends[0]))
        gain = ends[0] - ends[1]
        ours = Estimate.of(float(gain.mean()), gain[chosen].mean(axis=-1), gain.size)
        text = (
            f"A {word} of {better:,} gives a {'lower loss' if falls else 'higher accuracy'} than "
            f"{worse:,} after {end:,.0f} s: difference"
        )
        printed = "lower" if falls else "higher"
        claims.append(Claim(result.title, text, printed, ours, 0.0, below=falls))
        if falls and what != "mean_value":  # of v̄ the paper does not say so
            spreads = [std(e[chosen]) for e in ends]
            ratio = Estimate.of(std(ends[0]) / std(ends[1]), spreads[0] / spreads[1], gain.size)
            text = f"A {word} of {better:,} varies less than {worse:,}: ratio of the losses' std"
            claims.append(Claim(result.title, text, "smaller", ratio, 1.0, below=True))
    return claims


def _bias_claims(result: Result) -> list[Claim]:
    return [
        Claim(
            result.title,
            f"Unbiased aggregation ends at a lower loss than {words}: difference",
            "–",
            result.estimate(["equilibrium", name], lambda a, b: (a - b).mean(axis=-1)),
            0.0,
            below=True,
        )
        for words, name in (("a fixed subset", "subset"), ("FedAvg over joiners", "fedavg"))
    ]
