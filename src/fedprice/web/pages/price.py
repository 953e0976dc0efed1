"""What to offer each client, updated as controls are dragged."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice.commands.assumptions import MEANING
from fedprice.errors import FedpriceError, InputError
from fedprice.pricing import Status
from fedprice.pricing.display import infeasible_line, number
from fedprice.random_clients import population
from fedprice.tables import csv_text
from fedprice.web.asked import EXAMPLE, OFFERED, Asked
from fedprice.web.cards import OutcomeCards
from fedprice.web.chart import Chart
from fedprice.web.look import (
    Dial,
    Problem,
    absent_file,
    address,
    copy_button,
    drop,
    explained,
    frame,
    measured_line,
    panel,
    save_button,
    set_address,
    sides,
    term,
)
from fedprice.web.newest import Newest
from fedprice.web.paged_table import PagedTable, explain_heads
from fedprice.web.priced import MANY, SOME, Priced
from fedprice.web.pricing_charts import (
    budget_step,
    frontier_chart,
    level_chart,
    price_chart,
)
from fedprice.web.schemes_panel import SchemesPanel
from fedprice.web.uploads import LARGEST_UPLOAD, assumed_clients_of, content_of
from fedprice.words import MONEY, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from nicegui.events import UploadEventArguments

    from fedprice.pricing import Outcome
    from fedprice.web.served import Served

__all__ = ["price_page"]

COLUMNS = (
    "client_id", "samples", "weight", "cost", "value", "level", "price", "payment", "utility",
)  # fmt: skip
EXPORTS = {"csv": "CSV", "parquet": "Parquet", "png": "PNG", "svg": "SVG"}
MOST_SELECTED = 50  # clients that the address holds


async def price_page(served: Served) -> None:
    """Draw the page."""
    with frame("Price"):
        problem, wrong = Problem(), []
        try:
            if served.is_large:  # the frame is there while the file is read
                await ui.context.client.connected()
            priced = await asyncio.to_thread(Priced.served, served)
        except FedpriceError as error:
            wrong.append(str(error))
            priced = Priced(population())
        try:
            asked = priced.usual.changed(address())
            ends = await asyncio.to_thread(priced.ends, asked)
        except FedpriceError as error:
            wrong.append(str(error))
            asked = priced.usual
            ends = 0.0, asked.budget  # until the frontier is traced
        wrong += filter(None, [absent_file()])
        await PricePage(problem, priced, asked, ends).draw()
        if wrong:
            problem.show(" ".join(wrong))


class PricePage:
    """The page of one browser tab: its clients, its settings, and its charts."""

    def __init__(
        self, problem: Problem, priced: Priced, asked: Asked, ends: tuple[float, float]
    ) -> None:
        self.problem, self.priced, self.asked, self.ends = problem, priced, asked, ends
        names = address().get("select", "").split("\n")
        self.selected = {name for name in names if name in priced.place}
        self.file = ""  # the name of the file that was dropped
        self.outcome: Outcome | None = None
        self.rows: pl.DataFrame | None = None
        self.refresh = Newest(self._follow)
        self._shape: tuple[Any, ...] = ()  # what the frontier depends on

    async def draw(self) -> None:
        """Draw everything, then fill it in."""
        with sides():
            with ui.column().classes("gap-3 min-w-0"):
                self._draw_clients()
                self._draw_controls()
                self._draw_exports()
            with ui.column().classes("gap-3 min-w-0"):
                self.cards = OutcomeCards()
                self._draw_charts()
                self._draw_table()
        await self.refresh()

    # The left side: what is asked for.

    def _draw_clients(self) -> None:
        with panel("Clients", classes="fp-first"):
            self.whose = ui.label("").classes("text-sm fp-muted mb-1")
            self.dropped = drop(
                "Drop or choose CSV or Parquet", ".csv,.parquet", self._dropped, LARGEST_UPLOAD
            )
            with ui.row().classes("mt-1"):
                ui.button("Use the example", on_click=self._example).props("flat dense no-caps")
                ui.button("Example as CSV", on_click=self._example_file).props("flat dense no-caps")

    def _draw_controls(self) -> None:
        with panel("Settings"):
            ui.label(MONEY).classes("text-xs fp-muted")
            low, high = self.ends
            self.budget = self._dial("budget", "budget", low, high, budget_step(high - low))
            self._dial("rounds", "rounds", 10, 5000, 10)
            with ui.column().classes("w-full gap-0") as self.alpha:
                self._dial("alpha", "alpha", 0.05, 20, 0.05, "noise α")
            self.measured = ui.label("").classes("text-sm mt-2").mark("measured")
            self._dial("cost exponent", "exponent", 1.1, 4, 0.1, "cost exponent τ")
            self._dial("largest weight", "max_weight", 0, 5, 0.05, "largest weight (0: any)")
            self._choice("scheme", list(OFFERED), "scheme")
            self._choice("against", ["", *OFFERED], "compare with")
            with ui.row().classes("text-xs gap-1 mt-2"):
                ui.label("Costs and values unknown?").classes("fp-muted")
                ui.link("Post prices and tariffs based on beliefs", "/beliefs").classes("fp-link")

    def _dial(
        self, word: str, field: str, low: float, high: float, step: float, text: str | None = None
    ) -> Dial:
        def change(value: float) -> None:
            whole = field == "rounds" and value.is_integer()
            self.ask(**{field: int(value) if whole else value})

        value = getattr(self.asked, field)
        ends = (min(low, value), max(high, value))
        return Dial(word, value, ends=ends, step=step, on_change=change, text=text)

    def _choice(self, field: str, names: list[str], text: str) -> None:
        term("scheme", text).classes("mt-2")
        select = ui.select(
            {name: name or "none" for name in names},
            value=getattr(self.asked, field),
            on_change=lambda event: self.ask(**{field: event.value}),
        )
        select.props(f'dense outlined aria-label="{text}"').classes("w-full").mark(field)

    def _draw_exports(self) -> None:
        with panel("Export"), ui.row().classes("gap-1"):
            for kind, text in EXPORTS.items():
                save_button(text, partial(self._export, kind)).mark(f"export {kind}")
            copy_button("copy as command", self._command).mark("command")
            copy_button("copy as Python", self._python).mark("python")

    def _command(self) -> str:
        own = self.priced
        line = self.asked.command(own.name or EXAMPLE, own.calibration_name, own.rename)
        return line if own.name else f"fedprice example -o {EXAMPLE}\n{line}"

    def _python(self) -> str:
        own = self.priced
        return self.asked.python(own.name or EXAMPLE, own.calibration_name, own.rename, own.assumed)

    # The right side: what comes out.

    def _draw_charts(self) -> None:
        with ui.element("div").classes("fp-pairs"):
            with panel("Price over value", "Each point is a client; click it to select it. Sign "
                       f"threshold: {WORDS['sign threshold']}"):  # fmt: skip
                self.price_chart = Chart({}, "price over value, one point per client")
            with panel("Level over impact", "Clients with more impact should join more often."):
                self.level_chart = Chart({}, "level over impact, one point per client")
            with panel("Frontier", f"{WORDS['frontier']} Drag the handle to move the budget."):
                self.frontier_chart = Chart({}, "expected loss over the budget")
            self.schemes = SchemesPanel()
        for chart in (self.price_chart, self.level_chart):
            chart.on_point(self._clicked)
        self.frontier_chart.on_handle(self._dragged)
        self.thin = ui.label("").classes("text-xs fp-muted")

    def _draw_table(self) -> None:
        with panel("Clients and what they are offered"):
            with ui.row().classes("w-full items-center gap-3"):
                search = ui.row()
                self.chosen = ui.label("").classes("text-sm fp-muted")
                ui.button("Select none", on_click=self._select_none).props("flat dense no-caps")
            self.table = PagedTable(sort="payment", labels={"client_id": "client"})
            with search:
                self.search = self.table.search_box("Find a client")
            explain_heads(self.table.element, COLUMNS[1:])
            self.table.element.selection = "multiple"
            self.table.element.on_select(
                lambda event: self._select({row["client_id"] for row in event.selection})
            )

    # What people do.

    def ask(self, **changes: Any) -> None:
        """Change settings, and update the page."""
        try:
            self.asked = replace(self.asked, **changes)
        except FedpriceError as error:
            self.problem.show(str(error))
            return
        if len(self.priced.clients) > SOME:
            ui.timer(0, self.refresh, once=True)
        else:
            self.refresh.at_once()

    def _dragged(self, budget: float) -> None:
        given = float(f"{budget:.4g}")
        if given != self.asked.budget:
            self.budget.set(given)
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

    async def _dropped(self, event: UploadEventArguments) -> None:
        with explained(self.problem):
            name, content = await content_of(event)
            clients, assumed = await asyncio.to_thread(assumed_clients_of, name, content)
            self._take(Priced(clients, name, assumed=assumed), name)
        self.dropped.reset()

    def _example(self) -> None:
        self._take(Priced(population()))

    def _example_file(self) -> None:
        ui.download.content(csv_text(population().to_frame()), EXAMPLE)

    def _take(self, priced: Priced, file: str = "") -> None:
        """Show other clients; until they are priced, nothing of the previous ones is shown."""
        self.priced, self.file, self.selected, self._shape = priced, file, set(), ()
        self.outcome = self.rows = None
        self._show_outcome()
        ui.timer(0, self.refresh, once=True)

    async def _export(self, kind: str) -> None:
        if self.outcome is None or self.rows is None:
            return
        outcome = self.outcome
        if kind in ("csv", "parquet"):
            rows = await asyncio.to_thread(self.priced.exported, self.asked)
        if kind == "csv":
            ui.download.content(await asyncio.to_thread(csv_text, rows), "prices.csv")
        elif kind == "parquet":
            ui.download.content(await asyncio.to_thread(_parquet, rows), "prices.parquet")
        else:
            ui.download.content(await asyncio.to_thread(_figure, outcome, kind), f"prices.{kind}")

    # What follows.

    async def _follow(self) -> None:
        """Compute and show the result, or say why there is none."""
        with explained(self.problem):
            try:
                await self._compute()
            except InputError:
                self.outcome = self.rows = None  # no outdated result stays
                self._show_outcome()
                raise

    async def _compute(self) -> None:
        asked, priced = self.asked, self.priced
        some = len(priced.clients) > SOME

        async def done(function: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.to_thread(function, *arguments) if some else function(*arguments)

        self._show_whose()
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
            self._set_range()
        if shape == self._shape:
            loss = None if self.outcome is None else self.outcome.expected_loss
            self.frontier_chart.show(frontier_chart(self.traced, asked.budget, loss, self.ends))

    def _set_range(self) -> None:
        low, high = self.ends
        self.budget.set_ends(low, high, budget_step(high - low))

    def _set_address(self) -> None:
        state = self.asked.address(self.priced.usual)
        if self.file:  # so that the page can say which file the link lacks
            state["file"] = self.file
        if self.selected:
            state["select"] = "\n".join(sorted(self.selected)[:MOST_SELECTED])
        set_address(state)

    def _show_whose(self) -> None:
        """Say whose prices these are, and where α comes from."""
        priced, count = self.priced, len(self.priced.clients)
        self.whose.set_text(
            f"{priced.name or 'Example'}: {number(count)} clients"
            + (", the paper's Setup 1" if priced.name is None else "")
            + "".join(f". {name}: {MEANING[name]}" for name in priced.assumed)
        )
        measured = priced.calibration
        self.alpha.set_visibility(measured is None)
        if measured is not None:
            self.measured.set_text(measured_line(measured))
        self.measured.set_visibility(measured is not None)
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
        self.price_chart.show(price_chart(self.outcome, rows, chosen))
        self.level_chart.show(level_chart(self.outcome, rows, chosen))
        count = len(self.selected)
        self.chosen.set_text(f"{count} selected" if count else "")

    def _show_table(self) -> None:
        if self.rows is not None:
            self.table.element.selected = [{"client_id": name} for name in sorted(self.selected)]
        names = [name for name in COLUMNS if self.rows is not None and name in self.rows.columns]
        self.table.show(None if self.rows is None else self.rows.select(names))


def _parquet(rows: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    rows.write_parquet(content)
    return content.getvalue()


def _figure(outcome: Outcome, kind: str) -> bytes:
    content = io.BytesIO()
    outcome.plot().savefig(content, format=kind)
    return content.getvalue()
