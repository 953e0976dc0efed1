"""How pages look: their frame, and the parts that they share."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from nicegui import context, ui

from fedprice._plumbing.plots import COLORS
from fedprice.commands.words import WORDS
from fedprice.errors import FedpriceError
from fedprice.pricing.display import number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from fedprice.calibration import Calibration

__all__ = [
    "PRICING",
    "Figure",
    "Problem",
    "absent_file",
    "address",
    "copy_button",
    "drop",
    "empty",
    "explain",
    "explained",
    "frame",
    "measured_line",
    "panel",
    "save_button",
    "set_address",
    "sides",
    "term",
]

PAGES = {
    "Price": "/",
    "Beliefs": "/beliefs",
    "Runs": "/runs",
    "Client": "/client",
    "Results": "/results",
}
PRICING = (PAGES["Price"], PAGES["Beliefs"])  # between which a table is taken along
DARK_COOKIE = "fedprice-dark"  # the only thing that is stored in the browser
_DARK = {"dark": True, "light": False}
_NEXT = {None: "dark", True: "light", False: "auto"}
_ICONS = {None: "brightness_auto", True: "dark_mode", False: "light_mode"}

_STYLES = [
    Path(__file__).with_name(f"{name}.css").read_text("utf-8") for name in ("utilities", "style")
]

# NiceGUI says light or dark again with every update, and browsers then restyle the whole page.
_SAID_ONCE = """<script>{
    const scheme = document.getElementById("nicegui-color-scheme");
    const set = scheme.setAttribute.bind(scheme);
    scheme.setAttribute = (name, value) =>
        scheme.getAttribute(name) === value || set(name, value);
}</script>"""


@contextmanager
def frame(current: str) -> Iterator[None]:
    """Draw the frame that all pages share; `current` is the name of this page."""
    ui.page_title(f"{current} · fedprice")
    ui.add_css("\n".join(_STYLES))
    ui.add_head_html(_SAID_ONCE)
    ui.colors(primary=COLORS[0], secondary="#5b6675", negative="#b3261e", positive="#00785a")
    stored = context.client.request.cookies.get(DARK_COOKIE, "")
    dark = ui.dark_mode(_DARK.get(stored))
    with ui.header().classes("fp-header items-center gap-1 px-3 py-1 no-wrap"):
        ui.label("fedprice").classes("fp-brand text-lg font-bold mr-2")
        with (
            ui.row()
            .classes("fp-nav gap-1 no-wrap items-center grow")
            .props('role=navigation aria-label="Pages"')
        ):
            for name, path in PAGES.items():
                link = ui.link(name, path)
                if name == current:
                    link.props("aria-current=page")
        _dark_switch(dark)
    with ui.column().classes("w-full max-w-screen-2xl mx-auto p-3 gap-3"):
        yield


def _dark_switch(dark: ui.dark_mode) -> None:
    def change() -> None:
        name = _NEXT[dark.value]
        dark.value = _DARK.get(name)
        button.props(f"icon={_ICONS[dark.value]}")
        ui.run_javascript(
            f"document.cookie = '{DARK_COOKIE}={name}; path=/; max-age=31536000; SameSite=Strict'"
        )
        # The page has changed its colours by then.
        ui.timer(0.15, lambda: _redraw_charts(), once=True)

    button = ui.button(on_click=change).props(
        f'flat round dense icon={_ICONS[dark.value]} color=secondary aria-label="Light or dark"'
    )
    button.tooltip("Light, dark, or the system's setting")


def _redraw_charts() -> None:
    for element in context.client.elements.values():
        if isinstance(element, ui.echart):
            element.update()


@contextmanager
def panel(title: str, tip: str = "", classes: str = "") -> Iterator[ui.element]:
    """Draw a titled card around the elements that are created inside."""
    with ui.element("section").classes(f"fp-panel w-full {classes}") as card:
        if title:
            label = ui.label(title).classes("font-semibold mb-1")
            if tip:
                explain(label, tip)
        yield card


def sides() -> ui.element:
    """Return a grid of two columns, controls and results, which are stacked on a narrow screen.

    There, elements with the classes `fp-first` and `fp-second` come before all others.
    """
    return ui.element("div").classes("fp-sides")


def measured_line(calibration: Calibration) -> str:
    """Return a line about a measured α and its interval."""
    low, high = map(number, calibration.interval)
    return f"α = {number(calibration.alpha)} as measured, 95 % from {low} to {high}"


def term(word: str, text: str | None = None) -> ui.label:
    """Write a technical term with its explanation as a tooltip."""
    return explain(ui.label(text or word), WORDS[word])


def explain(label: ui.label, text: str) -> ui.label:
    """Explain a label when the mouse or the Tab key reaches it."""
    label.classes("fp-term inline-block").props("tabindex=0")
    with label:
        ui.tooltip(text).props("max-width=20rem")
    # Quasar's tooltips react to the mouse only.
    for event, like in (("focus", "mouseenter"), ("blur", "mouseleave")):
        label.on(event, js_handler=f"event => event.target.dispatchEvent(new MouseEvent('{like}'))")
    return label


class Figure:
    """A number on a card, with its name, unit and a note.

    Parameters
    ----------
    label
        What the number is.
    unit
        Its unit.
    tip
        The explanation; by default that of the word `label`.
    """

    def __init__(self, label: str, unit: str = "", tip: str = "") -> None:
        explanation = tip or WORDS.get(label, "")
        self.card = ui.element("section").classes("fp-panel fp-figure")
        with self.card.props(f'aria-label="{label}"'):
            name = ui.label(label).classes("text-sm fp-muted")
            if explanation:
                explain(name, explanation)
            with ui.row().classes("items-baseline gap-1"):
                self._value = ui.label("–").classes("fp-number").mark(label)
                if unit:
                    ui.label(unit).classes("text-sm fp-muted")
            self._note = ui.label("").classes("text-sm fp-muted fp-note")

    def show(self, text: str, note: str = "") -> None:
        """Show another number."""
        self._value.set_text(text)
        self._note.set_text(note)


def empty(text: str, command: str | None = None) -> None:
    """Say why there is nothing to show, and what to do about it."""
    with ui.column().classes("fp-panel w-full items-start gap-2"):
        ui.label(text)
        if command is not None:
            with ui.row().classes("items-center gap-2 no-wrap max-w-full"):
                ui.label(command).classes("fp-code")
                copy_button("", command)


def copy_button(
    text: str, content: str | Callable[[], str], icon: str = "content_copy"
) -> ui.button:
    """Draw a button that copies something."""

    def copy() -> None:
        copied = content() if callable(content) else content
        if copied:
            ui.clipboard.write(copied)
        ui.notify(
            "Copied." if copied else "There is nothing to copy yet.", position="top", timeout=1200
        )

    button = ui.button(text, on_click=copy, icon=icon).props("flat dense no-caps size=12px")
    if not text:
        button.props('aria-label="Copy"')
    return button


def save_button(text: str, handler: Callable[[], Awaitable[None]]) -> ui.button:
    """Draw a button that saves something in a file."""
    return ui.button(text, on_click=handler).props(
        "outline dense no-caps size=12px padding='2px 8px'"
    )


class Problem:
    """One line about what went wrong, at the top of a page until it is closed or resolved."""

    def __init__(self) -> None:
        with (
            ui.row()
            .classes("fp-panel w-full items-center no-wrap")
            .props("role=alert") as self._row
        ):
            ui.icon("error", color="negative").classes("text-xl")
            self._text = ui.label("").classes("grow").mark("problem")
            ui.button(icon="close", on_click=self.clear).props(
                'flat round dense aria-label="Close"'
            )
        self.clear()

    def show(self, text: str) -> None:
        """Show a line."""
        self._text.set_text(text)
        self._row.set_visibility(True)

    def clear(self) -> None:
        """Show none."""
        self._row.set_visibility(False)


@contextmanager
def explained(problem: Problem, current: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Show an error that is raised inside as one line, and continue.

    Parameters
    ----------
    problem
        Where to show it; cleared if there is no error.
    current
        Returns whether the error is still relevant: the settings may have changed since.
    """
    line = ""
    try:
        yield
    except FedpriceError as error:
        line = str(error)
    if current():
        if line:
            problem.show(line)
        else:
            problem.clear()


def drop(
    text: str, suffixes: str, handler: Callable[[Any], Awaitable[None]], largest: int
) -> ui.upload:
    """Draw a place to drop one file on; `handler` gets the event of its upload."""
    upload = ui.upload(label=text, auto_upload=True, max_file_size=largest, on_upload=handler)
    upload.on_rejected(
        lambda: ui.notify(
            f"Only {suffixes} files of up to {largest // 2**20} MiB are read; save a spreadsheet "
            "as CSV (UTF-8).",
            type="warning",
            timeout=8000,
        )
    )
    return upload.props(f'accept="{suffixes}" flat bordered').classes("w-full")


def address() -> dict[str, str]:
    """Return the state that the address of this page holds."""
    return dict(context.client.request.query_params)


def absent_file(field: str = "file") -> str:
    """Return a notice about the file that was dropped where this link was made; "" without one."""
    name = address().get(field, "")
    return name and (
        f"This link was made with the file {name[:100]}, which is not part of it. Drop that file "
        "here to see the same."
    )


def set_address(state: Mapping[str, str]) -> None:
    """Put this state into the address without reloading the page."""
    text = json.dumps("?" + urlencode(state) if state else "")
    ui.run_javascript(f"history.replaceState({{}}, '', location.pathname + {text})")
