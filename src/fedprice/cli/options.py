"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedprice._plumbing.dialects import typed_number
from fedprice.errors import InputError

__all__ = [
    "Alpha",
    "Budget",
    "ByOrder",
    "CalibrationFile",
    "ClientsFile",
    "Exponent",
    "Force",
    "Format",
    "Impact",
    "ImpactName",
    "MaxWeight",
    "OutputFile",
    "PlotFile",
    "Rename",
    "Rounds",
    "Scheme",
    "Schemes",
    "StdoutFormat",
    "given",
    "refuse_others",
]


def given(context: typer.Context, name: str) -> bool:
    """Return whether a parameter was given on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_others(context: typer.Context, known: Collection[str], why: str) -> None:
    """Refuse parameters on the command line other than the known ones, and say why."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if given(context, name) and name not in known:
            raise InputError(f"{parameter.opts[0]} {why}")


class Format(StrEnum):
    """Output format on stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Impact(StrEnum):
    """The norms of a calibration from which impacts are computed."""

    UPDATES = "updates"
    GRADIENTS = "gradients"


ClientsFile = Annotated[
    Path,
    typer.Argument(
        metavar="CLIENTS",
        help="CSV, Parquet or .xlsx with the columns client_id, samples (or weight), grad_norm (or "
        "update_norm), cost, value and optionally level_min, level_max.",
    ),
]
Rename = Annotated[
    str | None,
    typer.Option(
        metavar="OLD=NEW,…",
        help="Columns of CLIENTS that have other names, such as hospital=client_id,cost_eur=cost.",
    ),
]
ByOrder = Annotated[
    bool,
    typer.Option(
        "--by-order",
        help="Match the rows of CLIENTS with the measured clients by their order, not their names.",
    ),
]


def amount(text: str | float) -> float:
    """Return an amount of money that was typed; what could be thousands as well is refused."""
    try:
        return typed_number(text) if isinstance(text, str) else text
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


Budget = Annotated[
    float, typer.Option(parser=amount, help="Maximum total payment; may be negative.")
]
Alpha = Annotated[
    float | None, typer.Option(help="The bound's α, as measured; or give --calibration.")
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="α, samples and norms by client, as `fedprice calibrate -o FILE.json` writes them; "
        "the table of clients then needs no samples and norms.",
    ),
]
ImpactName = Annotated[
    Impact | None,
    typer.Option(
        "--impact",
        help="Which norms of the calibration to price with: those of updates, whose squares are "
        "exactly the variance of a round, or those of gradients, as in the paper; by default those "
        "that the calibration was made for: updates, unless made with --impact gradients.",
    ),
]
Rounds = Annotated[int, typer.Option(help="Training rounds.")]
Exponent = Annotated[float, typer.Option(metavar="τ", help="A level q costs cost · q^τ; τ > 1.")]
MaxWeight = Annotated[
    float | None,
    typer.Option(
        metavar="W",
        help="Raise the floors so that no weight / level exceeds W; by default 1 for what was "
        "calibrated or is trained, none with --alpha alone. inf sets none.",
    ),
]
SCHEME_METAVAR = "NAME|FILE.py:FUNCTION"
SCHEME_HELP = (
    "equilibrium, uniform, weighted, full, subset, …: `fedprice explain schemes` lists them; or a "
    "function of your own"
)
Scheme = Annotated[str, typer.Option(metavar=SCHEME_METAVAR, help=f"{SCHEME_HELP}.")]
Schemes = Annotated[
    list[str], typer.Option(metavar=SCHEME_METAVAR, help=f"{SCHEME_HELP}; repeatable.")
]
OutputFile = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write a .csv, .parquet or .json file."),
]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw a .png, .svg or .pdf figure.")
]
StdoutFormat = Annotated[Format, typer.Option("--format", help="Output format on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
