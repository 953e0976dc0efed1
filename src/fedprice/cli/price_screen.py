"""What `fedprice price` shows: assumptions, prices, and how far they can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.refusals import Outside
from fedprice.commands.sensitivity import MOST_CLIENTS
from fedprice.pricing import Status
from fedprice.pricing.display import (
    Section,
    count_clients,
    distance_text,
    extremes,
    facts_table,
    header,
    money,
    number,
    percent,
    rich_summary,
    rich_tables,
    safe,
    saved_share,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.beliefs.refusals import Refusals
    from fedprice.calibration import Calibration
    from fedprice.commands.price import PriceAnswer, RobustAnswer
    from fedprice.commands.sensitivity import Bands
    from fedprice.commands.what_if import WhatIf
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


def robust_screen(
    answer: RobustAnswer, currency: str, most_rows: int | None, bought: str
) -> RenderableType:
    """Show prices that hold for every α in its interval, and what they bring."""
    from rich.console import Group
    from rich.text import Text

    found, posted, measured = answer.outcome, answer.posted, answer.calibration
    (loss, most), budget = posted.worst or (0.0, 0.0), money(posted.budget, currency)
    clients = found.game.clients
    pairs = [
        ("spend", f"{number(found.spend)} of {budget}; largest over α {number(most)}"),
        ("distance to full participation", distance_text(found)),
        ("largest loss over α", f"{percent(loss / found.expected_loss - 1)} more")
        if found.expected_loss
        else ("largest loss over α", "the same"),
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
        "Certificate: it is proven that no other prices with this spend have a loss, the largest "
        f"over α, that is lower by more than {saved_share(proof.primal - proof.dual, loss)}.",
    )  # fmt: skip
    return Group(_rests_on(answer, measured, currency), shown, Text(bought))


def _rests_on(
    answer: PriceAnswer | RobustAnswer, calibration: Calibration | None, currency: str
) -> RenderableType:
    """Show the assumptions behind the prices."""
    pairs = answer.assumptions.facts(answer.outcome.game, calibration, currency)
    unsaid = {FACTS[name]: f" (default of --{name})" for name in answer.assumptions.defaults}
    return facts_table("Assumptions", [(name, text + unsaid.get(name, "")) for name, text in pairs])


def price_screen(
    answer: PriceAnswer, currency: str, most_rows: int | None, bought: str, *, given: bool
) -> RenderableType:
    """Show the outcome, how prices change with α and assumptions, and who would have refused.

    `bought` says which accuracy the budget bought in a study, `given` whether the losses that an
    outside option needs were given.
    """
    from rich.console import Group
    from rich.text import Text

    parts = [
        _rests_on(answer, answer.calibration, currency),
        rich_summary(answer.outcome, currency=currency, most=most_rows),
    ]
    if bought:
        parts.append(Text(bought))
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
    if answer.what_if is not None:
        parts.append(_what_if(answer.what_if, currency, most_rows))
    return Group(*parts)


def _what_if(changed: WhatIf, currency: str, most_rows: int | None) -> RenderableType:
    """Show everybody's offer now and in the what-if, and where changed offers stand."""
    from rich.console import Group
    from rich.text import Text

    before, after = changed.before, changed.after
    shown = changed.order(most_rows)
    left = before.levels.size - shown.size
    title = f"What if; {count_clients(left)} with smaller changes not shown" if left else "What if"
    table = _table(title, "client", "level", "then", "payment", "then", "change")
    for n in shown.tolist():
        was, then = float(before.payments[n]), float(after.payments[n])
        table.add_row(
            Text(safe(str(before.game.clients.ids[n])), "bold" if n in changed.rows else ""),
            number(float(before.levels[n])), number(float(after.levels[n])),
            *(money(x, currency) for x in (was, then, then - was)),
        )  # fmt: skip
    loss = after.expected_loss / before.expected_loss - 1 if before.expected_loss else 0.0
    return Group(
        table,
        Text(
            f"Distance to full participation: {percent(before.distance)} now, "
            f"{percent(after.distance)} then; expected loss {percent(abs(loss))} "
            f"{'higher' if loss >= 0 else 'lower'}. "
            f"Spend: {money(before.spend, currency)} now, {money(after.spend, currency)} then."
        ),
        *map(Text, changed.sentences(currency)),
    )


def _table(title: str, *columns: str) -> Table:
    """Return an empty table of clients."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name == columns[0] else "right")
    return table


def _over_assumptions(
    outcome: Outcome, found: Bands, most_rows: int | None, currency: str
) -> RenderableType:
    """Show how far prices depend on the assumptions."""
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
            f"If the norms are wrong, the loss is at most {found.loss_ratio - 1:.1%} higher than "
            "with prices that know them."
        )
    if found.spend_if_valued is not None:
        spend = money(found.spend_if_valued, currency)
        lines += [
            "Values were assumed: prices if a client had half of the value above which it pays.",
            f"At the price offered it would join more often, and the spend would be up to {spend}.",
        ]
    moves = _moves(outcome, columns, "if an assumption is wrong", most_rows)
    return Group(moves, *map(Text, lines))


def _no_bands(outcome: Outcome) -> str:
    """Say why it is not shown how far prices depend on the assumptions."""
    if len(outcome.levels) > MOST_CLIENTS:
        return f"How they depend on it is computed for up to {number(MOST_CLIENTS)} clients."
    return "How prices depend on the assumptions is not computed here."


def _moves(
    outcome: Outcome, columns: dict[str, FloatArray], over: str, most_rows: int | None
) -> RenderableType:
    """Show the prices that change most, by the names of what they change with."""
    from rich.text import Text

    prices = np.array(list(columns.values()))
    most = None if most_rows is None else MOST_SHOWN
    some = np.arange(prices.shape[1])
    if most is not None:
        shift = np.nanmax(prices, axis=0) - np.nanmin(prices, axis=0)
        some = np.argsort(-shift, kind="stable")[:most]
    all_of_them = "" if some.size == prices.shape[1] else ", where they change most"
    table = _table(f"How prices change {over}{all_of_them}", "client", *columns)
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
        head += ", which is assumed to be as good (--outside-losses gives measured losses)"
    if not ids.size:
        return Text(
            f"{head}. Nobody would refuse the equilibrium's prices, and these are the same."
        )
    before, after = asked.outcome.distance, asked.respected.distance
    return Text(
        f"{head}. {number(ids.size)} of {number(asked.refuses.size)} would refuse the "
        f"equilibrium's prices: {names}{more}. With prices that nobody refuses, the distance to "
        f"full participation is {percent(after)} instead of {percent(before)}."
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
    table = _moves(outcome, columns, "with α", most_rows)
    return Group(table, Text(f"{alpha}, for norms of {measured.norms}."))
