"""How a client's account is drawn: like a bank statement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice._plumbing.tables import csv_text
from fedprice.market.money import LEVEL_ONE, money
from fedprice.web.chart import Chart
from fedprice.web.client_charts import balance_chart
from fedprice.web.page_frame import Figure, panel, term
from fedprice.web.run_tables import run_address

if TYPE_CHECKING:
    from decimal import Decimal

    from fedprice.web.accounts import Account, RunPart

__all__ = ["csv_button", "draw_balance", "draw_entries", "draw_runs", "draw_sums"]

MOST_RUNS = 10  # drawn at once
ROWS = 20  # entries on a page
USUAL = ("tails", "joined")
_COLUMNS = {"entry": "right", "run": "left", "round": "right", "event": "left", "amount": "right",
            "balance": "right", "note": "left"}  # fmt: skip
_WIDTH = {"note": "min-width: 16rem"}  # a narrow screen scrolls the table, not the words


def draw_sums(account: Account) -> None:
    """Draw the totals of an account."""
    parts, unit = account.parts, account.unit
    heads, joined = (sum(getattr(p.own, n) for p in parts) for n in ("heads", "joined"))
    missed, refused = (sum(getattr(p.own, n) for p in parts) for n in ("missed", "refused"))
    paid, paid_in = (money(sum(max(0, s * p.own.paid) for p in parts)) for s in (1, -1))
    with ui.element("div").classes("fp-figures"):
        Figure("balance", unit, "What the account holds now").show(f"{account.balance:,}")
        note = f"and paid in {paid_in:,} {unit}" if paid_in else f"in {_runs(len(parts))}"
        Figure("paid", unit, "What all runs together paid to the client").show(f"{paid:,}", note)
        why = [f"{count:,} {what}" for count, what in ((missed, "missed"), (refused, "refused"))]
        note = ", ".join(why) if missed + refused else "nothing missed or refused"
        Figure("delivered").show(f"{joined:,} of {heads:,}", note)
        lost = sum((part.lost for part in parts), start=money(0))
        Figure("lost", unit).show(f"{lost:,}", "for heads not delivered")


def _runs(count: int) -> str:
    return f"{count:,} run{'s' * (count != 1)}"


def draw_runs(account: Account, *, linked: bool = False) -> None:
    """Draw what each run paid and why: the newest first, older ones on request.

    Parameters
    ----------
    linked
        Whether the names of runs lead to their pages.
    """
    box = ui.column().classes("w-full gap-3")
    left = list(account.parts)

    def more() -> None:
        with box:
            for _ in range(min(MOST_RUNS, len(left))):
                _draw_run(left.pop(), account.unit, linked)
        button.set_text(f"Show {_runs(len(left))} before these")
        button.set_visibility(bool(left))

    button = ui.button("", on_click=more).props("flat no-caps")
    more()


def _draw_run(part: RunPart, unit: str, linked: bool) -> None:
    run, own = part.run, part.own
    with panel("") as card:
        card.props("data-part=run")
        with ui.row().classes("w-full items-center justify-between gap-2"):
            title = ui.link(part.name, run_address(part.name)) if linked else ui.label(part.name)
            title.classes("fp-link" if linked else "")
            title.classes("font-semibold text-lg break-all")
            state = "settled" if run.settled else "under way"
            ui.label(state).classes("text-sm fp-muted").props("data-fact=state")
        with ui.element("div").classes("fp-facts"):
            for word, text in (
                ("rounds", f"{run.done:,} of {run.rounds:,}"),
                ("level", f"{own.level / LEVEL_ONE:.4g}"),
                ("heads", f"{own.heads:,}"),
                ("delivered", f"{own.joined:,}"),
                ("missed", f"{own.missed:,}"),
                ("refused", f"{own.refused:,}"),
            ):
                with ui.column().classes("gap-0"):
                    term(word).classes("text-sm fp-muted")
                    ui.label(text).props(f'data-fact="{word}"')
        with ui.element("div").classes("fp-bill"):
            for line in part.lines:
                _draw_line(line.what, line.amount, "")
            said = "paid in" if own.paid < 0 else "paid"
            _draw_line(f"{said}, in {unit}", abs(part.paid), "fp-total")
        ui.label(part.why).classes("mt-2").props("data-part=why")
        for undelivered in part.undelivered:
            with ui.row().classes("items-start gap-2 no-wrap mt-1"):
                ui.icon("block" if undelivered.event == "refused" else "event_busy").classes(
                    "text-lg fp-muted shrink-0"
                )
                ui.label(str(undelivered)).classes("text-sm").props("data-part=why-not")
        if not run.signed:
            ui.label("This run is unsigned: no agreement, no shared coins.").classes("mt-1")


def _draw_line(what: str, amount: Decimal, classes: str) -> None:
    ui.label(what).classes(classes)
    ui.label(f"{amount:,}").classes(f"fp-amount {classes}")


def draw_balance(account: Account) -> None:
    """Draw the balance over time."""
    if account.entries.height > 1:
        with panel("Balance"):
            Chart(balance_chart(account.entries, account.unit), "Balance after each entry", "200px")


def draw_entries(account: Account) -> None:
    """Draw every entry that concerns the client, one page at a time."""
    if account.entries.height:
        _Entries(account).draw()


def csv_button(account: Account) -> None:
    """Draw a button that saves the statement as `fedprice statement -o` writes it."""
    name = re.sub(r"[^\w-]", "_", account.client, flags=re.ASCII)

    def save() -> None:
        ui.download.content(csv_text(account.entries), f"statement-{name}.csv", "text/csv")

    button = ui.button("Statement as CSV", icon="download", on_click=save)
    button.props("outline dense no-caps").classes("px-2")


class _Entries:
    """The table of all entries that concern a client, one page at a time."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._rare = account.entries.filter(~account.entries["event"].is_in(USUAL))
        self._rows = self._rare

    def draw(self) -> None:
        with panel("Entries"):
            with ui.row().classes("w-full items-center justify-between gap-2"):
                ui.switch("every round", on_change=lambda event: self._turn(event.value)).tooltip(
                    "Also rounds with tails, and those that the client joined"
                )
                csv_button(self._account)
            columns: list[dict[str, Any]] = [
                {
                    "name": name,
                    "field": name,
                    "label": name,
                    "align": side,
                    "style": _WIDTH.get(name),
                }
                for name, side in _COLUMNS.items()
            ]
            self._table = ui.table(rows=[], columns=columns, row_key="entry").classes("w-full")
            self._table.props("flat dense wrap-cells hide-pagination data-part=entries")
            self._table.props(":rows-per-page-options=[0]")
            with ui.row().classes("w-full items-center justify-between"):
                self._count = ui.label("").classes("text-sm fp-muted")
                self._pages = ui.pagination(1, 1, on_change=self._show)
                self._pages.props(":max-pages=6 dense boundary-numbers")
            self._turn(every=False)

    def _turn(self, every: bool) -> None:
        self._rows = self._account.entries if every else self._rare
        self._pages.max = max(1, -(-self._rows.height // ROWS))
        self._pages.set_visibility(self._rows.height > ROWS)
        self._pages.value = self._pages.max  # the newest entries are the last ones
        self._show()

    def _show(self) -> None:
        first = ((self._pages.value or 1) - 1) * ROWS
        self._table.rows = [
            {name: _cell(cell) for name, cell in row.items()}
            for row in self._rows[first : first + ROWS].iter_rows(named=True)
        ]
        whole = self._account.entries.height
        hidden = whole - self._rows.height
        told = f"; {hidden:,} rounds with tails or joins are hidden" if hidden else ""
        self._count.set_text(f"{self._rows.height:,} entries{told}")


def _cell(cell: Any) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:,}"
