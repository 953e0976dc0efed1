"""What `fedprice price` shows: what prices rest on, the prices, and how far they can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.refusals import Outside
from fedprice.commands.sensitivity import MOST_CLIENTS
from fedprice.pricing import Status
from fedprice.pricing.display import (
    Section,
    count_clients,
    extremes,
    facts_table,
    header,
    money,
    number,
    rich_summary,
    rich_tables,
    safe,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.text import Text

    from fedprice.arrays import FloatArray
    from fedprice.beliefs.refusals import Refusals
    from fedprice.calibration import Calibration
    from fedprice.commands.price import PriceAnswer, RobustAnswer
    from fedprice.commands.sensitivity import Bands
    from fedprice.pricing import Outcome

__all__ = ["FACTS", "price_screen", "robust_screen"]

FACTS = {"budget": "budget", "rounds": "rounds", "exponent": "τ"}  # by the options that set them
MOST_SHOWN = 5  # clients whose prices depend the most on α
MOST_NAMED = 10  # clients that would refuse
MEANING = {
    Outside.FREE: "a client that refuses may join unpaid",
    Outside.STAY: "a client that refuses gets the model trained without it",
    Outside.NOTHING: "a client that refuses keeps its own model",
}


def robust_screen(answer: RobustAnswer, currency: str, most_rows: int | None) -> RenderableType:
    """Show prices that hold for every α in its interval, and what they bring."""
    from rich.console import Group

    found, posted, measured = answer.outcome, answer.posted, answer.calibration
    (loss, most), budget = posted.worst or (0.0, 0.0), money(posted.budget, currency)
    clients = found.game.clients
    pairs = [
        ("spend", f"{number(found.spend)} of {budget}; largest over α {number(most)}"),
        ("expected loss", f"{number(found.expected_loss)} above full participation; largest over "
                          f"α {number(loss)}"),
        ("mean level", number(float(found.levels.mean()))),
    ]  # fmt: skip
    if clients.level_min.any():
        below = clients.ids[found.levels < clients.level_min * (1 - 1e-12)]
        names = ", ".join(safe(str(name)) for name in below[:MOST_NAMED])
        more = f" and {number(below.size - MOST_NAMED)} more" if below.size > MOST_NAMED else ""
        missed = f"missed by {number(below.size)} of {number(clients.ids.size)}: {names}{more}"
        pairs.append(
            ("floors", f"{missed}; without --robust they are kept" if below.size else "met")
        )
    columns = (clients.value, clients.cost, found.levels, found.prices, found.payments)
    sections = [
        Section(
            heading,
            header(currency),
            [[safe(str(clients.ids[n])), *(number(float(x[n])) for x in columns)] for n in some],
        )
        for heading, some in extremes(found.payments, most_rows)
    ]
    proof = posted.certificate
    shown = rich_tables(
        f"robust prices, {count_clients(len(clients))}", pairs, sections,
        f"Certificate: no prices with this spend have a loss, the largest over α, below "
        f"{number(loss - proof.primal + proof.dual)}; relative gap {abs(proof.gap):.1e}.",
    )  # fmt: skip
    return Group(_rests_on(answer, measured, currency), shown)


def _rests_on(
    answer: PriceAnswer | RobustAnswer, calibration: Calibration | None, currency: str
) -> RenderableType:
    """Show what prices rest on."""
    pairs = answer.assumptions.facts(answer.outcome.game, calibration, currency)
    unsaid = {FACTS[name]: f" (default of --{name})" for name in answer.assumptions.defaults}
    return facts_table(
        "What these prices rest on", [(name, text + unsaid.get(name, "")) for name, text in pairs]
    )


def price_screen(
    answer: PriceAnswer, currency: str, most_rows: int | None, *, given: bool
) -> RenderableType:
    """Show the outcome, how far prices move with α and assumptions, and who would have refused.

    `given` says whether the losses that an outside option needs were given.
    """
    from rich.console import Group
    from rich.text import Text

    parts = [
        _rests_on(answer, answer.calibration, currency),
        rich_summary(
            answer.outcome, currency=currency, most=most_rows,
            alpha_known=answer.assumptions.alpha is not None,
        ),
    ]  # fmt: skip
    count = len(answer.outcome.levels)
    shown = sum(rows.size for _, rows in extremes(answer.outcome.payments, most_rows))
    if shown < count:
        parts.append(Text(f"{shown} of {number(count)} clients are shown; --rows all shows all.\n"))
    if answer.calibration is not None:
        parts.append(_over_alpha(answer.outcome, answer.calibration, answer.ends, most_rows))
    if answer.bands is not None:
        parts.append(_over_assumptions(answer.outcome, answer.bands, most_rows, currency))
    elif answer.assumptions.columns:
        parts.append(Text(_no_bands(answer.outcome)))
    if answer.refusals is not None:
        parts.append(_refusals(answer.refusals, given=given))
    return Group(*parts)


def _over_assumptions(
    outcome: Outcome, found: Bands, most_rows: int | None, currency: str
) -> RenderableType:
    """Show how far prices depend on what was assumed."""
    from rich.console import Group
    from rich.text import Text

    titles = {
        "price_norm_half": "norm halved",
        "price_norm_double": "norm doubled",
        "price_if_valued": "if it values the model",
    }
    columns = {"price": outcome.prices} | {titles[name]: x for name, x in found.prices.items()}
    lines = []
    if "price_norm_half" in found.prices:
        lines.append(
            "Norms were assumed: prices if a client's own norm were half, or twice, that of all "
            "others."
        )
    if found.loss_ratio is not None:
        lines.append(
            f"Not knowing them costs at most {found.loss_ratio - 1:.1%} of the loss of prices that "
            "know them."
        )
    if found.spend_if_valued is not None:
        spend = money(found.spend_if_valued, currency)
        lines += [
            "Values were assumed: prices if a client had half of the value above which it pays.",
            f"At its price above it would join more often, and the spend would be up to {spend}.",
        ]
    moves = _moves(outcome, columns, "what was assumed", most_rows)
    return Group(moves, *map(Text, lines))


def _no_bands(outcome: Outcome) -> str:
    """Say why there is nothing about how far prices depend on what was assumed."""
    if len(outcome.levels) > MOST_CLIENTS:
        return f"How far prices move with it is computed for up to {number(MOST_CLIENTS)} clients."
    return "How far prices move with what was assumed is not computed here."


def _moves(
    outcome: Outcome, columns: dict[str, FloatArray], over: str, most_rows: int | None
) -> RenderableType:
    """Show the prices that change most, by the names of what they change with."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    prices = np.array(list(columns.values()))
    most = None if most_rows is None else MOST_SHOWN
    some = np.arange(prices.shape[1])
    if most is not None:
        shift = np.nanmax(prices, axis=0) - np.nanmin(prices, axis=0)
        some = np.argsort(-shift, kind="stable")[:most]
    all_of_them = "" if some.size == prices.shape[1] else ", where they change most"
    table = Table(title=f"Prices over {over}{all_of_them}", box=box.SIMPLE, title_justify="left")
    table.add_column("client")
    for heading in columns:
        table.add_column(heading, justify="right")
    for n in some.tolist():
        name = Text(safe(str(outcome.game.clients.ids[n])))
        table.add_row(name, *(number(x) if np.isfinite(x) else "–" for x in prices[:, n]))
    return table


