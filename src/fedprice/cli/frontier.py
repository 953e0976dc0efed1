"""`fedprice frontier`: what each budget buys."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fedprice.cli import options
from fedprice.cli.console import Delivery, show_warnings, stderr
from fedprice.cli.summaries import COLUMNS, summary_table
from fedprice.columns import parse_rename
from fedprice.commands.frontier import frontier as compute
from fedprice.commands.games import read_calibration, read_game
from fedprice.commands.warnings import frontier_warnings
from fedprice.errors import InputError
from fedprice.tables import json_text

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["frontier"]


def frontier(
    clients: options.ClientsFile,
    budgets: Annotated[str, typer.Option(metavar="LO:HI:N", help="N budgets from LO to HI.")],
    rename: options.Rename = None,
    alpha: options.Alpha = None,
    calibration: options.CalibrationFile = None,
    impact: options.ImpactName = None,
    rounds: options.Rounds = 1000,
    exponent: options.Exponent = 2.0,
    max_weight: options.MaxWeight = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Trace the expected loss and the number of payers over a range of budgets."""
    points = parse_budgets(budgets)
    delivery = Delivery(output, plot, format_, force)
    with stderr().status("tracing the frontier"):
        game = read_game(
            clients, budget=float(points[0]), alpha=alpha,
            calibration=read_calibration(calibration, alpha, impact), rounds=rounds,
            exponent=exponent, max_weight=max_weight, rename=parse_rename(rename),
        )  # fmt: skip
        traced = compute(game, points.tolist())
    rows, warnings = traced.to_frame(), frontier_warnings(traced)

    columns = [name for name in COLUMNS if name not in ("scheme", "spend")]
    delivery.send(
        rows,
        to_json=lambda: json_text(frontier=rows, warnings=warnings),
        to_screen=lambda: summary_table(rows, columns),
        to_figure=traced.plot,
    )
    show_warnings(warnings)


def parse_budgets(text: str) -> npt.NDArray[np.float64]:
    """Return the budgets that LO:HI:N stands for.

    Examples
    --------
    >>> parse_budgets("0:100:3")
    array([  0.,  50., 100.])
    """
    try:
        low_text, high_text, count_text = text.split(":")
        if not re.fullmatch("[0-9]+", count_text):
            raise ValueError
        low, high, count = float(low_text), float(high_text), int(count_text)
    except ValueError:
        raise InputError(f"--budgets must be LO:HI:N, such as 10:500:50; got {text!r}.") from None
    if not (low <= high and math.isfinite(high - low) and count >= 1):
        raise InputError(f"--budgets must have finite LO ≤ HI and N ≥ 1; got {text!r}.")
    return np.linspace(low, high, count)
