"""The numbers on top of the Price page and of the Beliefs page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from fedprice.commands.warnings import price_warnings
from fedprice.pricing.display import number
from fedprice.web.believed import FEW
from fedprice.web.look import Figure
from fedprice.words import WORDS

if TYPE_CHECKING:
    from fedprice.beliefs.posted import Information, Posted
    from fedprice.pricing import Outcome

__all__ = ["OutcomeCards", "PostedCards"]

EXACT = 1e-9  # a smaller gap is due to rounding alone


class OutcomeCards:
    """What an outcome costs and buys."""

    def __init__(self) -> None:
        with ui.element("div").classes("fp-figures fp-second"):
            self._cards = {
                name: Figure(name) for name in ("expected loss", "spend", "payers", "joiners")
            }
            self._cards["multiplier"] = Figure("one more unit of budget", tip=WORDS["multiplier"])
            self._cards["certificate"] = Figure("certificate")
        self._warning = ui.label("").classes("text-sm").props("role=status").mark("warning")

    def show(self, outcome: Outcome | None) -> None:
        """Show an outcome, or none."""
        cards = self._cards
        found = [] if outcome is None else price_warnings(outcome)
        self._warning.set_text(" ".join(f"Warning: {line}" for line in found))
        self._warning.set_visibility(bool(found))
        if outcome is None:
            for card in cards.values():
                card.show("–")
            return
        clients = outcome.game.clients
        cards["expected loss"].show(number(outcome.expected_loss), "above full participation")
        cards["spend"].show(
            number(outcome.spend), f"of {number(outcome.game.budget)}, in the unit of costs"
        )
        cards["payers"].show(number(outcome.payers), f"of {number(len(clients))} clients")
        cards["joiners"].show(number(float(outcome.levels.sum())), "in a round, on average")
        slope = outcome.multiplier / outcome.expected_loss if outcome.expected_loss > 0 else 0.0
        gap = outcome.certificate.gap
        if slope:
            cards["multiplier"].show(f"−{number(100 * slope)} %", "of the expected loss")
        elif gap < 1:
            cards["multiplier"].show("nothing", "every client with an impact joins every round")
        else:
            cards["multiplier"].show("–", "known for the equilibrium only")
        if gap < EXACT:
            cards["certificate"].show("optimal", f"proven to {max(gap, 0):.0e}")
        elif gap < 1:
            cards["certificate"].show(f"{gap:.1e}", "gap to the optimum, at most")
        else:
            cards["certificate"].show("none", "not claimed to be optimal")


class PostedCards:
    """What posted prices are expected to cost and to buy."""

    def __init__(self) -> None:
        names = ("expected loss", "expected spend", "over the budget", "full information",
                 "certificate")  # fmt: skip
        with ui.element("div").classes("fp-figures fp-second"):
            self._cards = {name: Figure(name) for name in names}

    def show(self, posted: Posted, *, rough: bool) -> None:
        """Show the offers; approximately while a control moves."""
        about, cards = "≈ " if rough else "", self._cards
        cards["expected loss"].show(
            f"{about}{number(posted.expected_loss)}", "above full participation"
        )
        cards["expected spend"].show(
            f"{about}{number(posted.expected_spend)}",
            f"± {number(posted.spend_std)} of {number(posted.budget)}, in the unit of costs",
        )
        cards["over the budget"].show(f"{about}{posted.over_budget:.1%}", "probability")
        if not rough:
            gap = posted.certificate.gap
            proven = gap < 1
            cards["certificate"].show(
                f"{abs(gap):.1e}" if proven else "none",
                "gap to the best prices" if proven else "not proven to be best",
            )
        cards["full information"].show(
            "…" if len(posted.clients) <= FEW else "–", "times its expected loss"
        )

    def show_known(self, known: Information) -> None:
        """Show how much worse this is than knowing every cost and value."""
        self._cards["full information"].show(
            f"{known.ratio:.2f} ×", f"95 %: {known.low:.2f} to {known.high:.2f}"
        )
