"""Summaries of an outcome for people: one for the terminal, and one for a notebook."""

from __future__ import annotations

import html
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.pricing.outcome import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    from rich.console import RenderableType

    from fedprice.arrays import FloatArray
    from fedprice.pricing.outcome import Outcome

__all__ = [
    "EXTREMES",
    "UNIT",
    "Section",
    "certificate_line",
    "count_clients",
    "extremes",
    "facts_table",
    "header",
    "html_summary",
    "html_tables",
    "infeasible_line",
    "money",
    "number",
    "rich_summary",
    "rich_tables",
    "safe",
]

EXTREMES = 5  # payees and payers shown
UNIT = " · α"  # of losses where α is not known


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


def safe(text: str) -> str:
    """Return a client's name without the characters that could control a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def certificate_line(outcome: Outcome, unit: str = "") -> str:
    """Return the certificate in one line; `unit` is that of losses."""
    proof = outcome.certificate
    if outcome.status is Status.INFEASIBLE:
        return infeasible_line(outcome)
    if not np.isfinite(proof.dual):
        return f"No certificate: {outcome.scheme} claims no optimality."
    return (
        f"Certificate: primal {proof.primal:.10g}{unit}, dual {proof.dual:.10g}{unit}, "
        f"relative gap {abs(proof.gap):.1e}."
    )


def infeasible_line(outcome: Outcome) -> str:
    """Return a line with a budget that suffices, never with one that does not."""
    budget, scheme = f"{outcome.game.budget:.12g}", outcome.scheme
    if not np.isfinite(outcome.least_budget):
        return f"infeasible: {scheme} found no prices within a budget of {budget}."
    up = Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(outcome.least_budget)
    # Where a level of 0 is cheapest, only budgets strictly above this one suffice.
    bound = "above" if (outcome.levels == 0).any() else "of at least"
    floors = " or lower the floors (level_min, a larger max_weight)"
    advice = floors if outcome.game.clients.level_min.any() else ""
    return (
        f"infeasible: {scheme} needs a budget {bound} {float(up):.6g}; got {budget}. "
        f"Raise the budget{advice}."
    )


def facts(
    outcome: Outcome, currency: str = "", *, alpha_known: bool = True
) -> list[tuple[str, str]]:
    """Return what matters about an outcome, as pairs of a name and a text."""
    payers, count = outcome.payers, len(outcome.levels)
    # The remainder of payments that cancel each other is rounding error, not money.
    negligible = abs(outcome.spend) < 1e-9 * float(np.abs(outcome.payments).sum())
    spend = 0.0 if negligible else outcome.spend
    unit, budget = "" if alpha_known else UNIT, money(outcome.game.budget, currency)
    pairs = [
        ("status", outcome.status.value),
        ("spend", f"{number(spend)} of {budget}"),
        ("expected loss", f"{number(outcome.expected_loss)}{unit} above full participation"),
        ("mean level", number(float(outcome.levels.mean()))),
        ("largest weight", f"{number(outcome.largest_weight)} (weight / level)"),
        ("payers", f"{number(payers)} of {count_clients(count)}"),
    ]
    if outcome.multiplier and alpha_known:
        pairs.append(
            ("sign threshold", f"clients pay above a value of {number(outcome.sign_threshold)}")
        )
    if outcome.multiplier:
        one = f"one more {currency or 'unit'} of budget"
        pairs.append(("marginal value", f"{one}: {number(-outcome.multiplier)}{unit} loss"))
    return pairs


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
    found = []
    for title, rows in ends.items():
        sign = 1 if title == "Largest payees" else -1
        rows = rows[sign * payments[rows] > 0]
        if rows.size:
            found.append((title, rows[np.argsort(-sign * payments[rows], kind="stable")]))
    return found


def _rows(outcome: Outcome, clients: npt.NDArray[np.intp]) -> Iterable[list[str]]:
    table = outcome.game.clients
    for n in clients:
        name = str(n + 1) if table.given_ids is None else table.given_ids[n]
        columns = (table.value, table.cost, outcome.levels, outcome.prices, outcome.payments)
        yield [name, *(number(float(column[n])) for column in columns)]


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
    outcome: Outcome,
    *,
    currency: str = "",
    most: int | None = EXTREMES,
    alpha_known: bool = True,
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
    alpha_known
        Whether α is known; otherwise losses are in units of it.
    """
    return rich_tables(*_parts(outcome, currency, most, alpha_known=alpha_known))


def html_summary(outcome: Outcome) -> str:
    """Return a summary for a notebook, with the same content as the one for the terminal."""
    return html_tables(*_parts(outcome))


def _parts(
    outcome: Outcome,
    currency: str = "",
    most: int | None = EXTREMES,
    *,
    alpha_known: bool = True,
) -> tuple[str, list[tuple[str, str]], list[Section], str]:
    title = f"{outcome.scheme}, {count_clients(len(outcome.levels))}"
    sections = [
        Section(heading, header(currency), list(_rows(outcome, clients)))
        for heading, clients in extremes(outcome.payments, most)
    ]
    pairs = facts(outcome, currency, alpha_known=alpha_known)
    return title, pairs, sections, certificate_line(outcome, "" if alpha_known else UNIT)
