"""What the Price page saves and copies."""

from __future__ import annotations

import asyncio
import io
from functools import partial
from typing import TYPE_CHECKING

from nicegui import ui

from fedprice._plumbing.tables import csv_text
from fedprice.web.page_frame import copy_button, panel, save_button

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import polars as pl

    from fedprice.pricing import Outcome
    from fedprice.web.price_answers import Priced
    from fedprice.web.price_state import Asked

__all__ = ["PriceExports"]

KINDS = {"csv": "CSV", "parquet": "Parquet", "png": "PNG", "svg": "SVG"}


class PriceExports:
    """Buttons that save the table and the figure, and copy what computes them elsewhere.

    Parameters
    ----------
    current
        Returns the clients, the settings, and the outcome if there is one.
    refused
        What is not right yet; nothing is copied then.
    """

    def __init__(
        self,
        current: Callable[[], tuple[Priced, Asked, Outcome | None]],
        refused: Mapping[str, str],
    ) -> None:
        self._current, self._refused = current, refused
        with panel("Export"), ui.row().classes("gap-1"):
            for kind, text in KINDS.items():
                save_button(text, partial(self._save, kind)).mark(f"export {kind}")
            copy_button("copy as command", self._command).mark("command")
            copy_button("copy as Python", self._python).mark("python")

    def _command(self) -> str:
        priced, asked, _ = self._current()
        return "" if self._refused else priced.command(asked)

    def _python(self) -> str:
        priced, asked, _ = self._current()
        return "" if self._refused else priced.python(asked)

    async def _save(self, kind: str) -> None:
        priced, asked, outcome = self._current()
        if outcome is None:
            return
        if kind in ("png", "svg"):
            figure = await asyncio.to_thread(_figure, outcome, kind)
            ui.download.content(figure, f"prices.{kind}")
            return
        rows = await asyncio.to_thread(priced.exported, asked)
        if kind == "csv":
            ui.download.content(await asyncio.to_thread(csv_text, rows), "prices.csv")
        else:
            ui.download.content(await asyncio.to_thread(_parquet, rows), "prices.parquet")


def _parquet(rows: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    rows.write_parquet(content)
    return content.getvalue()


def _figure(outcome: Outcome, kind: str) -> bytes:
    content = io.BytesIO()
    outcome.plot().savefig(content, format=kind)
    return content.getvalue()
