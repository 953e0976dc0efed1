"""Charts of the posted offers: all clients, some tariffs, and why one price is what it is."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice.web.chart import Chart
from fedprice.web.offer_charts import colors_of, offer_charts, some_clients
from fedprice.web.page_frame import explain, panel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fedprice.beliefs.posted import Posted

__all__ = ["PostedPanel"]

MOST_SHOWN = 8  # clients whose tariffs are drawn


class PostedPanel:
    """Charts of the posted offers.

    Parameters
    ----------
    soon
        Calls a function with arguments, in a thread if that takes a while.
    on_choice
        Called when other clients are chosen.
    chosen
        The clients whose tariffs are drawn at first; if empty, those of a few are.
    """

    def __init__(
        self, soon: Callable[..., Awaitable[Any]], on_choice: Callable[[], None], chosen: list[str]
    ) -> None:
        self._soon, self._on_choice, self.chosen = soon, on_choice, chosen
        self._posted: Posted | None = None
        self._legend: list[str] = []  # the clients that it names
        self._charts: dict[str, Chart] = {}
        with ui.element("div").classes("fp-pairs"):
            with panel("Offer over impact", "Each point is a client; click it to draw its tariff."):
                self._chart("price", "price over impact, one point per client")
            with panel("Level over impact", "The mean over the believed types; lines reach "
                       "from their 10 % to their 90 % quantile."):  # fmt: skip
                self._chart("level", "expected level over impact")
        for name in ("price", "level"):
            self._charts[name].on_point(self.choose)
        with panel("Tariffs of some clients", "What each level is paid over the whole run. Click "
                   "clients in the charts or in the table to draw theirs."):  # fmt: skip
            self._names = ui.row().classes("w-full items-center gap-1")
            with ui.element("div").classes("fp-pairs"):
                self._chart("payment", "payment over level")
                self._chart("marginal", "price of one more unit of level")
        with panel("") as self._why:
            self._why_title = explain(
                ui.label("").classes("font-semibold mb-1"),
                "The cost and the yield of all prices form a curve; a price on its lower hull, "
                "where the slope is the same for all clients, is the best use of the money.",
            )
            with ui.element("div").classes("fp-pairs"):
                self._chart("hull", "what the prices of one client cost and yield")
                self._chart("worth", "what the price minimises")

    def _chart(self, name: str, label: str) -> None:
        self._charts[name] = Chart({}, label, "270px")

    def choose(self, name: str) -> None:
        """Start or stop drawing the tariff of a client."""
        if self._posted is None or name not in self._posted.clients.ids:
            return
        shown = self._shown(self._posted)
        if name in shown:
            self.chosen = [one for one in shown if one != name]
        else:
            self.chosen = [*shown, name][-MOST_SHOWN:]
        self._on_choice()
        ui.timer(0, partial(self.show, self._posted), once=True)

    def _shown(self, posted: Posted) -> list[str]:
        """Return the clients whose tariffs are drawn: those chosen, or a few."""
        return self.chosen or some_clients(posted)

    async def show(self, posted: Posted, *, rough: bool = False) -> None:
        """Draw all clients and the tariffs of those chosen, and the hull once controls rest."""
        self._posted = posted
        chosen = self._shown(posted)
        one = chosen[-1] if self.chosen else chosen[0] if chosen else ""
        if rough:
            drawn = await self._soon(offer_charts, posted, chosen, "")
        else:
            drawn = await asyncio.to_thread(offer_charts, posted, chosen, one)
        if posted is not self._posted:
            return
        for name, options in drawn.items():
            self._charts[name].show(options)
        self._show_names(chosen)
        if not rough:
            self._why.set_visibility("hull" in drawn)
            self._why_title.set_text(f"Why this price: client {one}")

    def _show_names(self, chosen: list[str]) -> None:
        if chosen == self._legend:
            return
        self._legend = chosen
        self._names.clear()
        with self._names:
            for name, color in colors_of(chosen).items():
                button = ui.button(on_click=partial(self.choose, name), color=None)
                button.props("flat dense no-caps padding='2px 8px'")
                with button, ui.row().classes("items-center gap-2 no-wrap"):
                    ui.element("span").style(
                        f"width: 16px; height: 4px; border-radius: 2px; background: {color}"
                    )
                    ui.label(f"client {name}").classes("text-sm")
                    ui.icon("close", size="14px").classes("fp-muted")
