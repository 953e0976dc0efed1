"""The assumptions behind prices besides the table of clients, stated at the head of every output.

A table may lack the column of values, that of norms, or both: clients are then taken for pure
sellers (a value of 0), or to be equally informative per sample (a norm of 1). Where nobody has a
value, prices and levels do not depend on α or the rounds (docs/theory.md, "What need not be
known"), so that α need not be given either. Losses are then known up to the factor α only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError
from fedprice.pricing.display import money, number

if TYPE_CHECKING:
    from fedprice.calibration import Calibration
    from fedprice.clients import Clients
    from fedprice.game import Game

__all__ = [
    "ALPHA_FREE",
    "ASSUMED",
    "GIVEN",
    "MEANING",
    "UNNEEDED",
    "Assumptions",
    "needs_alpha",
    "refuse_robust",
    "require_alpha",
]

ASSUMED = {"value": 0.0, "grad_norm": 1.0}
# Schemes whose prices α moves through the clients' own interest in the model only.
ALPHA_FREE = (
    "equilibrium", "uniform", "weighted", "uniform-published", "weighted-published", "subset",
    "full", "at-cost",
)  # fmt: skip
UNNEEDED = "not needed"  # how the text of a fact begins that no price depends on
MEANING = {
    "value": "assumed to be 0 for every client: no client is assumed to want the model",
    "grad_norm": "assumed to be 1 for every client: every sample is equally informative",
}


@dataclass(frozen=True)
class Assumptions:
    """What was assumed.

    Attributes
    ----------
    columns
        The columns that the table lacks: "value", "grad_norm", both or none.
    alpha
        Where α is from: "given", "measured", or None if prices do not depend on it and nobody gave
        one; losses are then per unit of α.
    defaults
        The options that were left at their defaults.
    """

    columns: tuple[str, ...] = ()
    alpha: str | None = "given"
    defaults: tuple[str, ...] = ()

    def facts(
        self, game: Game, calibration: Calibration | None = None, currency: str = ""
    ) -> list[tuple[str, str]]:
        """Return the assumptions as pairs of a name and a text."""
        tau = number(game.cost_exponent)
        known = f"{number(game.bound.alpha)}, as {self.alpha}"
        if calibration is not None:
            low, high = map(number, calibration.interval)
            known += f"; 95 % from {low} to {high}"
        unknown = f"{UNNEEDED}: without values, no price depends on it"
        pairs = [
            ("budget", f"{money(game.budget, currency)} in total, for all rounds together"),
            ("rounds", number(game.bound.rounds)),
            ("α", unknown if self.alpha is None else known),
            ("τ", f"{tau}: joining a share q of the rounds costs cost · q^{tau}"),
        ]
        return pairs + [(name, MEANING[name]) for name in self.columns]

    def summary(self, game: Game) -> dict[str, Any]:
        """Return the assumptions as plain values, by name."""
        return {
            "alpha": None if self.alpha is None else game.bound.alpha,
            "rounds": game.bound.rounds,
            "cost_exponent": game.cost_exponent,
            "assumed": {name: ASSUMED[name] for name in self.columns},
        }


GIVEN = Assumptions()  # everything was said


def needs_alpha(clients: Clients, scheme: str) -> bool:
    """Return whether α changes prices: through a client that has both a value and an impact.

    Examples
    --------
    >>> from fedprice import Clients
    >>> sellers = Clients(samples=[1, 3], grad_norm=1, cost=1, value=0)
    >>> needs_alpha(sellers, "equilibrium"), needs_alpha(sellers, "contracts")
    (False, True)
    """
    interested = (clients.value * clients.weight * clients.norm).any()
    return bool(interested) or scheme not in ALPHA_FREE


def refuse_robust(assumptions: Assumptions) -> None:
    """Refuse prices for an interval of α where prices do not depend on α."""
    if "value" in assumptions.columns:
        raise InputError(
            "--robust needs the column 'value': with values of 0 prices do not depend on α, and "
            "the plain ones are robust. Leave out --robust, or add the column."
        )


def require_alpha(assumptions: Assumptions, changed: Clients, scheme: str) -> None:
    """Refuse changed clients whose prices depend on α, if nobody gave one."""
    if assumptions.alpha is None and needs_alpha(changed, scheme):
        raise InputError(
            "with a value above 0, prices depend on the bound's α: give --alpha, or --calibration "
            "FILE as `fedprice calibrate` writes it."
        )
