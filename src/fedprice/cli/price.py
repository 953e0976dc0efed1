"""`fedprice price`: what to offer each client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.bound import Bound
from fedprice.cli import options
from fedprice.cli.console import Delivery, InfeasibleError, json_text, stderr
from fedprice.clients import Clients
from fedprice.game import Game
from fedprice.pricing import Status, solve
from fedprice.pricing.display import infeasible_line

if TYPE_CHECKING:
    from pathlib import Path

    from fedprice.pricing import Outcome

__all__ = ["price", "read_game", "require_feasible"]


def price(
    clients: options.ClientsFile,
    budget: options.Budget = 200.0,
    alpha: options.Alpha = 3.3,
    rounds: options.Rounds = 1000,
    exponent: options.Exponent = 2.0,
    scheme: options.Scheme = "equilibrium",
    max_weight: options.MaxWeight = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Price clients under a budget: what to offer each, and how often each will then join."""
    delivery = Delivery(output, plot, format_, force)
    with stderr().status("pricing"):
        game = read_game(clients, budget, alpha, rounds, exponent, max_weight)
        outcome = solve(game, scheme)
    require_feasible(outcome)
    rows = outcome.to_frame()

    delivery.send(
        rows,
        to_json=lambda: json_text(summary=outcome.summary(), clients=rows),
        to_screen=lambda: outcome,
        to_figure=outcome.plot,
    )


def read_game(
    clients: Path,
    budget: float,
    alpha: float,
    rounds: int,
    exponent: float,
    max_weight: float | None,
) -> Game:
    """Make a game of a file of clients and the options that the commands share."""
    bound = Bound(alpha=alpha, rounds=rounds)
    table = Clients.read(clients)
    if max_weight is not None:
        table = table.with_max_weight(max_weight)
    return Game(table, bound=bound, budget=budget, cost_exponent=exponent)


def require_feasible(outcome: Outcome) -> None:
    """End with a clear line, and exit code 3, if the budget does not suffice."""
    if outcome.status is Status.INFEASIBLE:
        raise InfeasibleError(infeasible_line(outcome))
