"""`write_letters`: one letter per client that states its offer in words, as Markdown and as PDF."""

from __future__ import annotations

import re
import shlex
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprice.commands.assumptions import UNNEEDED
from fedprice.errors import InputError
from fedprice.game import best_level
from fedprice.pricing.display import count_clients, number, safe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fedprice.calibration import Calibration
    from fedprice.commands.assumptions import Assumptions
    from fedprice.pricing import Outcome

__all__ = ["Letter", "check_letters", "letter", "level_in_words", "write_letters"]

# What a reader who knows no columns and no letters of the theory calls them.
IN_WORDS = {
    "α": "noise of training (α)",
    "τ": "exponent of costs (τ)",
    "grad_norm": "what a sample teaches",
    "update_norm": "what a sample teaches",
    "value": "what a better model is worth",
}
LONGEST_NAME = 120  # characters of a client's name in a letter
LONGEST_FILE = 60  # bytes of a client's name in the name of a file
OTHER_LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)  # in what a client may choose instead
APART = 0.04  # that far from the level expected, so that the table says something


@dataclass(frozen=True)
class Letter:
    """A letter: a title and parts in order.

    A part is a heading, a paragraph, a command to type, or a table whose first row has the names of
    its columns: `("heading" | "text" | "command", text)` or `("table", rows)`.
    """

    title: str
    parts: Sequence[tuple[str, str | Sequence[Sequence[str]]]]

    def markdown(self) -> str:
        """Return the letter as Markdown; what a client is called cannot change its form."""
        lines = [f"# {_plain(self.title)}"]
        for kind, content in self.parts:
            if isinstance(content, str):
                mark = {"heading": f"## {_plain(content)}", "text": _plain(content)}
                lines.append(mark.get(kind, f"```sh\n{content}\n```"))
                continue
            first, *rest = ([_plain(cell) for cell in row] for row in content)
            rule = ["---", *["---" if len(first) == 2 else "--:"] * (len(first) - 1)]
            lines.append("\n".join(f"| {' | '.join(row)} |" for row in (first, rule, *rest)))
        return "\n\n".join(lines) + "\n"


def _plain(text: str) -> str:
    r"""Return text in which nothing is taken for Markdown.

    Examples
    --------
    >>> print(_plain("St. *Anna* <b>"))
    St. \*Anna\* \<b\>
    """
    return re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", text)


def check_letters(outcome: Outcome) -> None:
    """Refuse letters where clients do not choose their levels at a price."""
    if not outcome.posts_prices or outcome.bought is not None:
        raise InputError(
            f"--letters offers each client a price at which it chooses its level, which "
            f"{outcome.scheme} does not; use --scheme equilibrium, uniform or weighted."
        )


def write_letters(
    outcome: Outcome,
    assumptions: Assumptions,
    calibration: Calibration | None,
    currency: str,
    folder: Path,
) -> None:
    """Write a letter to each client into a directory, as .md and .pdf (extra `plot`)."""
    from fedprice.commands.letter_pages import write_pdf

    count = len(outcome.levels)
    for n in range(count):
        written = letter(outcome, n, assumptions, calibration, currency)
        path = folder / file_name(n, count, str(outcome.game.clients.ids[n]))
        path.with_name(f"{path.name}.md").write_text(written.markdown(), encoding="utf-8")
        write_pdf(written, path.with_name(f"{path.name}.pdf"))


def file_name(n: int, count: int, client: str) -> str:
    """Return the name of a client's letter: its row, so that no two are the same, and its name.

    Examples
    --------
    >>> file_name(2, 40, "../St. Anna"), file_name(0, 1, "..")
    ('03-St-Anna', '1')
    """
    name = re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", client)).strip("-")
    short = name.encode()[:LONGEST_FILE].decode(errors="ignore").rstrip("-")
    return f"{n + 1:0{len(str(count))}}" + (f"-{short}" if short else "")


def level_in_words(level: float) -> str:
    """Return what a level means for somebody who is asked to join.

    Examples
    --------
    >>> level_in_words(1), level_in_words(0.31), level_in_words(0.012), level_in_words(0)
    ('join every round', 'join about 3 rounds in 10', 'join about 1 round in 83', 'stay away')
    """
    if level <= 0:
        return "stay away"
    if level >= 0.9995:
        return "join every round"
    if level >= 0.275:
        whole = 10 if level < 0.95 else 1000 if level >= 0.995 else 100
        share = round(level * whole)
        return f"join about {share} rounds in {whole}"
    return f"join about 1 round in {number(round(1 / level))}"


