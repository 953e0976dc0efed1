"""What to post to clients whose costs and values nobody knows."""

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
from fedprice.web import belief_charts as charts
from fedprice.web.asked import EXAMPLE
from fedprice.web.believed import DRAWS, FEW, Believed, tariff_frame
from fedprice.web.information_panel import InformationPanel
from fedprice.web.look import (
    Chart,
    Dial,
    Figure,
    Problem,
    address,
    copy_button,
    drop,
    explain,
    explained,
    frame,
    measured_line,
    panel,
    set_address,
    term,
)
from fedprice.web.newest import Newest
from fedprice.web.paged_table import PagedTable, explain_heads
from fedprice.web.post_asked import BELIEFS_FILE, BLOCKS, ROUGH_CELLS, PostAsked
from fedprice.web.truth_panel import TruthPanel
from fedprice.web.uploads import LARGEST_UPLOAD, clients_of, content_of, table_in
from fedprice.words import MONEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from nicegui.events import UploadEventArguments

    from fedprice.beliefs.posted import Information, Posted
    from fedprice.web.served import Served

__all__ = ["beliefs_page"]

SOURCES = {
    "exponential": "exponential: means only",
    "lognormal": "lognormal: means and spread",
    "ranges": "ranges: least and largest",
    "file": "a file of types",
    "others": "the other clients' types",
}
PLURALS = {"price": "prices", "blocks": "blocks", "tariff": "tariffs", "menu": "menus"}
FORM_NAMES = {"price": "price", "blocks": "blocks", "tariff": "tariff", "menu": "menu"}
DIALS = {  # field: word, ends, step, text
    "cost": ("mean cost", (1, 200), 1, None),
    "value": ("mean value", (0, 20_000), 100, None),
    "spread": ("spread", (0, 2), 0.05, None),
    "cost_low": ("least cost", (1, 200), 1, None),
    "cost_high": ("largest cost", (1, 400), 1, None),
    "value_low": ("least value", (0, 20_000), 100, None),
    "value_high": ("largest value", (0, 40_000), 100, None),
    "classes": ("price classes", (0, 12), 1, "price classes (0: any)"),
    "risk": ("risk", (0, 0.45), 0.01, "risk (0: on average)"),
    "budget": ("budget", (0, 1000), 1, None),
    "rounds": ("rounds", (10, 5000), 10, None),
    "alpha": ("alpha", (0.05, 20), 0.05, "α"),
    "exponent": ("cost exponent", (1.1, 4), 0.1, "τ"),
}
WHOLE = ("rounds", "classes")
OF_SOURCE = {
    "exponential": ("cost", "value"),
    "lognormal": ("cost", "value", "spread"),
    "ranges": ("cost_low", "cost_high", "value_low", "value_high"),
    "file": (),
    "others": (),
}
REST = 0.2  # seconds that a control rests before exact numbers are computed
AT_ONCE = 50  # clients whose sketch is faster than handing it to a thread
MOST_SHOWN = 8  # clients whose tariffs are drawn


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
        unread = Problem()  # stays until something else is read
        if wrong:
            unread.show(" ".join(wrong))
        BeliefsPage(problem, unread, believed, asked).draw()


