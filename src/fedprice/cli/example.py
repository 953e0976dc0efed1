"""`fedprice example`: clients to try the other commands on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedprice.cli import options
from fedprice.cli.console import stderr
from fedprice.random_clients import EXAMPLE_ALPHA, EXAMPLE_SEED, population
from fedprice.tables import csv_text

__all__ = ["example"]


def example(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write a .csv or .parquet file."),
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=10**8, help="How many clients.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = EXAMPLE_SEED,
    force: options.Force = False,
) -> None:
    """Draw clients as in the paper's Setup 1: costs ~ Exp(50), values ~ Exp(4000).

    Price them with --alpha 3.3, the α of that setup.
    """
    drawn = population(clients, seed=seed)
    if output is None:
        sys.stdout.write(csv_text(drawn.to_frame()))
        return
    drawn.write(output, force=force)
    stderr().print(f"wrote {output}; price them with --alpha {EXAMPLE_ALPHA}", markup=False)
