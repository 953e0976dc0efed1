"""An outcome for the eye: a summary for the terminal, and one for a notebook."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from fedprice.pricing.outcome import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt
    from rich.console import RenderableType

    from fedprice.pricing.outcome import Outcome

__all__ = ["certificate_line", "facts_table", "html_summary", "number", "rich_summary", "safe"]

EXTREMES = 5  # payees and payers shown


def number(value: float) -> str:
    """Return a number with four significant digits, large ones grouped by thousands.

    Examples
    --------
    >>> number(1234567.8), number(12.3456), number(0.000012345), number(float("inf")), number(0)
    ('1,234,568', '12.35', '1.234e-05', 'inf', '0')
    """
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e15 else f"{value:,.4g}"


def safe(text: str) -> str:
    """Return a client's name with the characters replaced that could steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def certificate_line(outcome: Outcome) -> str:
    """Return the certificate in one line."""
    proof = outcome.certificate
    if outcome.status is Status.INFEASIBLE:
        return f"Infeasible: {outcome.scheme} needs a budget of {number(outcome.least_budget)}."
    if not np.isfinite(proof.dual):
        return f"No certificate: {outcome.scheme} claims no optimality."
    return (
        f"Certificate: primal {proof.primal:.10g}, dual {proof.dual:.10g}, "
        f"relative gap {abs(proof.gap):.1e}."
    )


def facts(outcome: Outcome) -> list[tuple[str, str]]:
    """Return what matters about an outcome, as pairs of a name and a text."""
    payers, count = outcome.payers, len(outcome.levels)
    pairs = [
        ("status", outcome.status.value),
        ("spend", f"{number(outcome.spend)} of {number(outcome.game.budget)}"),
        ("expected loss", f"{number(outcome.expected_loss)} above full participation"),
        ("mean level", number(float(outcome.levels.mean()))),
        ("payers", f"{number(payers)} of {number(count)} clients"),
    ]
    if outcome.multiplier:
        pairs += [
            ("sign threshold", f"clients pay above a value of {number(outcome.sign_threshold)}"),
            ("marginal value", f"one more unit of budget: −{number(outcome.multiplier)} loss"),
        ]
    return pairs


def extremes(outcome: Outcome) -> list[tuple[str, npt.NDArray[np.intp]]]:
    """Return the clients that receive, and that pay, the most."""
    payments = outcome.payments
    some = min(EXTREMES, payments.size)
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


_HEADER = ("client", "value", "cost", "level", "price", "payment")


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


def rich_summary(outcome: Outcome) -> RenderableType:
    """Return a summary for rich: facts, largest payees and payers, certificate."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = f"{outcome.scheme}, {number(len(outcome.levels))} clients"
    parts: list[RenderableType] = [facts_table(title, facts(outcome))]
    for heading, clients in extremes(outcome):
        table = Table(title=heading, box=box.SIMPLE, title_justify="left")
        for column in _HEADER:
            table.add_column(column, justify="left" if column == "client" else "right")
        for name, *numbers in _rows(outcome, clients):
            table.add_row(Text(safe(name)), *numbers)
        parts.append(table)
    return Group(*parts, Text(certificate_line(outcome)))


def html_summary(outcome: Outcome) -> str:
    """Return a summary for a notebook, with the same content as the one for the terminal."""

    def cells(tag: str, texts: Iterable[str]) -> str:
        return "".join(f"<{tag}>{html.escape(safe(text))}</{tag}>" for text in texts)

    summary = "".join(
        f"<tr>{cells('th', [name])}{cells('td', [text])}</tr>" for name, text in facts(outcome)
    )
    parts = [f"<b>{html.escape(outcome.scheme)}</b><table>{summary}</table>"]
    for heading, clients in extremes(outcome):
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in _rows(outcome, clients))
        parts.append(f"<b>{heading}</b><table><tr>{cells('th', _HEADER)}</tr>{body}</table>")
    return f"<div>{''.join(parts)}<p>{html.escape(certificate_line(outcome))}</p></div>"
