"""`fedprice respond`: the client's side of an offer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedprice.cli import options
from fedprice.cli.console import Delivery
from fedprice.cli.extras import require_extras
from fedprice.commands.respond import check_response
from fedprice.commands.respond import respond as compute
from fedprice.errors import InputError, precision_error
from fedprice.pricing.display import facts_table, number, safe
from fedprice.tables import json_text

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["respond"]


def respond(
    cost: Annotated[float, typer.Option(help="What joining every round would cost you.")],
    value: Annotated[float, typer.Option(help="What one unit less of loss is worth to you.")],
    price: Annotated[
        float | None, typer.Option(help="The price offered, per unit of level.")
    ] = None,
    impact: Annotated[
        float | None, typer.Option(help="Your impact α a² G² / R, as the server states it.")
    ] = None,
    offer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of price and impact: the receipts that your client keeps; the last offer "
            "in them counts.",
        ),
    ] = None,
    exponent: options.Exponent = 2.0,
    level_max: Annotated[
        float | None, typer.Option(help="The highest level you can offer; by default 1.")
    ] = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Answer an offer: your best level and what it earns.

    For a price, also below which price you would pay; for an offer, also what other levels earn.
    """
    check_response(cost=cost, value=value, exponent=exponent)
    alone = {"--price": price, "--impact": impact, "--level-max": level_max}
    if offer is not None:
        if odd := [option for option, given in alone.items() if given is not None]:
            raise InputError(f"{odd[0]} does not go together with --offer, which has it; drop one.")
        _respond_to_offer(offer, cost, value, exponent, Delivery(None, plot, format_, force))
        return
    if price is None or impact is None:
        raise InputError("give both --price and --impact, or --offer FILE.")
    if plot is not None:
        raise InputError("--plot draws the levels of an offer; give --offer FILE.")
    answer = compute(
        price=price, impact=impact, cost=cost, value=value, exponent=exponent,
        level_max=1.0 if level_max is None else level_max,
    )  # fmt: skip
    _respond_to_price(price, answer, joins=value * impact > 0, delivery=Delivery(format=format_))


def _respond_to_price(
    price: float, answer: dict[str, Any], *, joins: bool, delivery: Delivery
) -> None:
    def screen() -> RenderableType:
        unpaid = f"join at level {number(answer['level_unpaid'])}" if joins else "stay away"
        below = (
            "0; you would join, and pay the server" if joins else "no price; you would stay away"
        )
        way = "from" if price < 0 else "to"
        return facts_table(
            f"answer to a price of {number(price)}",
            [
                ("best level", f"{number(answer['level'])} of the rounds"),
                (
                    "payment",
                    f"{number(abs(answer['payment']))} {way} you",
                ),
                ("cost", number(answer["cost"])),
                ("profit", f"{number(answer['profit'])} in money"),
                ("utility", f"{number(answer['utility'])}, with what your absence costs the model"),
                ("unpaid", f"at a price of 0 you would {unpaid}"),
                ("break even", f"below {number(answer['break_even_price'])} cost exceeds payment"),
                ("you pay below", below),
            ],
        )

    import polars as pl

    delivery.send(
        pl.DataFrame([answer]), to_json=lambda: json_text(response=answer), to_screen=screen
    )


def _respond_to_offer(
    path: Path, cost: float, value: float, exponent: float, delivery: Delivery
) -> None:
    require_extras("market")
    import polars as pl

    from fedprice.market.money import LEVEL_ONE
    from fedprice.market.offers import chosen_level
    from fedprice.market.responses import draw_levels, earnings, levels_shown, read_offer

    offer, conditions = read_offer(path)
    with np.errstate(all="ignore"):
        chosen = chosen_level(offer, conditions, cost=cost, value=value, cost_exponent=exponent)
        rows = earnings(
            offer,
            conditions,
            levels_shown(offer, chosen),
            cost=cost,
            value=value,
            cost_exponent=exponent,
        ).with_columns(chosen=pl.col("level") == chosen / LEVEL_ONE)
    if not all(map(math.isfinite, rows.drop("chosen").to_numpy().ravel())):
        raise precision_error("the best level")
    (best,) = rows.filter("chosen").drop("chosen").rows(named=True)
    answer = {
        "run": conditions.run,
        "client": offer.client,
        "rounds": conditions.run_rounds,
        "unit": conditions.unit,
        **best,
    }

    def screen() -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        facts = facts_table(
            escape(safe(f"{offer.client}: answer to the offer of run {conditions.run}")),
            [
                ("offered", f"{offer.pays} for {conditions.rounds} rounds, in {conditions.unit}"),
                ("least level", number(offer.level_floor / LEVEL_ONE)),
                ("best level", f"{number(best['level'])} of the rounds"),
                ("profit", f"{number(best['profit'])} in money"),
                ("utility", f"{number(best['utility'])}, with what your absence costs the model"),
            ],
        )
        title = f"what each level would earn in the whole run of {conditions.run_rounds} rounds"
        table = Table(box=box.SIMPLE)
        for name in rows.columns[:-1]:
            table.add_column(name, justify="right")
        for *row, is_best in rows.iter_rows():
            table.add_row(*map(number, row), style="bold" if is_best else "")
        return Group(facts, Text(title, style="italic"), table)

    delivery.send(
        rows,
        to_json=lambda: json_text(response=answer, levels=rows),
        to_screen=screen,
        to_figure=lambda: draw_levels(
            offer, conditions, cost=cost, value=value, cost_exponent=exponent
        ),
    )
