"""The controls of the Price page: the budget, and what else prices depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from nicegui import ui

from fedprice.commands.words import MONEY
from fedprice.web.number_box import Dial, restorable
from fedprice.web.page_frame import measured_line, panel, term
from fedprice.web.price_state import OFFERED
from fedprice.web.pricing_charts import budget_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.web.price_answers import Priced
    from fedprice.web.price_state import Asked

__all__ = ["PriceControls"]

DIALS = {  # field: word, ends, step, text
    "rounds": ("rounds", (10, 5000), 10, None),
    "alpha": ("alpha", (0.05, 20), 0.05, "noise α"),
    "exponent": ("cost exponent", (1.1, 4), 0.1, "cost exponent τ"),
    "max_weight": ("largest weight", (0, 5), 0.05, "largest weight (0: no limit)"),
}


class PriceControls:
    """Controls for the settings of the Price page.

    Parameters
    ----------
    asked, usual, ends
        The initial settings, the command's defaults, and the range of budgets.
    currency
        The label of money.
    ask
        Called with the field that the user changes.
    refuse
        Called with the field and its name if what was typed is refused.
    """

    def __init__(
        self,
        asked: Asked,
        usual: Asked,
        ends: tuple[float, float],
        currency: str,
        ask: Callable[..., None],
        refuse: Callable[[str, str], None],
    ) -> None:
        self._asked, self._ask, self._refuse = asked, ask, refuse
        low, high = ends
        unit = f"{currency}, in total for all rounds." if currency else MONEY
        with panel("Budget", classes="fp-second"):
            self.budget = self._dial(
                "budget", "budget", (low, high), budget_step(high - low), None, None
            )
            ui.label(unit).classes("text-xs fp-muted")
        with panel("Settings"):
            for field, (word, reach, step, text) in DIALS.items():
                with ui.column().classes("w-full gap-0") as part:
                    default = None if field == "alpha" else float(getattr(usual, field))
                    self._dial(field, word, reach, step, text, default)
                if field == "alpha":
                    self._alpha = part
                    self._measured = ui.label("").classes("text-sm mt-2").mark("measured")
            self._choice("scheme", list(OFFERED), "scheme", usual.scheme)
            self._choice("against", ["", *OFFERED], "compare with", None)
            with ui.row().classes("text-xs gap-1 mt-2"):
                ui.label("Costs and values unknown?").classes("fp-muted")
                self._beliefs = ui.link("Post prices and tariffs based on beliefs", "/beliefs")
                self._beliefs.classes("fp-link")

    def _dial(
        self,
        field: str,
        word: str,
        ends: tuple[float, float],
        step: float,
        text: str | None,
        default: float | None,
    ) -> Dial:
        def change(value: float) -> None:
            whole = field == "rounds" and value.is_integer()
            self._ask(**{field: int(value) if whole else value})

        value = getattr(self._asked, field)
        return Dial(
            word, value, ends=ends, step=step,
            on_change=change, on_refused=lambda: self._refuse(field, text or word), text=text,
            default=default,
        )  # fmt: skip

    def _choice(self, field: str, names: list[str], text: str, default: str | None) -> None:
        with ui.row().classes("w-full items-center justify-between mt-2 no-wrap"):
            term("scheme", text)
            restore = restorable(lambda: select.set_value(default), f"default {default}")

        def choose(event: Any) -> None:
            restore.set_visibility(default is not None and event.value != default)
            self._ask(**{field: event.value})

        value = getattr(self._asked, field)
        select = ui.select({name: name or "none" for name in names}, value=value, on_change=choose)
        select.props(f'dense outlined aria-label="{text}"').classes("w-full").mark(field)
        restore.set_visibility(default is not None and value != default)

    def set_range(self, ends: tuple[float, float]) -> None:
        """Change the range of budgets."""
        low, high = ends
        self.budget.set_ends(low, high, budget_step(high - low))

    def show(self, priced: Priced, file: str) -> None:
        """Show where α comes from; the page of beliefs asks for a file that was dropped here."""
        query = f"?{urlencode({'file': file})}" if file else ""
        self._beliefs.props["href"] = f"/beliefs{query}"
        measured = priced.calibration
        self._alpha.set_visibility(measured is None)
        if measured is not None:
            self._measured.set_text(measured_line(measured))
        self._measured.set_visibility(measured is not None)
