"""`fedprice price`: what to offer each client."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice._plumbing.columns import parse_rename
from fedprice.beliefs.refusals import Outside
from fedprice.cli import options
from fedprice.cli.console import Delivery, note, show_warnings, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.frontier import parse_budgets, send_frontier
from fedprice.cli.price_screen import FACTS, price_screen, robust_screen
from fedprice.commands.assumptions import refuse_robust, require_alpha
from fedprice.commands.games import read_assumed_game, read_calibration, read_losses, with_floors
from fedprice.commands.letters import check_letters, write_letters
from fedprice.commands.price import (
    LOSSES,
    Pay,
    PriceAnswer,
    RobustAnswer,
    check_outside,
    paid_by,
    priced_by,
)
from fedprice.commands.price import price as compute
from fedprice.commands.price import price_robust as compute_robust
from fedprice.commands.what_if import FIELDS, parse_changes, what_if, with_changes
from fedprice.errors import InputError
from fedprice.pricing.display import EXTREMES
from fedprice.web.study_results import accuracy_bought, studied_budgets

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.clients import Clients
    from fedprice.game import Game

__all__ = ["price"]

# The options that --budgets goes with.
OF_A_FRONTIER = {
    "clients", "budgets", "rename", "by_order", "alpha", "calibration", "impact", "rounds",
    "exponent", "max_weight", "output", "plot", "format_", "force",
}  # fmt: skip
CURRENCY = r"[^\W\d_]{0,6}[$€£¥₹₽₩]?"  # EUR, US$, €


def price(
    context: typer.Context,
    clients: options.ClientsFile,
    budget: options.Budget = 200.0,
    budgets: Annotated[
        str | None,
        typer.Option(
            metavar="B,B,…|LO:HI:N",
            help="Instead of prices for one budget, what each of these, or of N from LO to HI, "
            "buys: the expected loss and the number of clients that pay.",
        ),
    ] = None,
    rename: options.Rename = None,
    by_order: options.ByOrder = False,
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
    pay: Annotated[
        Pay,
        typer.Option(
            help="price: clients choose how often to join at a price. cost: each is reimbursed for "
            "one level, take it or leave it, for those who may pay nothing but costs."
        ),
    ] = Pay.PRICE,
    margin: Annotated[
        float | None,
        typer.Option(metavar="M", help="With --pay cost: what is paid on top, such as 0.1; 0."),
    ] = None,
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
    what_if_: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="'CLIENT FIELD=NUMBER …'",
            help=f"Show what changes if a client had other numbers, such as 'Ashford cost=6000', "
            f"and at which costs its offer would stand; repeatable. Fields: {', '.join(FIELDS)}.",
        ),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Say which accuracy the budget bought in a study: what `fedprice study --budgets` "
            "wrote.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="N|all",
            help=f"Number of payees and payers on the screen, {EXTREMES} by default; all lists "
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
            "HTML, into a new directory; with --pay cost also a statement that justifies each sum.",
        ),
    ] = None,
    letters_budget: Annotated[
        bool, typer.Option("--letters-budget", help="State the whole budget in the letters, too.")
    ] = False,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Price clients under a budget: what to offer each, and how often each will then join.

    CLIENTS may lack the columns value and grad_norm: values of 0 and equal norms are then assumed,
    which the output says.
    """
    points = None
    if budgets is not None:
        options.refuse_others(
            context, OF_A_FRONTIER, "cannot be combined with --budgets; leave out one of them."
        )
        points = parse_budgets(budgets)
    require_extras(*extras_of_schemes([scheme]))
    paying = paid_by(pay, margin, scheme if options.given(context, "scheme") else None)
    check_outside(outside, paying.name, losses=outside_losses is not None)
    if robust and (calibration is None or outside is not None or paying.name != "equilibrium"):
        raise InputError(
            "--robust needs --calibration FILE, which has the interval of α, and cannot be "
            "combined with --outside, --scheme or --pay cost."
        )
    changes = parse_changes(what_if_ or [])
    if changes and robust:
        raise InputError(
            "--what-if compares with offers as they are; it cannot be combined with --robust."
        )
    if changes and letters is not None:
        raise InputError(
            "--what-if only compares, and cannot be combined with --letters. For letters with the "
            "new cost, put it into the table."
        )
    if letters_budget and letters is None:
        raise InputError(
            "--letters-budget requires --letters DIR; add it, or leave --letters-budget out."
        )
    studied = None if study is None else studied_budgets(study)
    if study is not None and studied is None:
        raise InputError(
            f"{study} has no study of budgets. Write one with: fedprice study "
            "WHAT --budgets 5,10,20 --out DIR"
        )
    most_rows = _most_rows(rows, format_)
    _check_currency(currency, output, letters or (None if robust else plot), format_)
    delivery = Delivery(output, plot, format_, force, folder=letters)
    answer: PriceAnswer | RobustAnswer
    screen: Callable[[], RenderableType]
    figure: Callable[[], Figure]
    with stderr().status("pricing"):
        measured = read_calibration(calibration, alpha, impact)
        unfloored, assumptions = read_assumed_game(
            clients, budget=budget, alpha=alpha, calibration=measured, rounds=rounds,
            exponent=exponent, max_weight=math.inf, rename=parse_rename(rename),
            scheme=paying.name, by_order=by_order, say=note,
        )  # fmt: skip

        def floored(table: Clients) -> Game:
            return replace(unfloored, clients=with_floors(table, max_weight, measured))

        game = floored(unfloored.clients)
    if points is not None:
        show_warnings(send_frontier(game, points, assumptions, delivery))
        return
    with stderr().status("pricing"):
        bought = "" if studied is None else accuracy_bought(studied, paying.name, budget)
        defaults = tuple(name for name in FACTS if not options.given(context, name))
        assumptions = replace(assumptions, defaults=defaults)
        if robust and measured is not None:
            refuse_robust(assumptions)
            answer = compute_robust(game, measured, assumptions)
            screen = partial(robust_screen, answer, currency, most_rows, bought)
            figure = answer.posted.plot
        else:
            losses = _losses(outside, outside_losses, game.clients)
            answer = compute(
                game, scheme=paying, calibration=measured, outside=outside, losses=losses,
                assumptions=assumptions,
            )  # fmt: skip
            if changes:
                table = unfloored.clients
                require_alpha(assumptions, with_changes(table, changes), paying.name)
                priced = priced_by(paying, outside, losses)
                compared = what_if(table, changes, lambda other: priced(floored(other)))
                answer = replace(answer, what_if=compared)
            given = losses is not None
            screen = partial(price_screen, answer, currency, most_rows, bought, given=given)
            figure = partial(answer.plot, currency)
        if letters is not None:
            check_letters(answer.outcome)
    with stderr().status("writing letters" if letters is not None else "writing"):
        delivery.send(
            answer.to_frame(), to_json=partial(answer.to_json, currency, study=bought),
            to_screen=screen, to_figure=figure, to_folder=partial(
                write_letters, answer.outcome, assumptions, measured, currency,
                budget_shown=letters_budget,
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
            f"--rows applies to the screen only; --format {format_} has all rows. Leave it out."
        )
    if rows == "all":
        return None
    if not re.fullmatch("[1-9][0-9]{0,8}", rows):
        raise InputError(f"--rows must be a whole number above 0, or all; got {rows!r}.")
    return int(rows)


def check_currency(currency: str) -> None:
    """Refuse a label of money that is none."""
    if not re.fullmatch(CURRENCY, currency):
        raise InputError(f"--currency must be a short name, such as EUR or US$; got {currency!r}.")


def _check_currency(
    currency: str, output: Path | None, drawn: Path | None, format_: options.Format
) -> None:
    """Refuse an invalid currency, or one that nothing would show."""
    if not currency:
        return
    check_currency(currency)
    tables_only = output is None or output.suffix != ".json"
    if format_ is options.Format.CSV and tables_only and drawn is None:
        raise InputError("--currency has no effect on CSV output; leave it out.")


def _losses(outside: Outside | None, path: Path | None, clients: Clients) -> FloatArray | None:
    """Return the losses of a file that an outside option needs, if one is given."""
    if outside is None or path is None:
        return None
    return read_losses(path, LOSSES[outside], clients)
