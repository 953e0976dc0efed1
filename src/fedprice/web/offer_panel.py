"""An offer as a curve: what each level would earn a client that enters its cost and value."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import polars as pl
from nicegui import run, ui

from fedprice.errors import InputError
from fedprice.game import LARGEST_EXPONENT
from fedprice.market.responses import last_offer, offer_in_words
from fedprice.pricing.display import number
from fedprice.web.chart import Chart
from fedprice.web.client_charts import earning_chart, earning_rows
from fedprice.web.number_box import NumberBox
from fedprice.web.page_frame import Figure, Problem, drop, explained, panel, term
from fedprice.web.uploads import LARGEST_UPLOAD, content_of

if TYPE_CHECKING:
    from nicegui.events import UploadEventArguments

    from fedprice.market.offers import Conditions, Offer

__all__ = ["OfferPanel"]

KEPT_HERE = (
    "What you type is used to draw this page and forgotten with it: it is not in the address, not "
    "stored and not logged. It does reach the program that serves the page, so run `fedprice "
    "serve` on your own machine."
)
_COLUMNS = {"level": "level", "payment": "payment", "cost": "cost", "absence": "absence",
            "utility": "net"}  # fmt: skip

LARGEST = 1e300
_ALT = "What each level of the offer would earn"


class OfferPanel:
    """A panel with an offer: in words, as a chart and as a table."""

    def __init__(self) -> None:
        self._offer: tuple[Offer, Conditions] | None = None
        tip = "What each level would earn you, and which one is best"
        with panel("What an offer would earn", tip) as card:
            card.props("data-part=offer")
            self.choice = ui.row().classes("w-full items-center mb-2")
            drop(
                "Drop or choose receipts (.jsonl)", ".jsonl",
                self._dropped, LARGEST_UPLOAD,
            )  # fmt: skip
            ui.label("The most recent offer in the file is used.").classes("text-xs fp-muted mt-1")
            self._problem = Problem()
            self._shown = ui.column().classes("w-full gap-3 mt-3")

    async def _dropped(self, event: UploadEventArguments) -> None:
        event.sender.reset()  # type: ignore[attr-defined]
        with explained(self._problem):
            name, content = await content_of(event)
            found = await run.io_bound(last_offer, io.BytesIO(content), name)
            if found is not None:
                self.show(*found)

    def show(self, offer: Offer, conditions: Conditions) -> None:
        """Show an offer."""
        self._offer = offer, conditions
        self._shown.clear()
        with self._shown:
            ui.label(f"Run {conditions.run}, offered to {offer.client}").classes("font-semibold")
            with ui.column().classes("gap-1").props("data-part=offer-words"):
                for sentence in offer_in_words(offer, conditions):
                    ui.label(sentence)
            self._typed: dict[str, float | None] = {"cost": None, "value": 0.0, "exponent": 2.0}
            self._refused: set[str] = set()
            with ui.row().classes("w-full gap-3 items-start"):
                self._number("cost", "cost", f"your cost, {conditions.unit}")
                self._number("value", "value", f"your value, {conditions.unit}")
                self._number("exponent", "cost exponent", "cost exponent τ")
            ui.label(KEPT_HERE).classes("text-xs fp-muted")
            with ui.element("div").classes("fp-figures"):
                self._figures = {
                    "best level": Figure("best level", tip="The level with the largest net"),
                    "payment": Figure("payment", conditions.unit, "What you get at the best level"),
                    "net": Figure("net gain", conditions.unit, "Payment minus cost and absence"),
                }
            self._chart = Chart(earning_chart(offer, conditions, cost=None), _ALT, "340px")
            if offer.menu:
                ui.label("A menu: only the points can be chosen.").classes("text-sm fp-muted")
            self._table = _table()
        self._redraw()

    def _number(self, field: str, word: str, label: str) -> None:
        """Draw a box for a number; what cannot be one is refused below it."""

        def typed(value: float | None) -> None:
            if value is not None:
                _require(field, value)
            self._typed[field] = value
            self._refused.discard(field)
            self._redraw()

        def refused() -> None:
            self._refused.add(field)
            self._redraw()

        with ui.column().classes("gap-0 grow basis-40"):
            term(word, label).classes("text-sm")
            box = NumberBox(
                label, self._typed[field], typed, refused, optional=True,
                factor=field == "exponent",
            )  # fmt: skip
            box.box.classes("w-full")
            box.draw_reason()

    def _redraw(self) -> None:
        if self._offer is None:
            return
        with explained(self._problem):
            offer, conditions = self._offer
            cost = None if self._refused else self._typed["cost"]
            value, exponent = self._typed["value"] or 0.0, self._typed["exponent"] or 2.0
            self._chart.show(
                earning_chart(offer, conditions, cost=cost, value=value, cost_exponent=exponent)
            )
            if cost is None:
                for figure in self._figures.values():
                    figure.show("–", "" if self._refused else "type in your cost")
                self._table.set_visibility(False)
                return
            rows, best = earning_rows(
                offer, conditions, cost=cost, value=value, cost_exponent=exponent
            )
            there = rows.row(by_predicate=pl.col("level") == best, named=True)
            about = round(best * conditions.run_rounds)
            note = f"about {about:,} of {conditions.run_rounds:,} rounds"
            self._figures["best level"].show(number(best), note)
            side = "you pay the server" if there["payment"] < 0 else "the server pays you"
            self._figures["payment"].show(number(there["payment"]), side)
            good = "worth accepting" if there["utility"] > 0 else "no level covers your cost"
            if there["absence"]:  # staying away has a cost, too
                good = "the best that any level gives you"
            self._figures["net"].show(number(there["utility"]), good)
            self._table.rows = [
                {name: f"{row[name]:,.3g}" for name in _COLUMNS}
                | {"level": _level_text(row["level"], best)}
                for row in rows.iter_rows(named=True)
            ]
            self._table.set_visibility(True)


def _require(field: str, value: float) -> None:
    """Refuse a cost, a value or an exponent that is impossible."""
    if field == "cost" and not 0 < value < LARGEST:
        raise InputError(f"your cost must be above 0; got {value:g}.")
    if field == "value" and not 0 <= value < LARGEST:
        raise InputError(f"your value must be at least 0; got {value:g}.")
    if field == "exponent" and not 1 < value <= LARGEST_EXPONENT:
        raise InputError(
            f"the cost exponent must be above 1 and at most {LARGEST_EXPONENT:g}; got {value:g}."
        )


def _level_text(level: float, best: float) -> str:
    return f"{level:.4f}" + ", best" * (level == best)


def _table() -> ui.table:
    columns: list[dict[str, Any]] = [
        {"name": name, "field": name, "label": label, "align": "right"}
        for name, label in _COLUMNS.items()
    ]
    columns[0]["align"] = "left"
    table = ui.table(rows=[], columns=columns, row_key="level").classes("w-full fp-tight")
    table.props("flat dense hide-pagination data-part=levels")
    return table.props(":rows-per-page-options=[0]")
