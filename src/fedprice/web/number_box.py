"""`NumberBox` and `Dial`: numbers that people type or drag; other text is refused beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from fedprice._plumbing.dialects import number_text, typed_number
from fedprice.errors import FedpriceError
from fedprice.pricing.display import number
from fedprice.web.page_frame import term

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Dial", "NumberBox", "restorable"]

# Numbers without thousands.
FACTORS = ("alpha", "cost exponent", "largest weight", "spread", "risk")


def _text(value: float | None) -> str:
    return "" if value is None else number_text(float(f"{value:.12g}"))


class NumberBox:
    """A box for a number, with the reason below it if what was typed is refused.

    Parameters
    ----------
    label
        What the number is, for people who cannot see what is beside it.
    value
        Its initial value; None for none.
    on_change
        Called with a new number, or with None if the box is empty and may be. If it raises an
        error, the number is refused.
    on_refused
        Called when what was typed is refused.
    optional
        Whether the box may be empty.
    factor
        Whether it is a number without thousands (see `typed_number`).
    """

    def __init__(
        self,
        label: str,
        value: float | None,
        on_change: Callable[[float | None], None],
        on_refused: Callable[[], None],
        *,
        optional: bool = False,
        factor: bool = False,
    ) -> None:
        self._on_change, self._on_refused = on_change, on_refused
        self._optional, self._factor = optional, factor
        self._quiet = False
        self.box = ui.input(value=_text(value)).without_auto_validation()
        self.box.props(f'dense outlined debounce=300 inputmode=decimal aria-label="{label}"')
        self.box.props("autocomplete=off hide-bottom-space no-error-icon")
        self.box.on_value_change(lambda event: self._typed(event.value))
        self.reason: ui.label | None = None

    def draw_reason(self) -> None:
        """Draw the place for the reason, which may lie outside the row of the box."""
        self.reason = ui.label("").classes("fp-refused text-sm").props("aria-live=polite")
        self.reason.mark("refused").set_visibility(False)

    def _typed(self, text: str | None) -> None:
        if self._quiet:
            return
        try:
            empty = self._optional and not (text or "").strip()
            number = None if empty else typed_number(text or "", factor=self._factor)
            self._on_change(number)
        except FedpriceError as error:
            self._say(str(error))
            self._on_refused()
        else:
            self._say("")

    def _say(self, reason: str) -> None:
        self.box.error = "" if reason else None  # only its colour: the reason has a place below
        if self.reason is not None:
            self.reason.set_text(reason)
            self.reason.set_visibility(bool(reason))

    def set(self, value: float | None) -> None:
        """Show another number without calling `on_change`."""
        self._quiet = True
        self.box.value = _text(value)
        self._quiet = False
        self._say("")


class Dial:
    """A number that is dragged or typed.

    Parameters
    ----------
    word
        What the number is, one of `WORDS`.
    value
        Its initial value.
    ends, step
        The range and the steps of the slider; a typed number may lie outside.
    on_change
        Called with a new number; if it raises an error, the number is refused.
    on_refused
        Called when what was typed is refused.
    text
        The label, if it differs from the word.
    default
        The command's default: a number that differs is marked, and can be set back.
    """

    def __init__(
        self,
        word: str,
        value: float,
        *,
        ends: tuple[float, float],
        step: float,
        on_change: Callable[[float], None],
        on_refused: Callable[[], None],
        text: str | None = None,
        default: float | None = None,
    ) -> None:
        self._quiet, self._on_change, self._default = False, on_change, default
        with ui.column().classes("w-full gap-0 mt-1"):
            with ui.row().classes("w-full items-center justify-between no-wrap"):
                with ui.column().classes("gap-0 items-start"):
                    term(word, text)
                    self._restore = restorable(self._restored)
                self._box = NumberBox(word, value, self._typed, on_refused, factor=word in FACTORS)
                self._box.box.classes("w-28 shrink-0").mark(word)
            self._box.draw_reason()
            high = ends[1] if value <= ends[1] else 2 * value
            self._slider = ui.slider(min=min(ends[0], value), max=high, step=step, value=value)
        self._slider.props(f'aria-label="{word} slider"').mark(f"{word} slider")
        self._slider.on_value_change(lambda event: self._dragged(event.value))
        self._mark(value)

    def _typed(self, value: float | None) -> None:
        assert value is not None  # the box is not optional
        self._on_change(value)
        self._show(value)

    def _dragged(self, value: float | None) -> None:
        if value is None or self._quiet:
            return
        plain = float(f"{value:.12g}")  # a slider's steps add up to 0.30000000000000004
        self.set(plain)
        self._on_change(plain)

    def _restored(self) -> None:
        if self._default is not None:
            self.set(self._default)
            self._on_change(self._default)

    def _mark(self, value: float) -> None:
        default = self._default
        self._restore.set_visibility(default is not None and value != default)
        if default is not None:
            self._restore.set_text(f"default {number(default)}")

    def _show(self, value: float) -> None:
        low, high = (float(self._slider.props[end]) for end in ("min", "max"))
        if not low <= value <= high:  # there is room on both sides of what was typed
            self._slider.props.update({"min": min(low, value), "max": max(high, 2 * value)})
        self._quiet = True
        self._slider.value = value
        self._quiet = False
        self._mark(value)

    def set(self, value: float) -> None:
        """Show another number without calling `on_change`."""
        self._box.set(value)
        self._show(value)

    def set_ends(self, low: float, high: float, step: float) -> None:
        """Change the range of the slider."""
        self._slider.props.update({"min": low, "max": high, "step": step})
        self._slider.update()


def restorable(restore: Callable[[], object], text: str = "") -> ui.button:
    """Draw the mark of a setting that differs from the default; a click restores that."""
    button = ui.button(text, on_click=restore).props("flat dense no-caps size=11px icon=undo")
    return button.classes("fp-restore").tooltip("Not the command's default; click to restore it")
