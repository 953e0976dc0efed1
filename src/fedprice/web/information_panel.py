"""The cost of not knowing under each form, compared on request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import ui

from fedprice.web import truth_charts as charts
from fedprice.web.chart import Chart
from fedprice.web.page_frame import Problem, explained, panel
from fedprice.web.post_answers import DRAWS, forms_to_compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.beliefs.posted import Information
    from fedprice.web.post_answers import Believed
    from fedprice.web.post_state import PostAsked

__all__ = ["InformationPanel"]

CHANGED = "The settings have changed: compare again. This takes some seconds."


class InformationPanel:
    """Bars that compare the forms; computing them takes seconds, but never blocks the page.

    Parameters
    ----------
    problem
        Where errors are shown.
    current
        Returns the current settings and clients.
    """

    def __init__(self, problem: Problem, current: Callable[[], tuple[PostAsked, Believed]]) -> None:
        self._problem, self._current, self._comparing = problem, current, False
        with panel("What not knowing costs", f"Each form of tariff against a server that knows "
                   f"every cost and value, over {DRAWS} draws from the beliefs. Lines are 95 % "
                   "intervals."):  # fmt: skip
            with ui.row().classes("items-center gap-3"):
                self._button = ui.button("Compare the forms", on_click=self._compare).props(
                    "outline dense no-caps padding='4px 12px'"
                )
                self._said = ui.label("This takes some seconds.").classes("text-sm fp-muted")
            self._chart = Chart({}, "expected loss relative to full information", "0px")

    def is_stale(self) -> None:
        """Say that the comparison was made for other settings."""
        if not self._comparing and self._chart.element.options.get("series"):
            self._chart.show({})
            self._chart.element.style("height: 0px")
            self._said.set_text(CHANGED)

    async def _compare(self) -> None:
        if self._comparing:
            return
        self._comparing = True
        self._button.disable()
        asked, own = self._current()
        bars: dict[str, Information] = {}
        try:
            with explained(self._problem):
                own.comparable()
                forms = forms_to_compare(asked, values="value" not in own.clients.unknown)
                for at, (name, one) in enumerate(forms.items(), start=1):
                    self._said.set_text(f"{name}: {at} of {len(forms)} …")
                    posted = await asyncio.to_thread(own.post, one)
                    bars[name] = await asyncio.to_thread(posted.value_of_information, DRAWS)
                    if (asked, own) != self._current():
                        self._said.set_text(CHANGED)
                        return
                    self._chart.element.style(f"height: {74 + 34 * len(bars)}px")
                    self._chart.show(charts.information_chart(bars))
                self._said.set_text(f"{DRAWS} draws of all costs and values.")
        finally:
            self._comparing = False
            self._button.enable()
