"""`fedprice post`: what to offer clients whose costs and values the server does not know."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprice._plumbing.columns import parse_rename
from fedprice.cli import options
from fedprice.cli.beliefs import (
    SOURCE,
    TYPES,
    Blocks,
    Form,
    FormName,
    MeanCost,
    MeanValue,
    read_beliefs,
)
from fedprice.cli.console import Delivery, note, stderr
from fedprice.commands.assumptions import MEANING
from fedprice.commands.games import read_calibration, read_clients
from fedprice.commands.post import DRAWS, OTHERS, check_post, post_form
from fedprice.commands.post import post as compute
from fedprice.errors import InputError
from fedprice.pricing.display import Section, count_clients, number, rich_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from fedprice.beliefs.posted import Information, Posted
    from fedprice.beliefs.sequential import Sequential
    from fedprice.commands.post import PostAnswer

__all__ = ["post"]

MOST_SHOWN = 5  # clients that are asked first


def post(
    clients: Annotated[
        Path,
        typer.Argument(
            metavar="CLIENTS",
            help="CSV or Parquet with the columns client_id, samples (or weight), grad_norm (or "
            "update_norm) and optionally class, level_min, level_max. Costs and values are not "
            "needed; only --form menu needs the column value.",
        ),
    ],
    beliefs: Annotated[
        str,
        typer.Option(
            metavar=f"{SOURCE}|{OTHERS}",
            help=f"{TYPES}; or others, to price each client by the costs and values that all "
            "others reported (columns of CLIENTS).",
        ),
    ],
    form: FormName = Form.PRICE,
    blocks: Blocks = None,
    classes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of different prices; by default each client has its own."),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            metavar="ε",
            help="Probability of exceeding the budget; by default the budget is met in "
            "expectation.",
        ),
    ] = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential", help="Post to one client after another; never exceeds the budget."
        ),
    ] = False,
    cost: MeanCost = None,
    value: MeanValue = None,
    budget: options.Budget = 200.0,
    rename: options.Rename = None,
    by_order: options.ByOrder = False,
    alpha: options.Alpha = None,
    calibration: options.CalibrationFile = None,
    impact: options.ImpactName = None,
    robust: Annotated[
        bool,
        typer.Option("--robust", help="Keep the budget for every α in the calibration's interval."),
    ] = False,
    rounds: options.Rounds = 1000,
    exponent: options.Exponent = 2.0,
    max_weight: options.MaxWeight = None,
    information: Annotated[
        bool,
        typer.Option(
            "--information",
            help=f"Compare with a server that knows all types, over {DRAWS} draws; --plot then "
            "compares all forms.",
        ),
    ] = False,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Post prices, based on beliefs, to clients whose costs and values the server does not know.

    Nothing that a client says changes what it is offered, so no client can gain by lying.
    """
    how: dict[str, Any] = {
        "blocks": blocks, "classes": classes, "risk": risk, "sequential": sequential,
        "robust": robust, "information": information,
    }  # fmt: skip
    check_post(form, **how, others=beliefs == OTHERS)
    if robust and calibration is None:
        raise InputError("--robust needs --calibration FILE, which has the interval of α.")
    delivery = Delivery(output, plot, format_, force)
    with stderr().status("posting"):
        others = (beliefs, cost, value) == (OTHERS, None, None)
        believed = None if others else read_beliefs(beliefs, cost, value, form)
        measured = read_calibration(calibration, alpha, impact)
        table, bound, assumed = read_clients(
            clients, alpha=alpha, calibration=measured, rounds=rounds, max_weight=max_weight,
            types=believed is None, rename=parse_rename(rename), by_order=by_order, say=note,
        )  # fmt: skip
        answer = compute(
            table, believed, bound=bound, budget=budget, exponent=exponent, form=form.value,
            calibration=measured, assumed=assumed, **how,
        )  # fmt: skip
        posted, turns = answer.posted, answer.turns
        bars = {}
        if answer.known is not None and plot is not None:
            as_form = partial(
                post_form, table, believed, bound=bound, budget=budget, cost_exponent=exponent
            )
            bars = _bars(as_form) | {_own_name(form, how): answer.known}

    def figure() -> Figure:
        from fedprice.beliefs.figures import draw_information, draw_posted, draw_sequential

        if bars:
            return draw_information(bars)
        return draw_posted(posted) if turns is None else draw_sequential(turns)

    delivery.send(
        answer.to_frame(),
        to_json=answer.to_json,
        to_screen=lambda: _screen(answer),
        to_figure=figure,
    )


