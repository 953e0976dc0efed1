"""`fedprice data`: data sets, how their samples are spread over clients, and example clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fedprice._plumbing.tables import csv_text, json_text
from fedprice.cli import options
from fedprice.cli.console import Delivery, stderr
from fedprice.cli.what import DataPath, federation_of
from fedprice.random_clients import EXAMPLE_ALPHA, EXAMPLE_SEED, population

if TYPE_CHECKING:
    import numpy.typing as npt
    from rich.console import RenderableType

__all__ = ["data"]

data = typer.Typer(
    name="data",
    no_args_is_help=True,
    help="Get data sets and examples, and show which samples clients have.",
)


@data.command()
def get(
    name: Annotated[str, typer.Argument(metavar="mnist|emnist", help="Which data set.")],
) -> None:
    """Download a data set into the cache, verify its checksums, and print its path."""
    from fedprice.data.sources import fetch

    console = stderr()
    path = fetch(name, lambda line: console.print(f"trying {line}", markup=False))
    typer.echo(path)


@data.command()
def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="setup1, setup2, setup3, or a data file of your own (CSV, Parquet or npz).",
        ),
    ],
    source: DataPath = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Show how many samples of which classes each client has."""
    import polars as pl

    from fedprice.cli.figures import draw_federation

    delivery = Delivery(output, plot, format_, force)
    federation = federation_of(what, source)
    counts = np.array(
        [
            np.bincount(federation.client(n)[1], minlength=federation.num_classes)
            for n in range(federation.num_clients)
        ]
    )
    rows = pl.DataFrame(
        {
            "client_id": federation.ids,
            "samples": federation.samples,
            "share": federation.weight,
            "classes": (counts > 0).sum(axis=1),
        }
    )
    summary = {
        "name": federation.name,
        "num_clients": federation.num_clients,
        "samples": int(federation.labels.size),
        "test_samples": int(federation.test_labels.size),
        "largest_share": float(federation.weight.max()),
        "fingerprint": federation.fingerprint,
    }
    delivery.send(
        rows,
        to_json=lambda: json_text(summary=summary, clients=rows),
        to_screen=lambda: _screen(summary, federation.ids, counts),
        to_figure=lambda: draw_federation(federation.name, counts),
    )


@data.command()
def example(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write a .csv or .parquet file."),
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=10**8, help="Number of clients.")] = 40,
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


def _screen(
    summary: dict[str, object], ids: tuple[str, ...], counts: npt.NDArray[np.int64]
) -> RenderableType:
    """Draw one line of blocks per client: its samples by class, dark where there are many."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, title=Text(str(summary["name"])), title_justify="left")
    for column in ("client", "samples", "classes"):
        table.add_column(column, justify="right")
    table.add_column("samples by class")
    shades = " ░▒▓█"
    for n in np.argsort(-counts.sum(axis=1), kind="stable"):
        own = counts[n]
        depth = np.ceil(4 * own / own.max()).astype(int)
        picture = "".join(shades[d] for d in depth)
        table.add_row(Text(ids[n]), f"{own.sum():,}", str((own > 0).sum()), picture)
    samples = f"{summary['samples']:,} samples, and {summary['test_samples']:,} for testing"
    return Group(table, Text(f"{samples}; largest share {summary['largest_share']:.3f}"))
