"""Summaries of an outcome for people: one for the terminal, and one for a notebook."""

from __future__ import annotations

import html
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice._plumbing.dialects import number_text
from fedprice.pricing.outcome import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    from rich.console import RenderableType

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.pricing.outcome import Outcome

__all__ = [
    "EXTREMES",
    "Section",
    "certificate_line",
    "count_clients",
    "distance_text",
    "extremes",
    "facts_table",
    "header",
    "html_summary",
    "html_tables",
    "infeasible_line",
    "marginal_value",
    "money",
    "number",
    "percent",
    "rich_summary",
    "rich_tables",
    "safe",
    "saved_share",
]

EXTREMES = 5  # payees and payers shown
LEAST_SHARE = 1e-6  # smaller shares of a loss are the same to everybody


def number(value: float) -> str:
    """Return a number with four significant digits, large ones grouped by thousands.

    Examples
    --------
    >>> number(1234567.8), number(12.3456), number(0.000012345), number(float("inf")), number(0)
    ('1,234,568', '12.35', '1.234e-05', 'inf', '0')
    """
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e15 else f"{value:,.4g}"


def money(value: float, currency: str = "") -> str:
    """Return an amount of money with its currency, if that is known.

    Examples
    --------
    >>> money(1234.56, "EUR"), money(200)
    ('1,235 EUR', '200')
    """
    return f"{number(value)} {currency}" if currency else number(value)


def percent(share: float) -> str:
    """Return a share in per cent, with three significant digits.

    Examples
    --------
    >>> percent(0.54021), percent(0.0012345), percent(1e-9), percent(1)
    ('54%', '0.123%', '0%', '100%')
    """
    return f"{100 * share:.3g}%" if abs(share) >= LEAST_SHARE else "0%"


def distance_text(outcome: Outcome) -> str:
    """Return the distance to full participation in words.

    Examples
    --------
    >>> import fedprice as fp
    >>> game = fp.Game(fp.population(), fp.Bound(alpha=3.3, rounds=1000), budget=200)
    >>> distance_text(fp.solve(game))
    '62.3%: as if everybody joined 37.7% of the rounds'
    """
    left = outcome.distance
    if left == 1:
        return "100%: clients that matter never join"
    return f"{percent(left)}: as if everybody joined {percent(1 - left)} of the rounds"


