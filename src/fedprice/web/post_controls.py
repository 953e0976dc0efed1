"""The controls of the Beliefs page: what is believed, and what is posted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice.commands.words import MONEY
from fedprice.errors import InputError
from fedprice.web.number_box import Dial, restorable
from fedprice.web.page_frame import drop, measured_line, panel, term
from fedprice.web.post_state import BLOCKS, PostAsked
from fedprice.web.uploads import LARGEST_UPLOAD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fedprice.calibration import Calibration
    from fedprice.web.post_answers import Believed

__all__ = ["PostControls"]

SOURCES = {
    "exponential": "a guess of the mean",
    "lognormal": "a guess, and how sure it is",
    "ranges": "a range",
    "file": "a file of types",
    "others": "the other clients' types",
}
FORMS = ("price", "blocks", "tariff", "menu")
DIALS = {  # field: word, ends, step, text
    "cost": ("mean cost", (1, 200), 1, None),
    "value": ("mean value", (0, 20_000), 100, None),
    "spread": ("spread", (0, 2), 0.05, None),
    "cost_low": ("least cost", (1, 200), 1, None),
    "cost_high": ("largest cost", (1, 400), 1, None),
    "value_low": ("least value", (0, 20_000), 100, None),
    "value_high": ("largest value", (0, 40_000), 100, None),
    "classes": ("price classes", (0, 12), 1, "price classes (0: one per client)"),
    "risk": ("risk", (0, 0.45), 0.01, "risk (0: on average)"),
    "budget": ("budget", (0, 1000), 1, None),
    "rounds": ("rounds", (10, 5000), 10, None),
    "alpha": ("alpha", (0.05, 20), 0.05, "noise α"),
    "exponent": ("cost exponent", (1.1, 4), 0.1, "cost exponent τ"),
}
WHOLE = ("rounds", "classes")
MORE = ("form", "classes", "risk", "rounds", "exponent")  # settings with a default
OF_SOURCE = {
    "exponential": ("cost", "value"),
    "lognormal": ("cost", "value", "spread"),
    "ranges": ("cost_low", "cost_high", "value_low", "value_high"),
    "file": (),
    "others": (),
}


class PostControls:
    """Controls; only those that apply to the beliefs and the form are visible.

    Parameters
    ----------
    asked, believed
        The initial settings and clients.
    currency
        The label of money.
    ask
        Called with the fields that the user changes.
    refuse
        Called with the field and its name if what was typed is refused.
    on_file
        Called with the upload of a file of beliefs, which is reset by `dropped`.
    """

    def __init__(
        self,
        asked: PostAsked,
        believed: Believed,
        currency: str,
        ask: Callable[..., None],
        refuse: Callable[[str, str], None],
        on_file: Callable[[Any], Awaitable[None]],
    ) -> None:
        self._ask, self._refuse = ask, refuse
        self._parts: dict[str, ui.element] = {}
        self._dials: dict[str, Dial] = {}
        self.lines: dict[str, ui.label] = {}  # what a guess means, by "cost" and "value"
        self._draw_beliefs(asked, on_file)
        with panel("Budget", classes="fp-second"):
            self._dial("budget", asked)
            ui.label(f"{currency}, in total for all rounds." if currency else MONEY).classes(
                "text-xs fp-muted"
            )
        self._draw_more(asked, believed.calibration)

    def _draw_beliefs(self, asked: PostAsked, on_file: Callable[[Any], Awaitable[None]]) -> None:
        with panel("What you guess", classes="fp-second"):
            ui.label(
                "Nobody's cost has to be known: type what joining every round may cost a client, "
                "and what a better model may be worth to it; 0 if it only sells."
            ).classes("text-xs fp-muted mb-1")
            term("beliefs", "costs and values are known as")
            self._source = ui.select(
                SOURCES, value=asked.beliefs,
                on_change=lambda event: self._ask(beliefs=event.value),
            )  # fmt: skip
            self._source.props('dense outlined aria-label="beliefs"').classes("w-full")
            for what in ("cost", "value"):
                for field in (what, f"{what}_low", f"{what}_high"):
                    self._dial(field, asked)
                if what == "cost":
                    self._dial("spread", asked)
                self.lines[what] = ui.label("").classes("text-xs fp-muted")
            with ui.column().classes("w-full gap-1 mt-2") as self._parts["file"]:
                self._file_name = ui.label("").classes("text-sm fp-muted")
                self.dropped = drop(
                    "Drop or choose a file of beliefs", ".csv,.parquet", on_file,
                    LARGEST_UPLOAD,
                )  # fmt: skip
                ui.label("Columns: cost, value, probability; client_id or class.").classes(
                    "text-xs fp-muted"
                )
            with ui.column().classes("w-full mt-2") as self._parts["others"]:
                ui.label(
                    "Each client is priced by the costs and values of all others in the table."
                ).classes("text-xs fp-muted")
            with ui.column().classes("w-full mt-2") as self._parts["menu"]:
                ui.label("A menu takes the values from the table of clients.").classes(
                    "text-xs fp-muted"
                )

    def _draw_more(self, asked: PostAsked, measured: Calibration | None) -> None:
        changed = any(getattr(asked, name) != getattr(PostAsked(), name) for name in MORE)
        with ui.expansion("More settings", value=changed).classes("fp-panel fp-flush w-full"):
            with ui.row().classes("w-full items-center justify-between no-wrap"):
                term("form", "what is posted").classes("mb-1")
                self._restore = restorable(lambda: self._ask(form="price"), "default price")
            self._form = ui.toggle(
                list(FORMS), value=asked.form,
                on_change=lambda event: self._ask(form=event.value),
            ).props('no-caps dense spread aria-label="form"').classes("w-full")  # fmt: skip
            with ui.column().classes("w-full gap-0 mt-2") as self._parts["blocks"]:
                term("blocks")
                ui.toggle(
                    list(BLOCKS), value=asked.blocks if asked.blocks in BLOCKS else 4,
                    on_change=lambda event: self._ask(blocks=event.value),
                ).props('dense spread aria-label="blocks"').classes("w-full")  # fmt: skip
            for field in ("classes", "risk", "rounds", "alpha", "exponent"):
                self._dial(field, asked)
            with ui.column().classes("w-full mt-2") as self._parts["measured"]:
                ui.label("" if measured is None else measured_line(measured)).classes("text-sm")

    def _dial(self, field: str, asked: PostAsked) -> None:
        word, (low, high), step, text = DIALS[field]
        value = getattr(asked, field)

        def change(value: float) -> None:
            if field in WHOLE and not value.is_integer():
                raise InputError(f"{word} must be a whole number; got {value:g}.")
            self._ask(**{field: int(value) if field in WHOLE else value})

        with ui.column().classes("w-full gap-0") as self._parts[field]:
            self._dials[field] = Dial(
                word, value, ends=(low, high), step=step, on_change=change,
                on_refused=lambda: self._refuse(field, text or word), text=text,
                default=float(getattr(PostAsked(), field)) if field in MORE else None,
            )  # fmt: skip

    def set(self, asked: PostAsked) -> None:
        """Show other numbers."""
        for field, dial in self._dials.items():
            dial.set(getattr(asked, field))

    def show(self, asked: PostAsked, own: Believed) -> None:
        """Show the controls that apply to the beliefs and the form."""
        shown = set(OF_SOURCE[asked.beliefs])
        if asked.form == "menu":
            shown -= {"value", "value_low", "value_high"}
            shown.add("menu")
        shown |= {"budget", "rounds", "exponent", asked.beliefs, asked.form}
        shown.add("alpha" if own.calibration is None else "measured")
        if asked.form == "price" and asked.beliefs != "others":
            shown |= {"classes", "risk"}
        for name, part in self._parts.items():
            part.set_visibility(name in shown)
        self._restore.set_visibility(asked.form != "price")
        self._file_name.set_text(own.file_name or "No file of beliefs yet.")
        offered = [x for x in SOURCES if x != "others" or own.knows_types or asked.beliefs == x]
        self._source.set_options({x: SOURCES[x] for x in offered}, value=asked.beliefs)
        menu = "value" not in own.clients.unknown or asked.form == "menu"
        self._form.set_options([x for x in FORMS if x != "menu" or menu], value=asked.form)
