"""The runs of a ledger, and one run live."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any

from nicegui import context, ui

from fedprice.commands.words import WORDS
from fedprice.errors import FedpriceError
from fedprice.market.database_url import masked
from fedprice.market.ledger_errors import NoLedgerError
from fedprice.pricing.display import number
from fedprice.web.accounts import client_address
from fedprice.web.badge import Badge
from fedprice.web.chart import Chart
from fedprice.web.page_frame import Figure, Problem, address, empty, frame, panel
from fedprice.web.paged_table import PagedTable, explain_heads, sort_by_keys
from fedprice.web.run_charts import (
    ACCURACY,
    LOSS,
    joiners_chart,
    latest,
    measured_chart,
    paid_chart,
)
from fedprice.web.run_tables import amount, client_frame, round_rows, run_rows
from fedprice.web.watched_ledger import watched

if TYPE_CHECKING:
    from fedprice.market.following import RunSeen, RunSummary
    from fedprice.market.verification import Checked
    from fedprice.web.served_files import Served
    from fedprice.web.watched_ledger import Watched

__all__ = ["run_page", "runs_page"]

EVERY = 1.0  # seconds between reads
PATIENCE = 1.0  # seconds that a page waits for its numbers before it is shown without them
SIMULATE = "fedprice simulate setup1 --rounds 200 --ledger"
# Columns that are explained.
TOLD = {"agreed", "delivered", "heads", "level", "missed", "period", "refused", "state"}
# Cells are text; the address is made by the server and is always one of its own pages.
_LINK = (
    '<q-td :props="props"><a :href="props.row.address" class="fp-link">{{ props.value }}</a></q-td>'
)


async def runs_page(served: Served) -> None:
    """Draw all runs of the ledger."""
    name = address().get("run")
    if name is not None:
        await run_page(served, name)
        return
    with frame("Runs"):
        if served.ledger is None:
            _no_ledger()
            return
        await RunsPage(served.ledger).draw()


async def run_page(served: Served, run: str) -> None:
    """Draw one run, or a later period of it."""
    with frame("Runs"):
        if served.ledger is None:
            _no_ledger()
            return
        await RunPage(served.ledger, run).draw()


def _no_ledger() -> None:
    empty(
        "No ledger is shown. Stop the server (Ctrl-C), and start it again with a market's ledger:",
        "fedprice serve --ledger sqlite:///market.db",
    )


class _Live:
    """A page that reads the ledger every second, and reports errors in one line."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._busy = self._opened = False
        self._said: tuple[str, str | None] = ("", None)

    async def draw(self) -> None:
        """Draw everything, fill it in, and keep it up to date."""
        self.prefix = str(context.client.request.scope.get("root_path", ""))
        self.problem = Problem()
        self.missing = ui.column().classes("w-full")
        with ui.column().classes("w-full gap-3") as self.body:
            self.build()
        self.say("Reading the ledger …")
        self._first = asyncio.create_task(self.refresh())
        # Slow parts are shown later: a page that is not ready after 3 s is given up.
        await asyncio.wait({self._first}, timeout=PATIENCE)
        ui.timer(EVERY, self.refresh, immediate=False)

    def build(self) -> None:
        """Draw the parts of the page."""
        raise NotImplementedError

    async def look(self, ledger: Watched) -> None:
        """Read what is new, and show it."""
        raise NotImplementedError

    async def refresh(self) -> None:
        """Show what is new, unless the previous read is still running."""
        if self._busy:
            return
        self._busy = True
        try:
            ledger = await asyncio.to_thread(watched, self.url)
            if not self._opened:
                self._opened = True
                ledger.rest()
            await self.look(ledger)
        except NoLedgerError:
            self.say(
                f"There is no ledger {masked(self.url)} yet. This page shows it as soon as a "
                "market writes it, for example:",
                self.example,
            )
        except FedpriceError as error:
            self.missing.clear()
            self._said = str(error), None
            self.problem.show(str(error))
        else:
            self.problem.clear()
        finally:
            self._busy = False

    @property
    def example(self) -> str:
        """A command that writes the ledger."""
        return f"{SIMULATE} {shlex.quote(masked(self.url))}"

    def say(self, text: str = "", command: str | None = None) -> None:
        """Show a text instead of the body, or the body if there is no text."""
        if self._said == (text, command):
            return
        self._said = text, command
        self.missing.clear()
        self.body.set_visibility(not text)
        if text:
            with self.missing:
                empty(text, command)

    def fill(self, table: ui.table, rows: list[dict[str, Any]], unit: str | None = None) -> None:
        """Show rows if they have changed; columns of money are headed by the unit."""
        for row in rows:
            if "address" in row:
                row["address"] = self.prefix + row["address"]
        if table.rows != rows:
            table.rows = rows
        for column in table.columns if unit else ():
            label = column["label"].partition(" (")[0]
            if label in ("paid", "agreed") and column["label"] != f"{label} ({unit})":
                column["label"] = f"{label} ({unit})"
                table.update()


