"""The options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedprice.pricing import SCHEMES

__all__ = [
    "Alpha",
    "Budget",
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
]


def given(context: typer.Context, name: str) -> bool:
    """Tell whether a parameter was given on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


class Format(StrEnum):
    """What to print on stdout."""

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
Budget = Annotated[float, typer.Option(help="Maximum total payment; may be negative.")]
Alpha = Annotated[
    float | None, typer.Option(help="The bound's α, as measured; or give --calibration.")
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="α, samples and norms by client, as `fedprice calibrate -o FILE.json` writes them; "
        "the table of clients then has client_id, cost, value and optionally level_min, level_max.",
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
_SCHEME = "NAME|FILE.py:FUNCTION"
_SCHEMES = f"One of {', '.join(SCHEMES)}, or a function of your own"
Scheme = Annotated[str, typer.Option(metavar=_SCHEME, help=f"{_SCHEMES}.")]
Schemes = Annotated[list[str], typer.Option(metavar=_SCHEME, help=f"{_SCHEMES}; repeatable.")]
OutputFile = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write a .csv, .parquet or .json file."),
]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw a .png, .svg or .pdf figure.")
]
StdoutFormat = Annotated[Format, typer.Option("--format", help="What to print on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
