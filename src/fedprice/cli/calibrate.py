"""`fedprice calibrate`: measure the constants of the bound."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from fedprice.cli import options
from fedprice.cli.console import Delivery, json_text, stderr
from fedprice.cli.data import DataPath
from fedprice.pricing.display import facts_table, number

__all__ = ["calibrate"]


def calibrate(
    setup: Annotated[str, typer.Argument(metavar="SETUP", help="setup1, setup2 or setup3.")],
    source: DataPath = None,
    repeats: Annotated[int, typer.Option(min=2, help="Runs of each pilot.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pilots.")] = 0,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Measure α with its interval, β and the clients' gradient norms by pilots."""
    import polars as pl
    from rich.progress import Progress

    from fedprice.calibrate import CHECKPOINTS, LEVELS, theory_constants
    from fedprice.calibrate import calibrate as measure
    from fedprice.experiments import setup_of

    delivery = Delivery(output, None, format_, force)
    federation = setup_of(setup).federation(source)
    with Progress(console=stderr(), transient=True) as bar:
        task = bar.add_task("pilots", total=len(LEVELS) * repeats * max(CHECKPOINTS))
        found = measure(
            federation, repeats=repeats, seed=seed, progress=lambda _: bar.advance(task)
        )
    theory = theory_constants(federation)
    rows = pl.DataFrame(
        {
            "client": np.arange(1, federation.num_clients + 1),
            "samples": federation.samples,
            "weight": federation.weight,
            "grad_norm": found.grad_norm,
            "grad_norm_max": found.grad_norm_max,
            "grad_std": theory.grad_std,
        }
    )
    low, high = found.interval
    summary = {
        "name": federation.name,
        "alpha": found.alpha,
        "alpha_low": low,
        "alpha_high": high,
        "beta": found.beta,
        "smoothness": theory.smoothness,
        "convexity": theory.convexity,
    }
    delivery.send(
        rows,
        to_json=lambda: json_text(calibration=summary, clients=rows),
        to_screen=lambda: facts_table(
            federation.name,
            [
                ("alpha", f"{number(found.alpha)}, 95 % from {number(low)} to {number(high)}"),
                ("beta", number(found.beta)),
                (
                    "gradient norms",
                    f"{number(found.grad_norm.min())} to {number(found.grad_norm.max())}",
                ),
                ("theory", f"L = {number(theory.smoothness)}, μ = {number(theory.convexity)}"),
            ],
        ),
    )
