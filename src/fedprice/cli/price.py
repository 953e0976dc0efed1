"""`fedprice price`: what to offer each client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fedprice.beliefs.refusals import Outside, refusals
from fedprice.cli import options
from fedprice.cli.console import Delivery, json_text, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.games import read_calibration, read_game, read_losses, require_feasible
from fedprice.errors import InputError
from fedprice.pricing import Outcome, Status, solve
from fedprice.pricing.display import (
    Section,
    count_clients,
    extremes,
    number,
    rich_tables,
    safe,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from rich.console import RenderableType
    from rich.text import Text

    from fedprice.arrays import FloatArray
    from fedprice.beliefs.posted import Posted
    from fedprice.beliefs.refusals import Refusals
    from fedprice.calibration import Calibration
    from fedprice.clients import Clients
    from fedprice.game import Game

__all__ = ["price"]

MOST_SHOWN = 5  # clients whose prices depend the most on α
MOST_NAMED = 10  # clients that would refuse
LOSSES = {Outside.STAY: "without", Outside.NOTHING: "own"}  # the column that each option needs
MEANING = {
    Outside.FREE: "a client that refuses may join unpaid",
    Outside.STAY: "a client that refuses gets the model trained without it",
    Outside.NOTHING: "a client that refuses keeps its own model",
}


def price(
    clients: options.ClientsFile,
    budget: options.Budget = 200.0,
    alpha: options.Alpha = None,
    calibration: options.CalibrationFile = None,
    rounds: options.Rounds = 1000,
    exponent: options.Exponent = 2.0,
    scheme: options.Scheme = "equilibrium",
    max_weight: options.MaxWeight = None,
    outside: Annotated[
        Outside | None,
        typer.Option(
            help="Offer prices that no client refuses, if one that refuses may join unpaid "
            "(free), stays out and gets the model trained without it (stay), or keeps its own "
            "model (nothing)."
        ),
    ] = None,
    outside_losses: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV or Parquet with client_id and, by how much their loss exceeds the optimum, "
            "the column without (best model without the client's data; for --outside stay, 0 "
            "unless given) or own (the client's own model; for --outside nothing).",
        ),
    ] = None,
    robust: Annotated[
        bool,
        typer.Option("--robust", help="Keep the budget for every α in the calibration's interval."),
    ] = False,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Price clients under a budget: what to offer each, and how often each will then join."""
    require_extras(*extras_of_schemes([scheme]))
    _check_outside(outside, outside_losses, scheme)
    if robust and (calibration is None or outside is not None or scheme != "equilibrium"):
        raise InputError(
            "--robust needs --calibration FILE, which has the interval of α, and goes with neither "
            "--outside nor --scheme."
        )
    delivery = Delivery(output, plot, format_, force)
    with stderr().status("pricing"):
        measured = read_calibration(calibration, alpha)
        game = read_game(
            clients, budget=budget, alpha=alpha, calibration=measured, rounds=rounds,
            exponent=exponent, max_weight=max_weight,
        )  # fmt: skip
        if robust and measured is not None:
            _send_robust(delivery, game, measured)
            return
        losses = _losses(outside, outside_losses, game.clients)

        def refused(unconstrained: Outcome) -> Refusals | None:
            if outside is None or unconstrained.status is Status.INFEASIBLE:
                return None
            return refusals(unconstrained, outside, **losses)

        def priced(game: Game) -> Outcome:
            found = solve(game, scheme)
            asked = refused(found)
            return found if asked is None else asked.respected

        outcome = solve(game, scheme)
        require_feasible(outcome)
        asked = refused(outcome)
        if asked is not None:
            outcome = asked.respected
            # The floors of `game` are what a user can lower.
            require_feasible(replace(outcome, game=game, scheme=f"--outside {outside}"))
        ends = [] if measured is None else _at_ends(game, outcome, measured, priced)
    rows = _rows(outcome.to_frame() if asked is None else asked.to_frame(), measured, ends)
    summary = outcome.summary() | {"alpha": game.bound.alpha}
    if measured is not None:
        low, high = measured.interval
        summary |= {"alpha_low": low, "alpha_high": high, "norms": measured.norms}
    if asked is not None:
        summary |= asked.summary()
    delivery.send(
        rows,
        to_json=lambda: json_text(summary=summary, clients=rows),
        to_screen=lambda: _screen(outcome, measured, ends, asked, given=bool(losses)),
        to_figure=outcome.plot,
    )