def safe(text: str) -> str:
    """Return a client's name without the characters that could control a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def certificate_line(outcome: Outcome) -> str:
    """Return the certificate in one line."""
    proof, loss = outcome.certificate, outcome.expected_loss
    if outcome.status is Status.INFEASIBLE:
        return infeasible_line(outcome)
    if not np.isfinite(proof.dual):
        return f"No certificate: {outcome.scheme} does not claim to be optimal."
    what = "prices" if outcome.bought is None else "levels, paid in the same way,"
    saved = saved_share(proof.primal - proof.dual, loss)
    return (
        f"Certificate: within the budget, no other {what} have an expected loss that is lower by "
        f"more than {saved}; this is proven."
    )


def saved_share(saved: float, loss: float) -> str:
    """Return the most that could be saved of a loss, in per cent, rounded up to one digit.

    Examples
    --------
    >>> saved_share(0.011, 1.0), saved_share(1e-12, 1.0), saved_share(0.0, 0.0)
    ('2%', '0.0001%', '0.0001%')
    """
    share = max(saved / loss if loss else 0.0, LEAST_SHARE)
    up = Context(prec=1, rounding=ROUND_CEILING).create_decimal_from_float(100 * share * (1 - 1e-9))
    return f"{float(up):g}%"


def infeasible_line(outcome: Outcome) -> str:
    """Return a line with a budget that suffices, never with one that does not."""
    budget, scheme = f"{outcome.game.budget:.12g}", outcome.scheme
    floors = "or lower the floors (level_min, a larger max_weight)."
    user_made = not (
        outcome.iterations or np.isfinite(outcome.least_budget) or scheme.startswith("--")
    )
    if user_made:
        low = int((outcome.levels < outcome.game.clients.level_min).sum())
        over = outcome.spend > outcome.game.budget
        wrong = f"spend {outcome.spend:,.6g}, and the budget is {budget}"
        return (
            f"infeasible: the prices of {scheme} "
            f"{wrong if over else f'leave {count_clients(low)} below their floors'}. "
            f"Scale them with `fp.scale_to_budget`, {'or raise the budget.' if over else floors}"
        )
    if not np.isfinite(outcome.least_budget):
        return f"infeasible: {scheme} found no prices within a budget of {budget}."
    up = Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(outcome.least_budget)
    # Where a level of 0 is cheapest, only budgets strictly above this one suffice.
    bound = "above" if (outcome.levels == 0).any() else "of at least"
    advice = f" {floors}" if outcome.game.clients.level_min.any() else "."
    return (
        f"infeasible: {scheme} needs a budget {bound} {number_text(float(up))}; got {budget}. "
        f"Raise the budget{advice}"
    )


def facts(outcome: Outcome, currency: str = "") -> list[tuple[str, str]]:
    """Return what matters about an outcome, as pairs of a name and a text."""
    payers, count = outcome.payers, len(outcome.levels)
    # The remainder of payments that cancel each other is rounding error, not money.
    negligible = abs(outcome.spend) < 1e-9 * float(np.abs(outcome.payments).sum())
    spend = 0.0 if negligible else outcome.spend
    budget = outcome.game.budget
    pairs = [
        ("status", outcome.status.value),
        ("spend", f"{number(spend)} of {money(budget, currency)}"),
        ("distance to full participation", distance_text(outcome)),
        ("mean level", number(float(outcome.levels.mean()))),
        ("largest weight", f"{number(outcome.largest_weight)} (weight / level)"),
        ("payers", f"{number(payers)} of {count_clients(count)}"),
    ]
    if outcome.bought is not None:
        pairs.insert(1, ("offers", "one level for one payment, to take or leave as a whole"))
    if np.isfinite(outcome.sign_threshold) and outcome.game.clients.value.any():
        pairs.append(
            ("sign threshold", f"clients pay above a value of {number(outcome.sign_threshold)}")
        )
    if outcome.multiplier:
        loss, whole = outcome.expected_loss, outcome.certificate.primal
        pairs.append(marginal_value(outcome.multiplier, loss, whole, budget, currency))
    return pairs


def marginal_value(
    multiplier: float, loss: float, whole: float, budget: float, currency: str = ""
) -> tuple[str, str]:
    """Return how much closer to full participation a little more budget comes, with its name.

    The distance is L / (L + K), with the loss L and K = Σ k; `whole` is L + K.
    """
    more = abs(budget) / 100 or 1.0
    closer = multiplier * more * (whole - loss) / whole**2
    share = "1% of the budget more" if budget else "a budget"
    points = f"{percent(closer).removesuffix('%')} percentage points"
    return "marginal value", f"{share} ({money(more, currency)}): {points} closer"


def count_clients(count: int) -> str:
    """Return how many clients there are, in words."""
    return f"{number(count)} client{'s' if count != 1 else ''}"


def extremes(
    payments: FloatArray, most: int | None = EXTREMES
) -> list[tuple[str, npt.NDArray[np.intp]]]:
    """Return the clients that receive, and that pay, the most; all as they come for None."""
    if most is None:
        return [("All clients", np.arange(payments.size))]
    some = min(most, payments.size)
    ends = {
        "Largest payees": np.argpartition(-payments, some - 1)[:some],
        "Largest payers": np.argpartition(payments, some - 1)[:some],
    }
    sections = []
    for title, rows in ends.items():
        sign = 1 if title == "Largest payees" else -1
        rows = rows[sign * payments[rows] > 0]
        if rows.size:
            sections.append((title, rows[np.argsort(-sign * payments[rows], kind="stable")]))
    return sections


def _section(
    heading: str, outcome: Outcome, clients: npt.NDArray[np.intp], currency: str
) -> Section:
    """Return the offers to some clients: prices, or what payments by contract are made of."""
    table = outcome.game.clients
    columns = [table.value, table.cost, outcome.levels, outcome.prices, outcome.payments]
    names = header(currency)
    if outcome.bought is not None:
        above = {"above it": outcome.profits} if outcome.profits.any() else {}
        parts = {"cost at level": outcome.payments - outcome.profits, **above}
        columns[3:4] = parts.values()
        label = f" ({currency})" if currency else ""
        names = (*names[:4], *(f"{name}{label}" for name in parts), names[-1])
    rows = [
        [str(n + 1) if table.given_ids is None else table.given_ids[n],
         *(number(float(column[n])) for column in columns)]
        for n in clients
    ]  # fmt: skip
    return Section(heading, names, rows)


def header(currency: str = "") -> tuple[str, ...]:
    """Return the names of the columns of clients, with the currency of those that are money."""
    label = f" ({currency})" if currency else ""
    return ("client", "value", f"cost{label}", "level", f"price{label}", f"payment{label}")


def facts_table(title: str, pairs: Iterable[tuple[str, str]]) -> RenderableType:
    """Return names and texts as a table for rich."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for name, text in pairs:
        table.add_row(name, text)
    return table


