"""A client's account, what an offer would earn it, and the verification of exports."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import run, ui

from fedprice.errors import FedpriceError
from fedprice.market.responses import offer_made
from fedprice.web.account_view import draw_balance, draw_entries, draw_runs, draw_sums
from fedprice.web.accounts import account_of, client_address, client_names
from fedprice.web.badge import Badge
from fedprice.web.export_panel import ExportPanel
from fedprice.web.ledger_reading import read_with_progress
from fedprice.web.offer_panel import OfferPanel
from fedprice.web.page_frame import Problem, address, copy_button, empty, frame, panel
from fedprice.web.watched_ledger import watched

if TYPE_CHECKING:
    from nicegui.events import GenericEventArguments

    from fedprice.web.accounts import Account
    from fedprice.web.served_files import Served

__all__ = ["client_page"]

MOST_SHOWN = 50  # clients to choose from
NO_LEDGER = (
    "No ledger was given, so there is no statement to show. Start the page with one, or drop an "
    "offer or an export below."
)
NO_MONEY = (
    "No client with this name has received or paid any money; press Enter to search the runs."
)


def client_page(served: Served, client: str = "") -> None:
    """Draw the page of a client, or the page on which to choose one."""
    client = client or address().get("name", "")
    with frame("Client"):
        problem = Problem()
        if client:
            with ui.row().classes("w-full items-baseline gap-3"):
                ui.label("Client").classes("text-2xl fp-muted")
                title = ui.label(client).classes("text-2xl font-semibold break-all")
                title.props("data-part=client role=heading aria-level=1")
                ui.link("another client", "/client").classes("fp-link")
        if served.ledger is None:
            empty(NO_LEDGER, "fedprice serve --ledger sqlite:///market.db")
        elif client:
            _draw_statement(served.ledger, client, problem)
            return
        else:
            _draw_choice(served.ledger, problem)
        with _halves():
            with _half():
                OfferPanel()
            with _half():
                ExportPanel(client)


def _halves() -> ui.element:
    """Return a grid with one column on a narrow screen, and two on a wide one."""
    return ui.element("div").classes("fp-pairs items-start")


def _half() -> ui.element:
    return ui.column().classes("gap-3 min-w-0")


def _draw_statement(url: str, client: str, problem: Problem) -> None:
    """Draw a place for the statement, and fill it once it has been read."""
    with ui.row().classes("w-full items-center gap-x-4 gap-y-0"):
        source = ui.row().classes("items-center gap-1 no-wrap").props("data-part=source")
        badge = Badge()
    sums = ui.column().classes("w-full")
    with _halves():
        with _half():
            runs = _half().classes("w-full")
            runs.set_visibility(False)
            ExportPanel(client)
        with _half():
            offers = OfferPanel()
    rest = ui.column().classes("w-full gap-3")
    ledger = watched(url)

    async def load() -> None:
        try:
            account: Account = await read_with_progress(
                lambda reading: account_of(url, client, reading.count), "Reading the ledger", sums
            )
        except FedpriceError as error:
            problem.show(str(error))
            return
        with source:
            told = f"in {account.unit}, as recorded in {account.size:,} entries; the last one is"
            ui.label(f"Statement {told} {account.head[:12]}…").classes("text-sm fp-muted")
            copy_button("", account.head)
        with sums:
            draw_sums(account)
        runs.set_visibility(True)
        with runs:
            draw_runs(account, linked=True)
            draw_balance(account)
        with rest:
            draw_entries(account)
        await _choose_offer(url, account, offers, problem)

    ui.timer(0.01, load, once=True)

    async def look() -> None:
        badge.show(await asyncio.to_thread(ledger.checked))

    ui.timer(1.0, look)


async def _choose_offer(url: str, account: Account, offers: OfferPanel, problem: Problem) -> None:
    """Let the user choose a run in which the client has an offer, initially the last one."""
    names = [*(part.name for part in account.parts if part.run.signed), *account.offered]
    if not names:
        return

    async def show() -> None:
        try:
            found = await run.io_bound(offer_made, url, str(select.value), account.client)
        except FedpriceError as error:
            problem.show(str(error))
            return
        if found is not None:
            offers.show(*found)

    with offers.choice:
        select = ui.select(names[::-1], value=names[-1], label="offer of the run", on_change=show)
        select.props("dense outlined").classes("min-w-60 max-w-full")
    await show()


def _draw_choice(url: str, problem: Problem) -> None:
    """Draw a list of the ledger's clients, which can be searched."""

    async def show() -> None:
        try:
            wanted = str(search.value or "")
            listing = await run.io_bound(client_names, url, wanted, MOST_SHOWN)
        except FedpriceError as error:
            problem.show(str(error))
            return
        if listing is None or wanted != str(search.value or ""):
            return  # the server is shutting down, or more was typed meanwhile
        found, unit, total = listing
        listed.clear()
        with listed:
            for name, balance in found:
                with ui.link(target=client_address(name)).classes("fp-choice"):
                    ui.label(name).classes("break-all")
                    ui.label(f"{balance:,} {unit}").classes("fp-amount fp-muted")
        more = total - len(found)
        told = f"{more:,} more; type part of the name" if more else ""
        rest.set_text(told if total else NO_MONEY)

    def enter(event: GenericEventArguments) -> None:
        if name := str(event.args).strip():
            ui.navigate.to(client_address(name))

    with panel("Statement of a client"):
        search = ui.input("client's name", on_change=show).props(
            "dense outlined clearable debounce=200 autocomplete=off"
        ).classes("w-full max-w-md")  # fmt: skip
        # What was typed last may still be on its way to the server.
        search.on("keydown.enter", enter, js_handler="event => emit(event.target.value)")
        listed = ui.element("div").classes("fp-choices mt-2").props("data-part=clients")
        rest = ui.label("").classes("text-sm fp-muted mt-1")
    ui.timer(0.01, show, once=True)