def letter(
    outcome: Outcome,
    n: int,
    assumptions: Assumptions,
    calibration: Calibration | None = None,
    currency: str = "",
) -> Letter:
    """Return the letter to the client in row n."""
    game, clients = outcome.game, outcome.game.clients
    name = safe(str(clients.ids[n]))
    name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    price, level = float(outcome.prices[n]), float(outcome.levels[n])
    cap, cost, value = (float(x[n]) for x in (clients.level_max, clients.cost, clients.value))
    rounds, tau = number(game.bound.rounds), game.cost_exponent
    count = count_clients(len(clients))

    def amount(given: float) -> str:
        given += 0.0  # not -0.00
        digits = f"{given:,.2f}" if abs(given) >= 0.01 or given == 0 else number(given)
        return f"{digits} {currency}" if currency else digits

    def line(at: float) -> list[str]:
        paid, own = (x if abs(x) < 0.01 else round(x, 2) for x in (price * at, cost * at**tau))
        mark, cells = " (expected)" if at == level else "", (paid, own, paid - own)
        share = f"{number(round(at * game.bound.rounds))} of {rounds}"
        return [f"{number(at)}{mark}", share, *map(amount, cells)]

    verb = "pay" if price < 0 else "are paid"
    direction = "from you" if price < 0 else "to you"
    offer = (
        f"We expect you to {level_in_words(level)}: a level of {number(level)}, or "
        f"{number(round(level * game.bound.rounds))} of {rounds} rounds on average. The payment is "
        f"then {amount(abs(price * level))} {direction}, for all rounds together. Coins that "
        "neither side can influence decide which rounds these are."
    )
    if price > 0:
        offer += (
            " Luck does not change the payment: if you deliver an update in every round that your "
            "coins choose, you get all of it, however many these are."
        )
    rate = (
        f"You choose how often you join, and {verb} in proportion: {amount(abs(price) / 10)} for a "
        f"tenth of the rounds, {amount(abs(price))} for all {rounds} of them."
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
    wants = value * game.impact[n] > 0
    worth = (
        "The table has money alone: what a better model is worth to you comes on top, and is why "
        "joining may suit you even at a loss of money. "
        if wants
        else ""
    )
    shown = [("your cost", f"{amount(cost)} for joining every round"), *_own(outcome, n)]
    rest = assumptions.facts(game, calibration, currency)
    facts = [
        *shown,
        *((IN_WORDS.get(what, what), text) for what, text in rest if not text.startswith(UNNEEDED)),
    ]
    return Letter(
        f"Offer to {name}",
        [
            (
                "text",
                f"A model is to be trained on the data of {count}, of whom you are one, in "
                f"{rounds} rounds. Data stay where they are: whoever joins a round trains on its "
                "own data and sends an update of the model. This letter says what you are offered "
                "for joining.",
            ),
            ("heading", "The offer"),
            ("text", offer),
            ("heading", "How the payment follows from how often you join"),
            ("text", rate),
            ("heading", "What you may choose instead"),
            (
                "text",
                f"Any level from 0 (never) to {number(cap)}, at the same price. Declining is a "
                f"level of 0. {worth}If joining every round costs you {amount(cost)}, this is what "
                "remains:",
            ),
            (
                "table",
                [
                    ["level", "rounds", "payment", "your cost", "what remains"],
                    *(line(at) for at in levels),
                ],
            ),
            ("heading", "Check it yourself"),
            (
                "text",
                "If your cost is another one, another level suits you best. Put it in the place of "
                "--cost, and fedprice, the program that made this letter, says which; whoever sent "
                "you the letter can tell you where to get it:",
            ),
            ("command", _command(outcome, n)),
            ("heading", "What this offer rests on"),
            ("table", [["what", "taken to be"], *map(list, facts)]),
        ],
    )


def _own(outcome: Outcome, n: int) -> list[tuple[str, str]]:
    """Return what is said of the client itself."""
    clients = outcome.game.clients
    share = f"{clients.weight[n]:.2%} of all"
    samples = "" if clients.samples is None else f"{number(float(clients.samples[n]))}, "
    own = [("your samples", f"{samples}{share}")]
    if clients.value.any():
        own.append(("your value", f"{number(float(clients.value[n]))} per unit of loss"))
    return own


def _command(outcome: Outcome, n: int) -> str:
    """Return the command that computes the level which the letter expects."""
    game, clients = outcome.game, outcome.game.clients
    price, cost, value, cap = (
        float(x[n]) for x in (outcome.prices, clients.cost, clients.value, clients.level_max)
    )
    impact = float(game.impact[n]) if value else 0.0  # which only matters to who has a value
    given = {"--price": price, "--cost": cost}
    if value:
        given |= {"--value": value, "--impact": impact}
    if game.cost_exponent != 2:
        given["--exponent"] = game.cost_exponent
    if cap < 1:
        given["--level-max"] = cap
    level = best_level(price, cost, value * impact, game.cost_exponent, cap)
    if not np.isclose(level, outcome.levels[n], rtol=1e-6, atol=1e-9):
        raise InputError(
            f"the level of client {safe(str(clients.ids[n]))!r} is not its own choice at its "
            "price, so that no letter can say so; leave out --letters."
        )
    words = [text for name, x in given.items() for text in (name, f"{x:.12g}")]
    return shlex.join(["fedprice", "respond", *words])
