"""What `fedprice compare --lies` shows: who gains by lying, and who pays for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.pricing import Status
from fedprice.pricing.display import facts_table, number, safe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedprice.beliefs.lies import Manipulability

__all__ = ["lies_screen"]

MOST_SHOWN = 10  # clients that gain the most


def lies_screen(found: Manipulability) -> RenderableType:
    """Show the clients that gain the most, then the summary."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    truth, count = found.truth, found.gain.size
    order = np.argsort(-found.gain, kind="stable")[:MOST_SHOWN]
    order = order[found.gain[order] > 0]
    which = "" if order.size == count else f", the {order.size} that gain the most"
    table = Table(
        title=f"{truth.scheme}: best lie of each client{which}; one lies, the others are honest",
        box=box.SIMPLE, title_justify="left",
    )  # fmt: skip
    headings = (
        "cost", "reported", "value", "reported", "payment", "with the lie", "gain",
        "gain / surplus", "others' payments", "loss",
    )  # fmt: skip
    table.add_column("client")
    for heading in headings:
        table.add_column(heading, justify="right")
    true = truth.game.clients
    columns = (
        true.cost, found.cost, true.value, found.value, truth.payments, found.payments, found.gain,
        found.relative_gain, found.others_payment,
    )  # fmt: skip
    for n in order.tolist():
        numbers = (number(float(column[n])) for column in columns)
        loss = f"{found.loss_increase[n]:+.2%}"
        table.add_row(Text(safe(str(true.ids[n]))), *numbers, loss)
    held = "held to the reported level" if found.committed else "free to choose the level"
    title = f"{truth.scheme}: lies within a factor of {number(found.factor)}, {held}"
    advice = "Posted prices, which no report changes, leave nothing to gain: see `fedprice post`."
    parts = [facts_table(title, _facts(found)), Text(advice)]
    return Group(table, *parts) if order.size else Group(*parts)


def _facts(found: Manipulability) -> list[tuple[str, str]]:
    summary, truth, count = found.summary(), found.truth, found.gain.size
    median, high, most = (
        number(summary[f"{name}_relative_gain"]) for name in ("median", "high", "largest")
    )
    worst = int(np.argmax(found.gain))
    pairs = [
        ("clients that gain alone", f"{int((found.gain > 0).sum())} of {number(count)}"),
        ("gain / money surplus", f"median {median}, 90 % quantile {high}, largest {most}"),
        ("largest gain", f"{number(summary['largest_gain'])} of a budget of "
                         f"{number(truth.game.budget)}"),
        ("loss with one liar", f"{summary['mean_loss_increase']:+.2%} on average, at most "
                               f"{summary['largest_loss_increase']:+.2%}"),
        ("the others are paid", f"{number(-found.others_payment[worst])} less in total when the "
                                "client that gains the most lies"),
    ]  # fmt: skip
    if summary["largest_overspend"] > 0:
        pairs.append(("the server overspends", f"by up to {number(summary['largest_overspend'])}"))
    return [*pairs, ("if everybody lies", _everybody(found))]


def _everybody(found: Manipulability) -> str:
    """Say what becomes of the loss and the gains when all submit their best lies."""
    summary, everybody = found.summary(), found.everybody
    if found.committed and everybody.status is Status.INFEASIBLE:
        return "the budget no longer suffices"
    gaining = int((found.everybody_gain > 0).sum())
    return (
        f"loss {summary['everybody_loss_increase']:+.0%}, spend {number(everybody.spend)}; "
        f"{gaining} of {number(found.gain.size)} are better off than if all were honest"
    )
