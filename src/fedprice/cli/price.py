"""`fedprice price`: what to offer each client."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.cli import options
from fedprice.cli.console import Delivery, json_text, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.games import read_calibration, read_game, require_feasible
from fedprice.pricing import Status, solve
from fedprice.pricing.display import number, safe

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

    from fedprice.calibration import Calibration
    from fedprice.pricing import Outcome

__all__ = ["price"]

MOST_SHOWN = 5  # clients whose prices depend the most on α


def price(
    clients: options.ClientsFile,
    budget: options.Budget = 200.0,
    alpha: options.Alpha = None,
    calibration: options.CalibrationFile = None,
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
    require_extras(*extras_of_schemes([scheme]))
    delivery = Delivery(output, plot, format_, force)
    with stderr().status("pricing"):
        measured = read_calibration(calibration, alpha)
        game = read_game(
            clients, budget=budget, alpha=alpha, calibration=measured, rounds=rounds,
            exponent=exponent, max_weight=max_weight,
        )  # fmt: skip
        outcome = solve(game, scheme)
        require_feasible(outcome)
        ends = [] if measured is None else _at_ends(outcome, measured, scheme)
    rows = _rows(outcome, measured, ends)
    summary = outcome.summary() | {"alpha": game.bound.alpha}
    if measured is not None:
        low, high = measured.interval
        summary |= {"alpha_low": low, "alpha_high": high, "norms": measured.norms}
    delivery.send(
        rows,
        to_json=lambda: json_text(summary=summary, clients=rows),
        to_screen=lambda: outcome if measured is None else _screen(outcome, measured, ends),
        to_figure=outcome.plot,
    )


def _at_ends(outcome: Outcome, measured: Calibration, scheme: str) -> list[Outcome]:
    """Return the outcomes at both ends of α's interval, or none if prices are the same there."""
    game = outcome.game
    ends = [
        solve(replace(game, bound=replace(game.bound, alpha=alpha)), scheme)
        for alpha in measured.interval
    ]
    same = all(np.allclose(end.prices, outcome.prices, rtol=1e-6, atol=0) for end in ends)
    return [] if same else ends


def _rows(outcome: Outcome, measured: Calibration | None, ends: list[Outcome]) -> pl.DataFrame:
    import polars as pl

    rows = outcome.to_frame()
    if measured is not None and measured.norms == "updates":
        rows = rows.rename({"grad_norm": "update_norm"})
    for name, end in zip(("price_alpha_low", "price_alpha_high"), ends, strict=False):
        if end.status is not Status.INFEASIBLE:
            rows = rows.with_columns(pl.Series(name, end.prices))
    return rows


def _screen(outcome: Outcome, measured: Calibration, ends: list[Outcome]) -> RenderableType:
    """Show how far prices depend on α, below the outcome."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    low, high = map(number, measured.interval)
    alpha = f"α = {number(measured.alpha)}, 95 % from {low} to {high}"
    if not ends:
        return Group(outcome, Text(f"{alpha}: prices are the same at both ends."))
    for end, value in zip(ends, (low, high), strict=True):
        if end.status is Status.INFEASIBLE:
            return Group(outcome, Text(f"{alpha}: at {value} the budget does not suffice."))
    shift = np.abs(ends[1].prices - ends[0].prices)
    some = np.argsort(-shift, kind="stable")[:MOST_SHOWN]
    all_of_them = "" if shift.size <= MOST_SHOWN else ", where they change most"
    table = Table(
        title=f"Prices over α's interval{all_of_them}", box=box.SIMPLE, title_justify="left"
    )
    table.add_column("client")
    for heading in (f"α = {low}", f"α = {number(measured.alpha)}", f"α = {high}"):
        table.add_column(heading, justify="right")
    for n in some.tolist():
        prices = (ends[0].prices[n], outcome.prices[n], ends[1].prices[n])
        table.add_row(Text(safe(str(outcome.game.clients.ids[n]))), *map(number, prices))
    return Group(outcome, table, Text(f"{alpha}, for norms of {measured.norms}."))
