"""`fedprice respond`: the client's side of an offer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedprice._plumbing.tables import json_text
from fedprice.cli import options
from fedprice.cli.console import Delivery
from fedprice.cli.extras import require_extras
from fedprice.commands.offers import TABLES, Contract, read_offered
from fedprice.commands.respond import (
    check_response,
    declining,
    impact_for,
    respond_to_contract,
)
from fedprice.commands.respond import respond as compute
from fedprice.errors import InputError, precision_error
from fedprice.market.earnings import earnings_of, levels_of
from fedprice.pricing.display import facts_table, number, safe
from fedprice.verify import LEVEL_ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl
    from matplotlib.figure import Figure
    from rich.console import RenderableType

__all__ = ["respond"]

SAME = 1e-9  # relative to the utilities: what rounding leaves of a difference


def respond(
    cost: Annotated[
        float, typer.Option(parser=options.amount, help="What joining every round would cost you.")
    ],
    value: Annotated[
        float,
        typer.Option(
            parser=options.amount,
            help="What one unit less of loss is worth to you; 0 if only money counts.",
        ),
    ] = 0.0,
    price: Annotated[
        float | None,
        typer.Option(parser=options.amount, help="The price offered, per unit of level."),
    ] = None,
    impact: Annotated[
        float | None,
        typer.Option(
            help="Your impact α a² G² / R, as the server states it; needed with --value above 0."
        ),
    ] = None,
    offer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of a price: the receipts that your client keeps or an export of the "
            "ledger (.jsonl; the most recent offer is used), or what `fedprice price -o` and "
            "`fedprice post -o` wrote (.csv, .parquet, .json).",
        ),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Your client name, if the file has several clients."),
    ] = None,
    exponent: options.Exponent = 2.0,
    level_max: Annotated[
        float | None, typer.Option(help="The highest level you can offer; by default 1.")
    ] = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Answer an offer: your best level, what it earns, and what that gains over declining.

    For a price, also below which price you would pay; for an offer, also what other levels earn;
    for a contract, what it earns as a whole.
    """
    check_response(cost=cost, value=value, exponent=exponent)
    if offer is None:
        if client is not None:
            raise InputError("--client says whose offer to read; give --offer FILE, too.")
        if price is None:
            raise InputError("give --price, or --offer FILE.")
        _check_plot(plot)
        answer = compute(
            price=price, impact=impact, cost=cost, value=value, exponent=exponent,
            level_max=1.0 if level_max is None else level_max,
        )  # fmt: skip
        _respond_to_price("", price, answer, Delivery(format=format_))
        return
    in_file = {"--price": price, "--level-max": level_max}
    if offer.suffix not in TABLES:
        in_file["--impact"] = impact
    if odd := [option for option, given in in_file.items() if given is not None]:
        raise InputError(f"{odd[0]} cannot be combined with --offer, which contains it.")
    if offer.suffix in TABLES:
        _check_plot(plot)
        _respond_to_table(offer, client, cost, value, impact, exponent, Delivery(format=format_))
        return
    delivery = Delivery(None, plot, format_, force)
    _respond_to_offer(offer, client, cost, value, exponent, delivery)


def _check_plot(plot: Path | None) -> None:
    if plot is not None:
        raise InputError("--plot draws the levels of a market's offer; give --offer FILE.jsonl.")


def _respond_to_price(
    client: str,
    price: float,
    answer: dict[str, Any],
    delivery: Delivery,
    more: Sequence[tuple[str, str]] = (),
) -> None:
    joins = answer["pays_below"] is not None

    def screen() -> RenderableType:
        from rich.markup import escape

        wants = [
            (
                "break even",
                f"at a price of {number(answer['break_even_price'])}; below it, joining costs you "
                "more than it pays",
            ),
            (
                "paying to join",
                "yes: below a price of 0 you would join, and pay the server"
                if joins
                else "no: below a price of 0 you would stay away",
            ),
        ]
        way = "from" if answer["payment"] < 0 else "to"
        whose = f"{client}: " if client else ""
        return facts_table(
            escape(safe(f"{whose}answer to a price of {number(price)}")),
            [
                ("best level", f"{number(answer['level'])} of the rounds"),
                ("payment", f"{number(abs(answer['payment']))} {way} you"),
                ("cost", number(answer["cost"])),
                ("profit", f"{number(answer['profit'])} in money"),
                *_comparison(answer),
                *([] if _sells_only(answer) else wants),
                *more,
            ],
        )

    import polars as pl

    delivery.send(
        pl.DataFrame([answer]), to_json=lambda: json_text(response=answer), to_screen=screen
    )


