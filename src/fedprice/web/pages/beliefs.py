"""What to post to clients whose costs and values are unknown."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice._plumbing.tables import csv_text, table_of
from fedprice.beliefs.beliefs import Beliefs
from fedprice.commands.assumptions import MEANING
from fedprice.errors import FedpriceError, InputError
from fedprice.pricing.display import number
from fedprice.random_clients import population
from fedprice.web.cards import PostedCards
from fedprice.web.chart import Chart
from fedprice.web.clients_panel import ClientsPanel, file_name
from fedprice.web.information_panel import InformationPanel
from fedprice.web.newest_only import Newest
from fedprice.web.page_frame import (
    Problem,
    absent_file,
    address,
    copy_button,
    explained,
    frame,
    panel,
    save_button,
    set_address,
    sides,
)
from fedprice.web.paged_table import PagedTable, explain_heads
from fedprice.web.post_answers import DRAWS, FEW, Believed, tariff_frame
from fedprice.web.post_controls import PostControls
from fedprice.web.post_state import BELIEFS_FILE, ROUGH_CELLS, PostAsked
from fedprice.web.posted_panel import PostedPanel
from fedprice.web.truth_panel import TruthPanel
from fedprice.web.uploads import content_of
from fedprice.web.wrong_panel import WrongPanel, wrong_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from nicegui.events import UploadEventArguments

    from fedprice.beliefs.posted import Posted
    from fedprice.clients import Clients
    from fedprice.web.dropped import DroppedTables
    from fedprice.web.served_files import Served

__all__ = ["beliefs_page"]

MONEY = {
    "price": "price", "expected_payment": "expected payment", "payment_std": "± payment",
    "cost": "cost",
}  # fmt: skip
PLURALS = {"price": "prices", "blocks": "blocks", "tariff": "tariffs", "menu": "menus"}
REST = 0.2  # seconds that a control rests before exact numbers are computed
AT_ONCE = 50  # up to this many clients, a sketch is faster than a thread


async def beliefs_page(served: Served, tables: DroppedTables) -> None:
    """Draw the page."""
    with frame("Beliefs"):
        problem, refused = Problem(), dict[str, str]()
        table = await tables.of_this_tab()
        try:
            if table is None:
                believed = await asyncio.to_thread(Believed.served, served)
            else:
                believed = await asyncio.to_thread(Believed.dropped, table)
        except FedpriceError as error:
            refused["clients"] = str(error)
            believed = Believed(population())  # of which nothing is shown
        try:
            asked = believed.asked(address())
        except FedpriceError as error:
            refused["address"] = str(error)
            asked = believed.usual
        for field, what in (("file", "clients"), ("types", "types")):
            if (absent := absent_file(field)) and (table is None or field != "file"):
                refused[what] = absent
        BeliefsPage(problem, served.currency, tables, believed, asked, refused).draw()


class BeliefsPage:
    """The page of one browser tab: its clients, its settings, and what it offers.

    `refused` says why nothing is shown, by what was refused.
    """

    def __init__(
        self,
        problem: Problem,
        currency: str,
        tables: DroppedTables,
        believed: Believed,
        asked: PostAsked,
        refused: dict[str, str],
    ) -> None:
        self.problem, self.currency, self.refused = problem, currency, refused
        self.tables = tables
        self.believed, self.asked = believed, asked
        names = {name: address().get(name, "") for name in ("file", "types")}
        self.files = {name: file for name, file in names.items() if file}  # that were dropped
        self.posted: Posted | None = None
        self.refresh, self.settle = Newest(self._sketch), Newest(self._settle)
        self._believed: dict[str, Any] = {}  # the beliefs that are drawn

    def draw(self) -> None:
        """Draw everything, then fill it in."""
        with sides():
            with ui.column().classes("gap-3 min-w-0"):
                self.clients = ClientsPanel(
                    self._dropped, self._lost, self._example, self.tables, types=False
                )
                self.controls = PostControls(
                    self.asked, self.believed, self.currency, self.ask, self._refuse,
                    self._dropped_beliefs,
                )  # fmt: skip
                self._draw_exports()
            with ui.column().classes("gap-3 min-w-0"):
                self.cards = PostedCards(self.currency)
                self._draw_working()
                self._draw_table()
                self.wrong = WrongPanel(self.currency)
                self._draw_details()
        self.controls.show(self.asked, self.believed)
        ui.timer(0, self.refresh, once=True)

    # The left side: what is asked for.

    def _draw_exports(self) -> None:
        with panel("Export"), ui.row().classes("gap-1"):
            save_button("CSV", self._export).mark("export csv")
            save_button("Beliefs", self._export_beliefs).tooltip(
                "The beliefs as a file, which the command reads where it knows no such "
                "distribution."
            ).mark("export beliefs")
            copy_button("copy as command", self._command).mark("command")
            copy_button("copy as Python", self._python).mark("python")

    def _command(self) -> str:
        return "" if self.refused else self.believed.command(self.asked)

    def _python(self) -> str:
        return "" if self.refused else self.believed.python(self.asked)

    # The right side: what comes out.

    def _draw_working(self) -> None:
        with ui.row().classes(
            "w-full items-center gap-2 no-wrap h-5 -my-2 fp-third"
        ) as self.working:
            ui.spinner(size="sm")
            self.doing = ui.label("").classes("text-sm fp-muted").mark("working")
        self.working.props("role=status")

    def _draw_details(self) -> None:
        """Draw what is one click away: why these offers, and what others would do."""
        names = address().get("show", "").split("\n")
        chosen = [name for name in names if name in self.believed.place]
        self.details = ui.expansion(
            "Details: why these offers, other forms, and lies", value=bool(chosen),
            on_value_change=lambda: ui.timer(0, self.settle, once=True),
        ).classes("fp-panel fp-flush w-full")  # fmt: skip
        with self.details, ui.column().classes("gap-3 w-full min-w-0"):
            self._draw_charts(chosen)

    def _draw_charts(self, chosen: list[str]) -> None:
        with ui.element("div").classes("fp-pairs"):
            self.believed_charts: dict[str, Chart] = {}
            for what in ("cost", "value"):
                with panel(f"What is believed about the {what}", "The share of clients in each "
                           "bar; dotted lines are the quartiles."):  # fmt: skip
                    self.believed_charts[what] = Chart(
                        {}, f"believed distribution of the {what}", "230px"
                    )
        self.offers = PostedPanel(self._soon, self._set_address, chosen)
        self.information = InformationPanel(self.problem, lambda: (self.asked, self.believed))
        self.truth = TruthPanel(self.problem)

    def _draw_table(self) -> None:
        with panel("What each client is offered", "Nothing that a client says changes its offer; "
                   "it chooses how often to join. Click a client to see its tariff.",
                   "fp-third"):  # fmt: skip
            search = ui.row()
            unit = f", {self.currency}" if self.currency else ""
            labels = {name: f"{text}{unit}" for name, text in MONEY.items()}
            self.table = PagedTable(
                sort="expected_payment", labels={"client_id": "client"} | labels
            )
            with search:
                self.table.search_box("Find a client")
            explain_heads(self.table.element, ("cost", "value", "impact", "price"))
            self.table.element.classes("cursor-pointer")
            self.table.element.on(
                "row-click", lambda event: self._chosen(event.args["client_id"]),
                js_handler="(_, row) => emit({client_id: row.client_id})",
            )  # fmt: skip

    def _chosen(self, client: str) -> None:
        self.details.open()
        self.offers.choose(client)

    # What people do.

    def ask(self, **changes: Any) -> None:
        """Change settings, and update the page."""
        same = all(getattr(self.asked, name) == value for name, value in changes.items())
        if same and self.refused.keys().isdisjoint({"address", *changes}):
            return
        self.asked = replace(self.asked, **changes)
        for field in ("address", *changes):
            self.refused.pop(field, None)
        if not {"beliefs", "form"}.isdisjoint(changes):
            self.controls.show(self.asked, self.believed)
        ui.timer(0, self.refresh, once=True)

    def _refuse(self, field: str, name: str) -> None:
        """Show no numbers until a setting is right again."""
        self.refused[field] = f"Nothing is shown until the {name} is right."
        ui.timer(0, self.refresh, once=True)

    def _follow(self) -> None:
        self.controls.show(self.asked, self.believed)
        ui.timer(0, self.refresh, once=True)

    def _dropped(
        self,
        clients: Clients,
        name: str,
        assumed: tuple[str, ...],
        rename: tuple[tuple[str, str], ...],
    ) -> None:
        self.files["file"] = name
        own = self.believed
        self._take(Believed(clients, name, own.file, own.file_name, rename=rename, assumed=assumed))

    def _lost(self, reason: str) -> None:
        """Show nothing, where a table that was dropped cannot be read."""
        self.refused["clients"] = reason
        self._follow()

    async def _dropped_beliefs(self, event: UploadEventArguments) -> None:
        try:
            name, content = await content_of(event)
            file = await asyncio.to_thread(_beliefs_of, name, content)
            file.groups(self.believed.clients)  # raises if the file does not cover all clients
        except FedpriceError as error:
            self.refused["types"] = str(error)
        else:
            self.refused.pop("types", None)
            self.files["types"] = name
            self.believed = replace(self.believed, file=file, file_name=name)
        self._follow()
        self.controls.dropped.reset()

    def _example(self) -> None:
        self.files.pop("file", None)
        self._take(Believed(population(), None, self.believed.file, self.believed.file_name))

    def _take(self, believed: Believed) -> None:
        """Show other clients."""
        self.refused.pop("clients", None)
        if self.asked == self.believed.usual:  # what suits the other clients
            self.asked = believed.usual
            self.controls.set(self.asked)
        self.believed = believed
        self.offers.chosen = []
        self._follow()

    async def _export(self) -> None:
        if self.posted is not None:
            rows = await asyncio.to_thread(self.posted.to_frame)
            ui.download.content(await asyncio.to_thread(csv_text, rows), "posted.csv")

    async def _export_beliefs(self) -> None:
        with explained(self.problem):
            own = self.asked.beliefs_about(self.believed.clients, self.believed.file)
            ui.download.content(await asyncio.to_thread(csv_text, own.to_frame()), BELIEFS_FILE)

    # What follows.

    def _work(self, text: str) -> None:
        """Show what is being computed, or nothing."""
        self.doing.set_text(text)
        self.working.set_visibility(bool(text))

    async def _soon(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function: directly for few clients (some 30 ms), in a thread for many."""
        if len(self.believed.clients) <= AT_ONCE:
            return function(*arguments)
        return await asyncio.to_thread(function, *arguments)

    async def _sketch(self) -> None:
        """Show the beliefs and, where that is fast, approximately what to post for them."""
        asked, own = self.asked, self.believed
        rest, follows = 0.0, False
        with explained(self.problem):
            try:
                if self.refused:
                    raise InputError(" ".join(self.refused.values()))
                await self._show_beliefs()
                self.information.is_stale()
                if asked.form == "price" and asked.drawn_from:
                    # Charts move at once; exact numbers follow when the control rests.
                    await self._show(await self._soon(own.post, asked, ROUGH_CELLS), rough=True)
                    rest = REST
                follows = True
            except InputError:
                self._show_nothing()
                raise
        current = self._current(asked, own)
        if current or self.refused:
            self._work(f"computing {PLURALS[asked.form]} …" if follows else "")
        if current and follows:
            ui.timer(rest, self.settle, once=True)

    def _show_nothing(self) -> None:
        """Leave no number of what was asked for before."""
        self.posted, self._believed = None, {}
        self.clients.show("No clients." if "clients" in self.refused else "")
        self.cards.show(None)
        self.table.show(None)
        self.wrong.show(None, [])
        self.details.set_visibility(False)
        for line in self.controls.lines.values():
            line.set_text("")

    def _current(self, asked: PostAsked, own: Believed) -> bool:
        """Return whether these are still the current settings, and nothing is refused."""
        return asked == self.asked and own is self.believed and not self.refused

    async def _settle(self) -> None:
        """Show exactly what to post, and then everything that depends on it."""
        asked, own = self.asked, self.believed
        if self.refused:
            return
        try:
            with explained(self.problem, partial(self._current, asked, own)):
                posted = await self._posted(asked, own)
                if not self._current(asked, own):
                    return  # the sketch of the new settings will come here again
                await self._show(posted)
                self._set_address()
                if len(own.clients) <= FEW:
                    self._work("comparing with costs and values known …")
                    known = await asyncio.to_thread(posted.value_of_information, DRAWS)
                    if not self._current(asked, own):
                        return
                    self.cards.show_known(known)
                if self.details.value:
                    await self.truth.show(asked, own)
        finally:
            if self._current(asked, own):
                self._work("")

    async def _posted(self, asked: PostAsked, own: Believed) -> Posted:
        try:
            return await asyncio.to_thread(own.post, asked)
        except InputError:
            if self._current(asked, own):
                self._show_nothing()
            raise

    def _set_address(self) -> None:
        state = self.asked.address(self.believed.usual)
        state |= self.files  # so that the page can say which file the link lacks
        if self.offers.chosen:
            state["show"] = "\n".join(self.offers.chosen)
        set_address(state)

    async def _show_beliefs(self) -> None:
        own = self.believed
        unknown = " and ".join(f"{name}s" for name in own.clients.unknown)
        what = f"{unknown} unknown" if unknown else "costs and values known"
        self.clients.show(
            f"{file_name(own.name)}: {number(len(own.clients))} clients, {what}",
            (*(f"{name} is {MEANING[name]}." for name in own.assumed), *own.notes),
        )
        drawn = await self._soon(own.distributions, self.asked)
        if drawn == self._believed:  # only other settings have changed
            return
        self._believed = drawn
        for name, (options, line) in drawn.items():
            self.believed_charts[name].show(options)
            self.controls.lines[name].set_text(line)

    async def _show(self, posted: Posted, *, rough: bool = False) -> None:
        """Show the offers; approximately while a control moves."""
        self.posted = posted
        self.details.set_visibility(True)
        self.cards.show(posted, rough=rough)
        if self.details.value:
            await self.offers.show(posted, rough=rough)
        if not rough:
            few = len(posted.clients) <= FEW
            rows = await asyncio.to_thread(wrong_rows, posted) if few else []
            table = await asyncio.to_thread(tariff_frame, posted)
            if self.posted is posted:  # otherwise something else is asked for by now
                self.wrong.show(posted, rows)
                self.table.show(table)


def _beliefs_of(name: str, content: bytes) -> Beliefs:
    """Return the beliefs in a file's content, read as `Beliefs.read` reads a file."""
    table = table_of(content, name)
    try:
        return Beliefs.from_frame(table)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
