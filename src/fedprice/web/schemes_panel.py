"""Two schemes side by side: what each spends and buys, and the levels under both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from fedprice.pricing import Status
from fedprice.pricing.display import infeasible_line, number, percent
from fedprice.web.chart import Chart
from fedprice.web.page_frame import panel
from fedprice.web.pricing_charts import comparison_chart

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import IntArray
    from fedprice.pricing import Outcome

__all__ = ["SchemesPanel"]


class SchemesPanel:
    """A panel that compares two outcomes of one game."""

    def __init__(self) -> None:
        with panel("Two schemes side by side") as self._card:
            self._lacks = ui.label("").classes("text-sm fp-muted")
            self._table = ui.table(rows=[], columns=[]).props("dense flat").classes("w-full")
            self._chart = Chart({}, "levels under both schemes", "210px")

    def set_visibility(self, visible: bool) -> None:
        """Show the panel, or hide it."""
        self._card.set_visibility(visible)

    def show(self, first: Outcome, second: Outcome, rows: IntArray) -> None:
        """Compare two outcomes, or say why there is no second one.

        Parameters
        ----------
        first, second
            The outcomes; the second may be infeasible.
        rows
            The clients that are drawn.
        """
        if second.status is Status.INFEASIBLE:
            self._lacks.set_text(infeasible_line(second))
            self._table.rows = []
            self._chart.show({})
            return
        self._lacks.set_text("")
        self._table.columns = [
            {"name": name, "label": label, "field": name, "align": align}
            for name, label, align in (
                ("what", "", "left"),
                ("first", first.scheme, "right"),
                ("second", second.scheme, "right"),
            )
        ]
        self._table.rows = [
            {"what": what, "first": one, "second": other}
            for what, one, other in (
                ("distance", percent(first.distance), percent(second.distance)),
                ("spend", number(first.spend), number(second.spend)),
                ("payers", number(first.payers), number(second.payers)),
                (
                    "joiners per round",
                    number(float(first.levels.sum())),
                    number(float(second.levels.sum())),
                ),
            )
        ]
        self._table.update()
        self._chart.show(comparison_chart([first, second], rows))
