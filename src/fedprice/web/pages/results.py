"""What `fedprice reproduce` found: verdicts, tables and curves."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from fedprice.errors import FedpriceError
from fedprice.web.chart import Chart
from fedprice.web.look import Figure, Problem, address, empty, frame, panel, set_address
from fedprice.web.reproduction import read_reproduction
from fedprice.web.result_charts import (
    FIGURES,
    curve_chart,
    figures_of,
    legend_of,
    seeds_of,
    setup_title,
    verdict_chart,
)

if TYPE_CHECKING:
    from fedprice.web.reproduction import Cell, Reproduction, WrittenTable
    from fedprice.web.served import Served

__all__ = ["results_page"]

COMMAND = "fedprice reproduce setup1 --quick --out results"
MEANING = {
    "holds": "The whole interval lies on the side that the paper claims.",
    "inconclusive": "The interval reaches both sides.",
    "fails": "The whole interval lies on the other side.",
}
LABELS = {"paper": "the paper says", "ours": "found here"}
# A badge with the verdict as text, its icon and its colour.
VERDICT_SLOT = """<q-td :props="props"><q-badge :aria-label="props.value" :title="props.value"
 :color="{holds: 'positive', fails: 'negative'}[props.value] || 'secondary'">
<q-icon :name="{holds: 'check_circle', fails: 'cancel'}[props.value] || 'help'"/>
<span class="gt-xs q-ml-xs">{{ props.value }}</span></q-badge></q-td>"""
MOST_CHIPS = 40  # seeds that can be switched off one by one; further ones are always shown
LARGEST = 1e300  # stands for infinity where tables are sorted


async def results_page(served: Served) -> None:
    """Draw the page."""
    with frame("Results"):
        if served.results is None:
            empty(
                "Nothing to show yet. Reproduce the paper's experiments (the quick version of one "
                "setup takes a minute or two), then serve the directory.",
                f"{COMMAND}\nfedprice serve --results results",
            )
            return
        try:
            found = await run.io_bound(read_reproduction, served.results)
        except FedpriceError as error:
            Problem().show(str(error))
            return
        if found is None:  # the server is shutting down
            return
        if not found.runs:
            Problem().show(f"{served.results} has no curves.")
            return
        _Results(found)


class _Results:
    """The page of one reproduction, whose state the address holds."""

    def __init__(self, found: Reproduction) -> None:
        self.found = found
        state = address()
        setups = list(found.runs)
        self.setup = state.get("setup", "")
        if self.setup not in found.runs:
            self.setup = setups[0]
        self.figure = state.get("figure", "")
        self.single = state.get("single") == "1"
        off = state.get("off", "").split(",")
        self.hidden = {int(x) - 1 for x in off if re.fullmatch("[0-9]{1,9}", x)}
        with ui.row().classes("w-full items-center gap-4"):
            if len(setups) > 1:
                names = {name: setup_title(name) for name in setups}
                ui.toggle(names, value=self.setup, on_change=self._change_setup).props("no-caps")
            took = f" after {found.seconds / 60:.1f} min" if found.seconds else ""
            where = f" on {found.machine}" if found.machine else ""
            when = f"finished {found.finished}{took}{where}" if found.finished else ""
            ui.label(
                f"{setup_title(self.setup) if len(setups) == 1 else ''} {when}".strip()
            ).classes("text-sm fp-muted")
        with ui.element("div").classes("fp-figures"):
            self.cards = {name: Figure(name, "claims", MEANING[name]) for name in MEANING}
        self.bar = Chart(verdict_chart({}), "How many claims hold", height="22px")
        self._curves()
        self.tables = ui.column().classes("w-full gap-3")
        self._show_setup()

    def _curves(self) -> None:
        with panel("Training", "Each curve is the mean over seeds; its band is one standard "
                   "deviation to either side.", "w-full"):  # fmt: skip
            with ui.row().classes("w-full items-center gap-x-4 gap-y-1"):
                self.figures = ui.toggle({}, on_change=self._change_figure).props(
                    "no-caps dense padding='4px 10px'"
                )
                self.switch = ui.switch(
                    "single runs", value=self.single, on_change=self._change_single
                ).tooltip("Draw each seed separately instead of the band.")
                self.seeds = ui.row().classes("items-center gap-1")
            self.legend = ui.row().classes("w-full items-center gap-x-4 gap-y-0 mt-1")
            with ui.element("div").classes("fp-pairs mt-2"):
                self.charts = {
                    what: Chart({}, f"{what} over simulated time", height="340px")
                    for what in ("loss", "accuracy")
                }

    def _show_setup(self) -> None:
        """Show another setup."""
        title = setup_title(self.setup)
        verdicts = self.found.verdicts.only(title)
        counts = Counter(row[-1].text for row in verdicts.rows)
        for name, card in self.cards.items():
            card.show(str(counts[name]), f"of {sum(counts.values())}")
        self.bar.show(verdict_chart(counts))
        offered = figures_of(self.found.runs[self.setup])
        if self.figure not in offered:
            self.figure = next(iter(offered))
        self.figures.set_options({name: FIGURES[name] for name in offered}, value=self.figure)
        self._show_seeds()
        self._show_curves()
        self.tables.clear()
        with self.tables:
            with panel("Verdicts", verdicts.note, "w-full"):
                _table(verdicts)
            for table in self.found.tables:
                own = table.only(title)
                if own.rows:
                    _folded(own)

    def _show_seeds(self) -> None:
        """Name the runs of the figure, and show one switch per seed."""
        runs = self.found.runs[self.setup]
        self.legend.clear()
        with self.legend:
            for title, color in legend_of(runs, self.figure).items():
                with ui.row().classes("items-center gap-2 no-wrap"):
                    ui.element("span").style(
                        f"width: 18px; height: 4px; border-radius: 2px; background: {color}"
                    )
                    ui.label(title).classes("text-sm")
        self.seeds.clear()
        with self.seeds:
            ui.label("seeds").classes("text-sm fp-muted")
            seeds = seeds_of(runs, figures_of(runs)[self.figure])
            for seed in seeds[:MOST_CHIPS]:
                self._chip(seed)
            if len(seeds) > MOST_CHIPS:
                ui.label(f"and {len(seeds) - MOST_CHIPS} more").classes("text-sm fp-muted")

    def _chip(self, seed: int) -> None:
        def change() -> None:
            self.hidden ^= {seed}
            chip.props(f"color={self._color(seed)} aria-pressed={self._pressed(seed)}")
            self._show_curves()

        chip = ui.button(str(seed + 1), on_click=change).props(
            f'dense unelevated size=sm padding="2px 8px" color={self._color(seed)} '
            f'aria-pressed={self._pressed(seed)} aria-label="seed {seed + 1}"'
        )

    def _color(self, seed: int) -> str:
        return "grey-6" if seed in self.hidden else "primary"

    def _pressed(self, seed: int) -> str:
        return "false" if seed in self.hidden else "true"

    def _show_curves(self) -> None:
        runs = self.found.runs[self.setup]
        for what, chart in self.charts.items():
            chart.show(curve_chart(runs, self.figure, what, hidden=self.hidden, single=self.single))
        state = {"setup": self.setup, "figure": self.figure}
        if self.single:
            state["single"] = "1"
        if self.hidden:
            state["off"] = ",".join(str(seed + 1) for seed in sorted(self.hidden))
        set_address(state)

    def _change_setup(self, event: Any) -> None:
        self.setup = event.value
        self._show_setup()

    def _change_figure(self, event: Any) -> None:
        if event.value and event.value != self.figure:
            self.figure = event.value
            self._show_seeds()
            self._show_curves()

    def _change_single(self, event: Any) -> None:
        self.single = bool(event.value)
        self._show_curves()


def _folded(table: WrittenTable) -> None:
    with ui.expansion(table.title).classes("fp-panel fp-flush w-full").props("dense-toggle"):
        _table(table)
        if table.note:
            ui.label(table.note).classes("text-sm fp-muted mt-2")


def _table(table: WrittenTable) -> None:
    """Draw a table that sorts by numbers, and shows them with their intervals."""
    columns: list[dict[str, Any]] = [
        {
            "name": name,
            "label": LABELS.get(name, name),
            "field": f"key{place}",
            ":format": f"(_, row) => row.text{place}",
            "sortable": True,
            "align": "left" if all(row[place].number is None for row in table.rows) else "right",
        }
        for place, name in enumerate(table.columns)
    ]
    rows: list[dict[str, Any]] = [
        {f"text{place}": _unbroken(cell) for place, cell in enumerate(row)}
        | {f"key{place}": _key(cell) for place, cell in enumerate(row)}
        | {"id": at}
        for at, row in enumerate(table.rows)
    ]
    if "verdict" in table.columns:
        columns.insert(0, columns.pop())  # to the front, where a narrow screen shows it, too
    drawn = ui.table(columns=columns, rows=rows, row_key="id", pagination=0)
    drawn.props("flat dense wrap-cells hide-bottom").classes("w-full fp-narrow")
    if "verdict" in table.columns:
        drawn.add_slot("body-cell-verdict", VERDICT_SLOT)


def _unbroken(cell: Cell) -> str:
    """Return the text of a cell, which a narrow column breaks before an interval, not within."""
    return cell.text if cell.number is None else cell.text.replace(" to ", "\u00a0to\u00a0")


def _key(cell: Cell) -> Any:
    """Return what a cell is sorted by; JSON has no infinite numbers."""
    if cell.number is None:
        return cell.text
    return min(max(cell.number, -LARGEST), LARGEST)
