"""The command-line options for beliefs about costs and values, and for the form of the offers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice.cli import options
from fedprice.commands.post import EXPONENTIAL, exponential_beliefs
from fedprice.errors import InputError

if TYPE_CHECKING:
    from fedprice.beliefs.beliefs import Beliefs

__all__ = [
    "SOURCE",
    "TYPES",
    "Blocks",
    "Form",
    "FormName",
    "MeanCost",
    "MeanValue",
    "read_beliefs",
]

SOURCE = f"FILE|{EXPONENTIAL}"
TYPES = (
    "CSV or Parquet with the columns cost, value, probability, one row per type, and client_id or "
    "class where beliefs differ; or exponential, with the means --cost and --value"
)


class Form(StrEnum):
    """The form of the offers."""

    PRICE = "price"
    BLOCKS = "blocks"
    TARIFF = "tariff"
    MENU = "menu"


FormName = Annotated[
    Form,
    typer.Option(
        "--form",
        help="One price per client (price), a price per block of levels (blocks), a price per "
        "level (tariff), or levels with payments for known values (menu).",
    ),
]
Blocks = Annotated[
    int | None,
    typer.Option(min=1, max=48, help="Number of blocks with --form blocks; 4 by default."),
]
MeanCost = Annotated[
    float | None,
    typer.Option(
        "--cost", parser=options.amount, help="The mean cost, with --beliefs exponential."
    ),
]
MeanValue = Annotated[
    float | None,
    typer.Option(
        "--value", parser=options.amount, help="The mean value, with --beliefs exponential."
    ),
]


def read_beliefs(given: str, cost: float | None, value: float | None, form: Form) -> Beliefs:
    """Return the beliefs in a file, or exponential ones."""
    from fedprice.beliefs.beliefs import Beliefs

    if given != EXPONENTIAL:
        if cost is not None or value is not None:
            raise InputError(f"--cost and --value require --beliefs exponential; got {given}.")
        return Beliefs.read(Path(given))
    return exponential_beliefs(cost, value, form)
