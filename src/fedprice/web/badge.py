"""How far a ledger is verified, as a badge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

if TYPE_CHECKING:
    from fedprice.market.verification import Checked

__all__ = ["Badge"]

VERIFIED = (
    "Every hash, signature, coin, weight, payment and balance is checked again in the background, "
    "as `fedprice ledger verify` does; the file and the saved states once, when the end is reached."
)
_BADGES = {"verified": "verified", "damaged": "error", "under way": "hourglass_top"}
_COLORS = {"verified": "positive", "damaged": "negative", "under way": "secondary"}


class Badge:
    """How far the ledger is verified."""

    def __init__(self) -> None:
        with ui.row().classes("items-center gap-1 no-wrap"):
            self._icon = ui.icon("hourglass_top", color="secondary").classes("text-xl")
            self._text = (
                ui.label("not verified yet").classes("text-sm").props("data-part=verification")
            )
            ui.tooltip(VERIFIED).props("max-width=24rem")

    def show(self, checked: Checked) -> None:
        """Show how far it is verified now."""
        state = "verified" if checked.is_verified else "under way"
        state = "damaged" if checked.is_damaged else state
        self._text.set_text(str(checked))
        self._icon.name = _BADGES[state]
        self._icon.props(f"color={_COLORS[state]}")