def _bars(as_form: Callable[..., Posted]) -> dict[str, Information]:
    """Return how the forms that need no values compare with full information."""
    forms: dict[str, tuple[Form, dict[str, int]]] = {
        "one price for all": (Form.PRICE, {"classes": 1}),
        "one price per client": (Form.PRICE, {}),
        "4 blocks": (Form.BLOCKS, {}),
        "nonlinear tariff": (Form.TARIFF, {}),
    }
    return {
        name: as_form(one.value, **more).value_of_information(DRAWS)
        for name, (one, more) in forms.items()
    }


def _own_name(form: Form, how: dict[str, Any]) -> str:
    """Return the name of what was posted in the figure: that of a form, if it is one."""
    if form is Form.BLOCKS:
        return f"{how['blocks'] or 4} blocks"
    if form is not Form.PRICE:
        return "nonlinear tariff" if form is Form.TARIFF else "menu, values known"
    if how["sequential"]:
        return "price per client, sequential"
    plain = how["risk"] is None and not how["robust"]
    if plain and how["classes"] in (None, 1):
        return "one price per client" if how["classes"] is None else "one price for all"
    return "as posted"


def _screen(answer: PostAnswer) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    turns, known = answer.turns, answer.known
    parts: list[RenderableType] = [answer.posted if turns is None else _in_turn(turns)]
    parts += [Text(f"{name}: {MEANING[name]}.") for name in answer.assumed]
    if known is not None:
        parts.append(
            Text(
                f"Full information: the expected loss is {known.ratio:.2f} times that of prices "
                f"that know every cost and value (95 % from {known.low:.2f} to {known.high:.2f}, "
                f"{known.draws} draws)."
            )
        )
    return Group(*parts)


def _in_turn(turns: Sequential) -> RenderableType:
    """Show what posting in turn will bring, and who comes first."""
    from fedprice.beliefs.display import floor_facts

    posted = turns.posted
    spend, std, budget = map(number, (turns.expected_spend, turns.spend_std, posted.budget))
    pairs = [
        ("form", "one price per unit of level, posted to one client after another"),
        ("expected loss", f"{number(turns.expected_loss)} above full participation"),
        ("expected spend", f"{spend} ± {std} (standard deviation) of {budget}"),
        ("over the budget", "never"),
        ("all at once", f"expected loss {number(posted.expected_loss)}, over the budget with a "
                        f"probability of {posted.over_budget:.1%}"),
    ]  # fmt: skip
    if posted.clients.level_min.any():
        pairs += [(name, f"all at once, {text}") for name, text in floor_facts(posted)]
    rows = [
        [str(posted.clients.ids[n]), *(number(float(x[n])) for x in
         (posted.impact, posted.prices, posted.moments.level, posted.moments.spend))]
        for n in turns.order[:MOST_SHOWN].tolist()
    ]  # fmt: skip
    header = ("client", "impact", "price", "expected level", "expected payment")
    section = Section("First clients, with prices if spending goes as expected", header, rows)
    return rich_tables(
        f"sequentially posted prices, {count_clients(len(posted.clients))}", pairs, [section],
        "Post the first price and wait for the answer; take its payment off the budget, leave the "
        "client out, and post again.",
    )  # fmt: skip
