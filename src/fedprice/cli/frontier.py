"""`fedprice price --budgets`: what each budget buys."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from fedprice._plumbing.dialects import typed_number
from fedprice._plumbing.tables import json_text
from fedprice.cli.console import stderr
from fedprice.cli.options import Format
from fedprice.cli.summaries import COLUMNS, summary_table
from fedprice.commands.frontier import frontier
from fedprice.commands.warnings import frontier_warnings
from fedprice.errors import InputError
from fedprice.pricing.display import facts_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from fedprice.cli.console import Delivery
    from fedprice.commands.assumptions import Assumptions
    from fedprice.game import Game

__all__ = ["parse_budgets", "send_frontier"]

PER_ALPHA = {"expected_loss": "expected_loss_per_alpha", "multiplier": "multiplier_per_alpha"}

MOST_BUDGETS = 10_000  # more than any figure or table shows


def send_frontier(
    game: Game, budgets: Sequence[float], assumptions: Assumptions, delivery: Delivery
) -> list[str]:
    """Send what each budget buys and the number of payers; return warnings."""
    with stderr().status("tracing the frontier"):
        traced = frontier(game, budgets)
    # The first fact is the budget, which varies here.
    facts = assumptions.facts(game)[1:]
    rows, warnings = traced.to_frame(), frontier_warnings(traced)
    columns = [name for name in COLUMNS if name not in ("scheme", "spend")]
    if assumptions.alpha is None:
        rows = rows.rename(PER_ALPHA)

    def screen() -> RenderableType:
        from rich.console import Group

        return Group(facts_table("Assumptions", facts), summary_table(rows, columns))

    delivery.send(
        rows,
        to_json=lambda: json_text(
            frontier=rows, warnings=warnings, assumptions=assumptions.summary(game)
        ),
        to_screen=screen,
        to_figure=traced.plot,
    )
    if delivery.format is Format.CSV and assumptions.columns:
        for name, text in facts:
            stderr().print(f"{name}: {text}", markup=False)
    return warnings


def parse_budgets(text: str) -> list[float]:
    """Return the budgets that a list, or LO:HI:N, stands for.

    Examples
    --------
    >>> parse_budgets("0:100:3"), parse_budgets("5,20")
    ([0.0, 50.0, 100.0], [5.0, 20.0])
    """
    try:
        if ":" not in text:
            return [typed_number(amount) for amount in text.split(",")]
        low_text, high_text, count = text.split(":")
        if not re.fullmatch("[0-9]{1,18}", count):
            raise ValueError
        low, high = typed_number(low_text), typed_number(high_text)
    except ValueError as error:
        if "may be" in str(error):  # of two readings, which the message names
            raise InputError(f"--budgets: {error}") from None
        raise InputError(
            "--budgets must be numbers separated by commas, such as 5,10,20, or LO:HI:N, such as "
            f"10:500:50; got {text!r}."
        ) from None
    if not (low <= high and math.isfinite(high - low) and int(count) >= 1):
        raise InputError(f"--budgets must have finite LO ≤ HI and N ≥ 1; got {text!r}.")
    if int(count) > MOST_BUDGETS:
        raise InputError(
            f"--budgets must be at most {MOST_BUDGETS:,} budgets; got N = {int(count):,}. Try "
            f"{low_text}:{high_text}:100."
        )
    return list(map(float, np.linspace(low, high, int(count))))
