"""What posted offers cost and yield if clients are not as believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from fedprice.beliefs.if_wrong import under
from fedprice.pricing.display import number, percent
from fedprice.web.page_frame import panel

if TYPE_CHECKING:
    from fedprice.beliefs.posted import Posted

__all__ = ["WrongPanel", "wrong_rows"]

TIMES = {0.5: "half as high", 1.0: "as believed", 2.0: "twice as high"}
COLUMNS = {
    "costs": "if costs are", "spend": "expected spend", "over": "over the budget",
    "distance": "distance",
}  # fmt: skip


class WrongPanel:
    """A table of what happens if the guess is wrong, and what else may."""

    def __init__(self, currency: str) -> None:
        self._currency = currency
        with panel("What could go wrong", "The same offers, posted to clients whose costs are "
                   "lower or higher than was believed.", "fp-third"):  # fmt: skip
            columns = [
                {"name": name, "label": label, "field": name,
                 "align": "left" if name == "costs" else "right"}
                for name, label in COLUMNS.items()
            ]  # fmt: skip
            self._table = ui.table(rows=[], columns=columns, row_key="costs")
            self._table.props("dense flat hide-bottom").classes("w-full")
            self._said = ui.label("").classes("text-sm mt-2").mark("wrong")

    def show(self, posted: Posted | None, rows: list[dict[str, str]]) -> None:
        """Show the rows of `wrong_rows`, and what the offers leave to chance."""
        self._table.rows = rows
        self._table.set_visibility(bool(rows))
        if posted is None:
            self._said.set_text("")
            return
        unit = f" {self._currency}" if self._currency else ""
        lines = [
            f"The budget is kept on average: with a probability of {posted.over_budget:.0%} "
            f"the spend exceeds {number(posted.budget)}{unit}; it varies by about "
            f"{number(posted.spend_std)}{unit}."
        ]
        if posted.form == "price" and not posted.separate:
            lines.append("A risk, under More settings, makes that rarer.")
        if (missed := float(posted.missed.max(initial=0.0))) > 0:
            lines.append(
                f"A client misses its least level with a probability of up to {missed:.0%}."
            )
        lines.append(
            "A client that finds its offer too low joins less often, and none gains by lying."
        )
        self._said.set_text(" ".join(lines))


def wrong_rows(posted: Posted) -> list[dict[str, str]]:
    """Return what the offers yield if all costs are lower or higher than believed, as text."""
    rows = []
    for factor, words in TIMES.items():
        other = under(posted, posted.beliefs.with_costs_times(factor))
        whole = float(other.moments.loss.sum())
        rows.append(
            {
                "costs": words,
                "spend": number(other.expected_spend),
                "over": f"{other.over_budget:.0%}",
                "distance": percent(other.expected_loss / whole if whole else 0.0),
            }
        )
    return rows
