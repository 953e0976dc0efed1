"""What to offer each client, updated as controls are dragged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice._plumbing.tables import csv_text
from fedprice.commands.assumptions import MEANING
from fedprice.commands.words import WORDS
from fedprice.errors import FedpriceError, InputError
from fedprice.pricing import Status
from fedprice.pricing.display import infeasible_line, number
from fedprice.random_clients import population
from fedprice.web.cards import OutcomeCards
from fedprice.web.chart import Chart
from fedprice.web.clients_panel import ClientsPanel, file_name
from fedprice.web.newest_only import Newest
from fedprice.web.page_frame import (
    Problem,
    absent_file,
    address,
    explained,
    frame,
    panel,
    set_address,
    sides,
)
from fedprice.web.paged_table import PagedTable, edit_cells, explain_heads
from fedprice.web.price_answers import MANY, SOME, Priced
from fedprice.web.price_controls import PriceControls
from fedprice.web.price_exports import PriceExports
from fedprice.web.price_state import EXAMPLE, Asked
from fedprice.web.pricing_charts import frontier_chart, level_chart, price_chart
from fedprice.web.schemes_panel import SchemesPanel
from fedprice.web.study_results import accuracy_bought, studied_budgets
from fedprice.web.what_if_panel import WhatIfPanel

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from fedprice.clients import Clients
    from fedprice.pricing import Outcome
    from fedprice.web.dropped import DroppedTables
    from fedprice.web.served_files import Served

__all__ = ["price_page"]

COLUMNS = (
    "client_id", "payment", "price", "level", "cost", "value", "samples", "weight", "utility",
)  # fmt: skip
MONEY_COLUMNS = ("payment", "price", "cost")
EDITED = ("cost", "value", "samples")  # columns whose cells ask what-if
MOST_SELECTED = 50  # clients that the address holds


async def price_page(served: Served, tables: DroppedTables) -> None:
    """Draw the page."""
    with frame("Price"):
        problem, refused = Problem(), dict[str, str]()
        if served.is_large:  # the frame is there while the file is read
            await ui.context.client.connected()
        table = await tables.of_this_tab()
        try:
            if table is None:
                priced = await asyncio.to_thread(Priced.served, served)
            else:
                priced = await asyncio.to_thread(Priced.dropped, table)
        except FedpriceError as error:
            refused["clients"] = str(error)
            priced = Priced(population())  # of which nothing is shown
        if table is None and (absent := absent_file()):
            refused["clients"] = absent
        try:
            asked = priced.asked(address())
            ends = await asyncio.to_thread(priced.ends, asked)
        except FedpriceError as error:
            refused["address"] = str(error)
            asked = priced.usual
            ends = 0.0, asked.budget  # until the frontier is traced
        await PricePage(problem, served, tables, priced, asked, ends, refused).draw()


class PricePage:
    """The page of one browser tab: its clients, its settings, and its charts.

    `refused` says why nothing is shown, by what was refused: a page never shows numbers of
    something else than what was asked for.
    """

    def __init__(
        self,
        problem: Problem,
        served: Served,
        tables: DroppedTables,
        priced: Priced,
        asked: Asked,
        ends: tuple[float, float],
        refused: dict[str, str],
    ) -> None:
        self.currency, self.results, self.tables = served.currency, served.results, tables
        self.problem, self.priced, self.asked, self.ends = problem, priced, asked, ends
        self.refused = refused
        names = address().get("select", "").split("\n")
        self.selected = {name for name in names if name in priced.place}
        self.file = address().get("file", "")  # the name of the file that was dropped
        self.outcome: Outcome | None = None
        self.rows: pl.DataFrame | None = None
        self.studied: pl.DataFrame | None = None  # what budgets bought in a study
        self.refresh = Newest(self._follow)
        self._shape: tuple[Any, ...] = ()  # what the frontier depends on

    async def draw(self) -> None:
        """Draw everything, then fill it in."""
        with sides():
            with ui.column().classes("gap-3 min-w-0"):
                self._draw_clients()
                self.controls = PriceControls(
                    self.asked, self.priced.usual, self.ends, self.currency, self.ask, self._refuse
                )
                PriceExports(lambda: (self.priced, self.asked, self.outcome), self.refused)
            with ui.column().classes("gap-3 min-w-0"):
                self.cards = OutcomeCards(self.currency)
                self._draw_charts()
                self.what_if = WhatIfPanel(lambda: (self.priced, self.asked), self.currency)
                self._draw_table()
        try:
            self.studied = await asyncio.to_thread(studied_budgets, self.results)
        except FedpriceError as error:
            self.bought.set_text(str(error))
        await self.refresh()

    # The left side: what is asked for.

    def _draw_clients(self) -> None:
        self.clients = ClientsPanel(self._dropped, self._lost, self._example, self.tables)
        with self.clients.buttons:
            ui.button("Example as CSV", on_click=self._example_file).props("flat dense no-caps")

    # The right side: what comes out.

    def _draw_charts(self) -> None:
        with ui.element("div").classes("fp-pairs"):
            with panel("Prices", "Each point is a client; click it to select it. Sign threshold: "
                       + WORDS["sign threshold"]):  # fmt: skip
                self.price_chart = Chart({}, "price of each client")
            with panel("Level over impact", "Clients with more impact should join more often."):
                self.level_chart = Chart({}, "level over impact, one point per client")
            with panel("Frontier", f"{WORDS['frontier']} Drag the handle to move the budget."):
                self.frontier_chart = Chart({}, "distance to full participation over the budget")
                self.bought = ui.label("").classes("text-sm fp-muted").mark("bought")
            self.schemes = SchemesPanel()
        for chart in (self.price_chart, self.level_chart):
            chart.on_point(self._clicked)
        self.frontier_chart.on_handle(self._dragged)
        self.thin = ui.label("").classes("text-xs fp-muted")

    def _draw_table(self) -> None:
        with panel("Clients and what they are offered", "Click a cost, a value or samples to try "
                   "another number: what would this client and all others be offered?",
                   "fp-third"):  # fmt: skip
            with ui.row().classes("w-full items-center gap-3"):
                search = ui.row()
                self.chosen = ui.label("").classes("text-sm fp-muted")
                ui.button("Select none", on_click=self._select_none).props("flat dense no-caps")
            labels = {name: f"{name}, {self.currency}" for name in MONEY_COLUMNS if self.currency}
            self.table = PagedTable(sort="payment", labels={"client_id": "client"} | labels)
            with search:
                self.search = self.table.search_box("Find a client")
            explain_heads(self.table.element, COLUMNS[1:])
            edit_cells(self.table.element, EDITED, self._edited)
            self.table.element.selection = "multiple"
            self.table.element.on_select(
                lambda event: self._select({row["client_id"] for row in event.selection})
            )

    # What people do.

    def ask(self, **changes: Any) -> None:
        """Change settings, and update the page."""
        self.asked = replace(self.asked, **changes)
        for field in ("address", *changes):
            self.refused.pop(field, None)
        self._update()

    def _refuse(self, field: str, name: str) -> None:
        """Show no numbers until a setting is right again."""
        self.refused[field] = f"Nothing is shown until the {name} is right."
        self._update()

    def _update(self) -> None:
        if len(self.priced.clients) > SOME:
            ui.timer(0, self.refresh, once=True)
        else:
            self.refresh.at_once()
        if not self.refused:
            ui.timer(0, self.what_if.refresh, once=True)

    def _edited(self, client: str, field: str, text: str) -> None:
        if self.outcome is not None:
            self.what_if.edit(client, field, text)

    def _dragged(self, budget: float) -> None:
        given = float(f"{budget:.4g}")
        if given != self.asked.budget:
            self.controls.budget.set(given)
            self.ask(budget=given)

    def _clicked(self, name: str) -> None:
        if name not in self.priced.place:
            return
        self._select(self.selected ^ {name})
        self.search.value = ""
        self.table.turn_to(self.priced.place[name])

    def _select(self, names: set[str]) -> None:
        # A click may arrive after other clients have been loaded.
        self.selected = {name for name in names if name in self.priced.place}
        self._set_address()
        self._show_points()
        self._show_table()

    def _select_none(self) -> None:
        self._select(set())

    def _dropped(
        self,
        clients: Clients,
        name: str,
        assumed: tuple[str, ...],
        rename: tuple[tuple[str, str], ...],
    ) -> None:
        self._take(Priced(clients, name, rename=rename, assumed=assumed), name)

    def _lost(self, reason: str) -> None:
        """Show nothing, where a table that was dropped cannot be read."""
        self.refused["clients"] = reason
        self._update()

    def _example(self) -> None:
        self._take(Priced(population()))

    def _example_file(self) -> None:
        ui.download.content(csv_text(population().to_frame()), EXAMPLE)

    def _take(self, priced: Priced, file: str = "") -> None:
        """Show other clients; until they are priced, nothing of the previous ones is shown."""
        self.priced, self.file, self.selected = priced, file, set()
        self.refused.pop("clients", None)
        self.what_if.clear()
        self._show_nothing()
        ui.timer(0, self.refresh, once=True)

    # What follows.

    async def _follow(self) -> None:
        """Compute and show the result, or say why there is none."""
        with explained(self.problem):
            try:
                self._show_whose()
                if self.refused:
                    raise InputError(" ".join(self.refused.values()))
                await self._compute()
            except InputError:
                self._show_nothing()
                raise

    async def _compute(self) -> None:
        asked, priced = self.asked, self.priced
        some = len(priced.clients) > SOME

        async def done(function: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.to_thread(function, *arguments) if some else function(*arguments)

        if self.studied is not None:
            self.bought.set_text(accuracy_bought(self.studied, asked.scheme, asked.budget))
        outcome: Outcome = await done(priced.outcome, asked)
        feasible = outcome.status is not Status.INFEASIBLE
        rows = await done(priced.frame, outcome) if feasible else None
        if priced is not self.priced:
            return  # other clients were dropped meanwhile, and come next
        self.outcome, self.rows = outcome if feasible else None, rows
        self._show_outcome()
        self._set_address()
        await self._show_frontier(asked, priced, done)
        if not feasible:
            raise FedpriceError(infeasible_line(outcome))
        if asked.against and not self.refresh.wanted:
            rival = await done(priced.rival, asked)
            if priced is not self.priced:
                return
            self.schemes.show(outcome, rival, priced.rows)

    def _show_nothing(self) -> None:
        """Leave no number of what was asked for before."""
        self.outcome, self.rows, self._shape = None, None, ()
        self._show_outcome()
        self.frontier_chart.show({})
        self.what_if.hide()
        if self.studied is not None:
            self.bought.set_text("")

    def _show_outcome(self) -> None:
        self.cards.show(self.outcome)
        self._show_points()
        self._show_table()
        self.schemes.set_visibility(self.outcome is not None and bool(self.asked.against))

    async def _show_frontier(self, asked: Asked, priced: Priced, done: Callable[..., Any]) -> None:
        """Show the frontier; a budget that lies on it does not trace it again."""
        shape = (id(priced), asked.rounds, asked.alpha, asked.exponent, asked.max_weight)
        traced = shape == self._shape and self.ends[0] <= asked.budget <= self.ends[1]
        if not traced and not (self.refresh.wanted and len(priced.clients) > MANY):
            self.ends = await done(priced.ends, asked)
            self.traced = await done(priced.frontier, asked, self.ends)
            self._shape = shape
            self.controls.set_range(self.ends)
        if shape == self._shape:
            distance = None if self.outcome is None else self.outcome.distance
            self.frontier_chart.show(
                frontier_chart(self.traced, asked.budget, distance, self.ends, self.currency)
            )

    def _set_address(self) -> None:
        state = self.asked.address(self.priced.usual)
        if self.file:  # so that the page can say which file the link lacks
            state["file"] = self.file
        if self.selected:
            state["select"] = "\n".join(sorted(self.selected)[:MOST_SELECTED])
        set_address(state)

    def _show_whose(self) -> None:
        """Say whose prices these are, and where α comes from."""
        if "clients" in self.refused:
            self.clients.show("No clients.")
            self.thin.set_text("")
            return
        priced, count = self.priced, len(self.priced.clients)
        self.clients.show(
            f"{file_name(priced.name)}: {number(count)} clients"
            + (", the paper's Setup 1" if priced.name is None else ""),
            (*(f"{name} is {MEANING[name]}." for name in priced.assumed), *priced.notes),
        )
        self.controls.show(priced, self.file)
        self.thin.set_text(
            "" if priced.rows.size == count else
            f"Charts draw {number(priced.rows.size)} of {number(count)} clients: the extremes, and "
            "others evenly by impact. The table has all of them."
        )  # fmt: skip

    def _show_points(self) -> None:
        if self.outcome is None:
            self.price_chart.show({})
            self.level_chart.show({})
            return
        chosen = [self.priced.place[name] for name in self.selected]
        rows = self.priced.rows
        self.price_chart.show(price_chart(self.outcome, rows, chosen, self.currency))
        self.level_chart.show(level_chart(self.outcome, rows, chosen))
        count = len(self.selected)
        self.chosen.set_text(f"{count} selected" if count else "")

    def _show_table(self) -> None:
        if self.rows is not None:
            self.table.element.selected = [{"client_id": name} for name in sorted(self.selected)]
        names = [name for name in COLUMNS if self.rows is not None and name in self.rows.columns]
        self.table.show(None if self.rows is None else self.rows.select(names))