def _sells_only(answer: dict[str, Any]) -> bool:
    """Return whether the model itself is worth nothing to this client, as far as was said."""
    return bool(answer["utility"] == answer["profit"] and not answer["level_unpaid"])


def _comparison(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Say what the best level is worth, what declining is, and which one is better."""
    utility, unpaid, gain = (answer[name] for name in ("utility", "utility_unpaid", "gain"))
    seller = _sells_only(answer)
    without = "no payment, no cost" if seller else "no payment, no cost: a utility of 0"
    if answer["level_unpaid"]:
        level = number(answer["level_unpaid"])
        without = f"join unpaid at level {level}, with a utility of {number(unpaid)}"
    if abs(gain) <= SAME * (abs(utility) + abs(unpaid)):
        said = "accepting is as good as declining"
    elif gain > 0:
        said = f"accepting gains {number(gain)} over declining"
    else:
        unpaid_too = ", if you may then join unpaid" if answer["level_unpaid"] else ""
        said = f"declining is better, by {number(-gain)}{unpaid_too}"
    worth = ("utility", f"{number(utility)}, with what your absence costs the model")
    return [*([] if seller else [worth]), ("if you decline", without), ("verdict", said)]


def _respond_to_table(
    path: Path,
    client: str | None,
    cost: float,
    value: float,
    impact: float | None,
    exponent: float,
    delivery: Delivery,
) -> None:
    """Answer an offer in what `fedprice price -o` or `fedprice post -o` wrote."""
    name, offered = read_offered(path, client)
    if impact is None and value > 0:
        raise InputError(
            f"{path} lacks your impact, which a --value above 0 needs: give --impact, as the "
            "server states it."
        )
    lacks = [("not in the file", "unit, rounds and a signature: it is unsigned and not binding")]
    own = {"cost": cost, "exponent": exponent}
    if isinstance(offered, Contract):
        earned = respond_to_contract(offered, value=value, impact=impact, **own)
        _respond_to_contract(name, earned, delivery, lacks)
        return
    tariffs = offered
    if tariffs.ends.shape == (1, 1) and not tariffs.menu:
        price, cap = float(tariffs.prices[0, 0]), float(tariffs.ends[0, 0])
        answer = compute(price=price, value=value, impact=impact, level_max=cap, **own)
        _respond_to_price(name, price, {"client": name} | answer, delivery, lacks)
        return
    value_impact = value * impact_for(value, impact)
    check_response(impact=impact or 0.0)
    with np.errstate(all="ignore"):
        free = tariffs.best_levels(np.array([cost]), np.array([value_impact]), exponent)
    # Of a pure seller to whom no level is worth its cost, the best one is 0.
    chosen = max(1, round(float(free[0]) * LEVEL_ONE)) if free[0] else 0
    ends = [round(end * LEVEL_ONE) for end in tariffs.ends[0].tolist()]
    levels = levels_of(ends, chosen, menu=tariffs.menu)
    with np.errstate(all="ignore"):
        rows = earnings_of(tariffs, levels, value_impact=value_impact, **own)
    answer = {"client": name, **_best(rows, chosen)}
    answer |= declining(answer["utility"], cost, value_impact, exponent)
    what = "levels to choose from" if tariffs.menu else "blocks"
    _send_levels(
        f"{name}: answer to a tariff",
        [("offered", f"{tariffs.ends.shape[1]} {what}"), *lacks],
        "what each level would earn",
        rows,
        answer,
        delivery,
    )


def _respond_to_contract(
    client: str, earned: dict[str, float], delivery: Delivery, lacks: list[tuple[str, str]]
) -> None:
    """Say what a level and its payment, both fixed, are worth as a whole."""
    import polars as pl
    from rich.markup import escape

    answer: dict[str, Any] = {"client": client} | earned
    offered = f"{number(answer['payment'])} for joining {number(answer['level'])} of the rounds"
    delivery.send(
        pl.DataFrame([answer]),
        to_json=lambda: json_text(response=answer),
        to_screen=lambda: facts_table(
            escape(safe(f"{client}: answer to a contract")),
            [
                ("offered", f"{offered}, to take or leave as a whole"),
                ("cost", f"{number(answer['cost'])} at that level"),
                ("profit", f"{number(answer['profit'])} in money"),
                *_comparison(answer),
                *lacks,
            ],
        ),
    )


def _respond_to_offer(
    path: Path, client: str | None, cost: float, value: float, exponent: float, delivery: Delivery
) -> None:
    """Answer an offer of a market, from receipts or from an export."""
    require_extras("market")
    from fedprice.market.exported import shown_client
    from fedprice.market.offers import chosen_level
    from fedprice.market.responses import draw_levels, earnings, levels_shown, read_offer

    offer, conditions = read_offer(path, client or shown_client(path))
    own = {"cost": cost, "value": value, "cost_exponent": exponent}
    with np.errstate(all="ignore"):
        chosen = chosen_level(offer, conditions, **own)
        rows = earnings(offer, conditions, levels_shown(offer, chosen), **own)
    answer = {
        "run": conditions.run,
        "client": offer.client,
        "rounds": conditions.run_rounds,
        "unit": conditions.unit,
        **_best(rows, chosen),
    }
    answer |= declining(answer["utility"], cost, value * float(offer.impact), exponent)
    _send_levels(
        f"{offer.client}: answer to the offer of run {conditions.run}",
        [
            ("offered", f"{offer.pays} for {conditions.rounds} rounds, in {conditions.unit}"),
            ("least level", number(offer.level_floor / LEVEL_ONE)),
        ],
        f"what each level would earn in the whole run of {conditions.run_rounds} rounds",
        rows,
        answer,
        delivery,
        lambda: draw_levels(offer, conditions, **own),
    )


def _best(rows: pl.DataFrame, chosen: int) -> dict[str, Any]:
    """Return the row of the best level, given in multiples of 2⁻³²."""
    if not all(map(math.isfinite, rows.to_numpy().ravel())):
        raise precision_error("the best level")
    if not chosen:
        return dict.fromkeys(rows.columns, 0.0)
    return rows.row(rows["level"].to_list().index(chosen / LEVEL_ONE), named=True)


def _send_levels(
    title: str,
    facts: list[tuple[str, str]],
    heading: str,
    rows: pl.DataFrame,
    answer: dict[str, Any],
    delivery: Delivery,
    figure: Callable[[], Figure] | None = None,
) -> None:
    """Send the answer to an offer with what other levels would earn."""
    marked = rows.with_columns(chosen=rows["level"] == answer["level"])

    def screen() -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        pairs = [
            *facts,
            ("best level", f"{number(answer['level'])} of the rounds"),
            ("profit", f"{number(answer['profit'])} in money"),
            *_comparison(answer),
        ]
        table = Table(box=box.SIMPLE)
        for name in rows.columns:
            table.add_column(name, justify="right")
        for *row, is_best in marked.iter_rows():
            table.add_row(*map(number, row), style="bold" if is_best else "")
        return Group(facts_table(escape(safe(title)), pairs), Text(heading, style="italic"), table)

    delivery.send(
        marked,
        to_json=lambda: json_text(response=answer, levels=marked),
        to_screen=screen,
        to_figure=figure,
    )