def _send_robust(delivery: Delivery, game: Game, measured: Calibration) -> None:
    """Send the prices that keep the budget for every α in its interval."""
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.posting import post

    known = Beliefs.known(game.clients)
    posted = post(
        game.clients, known, bound=game.bound, budget=game.budget,
        alpha_interval=measured.interval, cost_exponent=game.cost_exponent, lottery=False,
    )  # fmt: skip
    found = Outcome.from_prices(game, posted.prices, scheme="robust")
    rows = _rows(found.to_frame(), measured, [])
    (low, high), (loss, spend) = measured.interval, posted.worst or (0.0, 0.0)
    summary = {
        "num_clients": len(game.clients),
        "budget": game.budget,
        "spend": found.spend,
        "largest_spend": spend,
        "expected_loss": found.expected_loss,
        "largest_loss": loss,
        "mean_level": float(found.levels.mean()),
        "multiplier": posted.multiplier,
        "primal": posted.certificate.primal,
        "dual": posted.certificate.dual,
        "gap": posted.certificate.gap,
        "alpha": game.bound.alpha,
        "alpha_low": low,
        "alpha_high": high,
    }
    delivery.send(
        rows,
        to_json=lambda: json_text(summary=summary, clients=rows),
        to_screen=lambda: _robust_screen(found, posted, measured),
        to_figure=posted.plot,
    )


def _robust_screen(found: Outcome, posted: Posted, measured: Calibration) -> RenderableType:
    """Show prices that hold for every α in its interval, and what they bring."""
    (loss, most), budget = posted.worst or (0.0, 0.0), number(posted.budget)
    low, high = map(number, measured.interval)
    clients = found.game.clients
    pairs = [
        ("α", f"{number(measured.alpha)}, 95 % from {low} to {high}"),
        ("spend", f"{number(found.spend)} of {budget}; largest over α {number(most)}"),
        ("expected loss", f"{number(found.expected_loss)} above full participation; largest over "
                          f"α {number(loss)}"),
        ("mean level", number(float(found.levels.mean()))),
    ]  # fmt: skip
    if clients.level_min.any():
        below = clients.ids[found.levels < clients.level_min * (1 - 1e-12)]
        names = ", ".join(safe(str(name)) for name in below[:MOST_NAMED])
        more = f" and {number(below.size - MOST_NAMED)} more" if below.size > MOST_NAMED else ""
        missed = f"missed by {number(below.size)} of {number(clients.ids.size)}: {names}{more}"
        pairs.append(
            ("floors", f"{missed}; without --robust they are kept" if below.size else "met")
        )
    header = ("client", "value", "cost", "level", "price", "payment")
    columns = (clients.value, clients.cost, found.levels, found.prices, found.payments)
    sections = [
        Section(
            heading,
            header,
            [[safe(str(clients.ids[n])), *(number(float(x[n])) for x in columns)] for n in some],
        )
        for heading, some in extremes(found.payments)
    ]
    proof = posted.certificate
    return rich_tables(
        f"robust prices, {count_clients(len(clients))}", pairs, sections,
        f"Certificate: no prices with this spend have a loss, the largest over α, below "
        f"{number(loss - proof.primal + proof.dual)}; relative gap {abs(proof.gap):.1e}.",
    )  # fmt: skip


