"""The screen of `fedprice study setup1 --quick`: who is paid what, and four claims."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedprice.cli.console import stdout
from fedprice.experiments.number_text import number_text, parts_of
from fedprice.experiments.results import title_of
from fedprice.experiments.setup_claims import RACES
from fedprice.experiments.table import shown
from fedprice.experiments.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from fedprice.experiments.setup_results import SetupResult
    from fedprice.experiments.verdicts import Claim

__all__ = ["COLORS", "screen_table", "show_in_short"]

COLORS = {"holds": "green", "fails": "red", "equal": "dim", "inconclusive": "dim"}


def show_in_short(results: Sequence[SetupResult], claims: Sequence[Claim]) -> None:
    """Print the screen, one part per setup."""
    for result in results:
        of_setup = [claim for claim in claims if claim.setup == result.title]
        stdout().print(_who_is_paid(result))
        stdout().print(_claims(result, of_setup))
        stdout().print(shown_by(of_setup), markup=False, width=80)


def screen_table(title: str, *columns: str, text: int = 1) -> Table:
    """Return a table whose first columns hold text, and the others numbers."""
    from rich import box
    from rich.table import Table as Screen

    table = Screen(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE, padding=(0, 1, 0, 0)
    )
    for at, name in enumerate(columns):
        table.add_column(name, overflow="fold", justify="left" if at < text else "right")
    return table


def _who_is_paid(result: SetupResult) -> Table:
    """Return the payments of the clients that are paid most, of the median one, and of all."""
    study = result.study
    outcomes = {name: study.outcomes[name] for name in result.compared}
    best, clients = outcomes[study.subject], study.priced.clients
    order = np.argsort(-best.payments, kind="stable").tolist()
    table = screen_table(
        f"{result.title}: who is paid what by which prices, with a budget of "
        f"{study.priced.budget:,g}",
        "client", "data", "cost", "joins", *map(title_of, outcomes),
    )  # fmt: skip
    chosen = {f"{clients.ids[n]}": n for n in order[:3]}
    chosen[f"{clients.ids[order[len(order) // 2]]} (median)"] = order[len(order) // 2]
    for name, n in chosen.items():
        table.add_row(
            name, f"{clients.weight[n]:.1%}", number_text(clients.cost[n]),
            f"{best.levels[n]:.0%} of rounds",
            *(f"{outcome.payments[n]:,.2f}" for outcome in outcomes.values()),
        )  # fmt: skip
    table.add_row(
        f"all {len(clients)}", "100.0%", number_text(clients.cost.sum()),
        f"{best.levels.sum():.1f} per round",
        *(f"{outcome.payments.sum():,.2f}" for outcome in outcomes.values()),
    )  # fmt: skip
    return table


def _claims(result: SetupResult, claims: Sequence[Claim]) -> Table:
    """Return the claims of Tables II and III: the paper's numbers, ours, and the verdicts."""
    table = screen_table(
        f"{result.title}: the equilibrium's time to a target, divided by that of other prices",
        "target", "against", "paper", f"here (95 %, {claims[0].seeds} seeds)", "ahead then by",
        "sooner?", text=2,
    )  # fmt: skip
    for claim, (what, other) in zip(claims, RACES, strict=True):
        gap = result.timed(what).gaps[other]
        lead = -gap.value if what == "loss" else gap.value
        text, _ = parts_of(lead, lead - (half := (gap.high - gap.low) / 2), lead + half)
        table.add_row(
            what, title_of(other), shown(claim.paper), shown(claim.ours),
            text if math.isnan(half) else f"{text} ± {half:.{len(text.partition('.')[2])}f}",
            f"[{COLORS[claim.verdict]}]{claim.verdict}[/]",
        )  # fmt: skip
    return table


def shown_by(claims: Sequence[Claim]) -> str:
    """Return one sentence that says what was shown, whatever it is."""
    words = {Verdict.HOLDS: "less", Verdict.FAILS: "more"}
    decided: dict[str, list[str]] = {}
    for claim, (what, other) in zip(claims, RACES, strict=True):
        if claim.verdict in words:
            share = f"{100 * abs(1 - claim.ours.value):.0f} % {words[claim.verdict]}"
            decided.setdefault(what, []).append(f"{share} time than {other} prices")
    if decided:
        parts = (f"the target {what} in {' and '.join(s)}" for what, s in decided.items())
        sentence = f"With the same budget, the equilibrium reached {', and '.join(parts)}"
    else:
        sentence = "Which prices get to the targets sooner could not be decided"
    left = sum(claim.verdict is Verdict.INCONCLUSIVE for claim in claims)
    if decided and left:
        sentence += f"; {left} of {len(claims)} comparisons remain undecided"
    printed = [100 * (1 - float(claim.paper)) for claim in claims]
    return (
        f"{sentence}. The paper prints gains of {min(printed):.0f} to {max(printed):.0f} %; "
        "docs/results.md says where the rest of them comes from."
    )
