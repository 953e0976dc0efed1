"""Verdicts: each claim of the paper, its number, ours with an interval, and whether it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments import paper
from fedprice.experiments.beyond import rank_correlation
from fedprice.experiments.looks import next_look
from fedprice.experiments.measures import Estimate, on_grid
from fedprice.experiments.results import Result, spread
from fedprice.experiments.study import SWEEPS
from fedprice.experiments.table import shown
from fedprice.experiments.tables import utility_gain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.arrays import FloatArray


__all__ = ["RULE", "Claim", "Verdict", "all_claims", "open_runs"]

RULE = (
    "A claim says that a number lies on one side of a limit. It holds if our whole interval lies "
    "there, and fails if the whole interval lies on the other side; otherwise it is inconclusive. "
    "A ratio below 1 means that the equilibrium is ahead. The probability that a claim's verdict "
    "is wrong is at most 5 %, however often seeds were added: seeds are added where a claim is "
    "open, and the 5 % are shared evenly among all looks at it. The chance is per claim, not for "
    "all of them together. Numbers of payers come with the range of 90 % of the draws instead."
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
    runs
        The names of the runs that our number stands on; of these, seeds can be added.
    seeds
        How many seeds they have in common; 0 if the number is not one of training.
    """

    setup: str
    text: str
    paper: float | str
    ours: Estimate
    limit: float
    below: bool
    runs: tuple[str, ...] = ()
    seeds: int = 0

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
            "seeds": self.seeds or "–",
            "verdict": self.verdict.value,
        }


def all_claims(results: Sequence[Result]) -> list[Claim]:
    """Return every claim that the results speak to."""
    return [claim for result in results for claim in claims_of(result)]


def claims_of(result: Result) -> list[Claim]:
    """Return every claim that a setup's results speak to."""
    claims = _time_claims(result) + _variance_claims(result) + _utility_claims(result)
    if result.name == "setup1":
        claims += _payer_claims(result)
    claims += _sweep_claims(result) + _bias_claims(result)
    if result.study.compares_bound:
        text = "The bound orders levels as training does: rank correlation"
        claims.append(Claim(result.title, text, "–", rank_correlation(result), 0.0, below=False))
    return claims


def open_runs(result: Result) -> dict[str, int]:
    """Return which runs need how many seeds next, as a claim about them is still open."""
    settings = result.study.settings
    wanted: dict[str, int] = {}
    for claim in claims_of(result):
        more = next_look(claim.seeds, settings.seeds, settings.most_seeds)
        if claim.runs and claim.verdict is Verdict.INCONCLUSIVE and more is not None:
            for name in claim.runs:
                wanted[name] = max(more, wanted.get(name, 0))
    return {name: more for name, more in wanted.items() if more > result.seeds(name)}


def _claim(
    result: Result,
    text: str,
    printed: float | str,
    ours: Estimate,
    limit: float,
    *,
    below: bool,
    runs: tuple[str, ...],
) -> Claim:
    seeds = result.seeds(*runs)
    return Claim(result.title, text, printed, ours, limit, below, runs, seeds)


def _time_claims(result: Result) -> list[Claim]:
    claims = []
    for what, printed in (("loss", paper.TIME_TO_LOSS), ("accuracy", paper.TIME_TO_ACCURACY)):
        ratios, theirs = result.timed(what).ratios, printed[result.name]
        claims += [
            _claim(
                result,
                f"The equilibrium reaches the target {what} sooner than {other}: ratio of times",
                theirs["equilibrium"] / theirs[other],
                ratios[other],
                1.0,
                below=True,
                runs=tuple(dict.fromkeys(("equilibrium", "uniform", other))),
            )
            for other in ("uniform", "weighted")
        ]
    return claims


def _variance_claims(result: Result) -> list[Claim]:
    return [
        _claim(
            result,
            f"The equilibrium varies less than {other}: ratio of the spreads of the final loss",
            "smaller",
            result.estimate(["equilibrium", other], _ratio_of_spreads, log=True),
            1.0,
            below=True,
            runs=("equilibrium", other),
        )
        for other in ("uniform", "weighted")
    ]


def _ratio_of_spreads(own: FloatArray, others: FloatArray) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return spread(own) / spread(others)


def _utility_claims(result: Result) -> list[Claim]:
    return [
        _claim(
            result,
            f"Clients gain in total over {other}",
            gain,
            utility_gain(result, other),
            0.0,
            below=False,
            runs=("equilibrium", other),
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
    runs = (result.sweep_names[better], result.sweep_names[worse])
    count, error = result.seeds(*runs), result.error(*runs)
    claims = []
    for measure, falls in (("loss", True), ("accuracy", False)):
        ends = [on_grid(result.curves[name][:count], measure, end)[:, -1] for name in runs]
        ours = Estimate.jackknife(lambda a, b: (a - b).mean(axis=-1), ends, error=error)
        text = (
            f"A {word} of {better:,} gives a {'lower loss' if falls else 'higher accuracy'} than "
            f"{worse:,} after {end:,.0f} s: difference"
        )
        printed = "lower" if falls else "higher"
        claims.append(_claim(result, text, printed, ours, 0.0, below=falls, runs=runs))
        if falls and what != "mean_value":  # of v̄ the paper does not say so
            ours = Estimate.jackknife(_ratio_of_spreads, ends, error=error, log=True)
            text = (
                f"A {word} of {better:,} varies less than {worse:,}: ratio of spreads of the loss"
            )
            claims.append(_claim(result, text, "smaller", ours, 1.0, below=True, runs=runs))
    return claims


def _bias_claims(result: Result) -> list[Claim]:
    return [
        _claim(
            result,
            f"Unbiased aggregation ends at a lower loss than {words}: difference",
            "–",
            result.estimate(["equilibrium", name], lambda a, b: (a - b).mean(axis=-1)),
            0.0,
            below=True,
            runs=("equilibrium", name),
        )
        for words, name in (("a fixed subset", "subset"), ("FedAvg over joiners", "fedavg"))
    ]