class BeliefsPage:
    """The page of one browser tab: its clients, what is asked for, and what is drawn."""

    def __init__(
        self, problem: Problem, unread: Problem, believed: Believed, asked: PostAsked
    ) -> None:
        self.problem, self.unread, self.believed, self.asked = problem, unread, believed, asked
        self.chosen = [x for x in address().get("show", "").split("\n") if x in believed.place]
        self.posted: Posted | None = None
        self.refresh, self.settle = Newest(self._sketch), Newest(self._settle)
        self._legend: list[str] = []  # the clients that it names
        self._believed: dict[str, Any] = {}  # what is drawn of costs and values

    def draw(self) -> None:
        """Draw everything, then fill it in."""
        with ui.element("div").classes("w-full grid gap-3 grid-cols-1 lg:grid-cols-[300px_1fr]"):
            with ui.column().classes("gap-3 min-w-0"):
                self._draw_clients()
                self._draw_beliefs()
                self._draw_controls()
                self._draw_exports()
            with ui.column().classes("gap-3 min-w-0"):
                self._draw_cards()
                self._draw_charts()
                self.information = InformationPanel(
                    self.problem, lambda: (self.asked, self.believed)
                )
                self.truth = TruthPanel(self.problem)
                self._draw_table()
        self._show_controls()
        ui.timer(0, self.refresh, once=True)

    # The left side: what is asked for.

    def _draw_clients(self) -> None:
        with panel("Clients", "Costs and values are not needed; only a menu needs values."):
            self.whose = ui.label("").classes("text-sm fp-muted mb-1")
            self.dropped = drop(
                "Drop CSV or Parquet here", ".csv,.parquet", self._dropped, LARGEST_UPLOAD
            )
            ui.button("Use the example", on_click=self._example).props("flat dense no-caps")

    def _draw_beliefs(self) -> None:
        with panel("What is believed"):
            term("beliefs", "costs and values are")
            self.source = ui.select(
                SOURCES, value=self.asked.beliefs,
                on_change=lambda event: self.ask(beliefs=event.value),
            )  # fmt: skip
            self.source.props('dense outlined aria-label="beliefs"').classes("w-full")
            self.parts: dict[str, ui.element] = {}
            for field in (
                "cost", "value", "spread", "cost_low", "cost_high", "value_low", "value_high",
            ):  # fmt: skip
                self._dial(field)
            with ui.column().classes("w-full gap-1 mt-2") as self.parts["file"]:
                self.file_name = ui.label("").classes("text-sm fp-muted")
                self.dropped_beliefs = drop(
                    "Drop a file of beliefs here", ".csv,.parquet", self._dropped_beliefs,
                    LARGEST_UPLOAD,
                )  # fmt: skip
                ui.label("Columns: cost, value, probability; client_id or class.").classes(
                    "text-xs fp-muted"
                )
            with ui.column().classes("w-full mt-2") as self.parts["others"]:
                ui.label(
                    "Each client is priced by the costs and values of all others in the table."
                ).classes("text-xs fp-muted")
            with ui.column().classes("w-full mt-2") as self.parts["menu"]:
                ui.label("A menu takes the values from the table of clients.").classes(
                    "text-xs fp-muted"
                )

    def _draw_controls(self) -> None:
        with panel("What is posted"):
            ui.label(MONEY).classes("text-xs fp-muted")
            term("form").classes("mb-1")
            self.form = ui.toggle(
                FORM_NAMES, value=self.asked.form,
                on_change=lambda event: self.ask(form=event.value),
            ).props('no-caps dense spread aria-label="form"').classes("w-full")  # fmt: skip
            with ui.column().classes("w-full gap-0 mt-2") as self.parts["blocks"]:
                term("blocks")
                self.blocks = ui.toggle(
                    list(BLOCKS), value=self.asked.blocks if self.asked.blocks in BLOCKS else 4,
                    on_change=lambda event: self.ask(blocks=event.value),
                ).props('dense spread aria-label="blocks"').classes("w-full")  # fmt: skip
            for field in ("classes", "risk", "budget", "rounds", "alpha", "exponent"):
                self._dial(field)
            with ui.column().classes("w-full mt-2") as self.parts["measured"]:
                measured = self.believed.calibration
                ui.label("" if measured is None else measured_line(measured)).classes("text-sm")

    def _dial(self, field: str) -> None:
        word, (low, high), step, text = DIALS[field]
        value = getattr(self.asked, field)

        def change(value: float) -> None:
            self.ask(**{field: int(value) if field in WHOLE else value})

        with ui.column().classes("w-full gap-0") as self.parts[field]:
            Dial(
                word, value, ends=(min(low, value), max(high, value)), step=step, on_change=change,
                text=text,
            )  # fmt: skip

    def _show_controls(self) -> None:
        """Show the controls that go with the beliefs and the form."""
        asked, shown = self.asked, set(OF_SOURCE[self.asked.beliefs])
        if asked.form == "menu":
            shown -= {"value", "value_low", "value_high"}
            shown.add("menu")
        shown |= {"budget", "rounds", "exponent", asked.beliefs, asked.form}
        shown.add("alpha" if self.believed.calibration is None else "measured")
        if asked.form == "price" and asked.beliefs != "others":
            shown |= {"classes", "risk"}
        for name, part in self.parts.items():
            part.set_visibility(name in shown)
        own = self.believed
        self.file_name.set_text(own.file_name or "No file of beliefs yet.")
        offered = [x for x in SOURCES if x != "others" or own.knows_types or asked.beliefs == x]
        self.source.set_options({x: SOURCES[x] for x in offered}, value=asked.beliefs)
        menu = "value" not in own.clients.unknown or asked.form == "menu"
        forms = {x: name for x, name in FORM_NAMES.items() if x != "menu" or menu}
        self.form.set_options(forms, value=asked.form)

    def _draw_exports(self) -> None:
        with panel("Export"), ui.row().classes("gap-1"):
            ui.button("CSV", on_click=self._export).props("outline dense no-caps size=sm").mark(
                "export csv"
            )
            ui.button("Beliefs", on_click=self._export_beliefs).props(
                "outline dense no-caps size=sm"
            ).tooltip(
                "The beliefs as a file, which the command reads where it knows no such "
                "distribution."
            ).mark("export beliefs")
            copy_button("as command", self._command).mark("command")
            copy_button("as Python", self._python).mark("python")

    def _command(self) -> str:
        own = self.believed
        beliefs = own.file_name if self.asked.beliefs == "file" else None
        line = self.asked.command(
            own.name or EXAMPLE, beliefs or BELIEFS_FILE, own.calibration_name
        )
        return line if own.name else f"fedprice example -o {EXAMPLE}\n{line}"

    def _python(self) -> str:
        own = self.believed
        known = [name for name in ("cost", "value") if name not in own.clients.unknown]
        return self.asked.python(
            own.name, own.file_name or BELIEFS_FILE, own.calibration_name, known
        )

    # The right side: what comes out.

    def _draw_cards(self) -> None:
        with ui.element("div").classes("fp-figures"):
            self.cards = {
                name: Figure(name)
                for name in (
                    "expected loss", "expected spend", "over the budget", "full information",
                    "certificate",
                )
            }  # fmt: skip
        with ui.row().classes("w-full items-center gap-2 no-wrap h-5 -my-2") as self.working:
            ui.spinner(size="sm")
            self.doing = ui.label("").classes("text-sm fp-muted").mark("working")
        self.working.props("role=status")

    def _draw_charts(self) -> None:
        self.charts: dict[str, Chart] = {}
        pairs = "w-full grid gap-3 grid-cols-1 xl:grid-cols-2"
        with ui.element("div").classes(pairs):
            self.believed_charts: dict[str, Chart] = {}
            self.quartiles: dict[str, ui.label] = {}
            for what in ("cost", "value"):
                with panel(f"What is believed of the {what}", "The share of clients in each bar; "
                           "dotted lines are the quartiles."):  # fmt: skip
                    self.quartiles[what] = ui.label("").classes("text-sm fp-muted")
                    self.believed_charts[what] = Chart(
                        {}, f"believed distribution of the {what}", "230px"
                    )
            with panel("Offer over impact", "Each point is a client; click it to draw its tariff."):
                self.charts["price"] = Chart({}, "price over impact, one point per client", "270px")
            with panel("Level over impact", "The mean over the types that are believed in; lines "
                       "reach from their 10 % to their 90 % quantile."):  # fmt: skip
                self.charts["level"] = Chart({}, "expected level over impact", "270px")
        for name in ("price", "level"):
            self.charts[name].on_point(self._clicked)
        with panel("Tariffs of some clients", "What each level is paid over the whole run. Click "
                   "clients in the charts or in the table to draw theirs."):  # fmt: skip
            self.legend = ui.row().classes("w-full items-center gap-1")
            with ui.element("div").classes(pairs):
                self.charts["payment"] = Chart({}, "payment over level", "270px")
                self.charts["marginal"] = Chart({}, "price of one more unit of level", "270px")
        with panel("", "") as self.why:
            self.why_title = explain(
                ui.label("").classes("font-semibold mb-1"),
                "What each price costs and brings is a curve; a price on its lower hull, where the "
                "slope is the same for all clients, is the best use of the money.",
            )
            with ui.element("div").classes(pairs):
                self.charts["hull"] = Chart(
                    {}, "what the prices of one client cost and bring", "270px"
                )
                self.charts["worth"] = Chart({}, "what the price minimises", "270px")

    def _draw_table(self) -> None:
        with panel("Clients and what is posted to them"):
            search = ui.row()
            self.table = PagedTable(sort="expected_payment", labels={"client_id": "client"})
            with search:
                self.table.search_box("Find a client")
            explain_heads(self.table.element, ("cost", "value", "impact", "price"))
            self.table.element.classes("cursor-pointer")
            self.table.element.on(
                "row-click", lambda event: self._clicked(event.args["client_id"]),
                js_handler="(_, row) => emit({client_id: row.client_id})",
            )  # fmt: skip

    # What people do.

    def ask(self, **changes: Any) -> None:
        """Ask for something else; the page follows."""
        if all(getattr(self.asked, name) == value for name, value in changes.items()):
            return
        try:
            self.asked = replace(self.asked, **changes)
        except FedpriceError as error:
            self.problem.show(str(error))
            self._show_controls()
            return
        if not {"beliefs", "form"}.isdisjoint(changes):
            self._show_controls()
        ui.timer(0, self.refresh, once=True)

    def _follow(self) -> None:
        self._show_controls()
        ui.timer(0, self.refresh, once=True)

    def _clicked(self, name: str) -> None:
        """Draw the tariff of a client, or no longer."""
        if name not in self.believed.place:
            return
        shown = self._shown()
        if name in shown:
            self.chosen = [one for one in shown if one != name]
        else:
            self.chosen = [*shown, name][-MOST_SHOWN:]
        self._set_address()
        ui.timer(0, self._show_offers, once=True)

    async def _dropped(self, event: UploadEventArguments) -> None:
        with explained(self.problem):
            name, content = await content_of(event)
            clients = await asyncio.to_thread(partial(clients_of, name, content, types=False))
            self._take(Believed(clients, name, self.believed.file, self.believed.file_name))
        self.dropped.reset()

    async def _dropped_beliefs(self, event: UploadEventArguments) -> None:
        with explained(self.problem):
            name, content = await content_of(event)
            file = await asyncio.to_thread(_beliefs_of, name, content)
            file.groups(self.believed.clients)  # whether it covers them all
            self.believed = replace(self.believed, file=file, file_name=name)
            self._follow()
        self.dropped_beliefs.reset()

    def _example(self) -> None:
        self._take(Believed(population(), None, self.believed.file, self.believed.file_name))

    def _take(self, believed: Believed) -> None:
        """Show other clients."""
        self.unread.clear()
        self.believed, self.chosen = believed, []
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
        """Say what is being computed; nothing if nothing is."""
        self.doing.set_text(text)
        self.working.set_visibility(bool(text))

    async def _soon(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what takes some 30 ms for few clients; beside the event loop for many."""
        if len(self.believed.clients) <= AT_ONCE:
            return function(*arguments)
        return await asyncio.to_thread(function, *arguments)

    async def _sketch(self) -> None:
        """Show what is believed and, where that is fast, roughly what to post by it."""
        asked, own = self.asked, self.believed
        rest, follows = 0.0, False
        with explained(self.problem):
            await self._show_beliefs()
            self.information.is_stale()
            if asked.form == "price" and asked.drawn_from:
                # The charts move at once; the digits follow when the control rests.
                await self._show(await self._soon(own.post, asked, ROUGH_CELLS), rough=True)
                rest = REST
            follows = True
        if self._current(asked, own):
            self._work(f"computing {PLURALS[asked.form]} …" if follows else "")
            if follows:
                ui.timer(rest, self.settle, once=True)

    def _current(self, asked: PostAsked, own: Believed) -> bool:
        """Tell whether this is still what is asked for."""
        return asked == self.asked and own is self.believed

    async def _settle(self) -> None:
        """Show exactly what to post, and then all that follows from it."""
        asked, own = self.asked, self.believed
        try:
            with explained(self.problem, partial(self._current, asked, own)):
                posted = await asyncio.to_thread(own.post, asked)
                if not self._current(asked, own):
                    return  # the sketch of what is asked for now comes here again
                await self._show(posted)
                self._set_address()
                if len(own.clients) <= FEW:
                    self._work("comparing with full information …")
                    known = await asyncio.to_thread(posted.value_of_information, DRAWS)
                    if not self._current(asked, own):
                        return
                    self._show_known(known)
                await self.truth.show(asked, own)
        finally:
            if self._current(asked, own):
                self._work("")

    def _set_address(self) -> None:
        state = self.asked.address(self.believed.usual)
        if self.chosen:
            state["show"] = "\n".join(self.chosen)
        set_address(state)

    async def _show_beliefs(self) -> None:
        own = self.believed
        what = "costs and values known" if own.knows_types else "costs or values unknown"
        self.whose.set_text(f"{own.name or 'Example'}: {number(len(own.clients))} clients, {what}")
        drawn = await self._soon(own.distributions, self.asked)
        if drawn == self._believed:  # it was something else that changed
            return
        self._believed = drawn
        for name, (options, line) in drawn.items():
            self.believed_charts[name].show(options)
            self.quartiles[name].set_text(line)

    async def _show(self, posted: Posted, *, rough: bool = False) -> None:
        """Show what is posted; roughly, while a control moves."""
        self.posted = posted
        about = "≈ " if rough else ""
        cards = self.cards
        cards["expected loss"].show(
            f"{about}{number(posted.expected_loss)}", "above full participation"
        )
        cards["expected spend"].show(
            f"{about}{number(posted.expected_spend)}",
            f"± {number(posted.spend_std)} of {number(posted.budget)}",
        )
        cards["over the budget"].show(f"{about}{posted.over_budget:.1%}", "probability")
        if not rough:
            gap = posted.certificate.gap
            proven = gap < 1
            cards["certificate"].show(
                f"{abs(gap):.1e}" if proven else "none",
                "gap to the best prices" if proven else "not proven to be best",
            )
        cards["full information"].show(
            "…" if len(posted.clients) <= FEW else "–", "times its expected loss"
        )
        await self._show_offers(rough=rough)
        if not rough:
            self.table.show(await asyncio.to_thread(tariff_frame, posted))

    def _show_known(self, known: Information) -> None:
        self.cards["full information"].show(
            f"{known.ratio:.2f} ×", f"95 %: {known.low:.2f} to {known.high:.2f}"
        )

    def _shown(self) -> list[str]:
        """Return the clients whose tariffs are drawn: those chosen, or a few."""
        if self.chosen or self.posted is None:
            return self.chosen
        return charts.some_clients(self.posted)

    async def _show_offers(self, *, rough: bool = False) -> None:
        """Draw all clients and the tariffs of those chosen; the hull when a control rests."""
        posted = self.posted
        if posted is None:
            return
        chosen = self._shown()
        one = chosen[-1] if self.chosen else chosen[0] if chosen else ""
        if rough:
            drawn = await self._soon(charts.offer_charts, posted, chosen, "")
        else:
            drawn = await asyncio.to_thread(charts.offer_charts, posted, chosen, one)
        if posted is not self.posted:
            return
        for name, options in drawn.items():
            self.charts[name].show(options)
        self._show_legend(chosen)
        if not rough:
            self.why.set_visibility("hull" in drawn)
            self.why_title.set_text(f"Why this price: client {one}")

    def _show_legend(self, chosen: list[str]) -> None:
        if chosen == self._legend:
            return
        self._legend = chosen
        self.legend.clear()
        with self.legend:
            for name, color in charts.colors_of(chosen).items():
                button = ui.button(on_click=partial(self._clicked, name), color=None)
                button.props("flat dense no-caps padding='2px 8px'")
                with button, ui.row().classes("items-center gap-2 no-wrap"):
                    ui.element("span").style(
                        f"width: 16px; height: 4px; border-radius: 2px; background: {color}"
                    )
                    ui.label(f"client {name}").classes("text-sm")
                    ui.icon("close", size="14px").classes("fp-muted")


def _beliefs_of(name: str, content: bytes) -> Beliefs:
    """Return the beliefs in a file's content, read as `Beliefs.read` reads a file."""
    table = table_in(name, content)
    try:
        return Beliefs.from_frame(table)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
