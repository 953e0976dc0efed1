"""Why a client was paid what it was paid: the rule of pay with the numbers of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fedprice.market.money import LEVEL_ONE, money, money_text
from fedprice.verify import due

if TYPE_CHECKING:
    from decimal import Decimal

    from fedprice.verify import Client, Run

__all__ = ["PayLine", "pay_lines", "why_paid"]


class PayLine(NamedTuple):
    """A line of a bill: what it is for, and how much it adds in units of money."""

    what: str
    amount: Decimal


def pay_lines(run: Run, own: Client) -> list[PayLine]:
    """Return the lines that add up to what a client was paid in a run, exactly.

    Parameters
    ----------
    run, own
        The run, or period, and the client in it, as in the books.

    Examples
    --------
    >>> from fedprice.verify import Client, Run
    >>> alice = Client([[LEVEL_ONE, 20_000_000]], LEVEL_ONE // 2, 1, heads=5, joined=4, missed=1)
    >>> alice.paid = 6_400_000
    >>> for line in pay_lines(Run(10, 0, {"alice": alice}, done=8), alice):
    ...     print(f"{line.amount:>10}  {line.what}")
     10.000000  agreed for 10 rounds at level 0.5
     -2.000000  rounds not done: 2 of 10
     -1.600000  heads not delivered: 1 of 5
    """
    level = f"level {own.level / LEVEL_ONE:.4g}"
    lines = [(f"agreed for {run.rounds:,} rounds at {level}", own.payment)]
    if own.payment < 0:
        back = f"back for rounds not done: {run.rounds - run.done:,} of {run.rounds:,}"
        lines.append((back, own.paid - own.payment))
    else:
        whole = own.payment * run.done // run.rounds
        share = due(own.payment, run.rounds, run.done, own.heads, own.joined)
        undone, undelivered = run.rounds - run.done, own.heads - own.joined
        lines += [
            (f"rounds not done: {undone:,} of {run.rounds:,}", whole - own.payment),
            (f"heads not delivered: {undelivered:,} of {own.heads:,}", share - whole),
            ("paid before these heads were missed, and not taken back", own.paid - share),
        ]
    return [
        PayLine(what, money(units)) for at, (what, units) in enumerate(lines) if units or not at
    ]


def why_paid(run: Run, own: Client, unit: str) -> str:
    """Return the rule of pay in a sentence or two, with the numbers of this client.

    Examples
    --------
    >>> from fedprice.verify import Client, Run
    >>> alice = Client([[LEVEL_ONE, 20_000_000]], LEVEL_ONE // 2, 1, heads=5, joined=4, missed=1)
    >>> alice.paid = 6_400_000
    >>> why_paid(Run(10, 0, {"alice": alice}, done=8), alice, "EUR")
    'Paid 6.40 EUR = 10.00 EUR agreed × 8 of 10 rounds × 4 of 5 heads delivered.'
    """
    paid, agreed = f"{money_text(own.paid)} {unit}", f"{money_text(abs(own.payment))} {unit}"
    rounds = f"{run.done:,} of {run.rounds:,} rounds"
    if own.payment < 0:
        held = f"This client pays: {agreed} were held when the run was opened."
        refund = own.paid - own.payment
        if refund:
            held += f" {money_text(refund)} {unit} came back, because the run ended after {rounds}."
        elif not run.settled:
            held += " If the run ends early, the share of the rounds not done comes back."
        missing = own.heads - own.joined
        return held + " Heads that it does not deliver change nothing." * bool(missing)
    if not own.payment:
        return "Nothing was agreed to be paid, in either direction."
    share = due(own.payment, run.rounds, run.done, own.heads, own.joined)
    if not own.heads:
        why = f"{agreed} agreed × {rounds}. It drew no heads, so nothing was asked of it."
    else:
        why = f"{agreed} agreed × {rounds} × {own.joined:,} of {own.heads:,} heads delivered."
    if own.paid == share:
        return f"Paid {paid} = {why}"
    return (
        f"Paid {paid}. By the rule it would be {money_text(share)} {unit} = {why} But more had "
        "been paid before the last heads were missed, and nothing is taken back: the next rounds "
        "pay nothing until the rule has caught up."
    )
