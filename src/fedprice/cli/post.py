"""`fedprice post`: what to offer clients whose costs and values nobody knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from fedprice.cli.console import Delivery, json_text, stderr
from fedprice.cli.games import read_calibration, read_clients
from fedprice.errors import InputError, nearest
from fedprice.pricing.display import Section, count_clients, number, rich_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from fedprice.beliefs.in_turn import InTurn
    from fedprice.beliefs.posted import Information, Posted

__all__ = ["post"]

OTHERS = "others"
DRAWS = 200  # populations over which postings are compared with full information
MOST_SHOWN = 5  # clients that are asked first


def post(
    clients: Annotated[
        Path,
        typer.Argument(
            metavar="CLIENTS",
            help="CSV or Parquet with the columns client_id, samples (or weight), grad_norm and "
            "optionally class, level_min, level_max. Costs and values are not needed; only "
            "--form menu needs the column value.",
        ),
    ],
    beliefs: Annotated[
        str,
        typer.Option(
            metavar=f"{SOURCE}|{OTHERS}",
            help=f"{TYPES}; or others: each client is priced by the costs and values of all "
            "others, which CLIENTS then has, as reported.",
        ),
    ],
    form: FormName = Form.PRICE,
    blocks: Blocks = None,
    classes: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many different prices there are; each client has one by default."
        ),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            metavar="ε",
            help="Keep the probability of exceeding the budget at ε; by default the budget is "
            "met in expectation.",
        ),
    ] = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential", help="Post to one client after another, so as never to exceed it."
        ),
    ] = False,
    no_lottery: Annotated[
        bool,
        typer.Option("--no-lottery", help="No client draws its price by lot."),
    ] = False,
    cost: MeanCost = None,
    value: MeanValue = None,
    budget: options.Budget = 200.0,
    alpha: options.Alpha = None,
    calibration: options.CalibrationFile = None,
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
            help=f"Compare with prices that know all types, over {DRAWS} draws; --plot then draws "
            "how every form compares.",
        ),
    ] = False,
    hull: Annotated[
        str | None,
        typer.Option(metavar="CLIENT", help="Let --plot draw the curve and hull of this client."),
    ] = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Post prices to clients whose costs and values nobody knows, from beliefs about them.

    Nothing that a client says changes what it is offered, so no client can gain by lying.
    """
    _check(
        form, blocks=blocks, classes=classes, risk=risk, sequential=sequential,
        no_lottery=no_lottery, robust=robust, calibration=calibration, hull=hull, plot=plot,
        information=information, others=beliefs == OTHERS,
    )  # fmt: skip
    delivery = Delivery(output, plot, format_, force)
    from fedprice.beliefs.others import post_from_others
    from fedprice.beliefs.posting import post as post_tariffs

    with stderr().status("posting"):
        others = (beliefs, cost, value) == (OTHERS, None, None)
        believed = None if others else read_beliefs(beliefs, cost, value, form)
        measured = read_calibration(calibration, alpha)
        table, bound = read_clients(
            clients, alpha=alpha, calibration=measured, rounds=rounds, max_weight=max_weight,
            types=believed is None,
        )  # fmt: skip
        if form is Form.MENU and "value" in table.unknown:
            raise InputError(
                f"{clients}: --form menu needs a column 'value'. Add it, or post --form tariff, "
                "which needs none."
            )
        if hull is not None and hull not in table.ids:
            raise InputError(f"--hull: there is no client {hull!r}. {nearest(hull, table.ids)}")

        def posted_as(form: Form, **more: Any) -> Posted:
            more |= {"bound": bound, "budget": budget, "cost_exponent": exponent}
            if believed is None:
                return post_from_others(table, form=form.value, **more)
            return post_tariffs(table, believed, form=form.value, **more)

        interval = measured.interval if robust and measured is not None else None
        how = (
            {"blocks": blocks}
            if form is Form.BLOCKS
            else {}
            if form is not Form.PRICE or believed is None
            else {
                "classes": classes, "risk": risk, "lottery": not (no_lottery or sequential),
                "alpha_interval": interval,
            }
        )  # fmt: skip
        posted = posted_as(form, **how)
        turns = posted.in_turn() if sequential else None
        known = _information(posted, turns) if information else None
        bars = {} if known is None or plot is None else _bars(posted_as)
        if known is not None and bars:
            bars[_own_name(posted, how, sequential=sequential)] = known
    rows = _rows(posted, turns)
    if measured is not None and measured.norms == "updates":
        rows = rows.rename({"grad_norm": "update_norm"})
    summary = _summary(posted, turns, known) | {"alpha": bound.alpha}
    if interval is not None:
        summary |= {"alpha_low": interval[0], "alpha_high": interval[1]}

    def figure() -> Figure:
        from fedprice.beliefs.figures import (
            draw_hull,
            draw_in_turn,
            draw_information,
            draw_posted,
        )

        if bars:
            return draw_information(bars)
        if hull is not None:
            return draw_hull(posted, hull)
        return draw_posted(posted) if turns is None else draw_in_turn(turns)

    delivery.send(
        rows,
        to_json=lambda: json_text(summary=summary, clients=rows),
        to_screen=lambda: _screen(posted, turns, known),
        to_figure=figure,
    )


