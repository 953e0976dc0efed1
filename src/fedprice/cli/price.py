"""`fedprice price`: what to offer each client."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice.beliefs.refusals import Outside
from fedprice.cli import options
from fedprice.cli.console import Delivery, show_warnings, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.price_screen import FACTS, price_screen, robust_screen
from fedprice.columns import parse_rename
from fedprice.commands.assumptions import refuse_robust
from fedprice.commands.games import read_assumed_game, read_calibration, read_losses
from fedprice.commands.letters import check_letters, write_letters
from fedprice.commands.price import LOSSES, PriceAnswer, RobustAnswer, check_outside
from fedprice.commands.price import price as compute
from fedprice.commands.price import price_robust as compute_robust
from fedprice.errors import InputError
from fedprice.pricing.display import EXTREMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from fedprice.arrays import FloatArray
    from fedprice.clients import Clients

__all__ = ["price"]

CURRENCY = r"[^\W\d_]{0,6}[$€£¥₹₽₩]?"  # EUR, US$, €


def price(
    context: typer.Context,
    clients: options.ClientsFile,
    budget: options.Budget = 200.0,
    rename: options.Rename = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="The bound's α, as measured; or give --calibration. Not needed where every value "
            "is 0: prices then do not depend on it."
        ),
    ] = None,
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
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="N|all",
            help=f"How many payees and payers the screen lists, {EXTREMES} by default; all lists "
            "every client in the order of the table.",
        ),
    ] = None,
    currency: Annotated[
        str,
        typer.Option(
            metavar="EUR", help="The label of money on the screen, in letters, figures and JSON."
        ),
    ] = "",
    letters: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write a letter to each client that states its offer in words, as Markdown and "
            "PDF, into a new directory.",
        ),
    ] = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Price clients under a budget: what to offer each, and how often each will then join.

    CLIENTS may lack the columns value and grad_norm: values of 0 and equal norms are then assumed,
    which the output says.
    """
    require_extras(*extras_of_schemes([scheme]), *(["plot"] if letters is not None else []))
    check_outside(outside, scheme, losses=outside_losses is not None)
    if robust and (calibration is None or outside is not None or scheme != "equilibrium"):
        raise InputError(
            "--robust needs --calibration FILE, which has the interval of α, and goes with neither "
            "--outside nor --scheme."
        )
    most_rows = _most_rows(rows, format_)
    _check_currency(currency, output, letters or (None if robust else plot), format_)
    delivery = Delivery(output, plot, format_, force, folder=letters)
    answer: PriceAnswer | RobustAnswer
    screen: Callable[[], RenderableType]
    figure: Callable[[], Figure]
    with stderr().status("pricing"):
        measured = read_calibration(calibration, alpha, impact)
        game, assumptions = read_assumed_game(
            clients, budget=budget, alpha=alpha, calibration=measured, rounds=rounds,
            exponent=exponent, max_weight=max_weight, rename=parse_rename(rename), scheme=scheme,
        )  # fmt: skip
        defaults = tuple(name for name in FACTS if not options.given(context, name))
        assumptions = replace(assumptions, defaults=defaults)
        if robust and measured is not None:
            refuse_robust(assumptions)
            answer = compute_robust(game, measured, assumptions)
            screen = partial(robust_screen, answer, currency, most_rows)
            figure = answer.posted.plot
        else:
            losses = _losses(outside, outside_losses, game.clients)
            answer = compute(
                game, scheme=scheme, calibration=measured, outside=outside, losses=losses,
                assumptions=assumptions,
            )  # fmt: skip
            screen = partial(price_screen, answer, currency, most_rows, given=losses is not None)
            figure = partial(answer.plot, currency)
        if letters is not None:
            check_letters(answer.outcome)
    with stderr().status("writing letters" if letters is not None else "writing"):
        delivery.send(
            answer.to_frame(), to_json=partial(answer.to_json, currency), to_screen=screen,
            to_figure=figure, to_folder=partial(
                write_letters, answer.outcome, assumptions, measured, currency
            ),
        )  # fmt: skip
    if format_ is options.Format.CSV and assumptions.columns:
        for name, text in assumptions.facts(game):
            stderr().print(f"{name}: {text}", markup=False)
    show_warnings(answer.warnings)


def _most_rows(rows: str | None, format_: options.Format) -> int | None:
    """Return how many payees and payers to list, None for all clients."""
    if rows is None:
        return EXTREMES
    if format_ is not options.Format.TABLE:
        raise InputError(
            f"--rows is for the screen; --format {format_} has all rows. Leave it out."
        )
    if rows == "all":
        return None
    if not re.fullmatch("[1-9][0-9]{0,8}", rows):
        raise InputError(f"--rows must be a whole number above 0, or all; got {rows!r}.")
    return int(rows)


def _check_currency(
    currency: str, output: Path | None, drawn: Path | None, format_: options.Format
) -> None:
    """Refuse a currency that is none, or that nothing would show."""
    if not currency:
        return
    if not re.fullmatch(CURRENCY, currency):
        raise InputError(f"--currency must be a short name, such as EUR or US$; got {currency!r}.")
    tables_only = output is None or output.suffix != ".json"
    if format_ is options.Format.CSV and tables_only and drawn is None:
        raise InputError("--currency labels nothing in a table of CSV; leave it out.")


def _losses(outside: Outside | None, path: Path | None, clients: Clients) -> FloatArray | None:
    """Return the losses of a file that an outside option needs, if one is given."""
    if outside is None or path is None:
        return None
    return read_losses(path, LOSSES[outside], clients)
