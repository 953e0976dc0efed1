"""The panel of both pricing pages that takes a table of clients, under any names of columns."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nicegui import ui

from fedprice.errors import FedpriceError, InputError
from fedprice.web.dropped import DroppedTable
from fedprice.web.page_frame import drop, panel
from fedprice.web.uploads import (
    COLUMNS,
    LARGEST_UPLOAD,
    clients_of,
    columns_to_rename,
    content_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nicegui.events import UploadEventArguments

    from fedprice.clients import Clients
    from fedprice.web.dropped import DroppedTables

__all__ = ["ClientsPanel", "file_name"]

MOST_RENAMED = 20  # columns for which the page asks


class ClientsPanel:
    """A place to drop a table of clients, with a select for each column that has another name.

    Parameters
    ----------
    taken
        Called with the clients, the file's name, the columns that were assumed because the file
        lacks them, and those that were renamed.
    lost
        Called with the reason if a file cannot be read: nothing is priced then.
    example
        Called if the user wants the example instead.
    tables
        Keeps what was dropped, for the other page.
    types
        Whether costs must be there, and values are assumed if they are not.
    """

    def __init__(
        self,
        taken: Callable[[Clients, str, tuple[str, ...], tuple[tuple[str, str], ...]], None],
        lost: Callable[[str], None],
        example: Callable[[], None],
        tables: DroppedTables,
        *,
        types: bool = True,
    ) -> None:
        self._taken, self._lost, self._types = taken, lost, types
        self._tables = tables
        needed = "client_id, samples and cost" if types else "client_id and samples"
        with panel("Clients", classes="fp-first"):
            self._whose = ui.label("").classes("text-sm mb-1").mark("whose")
            self._notes = ui.label("").classes("text-xs mb-1 fp-lines").mark("notes")
            self._drop = drop(
                "Drop or choose CSV or Parquet", ".csv,.parquet", self._dropped, LARGEST_UPLOAD
            )
            ui.label(f"Needs {needed}; columns may have other names.").classes(
                "text-xs fp-muted mt-1"
            )
            self._names = ui.column().classes("w-full gap-1 mt-2").mark("names")
            with ui.row().classes("mt-1") as self.buttons:
                ui.button("Use the example", on_click=partial(self._example, example)).props(
                    "flat dense no-caps"
                )

    def show(self, whose: str, notes: Sequence[str] = ()) -> None:
        """Say whose clients these are, and what else is to be known of their table."""
        self._whose.set_text(whose)
        self._notes.set_text("\n".join(notes))
        self._notes.set_visibility(bool(notes))

    async def _dropped(self, event: UploadEventArguments) -> None:
        self._names.clear()
        try:
            name, content = await content_of(event)
            await self._read(name, content, {})
        except FedpriceError as error:
            self._lost(str(error))
        self._drop.reset()

    def _example(self, example: Callable[[], None]) -> None:
        self._names.clear()
        self._tables.take_along(None)
        example()

    async def _read(self, name: str, content: bytes, rename: dict[str, str]) -> None:
        try:
            clients, assumed = await asyncio.to_thread(
                clients_of, name, content, rename, types=self._types
            )
        except InputError as error:
            self._lost(str(error))
            if not rename:
                await self._ask(name, content)
            return
        self._names.clear()
        self._tables.take_along(DroppedTable(name, content, tuple(rename.items())))
        self._taken(clients, name, assumed, tuple(rename.items()))

    async def _ask(self, name: str, content: bytes) -> None:
        """Ask which of our columns those of a file are, if any have other names."""
        columns = await asyncio.to_thread(columns_to_rename, name, content)
        if not 0 < len(columns) <= MOST_RENAMED:
            return
        chosen: dict[str, ui.select] = {}

        async def use() -> None:
            rename = {column: str(chosen[column].value) for column in columns}
            with_name = {column: new for column, new in rename.items() if new}
            try:
                await self._read(name, content, with_name)
            except FedpriceError as error:
                self._lost(str(error))

        with self._names:
            ui.label("What are these columns?").classes("text-sm font-semibold")
            for column, likely in columns.items():
                with ui.row().classes("w-full items-center justify-between no-wrap gap-2"):
                    ui.label(column).classes("text-sm min-w-0 break-all")
                    options = {"": "unknown"} | {ours: ours for ours in COLUMNS}
                    select = ui.select(options, value=likely).classes("w-28 shrink-0")
                    chosen[column] = select.props("dense outlined").mark("column")
                    select.props["aria-label"] = f"column {column}"
            ui.button("Use these names", on_click=use).props("outline dense no-caps")


def file_name(path: str | None) -> str:
    """Return the name of a file of clients without its folder; None stands for the example."""
    return "Example" if path is None else Path(path).name