def _check_outside(outside: Outside | None, losses: Path | None, scheme: str) -> None:
    """Refuse options that do not go together."""
    if outside is not None and scheme != "equilibrium":
        raise InputError("--outside prices by the equilibrium; leave out --scheme.")
    if losses is not None and outside not in LOSSES:
        raise InputError("--outside-losses needs --outside stay or --outside nothing.")
    if outside is Outside.NOTHING and losses is None:
        raise InputError(
            "--outside nothing needs --outside-losses FILE with the columns client_id and own: by "
            "how much the loss of each client's own model exceeds the optimum."
        )


def _losses(outside: Outside | None, path: Path | None, clients: Clients) -> dict[str, FloatArray]:
    """Return the losses of a file by the name that `refusals` has for them, if one is given."""
    if outside is None or path is None:
        return {}
    name = LOSSES[outside]
    return {name: read_losses(path, name, clients)}


def _at_ends(
    game: Game, outcome: Outcome, measured: Calibration, priced: Callable[[Game], Outcome]
) -> list[Outcome]:
    """Return the outcomes at both ends of α's interval, or none if prices are the same there."""
    ends = [
        priced(replace(game, bound=replace(game.bound, alpha=alpha))) for alpha in measured.interval
    ]
    same = all(np.allclose(end.prices, outcome.prices, rtol=1e-6, atol=0) for end in ends)
    return [] if same else ends


def _rows(rows: pl.DataFrame, measured: Calibration | None, ends: list[Outcome]) -> pl.DataFrame:
    import polars as pl

    if measured is not None and measured.norms == "updates":
        rows = rows.rename({"grad_norm": "update_norm"})
    for name, end in zip(("price_alpha_low", "price_alpha_high"), ends, strict=False):
        if end.status is not Status.INFEASIBLE:
            rows = rows.with_columns(pl.Series(name, end.prices))
    return rows


def _screen(
    outcome: Outcome,
    measured: Calibration | None,
    ends: list[Outcome],
    asked: Refusals | None,
    *,
    given: bool,
) -> RenderableType:
    """Show the outcome, how far prices depend on α, and who would have refused."""
    from rich.console import Group

    parts: list[RenderableType] = [outcome]
    if measured is not None:
        parts.append(_over_alpha(outcome, measured, ends))
    if asked is not None:
        parts.append(_refusals(asked, given=given))
    return Group(*parts)


def _refusals(asked: Refusals, *, given: bool) -> Text:
    """Say who would refuse the prices of the equilibrium, and what it costs to respect that."""
    from rich.text import Text

    ids = asked.outcome.game.clients.ids[asked.refuses]
    names = ", ".join(safe(str(name)) for name in ids[:MOST_NAMED])
    more = f" and {number(ids.size - MOST_NAMED)} more" if ids.size > MOST_NAMED else ""
    head = f"Outside option {asked.outside}: {MEANING[asked.outside]}"
    if asked.outside is Outside.STAY and not given:
        head += ", which is taken to be as good (--outside-losses gives what was measured)"
    if not ids.size:
        return Text(
            f"{head}. Nobody would refuse the equilibrium's prices, and these are the same."
        )
    before, after = asked.outcome.expected_loss, asked.respected.expected_loss
    return Text(
        f"{head}. {number(ids.size)} of {number(asked.refuses.size)} would refuse the "
        f"equilibrium's prices: {names}{more}. Prices that nobody refuses have an expected loss of "
        f"{number(after)} instead of {number(before)} ({asked.loss_increase:+.2%})."
    )


def _over_alpha(outcome: Outcome, measured: Calibration, ends: list[Outcome]) -> RenderableType:
    """Show how far prices depend on α."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    low, high = map(number, measured.interval)
    alpha = f"α = {number(measured.alpha)}, 95 % from {low} to {high}"
    if not ends:
        return Text(f"{alpha}: prices are the same at both ends.")
    for end, value in zip(ends, (low, high), strict=True):
        if end.status is Status.INFEASIBLE:
            return Text(f"{alpha}: at {value} the budget does not suffice.")
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
    return Group(table, Text(f"{alpha}, for norms of {measured.norms}."))
