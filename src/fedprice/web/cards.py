"""The numbers on top of the Price page and of the Beliefs page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from fedprice.commands.warnings import price_warnings
from fedprice.pricing.display import number, percent
from fedprice.web.page_frame import Figure
from fedprice.web.post_answers import FEW

if TYPE_CHECKING:
    from fedprice.beliefs.posted import Information, Posted
    from fedprice.pricing import Outcome

__all__ = ["OutcomeCards", "PostedCards"]

EXACT = 1e-9  # a smaller gap is due to rounding alone


class OutcomeCards:
    """What an outcome costs and buys."""

    def __init__(self, currency: str = "") -> None:
        names = ("distance", "spend", "payers", "joiners", "expected loss", "certificate")
        self._unit = currency or "in the unit of costs"
        with ui.element("div").classes("fp-figures fp-results"):
            self._cards = {name: Figure(name) for name in names}
        self._warning = ui.label("").classes("text-sm fp-second").props("role=status")
        self._warning.mark("warning")

    def show(self, outcome: Outcome | None) -> None:
        """Show an outcome, or none."""
        cards = self._cards
        warnings = [] if outcome is None else price_warnings(outcome)
        options = (
            " Copy the command to add options." if any("--" in line for line in warnings) else ""
        )
        self._warning.set_text(" ".join(f"Warning: {line}" for line in warnings) + options)
        self._warning.set_visibility(bool(warnings))
        if outcome is None:
            for card in cards.values():
                card.show("–")
            return
        clients = outcome.game.clients
        cards["distance"].show(*_distance(outcome.distance))
        cards["spend"].show(
            number(outcome.spend), f"of {number(outcome.game.budget)}, {self._unit}"
        )
        cards["payers"].show(number(outcome.payers), f"of {number(len(clients))} clients")
        cards["joiners"].show(number(float(outcome.levels.sum())), "in a round, on average")
        slope = outcome.multiplier / outcome.expected_loss if outcome.expected_loss > 0 else 0.0
        gap = outcome.certificate.gap
        note = "above full participation"
        if slope:
            note = f"−{number(100 * slope)} % for one more unit of budget"
        elif gap < 1:
            note = "every client with an impact joins every round"
        cards["expected loss"].show(number(outcome.expected_loss), note)
        if gap < EXACT:
            cards["certificate"].show("optimal", f"proven to {max(gap, 0):.0e}")
        elif gap < 1:
            cards["certificate"].show(f"{gap:.1e}", "gap to the optimum, at most")
        else:
            cards["certificate"].show("none", "not claimed to be optimal")


def _distance(left: float) -> tuple[str, str]:
    """Return the distance to full participation, and what it is like."""
    return percent(left), f"as if everybody joined {percent(1 - left)} of the rounds"


class PostedCards:
    """What posted prices are expected to cost and to buy."""

    def __init__(self, currency: str = "") -> None:
        self._unit = currency or "in the unit of costs"
        names = ("distance", "expected spend", "over the budget", "cost of not knowing",
                 "expected loss", "certificate")  # fmt: skip
        with ui.element("div").classes("fp-figures fp-results"):
            self._cards = {name: Figure(name) for name in names}

    def show(self, posted: Posted | None, *, rough: bool = False) -> None:
        """Show the offers, or none; approximately while a control moves."""
        about, cards = "≈ " if rough else "", self._cards
        if posted is None:
            for card in cards.values():
                card.show("–")
            return
        whole = float(posted.moments.loss.sum())
        distance = posted.expected_loss / whole if whole else 0.0
        share, note = _distance(distance)
        cards["distance"].show(f"{about}{share}", note)
        cards["expected loss"].show(
            f"{about}{number(posted.expected_loss)}", "above full participation"
        )
        cards["expected spend"].show(
            f"{about}{number(posted.expected_spend)}",
            f"± {number(posted.spend_std)} of {number(posted.budget)}, {self._unit}",
        )
        cards["over the budget"].show(f"{about}{posted.over_budget:.1%}", "probability")
        if not rough:
            gap = posted.certificate.gap
            proven = gap < 1
            cards["certificate"].show(
                f"{abs(gap):.1e}" if proven else "none",
                "gap to the best prices" if proven else "not proven to be best",
            )
        cards["cost of not knowing"].show("…" if len(posted.clients) <= FEW else "–")

    def show_known(self, known: Information) -> None:
        """Show how much worse this is than knowing every cost and value."""
        low, high = known.low - 1, known.high - 1
        self._cards["cost of not knowing"].show(
            f"{known.ratio - 1:+.0%}", f"of the loss; 95 %: {low:+.0%} to {high:+.0%}"
        )
