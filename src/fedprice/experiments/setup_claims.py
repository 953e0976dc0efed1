"""The claims of the paper's section VI, its numbers and ours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedprice.experiments import paper_numbers as paper
from fedprice.experiments.beyond_tables import rank_correlation
from fedprice.experiments.measures import Estimate, on_grid
from fedprice.experiments.results import difference
from fedprice.experiments.setup_study import SWEEPS
from fedprice.experiments.study_tables import utility_gain
from fedprice.experiments.verdicts import Claim, claim_of, ratio_of_spreads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.experiments.setup_results import SetupResult

__all__ = ["RACES", "all_claims", "claims_of"]

# Tables II and III: a target, and the scheme whose time to it is compared with the equilibrium's.
RACES = [(what, other) for what in ("loss", "accuracy") for other in ("uniform", "weighted")]


def all_claims(results: Sequence[SetupResult]) -> list[Claim]:
    """Return every claim that the results can decide."""
    return [claim for result in results for claim in claims_of(result)]


def claims_of(result: SetupResult) -> list[Claim]:
    """Return every claim that a setup's results can decide."""
    if result.study.only_times:
        return _time_claims(result)
    claims = _time_claims(result) + _variance_claims(result) + _utility_claims(result)
    if result.name == "setup1":
        claims += _payer_claims(result)
    claims += _sweep_claims(result) + _bias_claims(result)
    if result.study.compares_bound:
        text = "The bound orders levels as training does: rank correlation"
        correlation = replace(rank_correlation(result), limit=0.0)
        claims.append(Claim(result.title, text, "–", correlation, 0.0, below=False))
    return claims


def _time_claims(result: SetupResult) -> list[Claim]:
    printed = {"loss": paper.TIME_TO_LOSS, "accuracy": paper.TIME_TO_ACCURACY}
    claims = []
    for what, other in RACES:
        theirs = printed[what][result.name]
        claims.append(
            claim_of(
                result,
                f"The equilibrium reaches the target {what} sooner than {other}: ratio of times",
                theirs["equilibrium"] / theirs[other],
                result.timed(what).ratios[other],
                1.0,
                below=True,
                runs=tuple(dict.fromkeys(("equilibrium", "uniform", other))),
            )
        )
    return claims


def _variance_claims(result: SetupResult) -> list[Claim]:
    return [
        claim_of(
            result,
            f"The equilibrium varies less than {other}: ratio of the spreads of the final loss",
            "smaller",
            result.estimate(["equilibrium", other], ratio_of_spreads, log=True),
            1.0,
            below=True,
            runs=("equilibrium", other),
        )
        for other in ("uniform", "weighted")
    ]


def _utility_claims(result: SetupResult) -> list[Claim]:
    return [
        claim_of(
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


def _payer_claims(result: SetupResult) -> list[Claim]:
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


def _sweep_claims(result: SetupResult) -> list[Claim]:
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
        ours = difference(ends, error)
        text = (
            f"A {word} of {better:,} gives a {'lower loss' if falls else 'higher accuracy'} than "
            f"{worse:,} after {end:,.0f} s: difference"
        )
        printed = "lower" if falls else "higher"
        claims.append(claim_of(result, text, printed, ours, 0.0, below=falls, runs=runs))
        if falls and what != "mean_value":  # the paper does not claim this for v̄
            ours = Estimate.jackknife(ratio_of_spreads, ends, error=error, log=True)
            text = (
                f"A {word} of {better:,} varies less than {worse:,}: ratio of spreads of the loss"
            )
            claims.append(claim_of(result, text, "smaller", ours, 1.0, below=True, runs=runs))
    return claims


def _bias_claims(result: SetupResult) -> list[Claim]:
    return [
        claim_of(
            result,
            f"Unbiased aggregation ends at a lower loss than {words}: difference",
            "–",
            result.difference("equilibrium", name),
            0.0,
            below=True,
            runs=("equilibrium", name),
        )
        for words, name in (("a fixed subset", "subset"), ("FedAvg over joiners", "fedavg"))
    ]
