"""A panel that verifies an export dropped on it, and shows what is in it or what is wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import ui

from fedprice.errors import FedpriceError
from fedprice.web.account_view import csv_button, draw_runs, draw_sums
from fedprice.web.accounts import checked_export, heads_of
from fedprice.web.ledger_reading import read_with_progress
from fedprice.web.page_frame import Problem, copy_button, drop, panel
from fedprice.web.uploads import LARGEST_UPLOAD, content_of

if TYPE_CHECKING:
    from nicegui.events import UploadEventArguments

    from fedprice.verify import Books

__all__ = ["ExportPanel"]

_ONE_AT_A_TIME = asyncio.Semaphore(1)  # two verifications would only slow each other down


class ExportPanel:
    """A panel that verifies exports.

    Parameters
    ----------
    client
        The client whose account is shown; empty to let the user type a name.
    """

    def __init__(self, client: str = "") -> None:
        tip = "Recomputes every coin, weight, payment and hash; trusts nothing in the file"
        with panel("Verify an export", tip) as card:
            card.props("data-part=export")
            ui.label(
                "Drop what `fedprice ledger export -o market.jsonl` wrote. Every signature, coin, "
                "weight, payment, balance and hash is checked. The file is not stored."
            ).classes("text-sm fp-muted")
            with ui.row().classes("w-full gap-3 mt-1 mb-2 items-end"):
                self._client = _box("client, to see its account", client)
                self._head = _box("expected head, to detect a truncated file", "")
            drop("Drop or choose an export (.jsonl)", ".jsonl", self._dropped, LARGEST_UPLOAD)
            with ui.expansion("Play money").classes("w-full text-sm"):
                self._unsigned = ui.switch("Accept transfers that nobody signed (--unsigned)")
            self._problem = Problem()
            self._shown = ui.column().classes("w-full gap-3 mt-2")

    async def _dropped(self, event: UploadEventArguments) -> None:
        event.sender.reset()  # type: ignore[attr-defined]
        self._problem.clear()
        self._shown.clear()
        try:
            heads, client = heads_of(self._head.value), self._client.value.strip()
            unsigned = bool(self._unsigned.value)
            name, content = await content_of(event)
            if _ONE_AT_A_TIME.locked():
                with self._shown:
                    ui.label("Waiting until another export is verified …").classes("fp-muted")
            async with _ONE_AT_A_TIME:
                books, account = await read_with_progress(
                    lambda reading: checked_export(
                        content, name, client=client, heads=heads, unsigned=unsigned,
                        count=reading.count,
                    ),
                    "Verifying",
                    self._shown,
                    content.count(b"\n"),
                )  # fmt: skip
        except FedpriceError as error:
            self._problem.show(str(error))
            return
        with self._shown:
            _draw_verified(name, books, heads)
            if account is not None:
                ui.label(f"{account.client} in this export").classes("font-semibold break-all")
                draw_sums(account)
                draw_runs(account)
                csv_button(account)


def _box(label: str, value: str) -> ui.input:
    """Draw a box for text below its label, which a narrow screen wraps."""
    with ui.column().classes("gap-0 grow basis-60"):
        ui.label(f"{label} (optional)").classes("text-sm")
        box = ui.input(value=value).props(f'dense outlined autocomplete=off aria-label="{label}"')
        return box.classes("w-full")


def _draw_verified(name: str, books: Books, heads: list[str]) -> None:
    with ui.row().classes("items-center gap-2 no-wrap").props("data-part=verified role=status"):
        ui.icon("verified", color="positive").classes("text-2xl")
        ui.label(f"{name} verifies{' in part' if books.only else ''}.").classes("font-semibold")
    if books.only:
        ui.label(
            f"A partial export, for {books.only}: {books.hidden:,} of the entries are hashes only. "
            "It does not show what these say, that they follow the rules, or that none of them "
            f"concerns {books.only}."
        ).props("data-part=partial")
    counts = {
        "entries": len(books.hashes), "signatures valid": books.signatures,
        "coins checked": books.coins, "runs": len(books.runs),
    }  # fmt: skip
    ui.label(", ".join(f"{count:,} {what}" for what, count in counts.items())).props(
        "data-part=counts"
    )
    for run_name, own in books.runs.items():
        if not own.settled:
            ui.label(f"Run {run_name} is not settled: {own.done:,} of {own.rounds:,} rounds.")
    if not heads:
        ui.label(
            "A truncated export verifies, too: to rule that out, give a head that you kept."
        ).classes("text-sm fp-muted")
    if heads:
        ui.label(f"The {'head' if len(heads) == 1 else 'heads'} you gave: found.")
    for what, text in (
        ("ledger", books.ledger),
        ("server's key", books.server or "none: NO SERVER SIGNED it"),
        ("head", books.hashes[-1]),
    ):
        with ui.row().classes("w-full items-center gap-2 no-wrap min-w-0"):
            ui.label(what).classes("fp-muted text-sm shrink-0 w-24")
            ui.label(text).classes("fp-code min-w-0 grow").props(f'data-part="{what}"')
            copy_button("", text)
    ui.label(
        "This shows which keys signed, not whose keys they are: compare the server's key with the "
        "one that you know."
    ).classes("text-sm fp-muted")
