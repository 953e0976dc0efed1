"""`write_letters`: one letter per client that states its offer in words, as Markdown and as HTML.

A letter is an offer of its own, in whole units of money: a price is rounded down, so that nobody
is paid less than its letter says and all payments together stay within the budget. What -o writes
has all digits.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import numpy as np

from fedprice._plumbing.dialects import number_text
from fedprice.commands.assumptions import UNNEEDED
from fedprice.commands.cost_letters import (
    cost_letter,
    cost_statement,
    is_at_cost,
    margin_of,
    rounded_contracts,
)
from fedprice.commands.letter_form import (
    Letter,
    Money,
    file_name,
    level_in_words,
    luck_in_words,
    short_name,
)
from fedprice.errors import InputError
from fedprice.game import best_response
from fedprice.pricing.display import count_clients, number, safe
from fedprice.pricing.outcome import Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedprice.calibration import Calibration
    from fedprice.commands.assumptions import Assumptions
    from fedprice.game import Game

__all__ = ["check_letters", "letters", "write_letters"]

# What a reader who knows no columns and no letters of the theory calls them.
IN_WORDS = {
    "α": "noise of training (α)",
    "τ": "exponent of costs (τ)",
    "grad_norm": "information per sample",
    "update_norm": "information per sample",
    "value": "what a better model is worth",
}
OTHER_LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)  # in what a client may choose instead
APART = 0.04  # that far from the level expected, so that the table says something
MOST_DIGITS = 6  # that are added to prices until they fit the budget


def check_letters(outcome: Outcome) -> None:
    """Refuse letters where clients neither choose their level at a price nor are paid at cost."""
    if is_at_cost(outcome):
        return
    if not outcome.posts_prices or outcome.bought is not None:
        raise InputError(
            f"--letters offers each client a price at which it chooses its level, which "
            f"{outcome.scheme} does not; use --scheme equilibrium, uniform or weighted, or "
            "--pay cost."
        )
    chosen = best_response(outcome.game, outcome.prices)
    other = ~np.isclose(chosen, outcome.levels, rtol=1e-6, atol=1e-9)
    if other.any():
        name = safe(str(outcome.game.clients.ids[int(np.argmax(other))]))
        raise InputError(
            f"the level of client {name!r} is not its own choice at its price, so that no letter "
            "can say so; leave out --letters."
        )


def write_letters(
    outcome: Outcome,
    assumptions: Assumptions,
    calibration: Calibration | None,
    currency: str,
    folder: Path,
    *,
    budget_shown: bool = False,
) -> None:
    """Write a letter to each client into a directory, as .md and as .html that prints on A4.

    With pay at cost there is a statement, too, that justifies the payment to each client.
    """
    written = letters(outcome, assumptions, calibration, currency, budget_shown=budget_shown)
    for name, text in written:
        (folder / f"{name}.md").write_text(text.markdown(), encoding="utf-8")
        (folder / f"{name}.html").write_text(text.html(), encoding="utf-8")


def letters(
    outcome: Outcome,
    assumptions: Assumptions,
    calibration: Calibration | None = None,
    currency: str = "",
    *,
    budget_shown: bool = False,
) -> Iterator[tuple[str, Letter]]:
    """Return letters with the names of their files; the budget is in them only if it is to be."""
    game, count, at_cost = outcome.game, len(outcome.levels), is_at_cost(outcome)
    hidden = {"value"} if at_cost else set()  # which pay at cost does not depend on
    if not budget_shown:
        hidden.add("budget")
    rest = [
        [IN_WORDS.get(what, what), text]
        for what, text in assumptions.facts(game, calibration, currency)
        if not text.startswith(UNNEEDED) and what not in hidden
    ]
    margin = margin_of(outcome)
    if at_cost:
        outcome = rounded_contracts(outcome, margin)
        yield f"{0:0{len(str(count))}}-statement", cost_statement(outcome, margin, currency)
    else:
        outcome = rounded_prices(outcome)
    for n in range(count):
        if at_cost:
            of_client = cost_letter(outcome, n, margin, currency)
        else:
            of_client = _price_letter(outcome, n, currency)
        parts = [
            ("text", _introduction(game)),
            *of_client.parts,
            ("heading", "Assumptions"),
            ("table", [["what", "assumed"], *_own(outcome, n, currency), *rest]),
        ]
        yield file_name(n, count, str(game.clients.ids[n])), Letter(of_client.title, parts)


def rounded_prices(outcome: Outcome) -> Outcome:
    """Return the outcome of prices in whole units, or with few digits where they are small.

    Prices are rounded down. Those of clients at a floor or cap are rounded up, which keeps them
    there, if the budget suffices: digits are added until it does.
    """
    clients, levels = outcome.game.clients, outcome.levels
    held = (levels <= clients.level_min) | (levels >= clients.level_max)
    for more in range(MOST_DIGITS):
        prices = []
        for price, up in zip(outcome.prices.tolist(), held.tolist(), strict=True):
            euros = Money.like(price, more=more)
            prices.append(euros.up(price) if up else euros.down(price))
        rounded = Outcome.from_prices(outcome.game, prices, scheme=outcome.scheme)
        if rounded.status is not Status.INFEASIBLE:
            return rounded
    return outcome


def _introduction(game: Game) -> str:
    return (
        f"A model is to be trained on the data of {count_clients(len(game.clients))}, of whom you "
        f"are one, in {number(game.bound.rounds)} rounds. Data stay where they are: whoever joins "
        "a round trains on its own data and sends an update of the model. This letter says what "
        "you are offered for joining."
    )


def _price_letter(outcome: Outcome, n: int, currency: str) -> Letter:
    """Return the letter to the client in row n, which chooses its level at a price."""
    game, clients = outcome.game, outcome.game.clients
    price, level = float(outcome.prices[n]), float(outcome.levels[n])
    cap, cost, value = (float(x[n]) for x in (clients.level_max, clients.cost, clients.value))
    rounds, tau, euros = number(game.bound.rounds), game.cost_exponent, Money.like(price, currency)
    count = game.bound.rounds

    def joins(at: float) -> str:
        return f"{number(round(at * count))} of {rounds}"

    def line(at: float) -> list[str]:
        paid, own = euros.down(price * at), euros.up(cost * at**tau)
        mark = " (expected)" if at == level else ""
        return [f"{joins(at)}{mark}", *map(euros.text, (paid, own, paid - own))]

    verb = "pay" if price < 0 else "are paid"
    direction = "from you" if price < 0 else "to you"
    payment = euros.text(abs(euros.down(price * level)))
    offer = (
        f"We expect you to {level_in_words(level)}, which is {joins(level)} rounds on average. The "
        f"payment is then {payment} {direction}, for all rounds together. Coin flips that neither "
        "side can manipulate decide which rounds these are."
    )
    if price > 0:
        offer += f" {luck_in_words(level, count)}"
    tenth = Money.like(price / 10, currency)
    rate = (
        f"You choose how often you join, and {verb} in proportion: "
        f"{tenth.text(abs(tenth.down(price / 10)))} for a tenth of the rounds, "
        f"{euros.text(abs(price))} for all {rounds} of them."
    )
    if price > 0:
        rate += (
            " We assume that what joining costs you rises faster, as your cost for all rounds "
            f"times q^{number(tau)} for a share q of them, so that from some level on a further "
            "round costs you more than it pays."
        )
    if level == 0:
        offer = f"We expect you to {level_in_words(level)}."
        rate = "You are offered no payment, because the model does not depend on your data."
    others = [at for at in OTHER_LEVELS if at < cap and abs(at - level) > APART]
    levels = sorted({0.0, cap, level, *others})
    worth = (
        "The table has money alone: what a better model is worth to you comes on top, and is why "
        "joining may suit you even at a loss of money. "
        if value * game.impact[n] > 0
        else ""
    )
    return Letter(
        f"Offer to {short_name(str(clients.ids[n]))}",
        [
            ("heading", "The offer"),
            ("text", offer),
            ("heading", "How the payment follows from how often you join"),
            ("text", rate),
            ("heading", "What you may choose instead"),
            (
                "text",
                f"Any number of rounds from none to {number(round(cap * count))}, at the same "
                "rate. Declining means no rounds, no payment and no cost. "
                f"{worth}If joining every round costs you {euros.text(cost)}, this is what "
                "remains:",
            ),
            (
                "table",
                [["rounds", "payment", "your cost", "what remains"], *map(line, levels)],
            ),
            ("heading", "Check it yourself"),
            (
                "text",
                "If your cost is another one, another level suits you best. Put it in the place of "
                "--cost, and fedprice, the program that made this letter, says which; whoever sent "
                "you the letter can tell you where to get it:",
            ),
            ("command", _command(outcome, n)),
        ],
    )


def _own(outcome: Outcome, n: int, currency: str) -> Iterator[list[str]]:
    """Yield what is said of the client itself."""
    clients, cost = outcome.game.clients, float(outcome.game.clients.cost[n])
    yield ["your cost", f"{Money.like(cost, currency).text(cost)} for joining every round"]
    samples = "" if clients.samples is None else f"{number(float(clients.samples[n]))}, "
    yield ["your samples", f"{samples}{clients.weight[n]:.1%} of all"]
    if clients.value.any() and not is_at_cost(outcome):
        yield ["your value", f"{number(float(clients.value[n]))} per unit of loss"]


def _command(outcome: Outcome, n: int) -> str:
    """Return the command that computes the level which the letter expects."""
    game, clients = outcome.game, outcome.game.clients
    price, cost, value, cap = (
        float(x[n]) for x in (outcome.prices, clients.cost, clients.value, clients.level_max)
    )
    given = {"--price": price, "--cost": cost}
    if value:  # otherwise its impact does not matter
        given |= {"--value": value, "--impact": float(game.impact[n])}
    if game.cost_exponent != 2:
        given["--exponent"] = game.cost_exponent
    if cap < 1:
        given["--level-max"] = cap
    words = [text for name, x in given.items() for text in (name, number_text(float(f"{x:.12g}")))]
    return shlex.join(["fedprice", "respond", *words])
