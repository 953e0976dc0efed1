"""`fedprice compare`: schemes side by side, under the same budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.cli import options
from fedprice.cli.console import Delivery, json_text, stderr
from fedprice.cli.price import read_game, require_feasible
from fedprice.cli.summaries import COLUMNS, summary_table
from fedprice.pricing import Status, find_schemes
from fedprice.pricing.outcome import summaries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["compare"]


def compare(
    clients: options.ClientsFile,
    budget: options.Budget = 200.0,
    alpha: options.Alpha = 3.3,
    rounds: options.Rounds = 1000,
    exponent: options.Exponent = 2.0,
    scheme: options.Schemes = ["equilibrium", "weighted", "uniform"],  # noqa: B006 (typer copies it)
    max_weight: options.MaxWeight = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Price the same clients under several schemes and the same budget."""
    delivery = Delivery(output, plot, format_, force)
    with stderr().status("comparing"):
        game = read_game(clients, budget, alpha, rounds, exponent, max_weight)
        outcomes = [one(game) for one in find_schemes(scheme)]
    if all(outcome.status is Status.INFEASIBLE for outcome in outcomes):
        require_feasible(outcomes[0])
    rows = summaries(outcomes)

    def figure() -> Figure:
        from fedprice.pricing.figures import draw_comparison

        return draw_comparison(outcomes)

    columns = [name for name in COLUMNS if name not in ("budget", "multiplier")]
    delivery.send(
        rows,
        to_json=lambda: json_text(schemes=rows),
        to_screen=lambda: summary_table(rows, columns),
        to_figure=figure,
    )
