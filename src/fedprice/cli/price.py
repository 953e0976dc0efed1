"""`fedprice price`: what to offer each client."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fedprice.beliefs.refusals import Outside
from fedprice.cli import options
from fedprice.cli.console import Delivery, show_warnings, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.commands.games import read_calibration, read_game, read_losses
from fedprice.commands.price import LOSSES, PriceAnswer, RobustAnswer, check_outside
from fedprice.commands.price import price as compute
from fedprice.commands.price import price_robust as compute_robust
from fedprice.errors import InputError
from fedprice.pricing import Status
from fedprice.pricing.display import (
    Section,
    count_clients,
    extremes,
    number,
    rich_tables,
    safe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType
    from rich.text import Text

    from fedprice.arrays import FloatArray
    from fedprice.beliefs.refusals import Refusals
    from fedprice.calibration import Calibration
    from fedprice.clients import Clients
    from fedprice.pricing import Outcome

__all__ = ["price"]

MOST_SHOWN = 5  # clients whose prices depend the most on α
MOST_NAMED = 10  # clients that would refuse
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
    impact: options.ImpactName = None,
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
    check_outside(outside, scheme, losses=outside_losses is not None)
    if robust and (calibration is None or outside is not None or scheme != "equilibrium"):
        raise InputError(
            "--robust needs --calibration FILE, which has the interval of α, and goes with neither "
            "--outside nor --scheme."
        )
    delivery = Delivery(output, plot, format_, force)
    answer: PriceAnswer | RobustAnswer
    screen: Callable[[], RenderableType]
    with stderr().status("pricing"):
        measured = read_calibration(calibration, alpha, impact)
        game = read_game(
            clients, budget=budget, alpha=alpha, calibration=measured, rounds=rounds,
            exponent=exponent, max_weight=max_weight,
        )  # fmt: skip
        if robust and measured is not None:
            answer = compute_robust(game, measured)
            screen, figure = partial(_robust_screen, answer), answer.posted.plot
        else:
            losses = _losses(outside, outside_losses, game.clients)
            answer = compute(
                game, scheme=scheme, calibration=measured, outside=outside, losses=losses
            )
            screen, figure = partial(_screen, answer, given=losses is not None), answer.outcome.plot
    delivery.send(answer.to_frame(), to_json=answer.to_json, to_screen=screen, to_figure=figure)
    show_warnings(answer.warnings)


def _robust_screen(answer: RobustAnswer) -> RenderableType:
    """Show prices that hold for every α in its interval, and what they bring."""
    found, posted, measured = answer.outcome, answer.posted, answer.calibration
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


def _losses(outside: Outside | None, path: Path | None, clients: Clients) -> FloatArray | None:
    """Return the losses of a file that an outside option needs, if one is given."""
    if outside is None or path is None:
        return None
    return read_losses(path, LOSSES[outside], clients)


def _screen(answer: PriceAnswer, *, given: bool) -> RenderableType:
    """Show the outcome, how far prices depend on α, and who would have refused."""
    from rich.console import Group

    parts: list[RenderableType] = [answer.outcome]
    if answer.calibration is not None:
        parts.append(_over_alpha(answer.outcome, answer.calibration, answer.ends))
    if answer.refusals is not None:
        parts.append(_refusals(answer.refusals, given=given))
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


def _over_alpha(outcome: Outcome, measured: Calibration, ends: Sequence[Outcome]) -> RenderableType:
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