class Section(NamedTuple):
    """A table of some clients: a heading, the names of columns, and rows of texts."""

    heading: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def rich_tables(
    title: str, pairs: Iterable[tuple[str, str]], sections: Iterable[Section], last: str
) -> RenderableType:
    """Return facts, tables of clients and a last line for rich; first columns are names."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [facts_table(title, pairs)]
    for heading, header, rows in sections:
        table = Table(title=heading, box=box.SIMPLE, title_justify="left")
        for column in header:
            table.add_column(column, justify="left" if column == header[0] else "right")
        for name, *numbers in rows:
            table.add_row(Text(safe(name)), *numbers)
        parts.append(table)
    return Group(*parts, Text(last))


def html_tables(
    title: str, pairs: Iterable[tuple[str, str]], sections: Iterable[Section], last: str
) -> str:
    """Return the content of `rich_tables` for a notebook."""

    def cells(tag: str, texts: Iterable[str]) -> str:
        return "".join(f"<{tag}>{html.escape(safe(text))}</{tag}>" for text in texts)

    summary = "".join(
        f"<tr>{cells('th', [name])}{cells('td', [text])}</tr>" for name, text in pairs
    )
    parts = [f"<b>{html.escape(title)}</b><table>{summary}</table>"]
    for heading, header, rows in sections:
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
        parts.append(
            f"<b>{html.escape(heading)}</b><table><tr>{cells('th', header)}</tr>{body}</table>"
        )
    return f"<div>{''.join(parts)}<p>{html.escape(last)}</p></div>"


def rich_summary(
    outcome: Outcome, *, currency: str = "", most: int | None = EXTREMES
) -> RenderableType:
    """Return a summary for rich: facts, largest payees and payers, certificate.

    Parameters
    ----------
    outcome
        What to show.
    currency
        The label of money.
    most
        How many payees and payers there are at most; all clients for None.
    """
    return rich_tables(*_parts(outcome, currency, most))


def html_summary(outcome: Outcome) -> str:
    """Return a summary for a notebook, with the same content as the one for the terminal."""
    return html_tables(*_parts(outcome))


def _parts(
    outcome: Outcome, currency: str = "", most: int | None = EXTREMES
) -> tuple[str, list[tuple[str, str]], list[Section], str]:
    title = f"{outcome.scheme}, {count_clients(len(outcome.levels))}"
    sections = [
        _section(heading, outcome, clients, currency)
        for heading, clients in extremes(outcome.payments, most)
    ]
    return title, facts(outcome, currency), sections, certificate_line(outcome)
