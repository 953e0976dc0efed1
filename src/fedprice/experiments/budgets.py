"""What to spend: schemes priced at several budgets, and trained beside everybody joining."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedprice import __version__
from fedprice._plumbing.plots import COLORS, MARKERS, new_figure
from fedprice.errors import InputError, number_like
from fedprice.experiments.measures import LEAST_SEEDS, seeds_needed
from fedprice.experiments.number_text import number_text
from fedprice.experiments.report import Report, duration, settings_text
from fedprice.experiments.report_lead import seed_notes
from fedprice.experiments.results import basis, mean
from fedprice.experiments.study import FULL, Study
from fedprice.experiments.study_figures import Drawing, legend_below
from fedprice.experiments.table import Table, shown
from fedprice.experiments.verdicts import RULES, Verdict, claim_of
from fedprice.pricing import solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.experiments.results import Result
    from fedprice.experiments.verdicts import Claim
    from fedprice.pricing import Outcome

__all__ = ["WITHIN", "BudgetStudy", "budget_claims", "budget_report", "checked_budgets"]

WITHIN = 0.01  # by how much a loss may exceed everybody's, as a share of it
KEY = "table-budgets"


@dataclass(frozen=True, eq=False, kw_only=True)
class BudgetStudy(Study):
    """A study of schemes at several budgets instead of one, and of `full` beside them."""

    budgets: tuple[float, ...]

    @classmethod
    def of(cls, study: Study, budgets: tuple[float, ...]) -> Self:
        """Return a study at other budgets than its own."""
        begun = {field.name: getattr(study, field.name) for field in fields(study)}
        return cls(**begun, budgets=budgets)

    @property
    def scheme_names(self) -> tuple[str, ...]:
        """The schemes that are priced at every budget."""
        return tuple(n for n in self.settings.schemes if n != FULL) or ("equilibrium",)

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcome of each scheme at each budget, and of `full`, last."""
        priced = {b: self.outcomes_of(replace(self.priced, budget=b)) for b in self.budgets}
        outcomes = {
            f"{name} at {budget:.12g}": priced[budget][name]
            for name in priced[self.budgets[0]]
            for budget in self.budgets
        }
        return outcomes | {FULL: solve(self.priced, FULL)}


def checked_budgets(budgets: Sequence[float], within: float) -> tuple[float, ...]:
    """Return budgets in rising order.

    >>> checked_budgets([20, 5], 0.01)
    (5.0, 20.0)
    """
    rising = sorted(number_like("budgets", budget) for budget in budgets)
    if not rising:
        raise InputError("`budgets` must be at least one; got none. Try 5, 10, 20.")
    for budget, following in zip(rising, [*rising[1:], math.inf], strict=True):
        if not 0 <= budget < math.inf:
            raise InputError(f"`budgets` must be finite numbers, at least 0; got {budget:g}.")
        if budget == following:
            raise InputError(f"`budgets` must differ; got {budget:.12g} twice. Leave one out.")
    if not 0 <= number_like("within", within) < math.inf:
        raise InputError(
            f"`within` must be a share of the loss, at least 0; got {within}. Try {WITHIN}."
        )
    return tuple(rising)


def budget_claims(result: Result, within: float) -> list[Claim]:
    """Return, for every budget, whether its loss is within a share of everybody's."""
    claims = []
    for name, outcome in result.study.outcomes.items():
        if name != FULL:
            text = (
                f"With a budget of {outcome.game.budget:,.12g} by {outcome.scheme}, the loss is "
                f"within {100 * within:g} % of everybody's: % above it"
            )
            above = result.estimate([name, FULL], _above).resolved(0.0, 100.0)
            limit, runs = 100 * within, (name, FULL)
            claims.append(claim_of(result, text, "–", above, limit, below=True, runs=runs))
    return claims


