"""What to post to clients whose costs and values are unknown."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice.beliefs.beliefs import Beliefs
from fedprice.errors import FedpriceError, InputError
from fedprice.pricing.display import number
from fedprice.random_clients import population
from fedprice.tables import csv_text
from fedprice.web.asked import EXAMPLE
from fedprice.web.believed import DRAWS, FEW, Believed, tariff_frame
from fedprice.web.cards import PostedCards
from fedprice.web.chart import Chart
from fedprice.web.information_panel import InformationPanel
from fedprice.web.look import (
    Problem,
    absent_file,
    address,
    copy_button,
    drop,
    explained,
    frame,
    panel,
    save_button,
    set_address,
    sides,
)
from fedprice.web.newest import Newest
from fedprice.web.paged_table import PagedTable, explain_heads
from fedprice.web.post_asked import BELIEFS_FILE, ROUGH_CELLS, PostAsked
from fedprice.web.post_controls import PostControls
from fedprice.web.posted_panel import PostedPanel
from fedprice.web.truth_panel import TruthPanel
from fedprice.web.uploads import LARGEST_UPLOAD, clients_of, content_of, table_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from nicegui.events import UploadEventArguments

    from fedprice.beliefs.posted import Posted
    from fedprice.web.served import Served

__all__ = ["beliefs_page"]

PLURALS = {"price": "prices", "blocks": "blocks", "tariff": "tariffs", "menu": "menus"}
REST = 0.2  # seconds that a control rests before exact numbers are computed
AT_ONCE = 50  # up to this many clients, a sketch is faster than a thread


async def beliefs_page(served: Served) -> None:
    """Draw the page."""
    with frame("Beliefs"):
        problem, wrong = Problem(), list[str]()
        try:
            believed = await asyncio.to_thread(Believed.served, served)
        except FedpriceError as error:
            wrong.append(str(error))
            believed = Believed(population())
        try:
            asked = believed.usual.changed(address())
        except FedpriceError as error:
            wrong.append(str(error))
            asked = believed.usual
        wrong += filter(None, [absent_file(), absent_file("types")])
        unread = Problem()  # stays until something else is read
        if wrong:
            unread.show(" ".join(wrong))
        BeliefsPage(problem, unread, believed, asked).draw()


class BeliefsPage:
    """The page of one browser tab: its clients, its settings, and its charts."""

    def __init__(
        self, problem: Problem, unread: Problem, believed: Believed, asked: PostAsked
    ) -> None:
        self.problem, self.unread, self.believed, self.asked = problem, unread, believed, asked
        self.files: dict[str, str] = {}  # the names of files that were dropped
        self.posted: Posted | None = None
        self.refresh, self.settle = Newest(self._sketch), Newest(self._settle)
        self._believed: dict[str, Any] = {}  # the beliefs that are drawn

    def draw(self) -> None:
        """Draw everything, then fill it in."""
        with sides():
            with ui.column().classes("gap-3 min-w-0"):
                self._draw_clients()
                self.controls = PostControls(
                    self.asked, self.believed, self.ask, self._dropped_beliefs
                )
                self._draw_exports()
            with ui.column().classes("gap-3 min-w-0"):
                self.cards = PostedCards()
                self._draw_working()
                self._draw_charts()
                self.information = InformationPanel(
                    self.problem, lambda: (self.asked, self.believed)
                )
                self.truth = TruthPanel(self.problem)
                self._draw_table()
        self.controls.show(self.asked, self.believed)
        ui.timer(0, self.refresh, once=True)

    # The left side: what is asked for.

    def _draw_clients(self) -> None:
        with panel(
            "Clients", "Costs and values are not needed; only a menu needs values.", "fp-first"
        ):
            self.whose = ui.label("").classes("text-sm fp-muted mb-1")
            self.dropped = drop(
                "Drop or choose CSV or Parquet", ".csv,.parquet", self._dropped, LARGEST_UPLOAD
            )
            ui.button("Use the example", on_click=self._example).props("flat dense no-caps")

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
        own = self.believed
        beliefs = own.file_name if self.asked.beliefs == "file" else None
        line = self.asked.command(
            own.name or EXAMPLE, beliefs or BELIEFS_FILE, own.calibration_name, own.rename
        )
        return line if own.name else f"fedprice example -o {EXAMPLE}\n{line}"

    def _python(self) -> str:
        own = self.believed
        return self.asked.python(
            own.name, own.file_name or BELIEFS_FILE, own.calibration_name, own.rename
        )

    # The right side: what comes out.

    def _draw_working(self) -> None:
        with ui.row().classes(
            "w-full items-center gap-2 no-wrap h-5 -my-2 fp-second"
        ) as self.working:
            ui.spinner(size="sm")
            self.doing = ui.label("").classes("text-sm fp-muted").mark("working")
        self.working.props("role=status")

    def _draw_charts(self) -> None:
        with ui.element("div").classes("fp-pairs"):
            self.believed_charts: dict[str, Chart] = {}
            self.quartiles: dict[str, ui.label] = {}
            for what in ("cost", "value"):
                with panel(f"What is believed about the {what}", "The share of clients in each "
                           "bar; dotted lines are the quartiles."):  # fmt: skip
                    self.quartiles[what] = ui.label("").classes("text-sm fp-muted")
                    self.believed_charts[what] = Chart(
                        {}, f"believed distribution of the {what}", "230px"
                    )
        names = address().get("show", "").split("\n")
        self.offers = PostedPanel(
            self._soon, self._set_address, [name for name in names if name in self.believed.place]
        )

    def _draw_table(self) -> None:
        with panel("Clients and what is posted to them"):
            search = ui.row()
            self.table = PagedTable(sort="expected_payment", labels={"client_id": "client"})
            with search:
                self.table.search_box("Find a client")
            explain_heads(self.table.element, ("cost", "value", "impact", "price"))
            self.table.element.classes("cursor-pointer")
            self.table.element.on(
                "row-click", lambda event: self.offers.choose(event.args["client_id"]),
                js_handler="(_, row) => emit({client_id: row.client_id})",
            )  # fmt: skip

    # What people do.

    def ask(self, **changes: Any) -> None:
        """Change settings, and update the page."""
        if all(getattr(self.asked, name) == value for name, value in changes.items()):
            return
        try:
            self.asked = replace(self.asked, **changes)
        except FedpriceError as error:
            self.problem.show(str(error))
            self.controls.show(self.asked, self.believed)
            return
        if not {"beliefs", "form"}.isdisjoint(changes):
            self.controls.show(self.asked, self.believed)
        ui.timer(0, self.refresh, once=True)

    def _follow(self) -> None:
        self.controls.show(self.asked, self.believed)
        ui.timer(0, self.refresh, once=True)

    async def _dropped(self, event: UploadEventArguments) -> None:
        with explained(self.problem):
            name, content = await content_of(event)
            clients = await asyncio.to_thread(partial(clients_of, name, content, types=False))
            self.files["file"] = name
            self._take(Believed(clients, name, self.believed.file, self.believed.file_name))
        self.dropped.reset()

    async def _dropped_beliefs(self, event: UploadEventArguments) -> None:
        with explained(self.problem):
            name, content = await content_of(event)
            file = await asyncio.to_thread(_beliefs_of, name, content)
            file.groups(self.believed.clients)  # raises if the file does not cover all clients
            self.files["types"] = name
            self.believed = replace(self.believed, file=file, file_name=name)
            self._follow()
        self.controls.dropped.reset()

    def _example(self) -> None:
        self.files.pop("file", None)
        self._take(Believed(population(), None, self.believed.file, self.believed.file_name))

    def _take(self, believed: Believed) -> None:
        """Show other clients."""
        self.unread.clear()
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
            await self._show_beliefs()
            self.information.is_stale()
            if asked.form == "price" and asked.drawn_from:
                # Charts move at once; exact numbers follow when the control rests.
                await self._show(await self._soon(own.post, asked, ROUGH_CELLS), rough=True)
                rest = REST
            follows = True
        if self._current(asked, own):
            self._work(f"computing {PLURALS[asked.form]} …" if follows else "")
            if follows:
                ui.timer(rest, self.settle, once=True)

    def _current(self, asked: PostAsked, own: Believed) -> bool:
        """Return whether these are still the current settings."""
        return asked == self.asked and own is self.believed

    async def _settle(self) -> None:
        """Show exactly what to post, and then everything that depends on it."""
        asked, own = self.asked, self.believed
        try:
            with explained(self.problem, partial(self._current, asked, own)):
                posted = await asyncio.to_thread(own.post, asked)
                if not self._current(asked, own):
                    return  # the sketch of the new settings will come here again
                await self._show(posted)
                self._set_address()
                if len(own.clients) <= FEW:
                    self._work("comparing with full information …")
                    known = await asyncio.to_thread(posted.value_of_information, DRAWS)
                    if not self._current(asked, own):
                        return
                    self.cards.show_known(known)
                await self.truth.show(asked, own)
        finally:
            if self._current(asked, own):
                self._work("")

    def _set_address(self) -> None:
        state = self.asked.address(self.believed.usual)
        state |= self.files  # so that the page can say which file the link lacks
        if self.offers.chosen:
            state["show"] = "\n".join(self.offers.chosen)
        set_address(state)

    async def _show_beliefs(self) -> None:
        own = self.believed
        what = "costs and values known" if own.knows_types else "costs or values unknown"
        self.whose.set_text(f"{own.name or 'Example'}: {number(len(own.clients))} clients, {what}")
        drawn = await self._soon(own.distributions, self.asked)
        if drawn == self._believed:  # only other settings have changed
            return
        self._believed = drawn
        for name, (options, line) in drawn.items():
            self.believed_charts[name].show(options)
            self.quartiles[name].set_text(line)

    async def _show(self, posted: Posted, *, rough: bool = False) -> None:
        """Show the offers; approximately while a control moves."""
        self.posted = posted
        self.cards.show(posted, rough=rough)
        await self.offers.show(posted, rough=rough)
        if not rough:
            self.table.show(await asyncio.to_thread(tariff_frame, posted))


def _beliefs_of(name: str, content: bytes) -> Beliefs:
    """Return the beliefs in a file's content, read as `Beliefs.read` reads a file."""
    table = table_in(name, content)
    try:
        return Beliefs.from_frame(table)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
