"""`fedprice flower model`: take a trained model out of a ledger."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated

import typer

from fedprice._plumbing.tables import check_output, whole_file
from fedprice.cli import options
from fedprice.cli.console import stderr
from fedprice.cli.extras import require_extras
from fedprice.cli.ledger import DEFAULT_URL, LedgerUrl, opened_ledger

__all__ = ["model"]


def model(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, or a later period of it such as RUN#2.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="A .npz file: one array per array of the model."
        ),
    ],
    url: LedgerUrl = DEFAULT_URL,
    force: options.Force = False,
) -> None:
    """Write the model after a run's last recorded round, as its clients get it.

    The arrays have the names, shapes and types that the clients agreed to, and the hash that the
    ledger recorded. For a run with several periods, it is the model of the last one.
    """
    require_extras("market")
    import numpy as np

    from fedprice.market.participation import last_trained, model_of
    from fedprice.market.periods import rounds_before

    check_output(output, (".npz",), force=force)
    with opened_ledger(url) as opened:
        period = last_trained(opened, run)
        arrays, done = model_of(opened, period), rounds_before(opened, period)
    with whole_file(output) as part, zipfile.ZipFile(part, "w") as archive:
        # Like `numpy.savez`, whose parameter names would be forbidden as names of arrays.
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    count, numbers = len(arrays), sum(array.size for array in arrays.values())
    said = f"{count} array{'s' * (count != 1)}, {numbers:,} numbers, after round {done} of {period}"
    stderr().print(f"wrote {output}: {said}", markup=False)
