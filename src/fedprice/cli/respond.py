"""`fedprice respond`: the client's side of an offer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fedprice.cli import options
from fedprice.cli.console import Delivery, json_text
from fedprice.errors import InputError, precision_error
from fedprice.game import LARGEST_EXPONENT, best_level, break_even, profit_at
from fedprice.pricing.display import facts_table, number

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["respond"]


def respond(
    price: Annotated[float, typer.Option(help="The price offered, per unit of level.")],
    cost: Annotated[float, typer.Option(help="What joining every round would cost you.")],
    value: Annotated[float, typer.Option(help="What one unit less of loss is worth to you.")],
    impact: Annotated[
        float, typer.Option(help="Your impact α a² G² / R, as the server states it.")
    ],
    exponent: options.Exponent = 2.0,
    level_max: Annotated[float, typer.Option(help="The highest level you can offer.")] = 1.0,
    format_: options.StdoutFormat = options.Format.TABLE,
) -> None:
    """Answer an offer: your best level, what it earns, and below which price you would pay."""
    _check(price, cost, value, impact, exponent, level_max)
    value_impact = value * impact
    with np.errstate(all="ignore"):
        level = float(best_level(price, cost, value_impact, exponent, level_max))
    own_cost = cost * level**exponent
    if not math.isfinite(level + own_cost):
        raise precision_error("the best level")
    profit = profit_at(level, price, cost, exponent)
    answer = {
        "level": level,
        "payment": price * level,
        "cost": own_cost,
        "profit": profit,
        "utility": profit - (value_impact * (1 / level - 1) if value_impact else 0.0),
        "level_unpaid": float(best_level(0.0, cost, value_impact, exponent, level_max)),
        "break_even_price": break_even(cost, value_impact, exponent, level_max),
        "pays_below": 0.0 if value_impact else None,
    }

    def screen() -> RenderableType:
        unpaid = (
            "stay away" if not value_impact else f"join at level {number(answer['level_unpaid'])}"
        )
        pays = (
            "0; you would join, and pay the server"
            if value_impact
            else "no price; you would stay away"
        )
        return facts_table(
            f"answer to a price of {number(price)}",
            [
                ("best level", f"{number(level)} of the rounds"),
                ("payment", f"{number(abs(price * level))} {'from' if price < 0 else 'to'} you"),
                ("cost", number(own_cost)),
                ("profit", f"{number(answer['profit'])} in money"),
                ("utility", f"{number(answer['utility'])}, with what your absence costs the model"),
                ("unpaid", f"at a price of 0 you would {unpaid}"),
                ("break even", f"below {number(answer['break_even_price'])} cost exceeds payment"),
                ("you pay below", pays),
            ],
        )

    import polars as pl

    Delivery(format=format_).send(
        pl.DataFrame([answer]), to_json=lambda: json_text(response=answer), to_screen=screen
    )


def _check(
    price: float, cost: float, value: float, impact: float, exponent: float, level_max: float
) -> None:
    for option, given, holds, rule in (
        ("--price", price, math.isfinite(price), "a finite number"),
        ("--cost", cost, 0 < cost < math.inf, "above 0"),
        ("--value", value, 0 <= value < math.inf, "a finite number, at least 0"),
        ("--impact", impact, 0 <= impact < math.inf, "a finite number, at least 0"),
        ("--exponent", exponent, 1 < exponent <= LARGEST_EXPONENT, f"in (1, {LARGEST_EXPONENT:g}]"),
        ("--level-max", level_max, 0 < level_max <= 1, "in (0, 1]"),
    ):
        if not holds:
            raise InputError(f"{option} must be {rule}; got {given}.")