def _check(
    form: Form,
    *,
    blocks: int | None,
    classes: int | None,
    risk: float | None,
    sequential: bool,
    no_lottery: bool,
    robust: bool,
    calibration: Path | None,
    hull: str | None,
    plot: Path | None,
    information: bool,
    others: bool,
) -> None:
    """Refuse options that do not go together."""
    if blocks is not None and form is not Form.BLOCKS:
        raise InputError(f"--blocks goes with --form blocks; got --form {form}.")
    given = {
        "--classes": classes is not None,
        "--risk": risk is not None,
        "--sequential": sequential,
        "--no-lottery": no_lottery,
        "--robust": robust,
        "--hull": hull is not None,
    }
    for name, is_given in given.items():
        if is_given and form is not Form.PRICE:
            raise InputError(f"{name} goes with --form price; got --form {form}.")
    refused = given | {"--information": information, "--form menu": form is Form.MENU}
    for name, is_given in refused.items():
        if is_given and others:
            raise InputError(f"--beliefs others does not go with {name}; drop one of the two.")
    for name in ("--risk", "--classes", "--robust", "--no-lottery"):
        if sequential and given[name]:
            raise InputError(f"give either --sequential or {name}, one of the two.")
    if classes is not None and robust:
        raise InputError("give either --classes or --robust, one of the two.")
    if robust and calibration is None:
        raise InputError("--robust needs --calibration FILE, which has the interval of α.")
    if hull is not None and plot is None:
        raise InputError("--hull says what --plot draws: give --plot FILE, too.")
    if hull is not None and information:
        raise InputError("--plot draws one figure: give either --hull or --information.")


def _information(posted: Posted, turns: InTurn | None) -> Information:
    return posted.value_of_information(DRAWS) if turns is None else turns.information(DRAWS)


def _bars(posted_as: Callable[..., Posted]) -> dict[str, Information]:
    """Return how the forms that need no values compare with full information."""
    forms: dict[str, tuple[Form, dict[str, int]]] = {
        "one price for all": (Form.PRICE, {"classes": 1}),
        "one price per client": (Form.PRICE, {}),
        "4 blocks": (Form.BLOCKS, {}),
        "nonlinear tariff": (Form.TARIFF, {}),
    }
    return {
        name: posted_as(one, **more).value_of_information(DRAWS)
        for name, (one, more) in forms.items()
    }


def _own_name(posted: Posted, how: dict[str, Any], *, sequential: bool) -> str:
    """Return the name of what was posted in the figure: that of a form, if it is one."""
    if posted.form == Form.BLOCKS:
        return f"{how['blocks'] or 4} blocks"
    if posted.form != Form.PRICE:
        return "nonlinear tariff" if posted.form == Form.TARIFF else "menu, values known"
    if sequential:
        return "price per client, in turn"
    plain = how["risk"] is None and how["alpha_interval"] is None and how["lottery"]
    if plain and how["classes"] in (None, 1):
        return "one price per client" if how["classes"] is None else "one price for all"
    return "as posted"


def _rows(posted: Posted, turns: InTurn | None) -> pl.DataFrame:
    """Return one row per client, with its turn if clients are asked one after another."""
    import polars as pl

    rows = posted.to_frame()
    if turns is None:
        return rows
    place: list[int | None] = [None] * len(posted.clients)
    for turn, n in enumerate(turns.order.tolist()):
        place[n] = turn + 1
    return rows.with_columns(pl.Series("turn", place, dtype=pl.Int64))


def _summary(posted: Posted, turns: InTurn | None, known: Information | None) -> dict[str, Any]:
    summary = posted.summary()
    if turns is not None:
        summary |= {
            "form": "price, sequential",
            "expected_loss": turns.expected_loss,
            "expected_spend": turns.expected_spend,
            "spend_std": turns.spend_std,
            "over_budget": 0.0,
        }
    if known is not None:
        summary |= {
            "information_ratio": known.ratio,
            "information_low": known.low,
            "information_high": known.high,
            "information_draws": known.draws,
        }
    return summary


def _screen(posted: Posted, turns: InTurn | None, known: Information | None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [posted if turns is None else _in_turn(turns)]
    if known is not None:
        parts.append(
            Text(
                f"Full information: the expected loss is {known.ratio:.2f} times that of prices "
                f"that know every cost and value (95 % from {known.low:.2f} to {known.high:.2f}, "
                f"{known.draws} draws)."
            )
        )
    return Group(*parts)


def _in_turn(turns: InTurn) -> RenderableType:
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
    section = Section("Asked first, with prices if spending goes as expected", header, rows)
    return rich_tables(
        f"posted prices in turn, {count_clients(len(posted.clients))}", pairs, [section],
        "Post the first price and wait for the answer; take its payment off the budget, leave the "
        "client out, and post again.",
    )  # fmt: skip
