"""`fedprice reveal`: estimate costs and values from clients' answers to prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice._plumbing.tables import TABLE_SUFFIXES, check_output, json_text, read_table
from fedprice.beliefs.revealed import reveal as estimate
from fedprice.cli import options
from fedprice.cli.console import Delivery, stderr
from fedprice.errors import InputError
from fedprice.pricing.display import facts_table, number, safe

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

__all__ = ["reveal"]

MOST_NAMED = 10  # clients that are not identified
LOW_PRICES = "Offer low prices first: only levels below the largest one are informative."


def reveal(
    answers: Annotated[
        Path | None,
        typer.Argument(
            metavar="[ANSWERS]",
            help="CSV or Parquet, one row per answer: client_id, impact, price, level and "
            "optionally level_std, or the rounds in which coins were observed; heads may stand for "
            "level. For a tariff, give the price of the block that the level lies in.",
        ),
    ] = None,
    exponent: options.Exponent = 2.0,
    beliefs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what is left uncertain as beliefs, a .csv or .parquet file for `post "
            "--beliefs`.",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of ANSWERS: a calibration, whose pilots say what a unit of loss means in "
            "accuracy; requires --per-point.",
        ),
    ] = None,
    per_point: Annotated[
        float | None,
        typer.Option(
            parser=options.amount,
            metavar="MONEY",
            help="What a point of accuracy is worth to a client.",
        ),
    ] = None,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Estimate clients' costs and values from their answers to prices, with intervals.

    Two answers below a client's largest level, to different prices, identify it; offer low prices
    first. A .csv or .parquet file holds client_id, cost, value of the clients that are identified,
    as `price --calibration` takes them; a .json file, and the screen, also show the intervals, and
    which clients are not identified and why. With --calibration and --per-point, estimate the value
    of a unit of loss instead.
    """
    delivery = Delivery(output, None, format_, force)
    if answers is None:
        if calibration is None or per_point is None:
            raise InputError("give ANSWERS, or --calibration FILE with --per-point MONEY.")
        if beliefs is not None:
            raise InputError("--beliefs applies only to ANSWERS; leave it out with --per-point.")
        _send_value(delivery, calibration, per_point)
        return
    if calibration is not None or per_point is not None:
        raise InputError("give either ANSWERS, or --calibration with --per-point, not both.")
    if beliefs is not None:
        check_output(beliefs, TABLE_SUFFIXES, force=force)
    try:
        found = estimate(read_table(answers), cost_exponent=exponent)
    except InputError as error:
        text = str(error)
        raise InputError(text if str(answers) in text else f"{answers}: {text}") from error
    whole = found.to_frame()
    rows = whole.drop_nulls("cost").select("client_id", "cost", "value")
    if beliefs is not None:
        found.beliefs().write(beliefs, force=force)
    delivery.send(
        rows,
        to_json=lambda: json_text(clients=whole),
        to_screen=lambda: _screen(whole),
    )
    if beliefs is not None:
        left_out = [safe(name) for name in whole.filter(whole["cost"].is_null())["client_id"]]
        stderr().print(f"wrote {beliefs}{_left_out(left_out)}", markup=False, soft_wrap=True)


def _left_out(names: list[str]) -> str:
    """Name the clients that the beliefs do not cover."""
    if not names:
        return ""
    shown = ", ".join(names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    which = "client" if len(names) == 1 else "clients"
    return f" without {which} {shown}{more}, not identified; `post` needs their types, too"


def _screen(whole: pl.DataFrame) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in ("client", "cost", "95 %", "value", "95 %", "status"):
        table.add_column(name, justify="left" if name in ("client", "status") else "right")
    for row in whole.iter_rows(named=True):
        cells = [safe(row["client_id"])]
        for name in ("cost", "value"):
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            known = "-" if row[name] is None else number(row[name])
            cells += [known, "-" if low is None else f"{number(low)} to {number(high)}"]
        table.add_row(*(Text(cell) for cell in (*cells, row["status"])))
    left = whole["cost"].null_count()
    line = f"{number(whole.height - left)} of {number(whole.height)} clients identified."
    return Group(table, f"{line} {LOW_PRICES}" if left else line)


def _send_value(delivery: Delivery, path: Path, per_point: float) -> None:
    """Print the value of a unit of loss, from the money that a point of accuracy is worth."""
    import polars as pl

    from fedprice.calibration import Calibration

    measured = Calibration.read(path)
    value, (low, high) = measured.value(per_point)
    answer = {"per_point": per_point, "value": value, "value_low": low, "value_high": high}
    slope = measured.accuracy
    assert slope is not None
    delivery.send(
        pl.DataFrame([answer]),
        to_json=lambda: json_text(value=answer),
        to_screen=lambda: facts_table(
            f"a point of accuracy is worth {number(per_point)}",
            [
                ("accuracy", f"{number(slope.points)} points per unit of loss, in the pilots"),
                ("value", f"{number(value)} per unit of loss"),
                ("95 %", f"{number(low)} to {number(high)}"),
            ],
        ),
    )
