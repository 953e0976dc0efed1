"""`fedprice lies`: what clients gain by lying about their cost and value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fedprice.cli import options
from fedprice.cli.console import Delivery, stderr
from fedprice.columns import parse_rename
from fedprice.commands.games import read_calibration, read_game
from fedprice.commands.lies import lies as compute
from fedprice.pricing import Status
from fedprice.pricing.display import facts_table, number, safe
from fedprice.tables import json_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedprice.beliefs.lies import Manipulability

__all__ = ["lies"]

MOST_SHOWN = 10  # clients that gain the most


def lies(
    clients: options.ClientsFile,
    factor: Annotated[
        float,
        typer.Option(
            metavar="ρ",
            help="Reported costs range from cost / ρ to cost · ρ, values from 0 to the true value.",
        ),
    ] = 2.0,
    free_response: Annotated[
        bool,
        typer.Option(
            "--free-response",
            help="A liar chooses its best level at the price that its report leads to; by default "
            "it is held to, and paid for, the level that the report implies.",
        ),
    ] = False,
    budget: options.Budget = 200.0,
    rename: options.Rename = None,
    alpha: options.Alpha = None,
    calibration: options.CalibrationFile = None,
    impact: options.ImpactName = None,
    rounds: options.Rounds = 1000,
    exponent: options.Exponent = 2.0,
    max_weight: options.MaxWeight = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Show what each client gains by lying about its cost and value, and who pays for it.

    The table of clients holds the true costs and values. Each client in turn makes its best report
    to a server that prices by the equilibrium, while all others tell the truth.
    """
    delivery = Delivery(output, plot, format_, force)
    with stderr().status("looking for the best lies"):
        measured = read_calibration(calibration, alpha, impact)
        game = read_game(
            clients, budget=budget, alpha=alpha, calibration=measured, rounds=rounds,
            exponent=exponent, max_weight=max_weight, rename=parse_rename(rename),
        )  # fmt: skip
        found = compute(game, factor, free_response=free_response)
    rows = found.to_frame()
    delivery.send(
        rows,
        to_json=lambda: json_text(summary=found.summary(), clients=rows),
        to_screen=lambda: _screen(found),
        to_figure=found.plot,
    )


def _screen(found: Manipulability) -> RenderableType:
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
        title=f"Best lie of each client{which}; one lies, the others are honest", box=box.SIMPLE,
        title_justify="left",
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
    title = f"lies within a factor of {number(found.factor)}, {held}"
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