def _above(bought: FloatArray, everybody: FloatArray) -> Any:
    """Return by how many percent losses exceed everybody's, on average over the last axis."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return 100 * ((bought - everybody) / np.abs(everybody)).mean(axis=-1)


def budget_report(result: Result, within: float, in_force: dict[str, Any]) -> Report:
    """Return the report of a study of budgets."""
    study, claims = result.study, budget_claims(result, within)
    settings, outcomes = study.settings, study.outcomes
    schemes: dict[str, list[Claim]] = {}
    for claim in claims:
        schemes.setdefault(outcomes[claim.runs[0]].scheme, []).append(claim)
    budgets = [outcomes[claim.runs[0]].game.budget for claim in next(iter(schemes.values()))]
    listed = ", ".join(f"{budget:,.12g}" for budget in budgets)
    tested = (
        f"{study.data_name}: {len(study.priced.clients)} clients, priced by {', '.join(schemes)} "
        f"with budgets of {listed}. Everybody joining is the scheme {FULL}: every client in every "
        "round, or as often as it can, whatever the budget. Each was trained with "
        f"{basis(settings)}; a seed determines who joins when and what is random in training, "
        "and is the same for all budgets."
    )
    return Report(
        title=f"{study.title}: what to spend",
        paragraphs=[
            tested,
            " ".join(_finding(result, of_scheme) for of_scheme in schemes.values()),
        ],
        first=[_figure(result, schemes, within)],
        claims=claims,
        summary=_table(result, claims),
        tables=[],
        others=[],
        notes=[f"A run has {settings.rounds:,} rounds.", *seed_notes(settings), *RULES],
        ran=f"`fedprice study --budgets` with fedprice {__version__}. Work, summed over workers: "
        f"{duration(result.seconds)}.",
        settings=settings_text(
            in_force | {"schemes": ", ".join(schemes), "budget": listed, "within": within}
        ),
        results=[result],
    )


def _finding(result: Result, claims: Sequence[Claim]) -> str:
    """Return the smallest budget of a scheme whose loss is close enough to everybody's."""
    outcomes, limit = result.study.outcomes, f"{claims[0].limit:g} %"
    shown_within = (c for c in claims if c.verdict in (Verdict.HOLDS, Verdict.EQUAL))
    best = next(shown_within, None)
    claim = best or min(claims, key=lambda claim: claim.ours.value)
    outcome, everybody = outcomes[claim.runs[0]], outcomes[FULL]
    above, budget = f"{shown(claim.ours)} %", f"{outcome.game.budget:,.12g}"
    if best is not None:
        text = (
            f"{budget} is the smallest budget whose loss is shown to be within {limit} of "
            f"everybody's: it is {above} above."
        )
    else:
        text = (
            f"no budget is shown to be within {limit} of everybody's loss: the closest by its mean "
            f"is {budget}, {above} above.{_advice(claim)}"
        )
    text = f"With {outcome.scheme} prices, {text}"
    if "accuracy" in result.measures:
        bought, full = (result.estimate([n], mean, "accuracy") for n in claim.runs)
        text += f" The accuracy is {shown(bought)}, and {shown(full)} if everybody joins."
    costs = number_text(everybody.spend)
    return f"{text} It spends {number_text(outcome.spend)}; everybody joining costs {costs}."


def _advice(claim: Claim) -> str:
    """Return how many seeds would decide a claim that is inconclusive, as far as that is known."""
    if claim.verdict is not Verdict.INCONCLUSIVE:
        return ""
    if math.isnan(claim.ours.low + claim.ours.high):
        return f" Intervals need at least {LEAST_SEEDS} seeds; there are {claim.seeds}."
    count = seeds_needed(claim.ours, claim.limit, claim.seeds)
    if count is None:
        return ""
    return f" If the mean stays the same, about {count:,} seeds would decide it."


def _table(result: Result, claims: Sequence[Claim]) -> Table:
    above = {claim.runs[0]: claim.ours for claim in claims}
    rows = [
        {
            "scheme": outcome.scheme,
            "budget": outcome.game.budget if name in above else math.nan,
            "spend": outcome.spend,
            "joiners": float(np.mean([curve.joined.mean() for curve in result.curves[name]])),
            **{what: result.estimate([name], mean, what) for what in result.measures},
            "% above full": above.get(name, math.nan),
        }
        for name, outcome in result.study.outcomes.items()
    ]
    return Table(
        KEY,
        "What each budget buys",
        rows,
        "Joiners are per round, loss and accuracy are those of the last model, and the last column "
        "is by how much the loss exceeds that of the same seed if everybody joins.",
        basis(result.study.settings),
    )


def _figure(result: Result, schemes: dict[str, list[Claim]], within: float) -> Drawing:
    figure, axes = new_figure(len(result.measures))
    from matplotlib.ticker import LogLocator, NullLocator

    outcomes = result.study.outcomes
    for axis, what in zip(axes, result.measures, strict=True):
        for i, (scheme, claims) in enumerate(schemes.items()):
            names = [claim.runs[0] for claim in claims]
            estimates = [result.estimate([name], mean, what) for name in names]
            values = np.array([estimate.value for estimate in estimates])
            ends = np.array([(estimate.low, estimate.high) for estimate in estimates]).T
            axis.errorbar(
                [outcomes[name].spend for name in names], values, np.abs(ends - values),
                color=COLORS[i % len(COLORS)], marker=MARKERS[i % len(MARKERS)], markersize=4,
                capsize=2, label=scheme,
            )  # fmt: skip
        full = result.estimate([FULL], mean, what)
        axis.axhline(full.value, color="0.4", linewidth=1.2,
                     label=f"everybody joins, for {number_text(outcomes[FULL].spend)}")  # fmt: skip
        axis.axhspan(full.low, full.high, color="0.5", alpha=0.18, linewidth=0)
        if what == "loss":
            limit = full.value + within * abs(full.value)
            axis.axhline(limit, color="0.4", linewidth=0.8, linestyle="--",
                         label=f"{100 * within:g} % above")  # fmt: skip
        if min(outcome.spend for outcome in outcomes.values()) > 0:
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter("{x:,g}")
            axis.xaxis.set_minor_locator(NullLocator())
        axis.set(xlabel="spend", ylabel=f"{'global' if what == 'loss' else 'test'} {what}")
    legend_below(figure, axes)
    return Drawing(
        f"fig-budgets-{result.name}",
        f"What each budget buys: {result.title}",
        figure,
        "Means over seeds of the last models, with their intervals; the line is everybody joining.",
        basis(result.study.settings),
    )
