"""The tables that every study has: times to targets, utilities, what is bought and trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments.measures import Estimate
from fedprice.experiments.results import Result, basis, mean, spread, title_of
from fedprice.experiments.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.pricing import Outcome

__all__ = [
    "READING",
    "levels_table",
    "times_table",
    "total_utility",
    "training_table",
    "utility_gain",
    "utility_table",
]

READING = [
    "A time is when the mean over seeds first gets to the target, and ∞ if it does not within the "
    "evaluation time. The ratio compares with a scheme at that scheme's time: it says how much "
    "earlier the one that is ahead then was where the other one is, so it is finite even where a "
    "time is not. The difference is that of the means at that scheme's time. Means are smoothed "
    "over a tenth of the time; intervals are those of a jackknife over the seeds.",
    "The weight of an update is the client's share of all samples over its level. A client's "
    "utility is its payment, minus its cost, minus its value times the final loss; the loss of its "
    "own optimum is the same under every scheme and cancels.",
]


def times_table(results: Sequence[Result], what: str, key: str, title: str, note: str) -> Table:
    """Return the times to the target loss or accuracy."""
    rows: list[dict[str, Any]] = []
    for result in results:
        printed, subject = result.study.printed(what), result.study.subject
        for kind, race in result.races(what).items():
            for name, seconds in race.times.items():
                row: dict[str, Any] = {"setup": result.title}
                plain = name.removesuffix("-published") if kind else name
                if kind:
                    row["baselines"] = kind
                row |= {f"target {what}": race.target, "scheme": plain}
                row["time, s" if "time" in result.study.time_label else "rounds"] = seconds
                if printed:
                    row["paper, s"] = printed.get(plain, np.nan)
                row[f"{subject} / scheme"] = race.ratios.get(name, 1.0)
                if printed:
                    row["paper's ratio"] = printed[subject] / printed.get(plain, np.nan)
                row[f"{what} minus scheme's then"] = race.gaps.get(name, 0.0)
                rows.append(row | {"seeds": race.seeds[name]})
    return Table(key, title, rows, note, basis(results[0].study.settings))


def utility_gain(result: Result, other: str) -> Estimate:
    """Return by how much total client utility exceeds another scheme's, by measured losses."""
    outcomes = result.study.outcomes
    subject = result.study.subject
    ours, theirs = outcomes[subject], outcomes[other]
    more = float((ours.profits - theirs.profits).sum())
    worth = float(ours.game.clients.value.sum())

    def gain(ours: FloatArray, others: FloatArray) -> Any:
        return more + worth * (others.mean(axis=-1) - ours.mean(axis=-1))

    scale = _money(ours) + _money(theirs) + worth * float(np.abs(result.last(subject)).max())
    return result.estimate([subject, other], gain).resolved(0.0, scale)


def _money(outcome: Outcome) -> float:
    """Return how large the sums are from which the clients' total profit is computed."""
    return float((np.abs(outcome.payments) + np.abs(outcome.profits)).sum())


def utility_table(
    results: Sequence[Result], key: str, title: str, printed: Mapping[str, Mapping[str, float]]
) -> Table:
    """Return what clients gain in total over other schemes, next to a paper's numbers."""
    rows: list[dict[str, Any]] = []
    for result in results:
        outcomes, subject = result.study.outcomes, result.study.subject
        theirs = printed.get(result.name, {})
        best = outcomes[subject]
        rows += [
            {
                "setup": result.title,
                "gain over": title_of(name),
                "measured": utility_gain(result, name),
                "by the bound": _gain_by_the_bound(best, outcome),
                **(
                    {"paper": theirs.get(name.removesuffix("-published"), np.nan)} if theirs else {}
                ),
                "seeds": result.seeds(subject, name),
            }
            for name, outcome in outcomes.items()
            if name != subject
        ]
    return Table(
        key,
        title,
        rows,
        "What the clients gain in total over another scheme, with the losses of the trained models "
        "(measured) and with the predicted ones (by the bound).",
        basis(results[0].study.settings),
    )


def _gain_by_the_bound(ours: Outcome, theirs: Outcome) -> float:
    gain = float(ours.utilities.sum()) - float(theirs.utilities.sum())
    scale = sum(
        _money(outcome) + float(np.abs(outcome.utilities).sum()) for outcome in (ours, theirs)
    )
    return Estimate(gain, gain, gain).resolved(0.0, scale).value


def total_utility(result: Result, name: str) -> Estimate:
    """Return Σ U_n = Σ P q − c q^τ + v (F(w_n*) − F) with the measured final loss (equation 8).

    Where F(w_n*) is not known it is left out; it is the same under every scheme.
    """
    outcome = result.study.outcomes[name]
    clients = outcome.game.clients
    own = 0.0 if result.study.own is None else result.study.own
    sure = outcome.profits + clients.value * own
    worth, total = float(clients.value.sum()), float(sure.sum())
    return result.estimate([name], lambda own: total - worth * own.mean(axis=-1))


def levels_table(results: Sequence[Result]) -> Table:
    """Return what each scheme bought."""
    rows = [
        {
            "setup": result.title,
            "scheme": title_of(name),
            "spend": outcome.spend,
            "budget": result.study.priced.budget,
            "mean joiners": float(np.mean([c.joined.mean() for c in result.curves[name]])),
            "largest weight": float((result.study.source.task.weight / outcome.levels).max()),
            "loss by the bound": outcome.expected_loss,
            "client utility": total_utility(result, name),
        }
        for result in results
        for name, outcome in result.study.outcomes.items()
    ]
    return Table(
        "table-schemes",
        "What each scheme buys",
        rows,
        "The largest weight is that of an update, the loss by the bound is above that of everybody "
        "joining, and client utility is the total, with the measured loss.",
        best={"loss by the bound": "least", "client utility": "most"},
    )


def training_table(results: Sequence[Result]) -> Table:
    """Return what each scheme trains."""
    rows = [
        {
            "setup": result.title,
            "scheme": title_of(name),
            "final loss": result.estimate([name], mean),
            **(
                {"final accuracy": result.estimate([name], mean, "accuracy")}
                if "accuracy" in result.measures
                else {}
            ),
            "spread of the loss": result.estimate([name], spread, log=True),
            "seeds": result.seeds(name),
        }
        for result in results
        for name in result.study.outcomes
    ]
    return Table(
        "table-training",
        "What each scheme trains",
        rows,
        "The spread is the mean absolute deviation from the median over seeds.",
        basis(results[0].study.settings),
        best={"final loss": "least", "spread of the loss": "least"}
        | ({"final accuracy": "most"} if "accuracy" in results[0].measures else {}),
    )
