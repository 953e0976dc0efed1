"""What clients would be offered if some had other costs or values: beside the table of clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import ui

from fedprice._plumbing.dialects import typed_number
from fedprice.errors import FedpriceError
from fedprice.pricing.display import number, percent
from fedprice.web.newest_only import Newest
from fedprice.web.page_frame import Problem, copy_button, panel
from fedprice.web.paged_table import PagedTable

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from fedprice.commands.what_if import WhatIf
    from fedprice.web.price_answers import Priced
    from fedprice.web.price_state import Asked

__all__ = ["WhatIfPanel"]

LABELS = {
    "payment": "payment now", "payment_if": "payment then", "level": "level now",
    "level_if": "level then",
}  # fmt: skip


class WhatIfPanel:
    """A panel that is there while the user tries other numbers for some clients.

    Parameters
    ----------
    current
        Returns the clients and the settings.
    currency
        The label of money.
    """

    def __init__(
        self,
        current: Callable[[], tuple[Priced, Asked]],
        currency: str,
    ) -> None:
        self._current, self._currency = current, currency
        self.changes: dict[str, dict[str, float]] = {}
        self.refresh = Newest(self._compute)
        with panel("What if", classes="fp-third") as self._card:
            self._asked = ui.label("").classes("font-semibold").mark("what if")
            self._problem = Problem()
            self._said = ui.column().classes("w-full gap-1 mt-1").props("aria-live=polite")
            self._table = PagedTable(labels={"client_id": "client"} | LABELS)
            with ui.row().classes("gap-1 mt-1"):
                ui.button("Back to the table's numbers", icon="undo", on_click=self.clear).props(
                    "flat dense no-caps size=12px"
                )
                copy_button("copy as command", self._command)
        self.clear()

    def _command(self) -> str:
        priced, asked = self._current()
        return priced.command(asked, self.changes)

    def clear(self) -> None:
        """Forget all changes."""
        self.changes = {}
        self._card.set_visibility(False)

    def hide(self) -> None:
        """Hide the panel until `refresh`: what is asked for now has no prices."""
        self._card.set_visibility(False)

    def edit(self, client: str, field: str, text: str) -> None:
        """Try another number for a client, as it was typed."""
        self._card.set_visibility(True)
        try:
            value = typed_number(text)
        except FedpriceError as error:
            self._show_nothing(f"{field} of {client}: {error}")
            return
        self.changes.setdefault(client, {})[field] = value
        ui.timer(0, self.refresh, once=True)

    def _show_nothing(self, reason: str) -> None:
        self._problem.show(reason)
        self._said.clear()
        self._table.element.set_visibility(False)

    async def _compute(self) -> None:
        if not self.changes:
            return
        priced, asked = self._current()
        changes = {client: dict(fields) for client, fields in self.changes.items()}
        words = ", ".join(
            f"the {field} of {client} were {number(value)}"
            for client, fields in changes.items()
            for field, value in fields.items()
        )
        self._asked.set_text(f"If {words}:")
        try:
            found = await asyncio.to_thread(priced.what_if, asked, changes)
        except FedpriceError as error:
            self._show_nothing(str(error))
            return
        if (priced, asked) != self._current() or changes != self.changes:
            return  # what is current now comes next
        self._problem.clear()
        self._card.set_visibility(True)
        self._table.element.set_visibility(True)
        self._show(found)

    def _show(self, found: WhatIf) -> None:
        before, after = found.before, found.after
        self._said.clear()
        with self._said:
            for line in found.sentences(self._currency):
                ui.label(line)
            ui.label(
                f"Distance to full participation: {percent(before.distance)} now, "
                f"{percent(after.distance)} then. Spend: {number(before.spend)} now, "
                f"{number(after.spend)} then."
            ).mark("what if in total")
        self._table.show(_rows(found))


def _rows(found: WhatIf) -> pl.DataFrame:
    """Return the offers now and then: first those who changed, then those who change most."""
    rows: pl.DataFrame = found.to_frame().select("client_id", *LABELS)[found.order().tolist()]
    return rows
