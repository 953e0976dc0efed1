"""Letters and a statement where clients are paid at cost: what each sum is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.commands.letter_form import Letter, Money, level_in_words, luck_in_words, short_name
from fedprice.pricing.display import count_clients, number, percent
from fedprice.pricing.outcome import Outcome, Status

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray

__all__ = [
    "cost_letter",
    "cost_of_levels",
    "cost_statement",
    "is_at_cost",
    "margin_of",
    "rounded_contracts",
]

DECIMALS = 4  # of a level, with which a reader can check the sums
MOST_DIGITS = 12


def is_at_cost(outcome: Outcome) -> bool:
    """Tell whether clients are paid their costs and a margin."""
    return outcome.scheme == "at-cost" and outcome.bought is not None


def cost_of_levels(outcome: Outcome) -> FloatArray:
    """Return c_n q_n^τ, what its level costs each client, shape (N,)."""
    game = outcome.game
    costs: FloatArray = game.clients.cost * outcome.levels**game.cost_exponent
    return costs


def margin_of(outcome: Outcome) -> float:
    """Return the margin on top of costs, without the rounding error of the sums."""
    costs = float(cost_of_levels(outcome).sum())
    return round(outcome.spend / costs - 1, 9) if costs else 0.0


def rounded_contracts(outcome: Outcome, margin: float) -> Outcome:
    """Return contracts at a margin with levels and payments of few digits, in the same budget.

    Levels are rounded down, but up from a floor, and so are payments, which may therefore be less
    than costs and margin by up to one unit.
    """
    game, clients = outcome.game, outcome.game.clients
    for more in range(MOST_DIGITS - DECIMALS):
        scale = 10.0 ** (DECIMALS + more)
        levels = np.floor(outcome.levels * scale * (1 + 1e-12)) / scale
        above = np.minimum(np.ceil(clients.level_min * scale) / scale, clients.level_max)
        levels = np.maximum(levels, above)
        exact = (1 + margin) * clients.cost * levels**game.cost_exponent
        paid = np.array([Money.of_sum(x, more=more).down(x) for x in exact.tolist()])
        prices = np.divide(paid, levels, out=np.zeros_like(paid), where=levels > 0)
        rounded = Outcome.from_prices(
            game, prices, scheme=outcome.scheme, levels=levels, bought=levels > 0
        )
        if rounded.status is not Status.INFEASIBLE:
            return rounded
    return outcome


def cost_letter(outcome: Outcome, n: int, margin: float, currency: str) -> Letter:
    """Return the letter to the client in row n of rounded contracts."""
    game, level = outcome.game, float(outcome.levels[n])
    rounds = f"{number(round(level * game.bound.rounds))} of {number(game.bound.rounds)} rounds"
    cost, paid = float(game.clients.cost[n]), float(outcome.payments[n])
    euros = Money.of_sum(paid, currency)
    own = min(euros.down(float(cost_of_levels(outcome)[n])), paid)
    tau = number(game.cost_exponent)
    name = f"Offer to {short_name(str(game.clients.ids[n]))}"
    if not paid:
        text = "We ask you for no rounds, because the model does not depend on your data."
        return Letter(name, [("heading", "The offer"), ("text", text)])
    share = f", and a margin of {percent(margin)}" if margin else ""
    offer = (
        f"We offer to pay what it costs you to {level_in_words(level)}{share}: "
        f"{euros.text(paid)} for all rounds together. You would join {rounds} on average; coin "
        "flips that neither side can manipulate decide which. "
        f"{luck_in_words(level, game.bound.rounds)} You take this offer or leave it as a whole. "
        "If you decline, there is no payment and no cost."
    )
    whole = Money.of_sum(cost, currency)
    rows = [
        ["what", "how", "amount"],
        ["joining every round", "as you stated", whole.text(cost)],
        ["joining this often", f"times {level:.12g}^{tau}", euros.text(own)],
    ]
    if margin:
        rows.append(["margin", percent(margin), euros.text(paid - own)])
    return Letter(
        name,
        [
            ("heading", "The offer"),
            ("text", offer),
            ("heading", "What the sum is made of"),
            ("table", [*rows, ["payment", "rounded down", euros.text(paid)]]),
        ],
    )


def cost_statement(outcome: Outcome, margin: float, currency: str) -> Letter:
    """Return the statement that justifies all payments, client by client, and their sum."""
    game, clients, rounds = outcome.game, outcome.game.clients, outcome.game.bound.rounds
    rows, costs, decimals = [], 0.0, 0
    columns = (clients.ids, clients.cost, outcome.levels, cost_of_levels(outcome), outcome.payments)
    for client, cost, level, of_level, payment in zip(*(x.tolist() for x in columns), strict=True):
        euros = Money.of_sum(payment)
        own, decimals = min(euros.down(of_level), payment), max(decimals, euros.decimals)
        costs += own
        amounts = [Money.of_sum(cost).text(cost), *map(euros.text, (own, payment - own, payment))]
        joins = [number(round(level * rounds)), f"{level:.12g}"]
        rows.append([short_name(str(client)), *joins, *amounts])
    sums = map(Money(decimals).text, (costs, outcome.spend - costs, outcome.spend))
    header = ["client", "rounds", "share q", "cost of all rounds", "cost at q", "margin", "payment"]
    in_currency = f" All amounts are in {currency}." if currency else ""
    return Letter(
        "Statement of payments at cost",
        [
            (
                "text",
                f"{count_clients(len(rows))} train a model in {number(rounds)} rounds. Each is "
                f"paid what its rounds cost it, and a margin of {percent(margin)}, rounded down. "
                "Joining a share q of the rounds costs the cost of all rounds times "
                f"q^{number(game.cost_exponent)}. The shares are those that serve the model best "
                f"within the budget; costs are as the clients state them.{in_currency}",
            ),
            ("table", [header, *rows, ["sum", "", "", "", *sums]]),
        ],
    )
