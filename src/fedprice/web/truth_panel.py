"""Who would gain by lying, and who would refuse, if prices followed true costs and values."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice.errors import InputError
from fedprice.pricing.display import number
from fedprice.web import truth_charts as charts
from fedprice.web.chart import Chart
from fedprice.web.page_frame import Problem, explained, panel

if TYPE_CHECKING:
    from fedprice.pricing import Outcome
    from fedprice.web.post_answers import Believed
    from fedprice.web.post_state import PostAsked

__all__ = ["TruthPanel"]

OUTSIDE = {"free": "joins unpaid", "stay": "stays out"}


class TruthPanel:
    """What clients would do if prices followed reports: they would lie, and some would refuse.

    Parameters
    ----------
    problem
        Where errors are shown.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.outside = "free"
        self._believed: Believed | None = None
        self._truth: tuple[Any, Outcome] | None = None  # settings, and prices for true types
        self._draw()

    def _draw(self) -> None:
        with ui.element("div").classes("fp-pairs"):
            with panel("Who gains by lying", "If prices followed the costs and values that clients "
                       "report: the best lie of each, while the others are honest. Posted tariffs "
                       "leave nothing to gain."):  # fmt: skip
                self.lies = ui.label("").classes("text-sm fp-muted").mark("lies")
                self.gain_chart = Chart({}, "gain by lying over impact", "250px")
                self.money_chart = Chart({}, "who pays for a lie", "250px")
            with panel("Who would refuse", "If prices followed the true costs and values: who "
                       "would refuse its price."):  # fmt: skip
                with ui.row().classes("items-center gap-2"):
                    ui.label("A client that refuses").classes("text-sm")
                    ui.toggle(OUTSIDE, value=self.outside, on_change=self._change_outside).props(
                        "no-caps dense padding='2px 10px'"
                    )
                self.refuse = ui.label("").classes("text-sm fp-muted mt-1").mark("refusals")
                self.refusal_chart = Chart({}, "advantage of taking part", "460px")

    async def show(self, asked: PostAsked, own: Believed) -> None:
        """Show who gains by lying and who would refuse, by the costs and values of the table."""
        self._believed = own
        if not own.knows_types:
            self._no_truth("This needs costs and values, which the table of clients does not have.")
            return
        key = (id(own), asked.budget, asked.rounds, asked.alpha, asked.exponent)
        if self._truth is not None and self._truth[0] == key:
            return
        try:
            truth = await asyncio.to_thread(own.equilibrium, asked)
            self._truth = (key, truth)
            await self._show_refusals()
        except InputError as error:
            self._no_truth(str(error))
            return
        try:
            lies = await asyncio.to_thread(own.lies, truth)
        except InputError as error:
            self._no_lies(str(error))
            return
        summary = lies.summary()
        self.lies.set_text(
            f"{int((lies.gain > 0).sum())} of {number(lies.gain.size)} clients gain, in the median "
            f"{number(summary['median_relative_gain'])} times their honest surplus. If all lie, "
            f"the loss changes by {summary['everybody_loss_increase']:+.0%}, and "
            f"{summary['everybody_share_gaining']:.0%} of them gain."
        )
        self.gain_chart.show(charts.gain_chart(lies))
        self.money_chart.show(charts.money_chart(lies))

    def _no_truth(self, text: str) -> None:
        self._truth = None
        self._no_lies(text)
        self.refuse.set_text(text)
        self.refusal_chart.show({})

    def _no_lies(self, text: str) -> None:
        self.lies.set_text(text)
        for chart in (self.gain_chart, self.money_chart):
            chart.show({})

    async def _show_refusals(self) -> None:
        if self._truth is None or self._believed is None:
            return
        found = await asyncio.to_thread(self._believed.refusals, self._truth[1], self.outside)
        count = int(found.refuses.sum())
        self.refusal_chart.show(charts.refusal_chart(found))
        if not count:
            self.refuse.set_text("Nobody would refuse the prices of the equilibrium.")
            return
        self.refuse.set_text(
            f"{count} of {number(found.refuses.size)} would refuse the prices of the equilibrium. "
            f"Prices that nobody refuses have an expected loss of "
            f"{number(found.respected.expected_loss)} instead of "
            f"{number(found.outcome.expected_loss)} ({found.loss_increase:+.2%})."
        )

    async def _change_outside(self, event: Any) -> None:
        self.outside = event.value
        with explained(self.problem):
            await self._show_refusals()
