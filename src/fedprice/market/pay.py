"""Why a client was paid what it was paid: the rule of pay with the numbers of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fedprice.market.money import LEVEL_ONE, MICRO, money, money_text

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
    >>> alice = Client([[LEVEL_ONE, 20_000_000]], LEVEL_ONE // 2, 1, heads=4, joined=3, missed=1)
    >>> alice.paid = 6_000_000
    >>> for line in pay_lines(Run(10, 0, {"alice": alice}, done=8), alice):
    ...     print(f"{line.amount:>10}  {line.what}")
     10.000000  agreed for 10 rounds at level 0.5
     -2.000000  heads not drawn yet: 1 of 5
     -2.000000  heads not delivered: 1 of 4
    """
    level = f"level {own.level / LEVEL_ONE:.4g}"
    lines = [(f"agreed for {run.rounds:,} rounds at {level}", own.payment)]
    if own.payment < 0:
        back = f"returned for rounds not done: {run.rounds - run.done:,} of {run.rounds:,}"
        lines.append((back, own.paid - own.payment))
    else:
        drawn = own.earned(run.rounds, own.heads)
        expected = own.level * run.rounds / LEVEL_ONE
        left = expected - own.heads
        said = (
            "heads below the average of the level"
            if run.done == run.rounds
            else "heads not drawn yet"
        )
        said = said if left >= 0 else "heads above the average of the level"
        lines += [
            (f"{said}: {abs(left):.4g} of {expected:.4g}", drawn - own.payment),
            (f"heads not delivered: {own.heads - own.joined:,} of {own.heads:,}", own.paid - drawn),
        ]
    return [
        PayLine(what, money(units)) for at, (what, units) in enumerate(lines) if units or not at
    ]


def why_paid(run: Run, own: Client, unit: str) -> str:
    """Return the rule of pay in a sentence or two, with the numbers of this client.

    Examples
    --------
    >>> from fedprice.verify import Client, Run
    >>> alice = Client([[LEVEL_ONE, 20_000_000]], LEVEL_ONE // 2, 1, heads=4, joined=3, missed=1)
    >>> alice.paid = 6_000_000
    >>> why_paid(Run(10, 0, {"alice": alice}, done=8), alice, "EUR")
    'Paid 6.00 EUR = 3 updates × 2.00 EUR; 3 of 4 heads were delivered in 8 of 10 rounds.'
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
        return "No payment was agreed, in either direction."
    each = f"{own.payment / MICRO * LEVEL_ONE / (own.level * run.rounds):,.2f} {unit}"
    if not own.heads:
        return f"Paid {paid}: it drew no heads in {rounds}; each update is paid {each}."
    updates = "update" if own.joined == 1 else "updates"
    return (
        f"Paid {paid} = {own.joined:,} {updates} × {each}; {own.joined:,} of {own.heads:,} heads "
        f"were delivered in {rounds}."
    )