def _refusals(asked: Refusals, *, given: bool) -> Text:
    """Say who would refuse the prices of the equilibrium, and what it costs to respect that."""
    from rich.text import Text

    ids = asked.outcome.game.clients.ids[asked.refuses]
    names = ", ".join(safe(str(name)) for name in ids[:MOST_NAMED])
    more = f" and {number(ids.size - MOST_NAMED)} more" if ids.size > MOST_NAMED else ""
    head = f"Outside option {asked.outside}: {MEANING[asked.outside]}"
    if asked.outside is Outside.STAY and not given:
        head += ", which is taken to be as good (--outside-losses gives what was measured)"
    if not ids.size:
        return Text(
            f"{head}. Nobody would refuse the equilibrium's prices, and these are the same."
        )
    before, after = asked.outcome.expected_loss, asked.respected.expected_loss
    return Text(
        f"{head}. {number(ids.size)} of {number(asked.refuses.size)} would refuse the "
        f"equilibrium's prices: {names}{more}. Prices that nobody refuses have an expected loss of "
        f"{number(after)} instead of {number(before)} ({asked.loss_increase:+.2%})."
    )


def _over_alpha(
    outcome: Outcome, measured: Calibration, ends: Sequence[Outcome], most_rows: int | None
) -> RenderableType:
    """Show how far prices depend on α."""
    from rich.console import Group
    from rich.text import Text

    low, high = map(number, measured.interval)
    alpha = f"α = {number(measured.alpha)}, 95 % from {low} to {high}"
    if not ends:
        return Text(f"{alpha}: prices are the same at both ends.")
    for end, value in zip(ends, (low, high), strict=True):
        if end.status is Status.INFEASIBLE:
            return Text(f"{alpha}: at {value} the budget does not suffice.")
    columns = {
        f"α = {low}": ends[0].prices,
        f"α = {number(measured.alpha)}": outcome.prices,
        f"α = {high}": ends[1].prices,
    }
    table = _moves(outcome, columns, "α's interval", most_rows)
    return Group(table, Text(f"{alpha}, for norms of {measured.norms}."))
