"""`fedprice compare`: schemes side by side, under the same budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedprice._plumbing.columns import parse_rename
from fedprice._plumbing.tables import json_text
from fedprice.cli import options
from fedprice.cli.beliefs import SOURCE, TYPES, Form, MeanCost, MeanValue, read_beliefs
from fedprice.cli.console import Delivery, note, show_warnings, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.lies import lies_screen
from fedprice.cli.summaries import COLUMNS, summary_table
from fedprice.commands.compare import compare as compute
from fedprice.commands.compare import compared, gains, gains_frame, notes, tariff_schemes
from fedprice.commands.games import read_calibration, read_game
from fedprice.commands.warnings import scheme_warnings
from fedprice.contrib import RIVALS
from fedprice.errors import InputError
from fedprice.pricing import find_schemes

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from fedprice.beliefs.lies import Manipulability

__all__ = ["compare"]


def compare(
    clients: options.ClientsFile,
    budget: options.Budget = 200.0,
    rename: options.Rename = None,
    by_order: options.ByOrder = False,
    alpha: options.Alpha = None,
    calibration: options.CalibrationFile = None,
    impact: options.ImpactName = None,
    rounds: options.Rounds = 1000,
    exponent: options.Exponent = 2.0,
    scheme: options.Schemes = ["equilibrium", "weighted", "uniform"],  # noqa: B006 (typer copies it)
    rivals: Annotated[
        bool, typer.Option("--rivals", help=f"Also compare with {', '.join(RIVALS)}.")
    ] = False,
    beliefs: Annotated[
        str | None,
        typer.Option(
            metavar=SOURCE,
            help="Also compare with a posted price, blocks, tariff and menu for these beliefs. "
            f"{TYPES}.",
        ),
    ] = None,
    cost: MeanCost = None,
    value: MeanValue = None,
    lies: Annotated[
        float | None,
        typer.Option(
            metavar="ρ",
            help="Also show what clients gain by reporting a cost within a factor of ρ, such as 2, "
            "or a lower value, instead of the true ones in CLIENTS; and under the first scheme, "
            "who gains and who pays for it, in the figure, too.",
        ),
    ] = None,
    free_response: Annotated[
        bool,
        typer.Option(
            "--free-response",
            help="With --lies: a liar chooses its best level at the price that its report leads "
            "to; by default it is held to, and paid for, the level that the report implies.",
        ),
    ] = False,
    max_weight: options.MaxWeight = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Price the same clients under several schemes and the same budget.

    To train a model under each scheme's prices: fedprice study.
    """
    require_extras(*extras_of_schemes(scheme))
    delivery = Delivery(output, plot, format_, force)
    more = [name for name in RIVALS if name not in scheme] if rivals else []
    schemes = find_schemes([*scheme, *more])
    believed = None
    if beliefs is not None:
        believed = read_beliefs(beliefs, cost, value, Form.PRICE)
    elif cost is not None or value is not None:
        raise InputError("--cost and --value require --beliefs exponential.")
    if free_response and lies is None:
        raise InputError("--free-response requires --lies ρ.")
    measured = read_calibration(calibration, alpha, impact)
    with stderr().status("comparing"):
        game = read_game(
            clients, budget=budget, alpha=alpha, calibration=measured, rounds=rounds,
            exponent=exponent, max_weight=max_weight, rename=parse_rename(rename),
            by_order=by_order, say=note,
        )  # fmt: skip
        if believed is not None:
            schemes += tariff_schemes(game, believed)
        outcomes = compute(game, schemes)
    rows = compared(outcomes)
    columns = [name for name in COLUMNS if name != "budget"]
    columns.insert(columns.index("distance") + 1, "loss_ratio")
    columns.insert(columns.index("spend"), "offers")
    columns[columns.index("client_utility") :] = ["biased", "client_surplus", "client_utility"]
    first: Manipulability | None = None
    if lies is not None:
        with stderr().status("searching for the best lies"):
            found = gains(game, schemes, lies, free_response=free_response)
        first = found.get(schemes[0].name)
        frame = gains_frame(found)
        rows = rows.join(frame, on="scheme", how="left", maintain_order="left")
        columns += frame.columns[1:]
    warnings = scheme_warnings(outcomes)

    def figure() -> Figure:
        from fedprice.pricing.figures import draw_comparison

        return draw_comparison(outcomes) if first is None else first.plot()

    def text() -> str:
        if first is None:
            return json_text(schemes=rows, warnings=warnings)
        summary, each = first.summary(), first.to_frame()
        return json_text(schemes=rows, warnings=warnings, summary=summary, clients=each)

    def screen() -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        table, below = summary_table(rows, columns), map(Text, notes(outcomes))
        return Group(table, *below, *([] if first is None else [lies_screen(first)]))

    delivery.send(rows, to_json=text, to_screen=screen, to_figure=figure)
    show_warnings(warnings)