class RunsPage(_Live):
    """All runs, with their progress."""

    def build(self) -> None:
        """Draw the table of runs."""
        with panel("Runs"):
            self.badge = Badge()
            self.table = _table(
                {
                    "name": "run",
                    "state": "state",
                    "period": "period",
                    "rounds": "rounds",
                    "clients": "clients",
                    "money": "paid",
                },
                "name",
                sort={"rounds": "done", "money": "paid"},
            )
            self.table.add_slot("body-cell-name", _LINK)

    async def look(self, ledger: Watched) -> None:
        """Read the runs that are new or have advanced."""
        runs = await asyncio.to_thread(ledger.following.runs)
        self.badge.show(await asyncio.to_thread(ledger.checked))
        if not runs:
            self.say(
                f"The ledger {masked(self.url)} has no run yet. This page shows one as soon as it "
                "starts, for example with:",
                self.example,
            )
            return
        self.say()
        self.fill(self.table, run_rows(runs), ledger.following.unit)


class RunPage(_Live):
    """One run, or a later period of it."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url)
        self.name = name
        self.curves: dict[Any, Chart] = {}  # of what was measured, by kind
        self._drawn: tuple[Any, ...] = ()
        self._counted: Checked | None = None
        self._stopped: tuple[str, str] = ("", "")

    def build(self) -> None:
        """Draw the parts of the page."""
        with ui.row().classes("w-full items-center justify-between gap-2"):
            with ui.row().classes("items-baseline gap-2 min-w-0"):
                ui.label(self.name).classes("text-xl font-semibold break-all").props(
                    "data-part=run"
                )
                self.state = ui.label("").classes("fp-muted").props("data-part=state")
            self.badge = Badge()
        self.stopped = ui.column().classes("w-full")
        with ui.element("div").classes("fp-figures"):
            self.cards = {
                name: Figure(label, tip=WORDS[name])
                for name, label in (
                    ("rounds", "rounds"),
                    ("joined", "joined the last round"),
                    ("paid", "paid"),
                    ("loss", "loss"),
                    ("accuracy", "accuracy"),
                )
            }
        with ui.element("div").classes("fp-pairs"):
            with panel("Paid against the budget"):
                self.paid = Chart({}, "what was paid, over the rounds", "260px")
            with panel("Who joined", WORDS["drew heads"]):
                self.joiners = Chart({}, "how many clients joined, over the rounds", "260px")
            self.measured = {}
            for kind, title in ((LOSS, "Loss"), (ACCURACY, "Accuracy")):
                with panel(title, WORDS["metrics"]):
                    none = ui.label("Not measured so far.").classes("fp-muted")
                    self.measured[kind] = title, none, ui.column().classes("w-full")
        with panel("Newest rounds"):
            self.rounds = _table(
                {
                    "round": "round",
                    "heads": "drew heads",
                    "joined": "joined",
                    "missed": "missed",
                    "refused": "refused, and why",
                    "paid": "paid",
                },
                "at",
                sort={"round": "at"},
                wrap=True,
            )
        with panel("Clients"):
            self.counted = ui.label("").classes("text-sm fp-muted").props("data-part=counted")
            tools = ui.row()
            self.labels: dict[str, str] = {}
            self.clients = PagedTable(
                "client",
                labels=self.labels,
                more=lambda row: {"address": self.prefix + client_address(row["client"])},
            )
            with tools:
                self.clients.search_box("Search clients").classes("w-60 my-1")
            self.clients.element.add_slot("body-cell-client", _LINK)
            explain_heads(self.clients.element, TOLD)
        with panel("Periods", WORDS["period"]) as self.periods_panel:
            self.periods = _table(
                {
                    "name": "period",
                    "state": "state",
                    "rounds": "rounds",
                    "clients": "clients",
                    "money": "paid",
                },
                "name",
                sort={"rounds": "done", "money": "paid"},
            )
            self.periods.add_slot("body-cell-name", _LINK)

    async def look(self, ledger: Watched) -> None:
        """Read what is new of the run, and show it."""
        seen = await asyncio.to_thread(ledger.following.run, self.name)
        checked = await asyncio.to_thread(ledger.checked, self.name)
        self.say()
        self.badge.show(checked)
        self._show_stopped(seen)
        own = seen.summary
        self.state.set_text(_state(own))
        if (own, seen.metrics) != self._drawn:
            self._drawn = own, seen.metrics
            self._show_numbers(seen)
            self._show_charts(seen)
            self.fill(self.rounds, round_rows(seen.newest, seen.before), seen.unit)
        self.periods_panel.set_visibility(len(seen.periods) > 1 or own.run_rounds > own.rounds)
        self.fill(self.periods, run_rows(seen.periods), seen.unit)
        if checked != self._counted:
            self._counted = checked
            if checked.clients is None:
                said = "What clients did is counted as the ledger is verified."
            else:
                said = f"What clients did in the first {checked.rounds:,} rounds, as verified."
            self.counted.set_text(said)
            self.labels |= {name: f"{name} ({seen.unit})" for name in ("agreed", "paid")}
            self.clients.show(await asyncio.to_thread(client_frame, seen, checked))

    def _show_stopped(self, seen: RunSeen) -> None:
        if self._stopped == (seen.goes_on, seen.ends):
            return
        self._stopped = seen.goes_on, seen.ends
        self.stopped.clear()
        if seen.goes_on:
            with self.stopped:
                more = " To end it as it stands instead:" if seen.ends else ""
                empty(f"Nothing was recorded for a minute. {seen.goes_on}{more}", seen.ends or None)

    def _show_numbers(self, seen: RunSeen) -> None:
        own, cards = seen.summary, self.cards
        cards["rounds"].show(f"{own.done:,}", f"of {own.rounds:,}")
        if seen.newest:
            last = seen.newest[0]
            cards["joined"].show(f"{len(last.joined):,}", f"of {last.heads:,} that drew heads")
        paid = f"of {amount(own.funds)} {seen.unit}"
        if own.paid_in:
            paid += f", {amount(own.paid_in)} of it from payers"
        cards["paid"].show(amount(own.paid_out), paid)
        for name, kind in (("loss", LOSS), ("accuracy", ACCURACY)):
            found = latest(seen.metrics, kind)
            if found is not None:
                cards[name].show(number(found[0]), found[1])
            else:
                cards[name].show("–", "not measured")

    def _show_charts(self, seen: RunSeen) -> None:
        self.paid.show(paid_chart(seen))
        self.joiners.show(joiners_chart(seen))
        for kind, (title, none, place) in self.measured.items():
            options = measured_chart(seen, kind)
            none.set_visibility(options is None)
            if options is None:
                continue
            if kind not in self.curves:  # a chart that shows nothing takes time to draw, too
                with place:
                    self.curves[kind] = Chart({}, f"{title.lower()} over the rounds", "260px")
            self.curves[kind].show(options)


def _state(own: RunSummary) -> str:
    """Return the state of a period in words."""
    period = f"period {own.period}, " if own.period > 1 else ""
    if own.state == "settled" and own.done < own.rounds:
        return f"{period}settled after {own.done:,} of {own.rounds:,} rounds"
    return period + own.state


def _table(
    columns: dict[str, str], key: str, *, sort: dict[str, str] | None = None, wrap: bool = False
) -> ui.table:
    """Draw a table whose cells are text; numbers that are shown as text sort by another field."""
    given = [
        {
            "name": name,
            "label": label,
            "field": (sort or {}).get(name, name),
            "sortable": True,
            "align": "left",
            "style": "min-width: 12rem" if wrap and name in ("joined", "refused") else "",
        }
        for name, label in columns.items()
    ]
    table = ui.table(columns=given, rows=[], row_key=key, pagination=10).classes("w-full")
    table.props("flat dense" + (" wrap-cells" if wrap else ""))
    sort_by_keys(table)
    for name in sort or {}:
        table.add_slot(
            f"body-cell-{name}", f'<q-td :props="props">{{{{ props.row.{name} }}}}</q-td>'
        )
    explain_heads(table, TOLD & columns.keys())
    return table
