"""`fedprice serve`: prices, beliefs, runs and results in a browser."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fedprice._plumbing.columns import renaming_of
from fedprice.cli import options
from fedprice.cli.console import stderr
from fedprice.cli.extras import require_extras
from fedprice.cli.odd_files import named_file
from fedprice.cli.price import check_currency
from fedprice.commands.games import refuse_order
from fedprice.errors import InputError

__all__ = ["serve"]


def serve(
    clients: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CLIENTS]", help="CSV or Parquet to start with; by default an example."
        ),
    ] = None,
    rename: options.Rename = None,
    by_order: options.ByOrder = False,
    budget: Annotated[
        float | None,
        typer.Option(
            parser=options.amount, help="Budget with which the pages open; 200 by default."
        ),
    ] = None,
    currency: Annotated[
        str, typer.Option(metavar="EUR", help="The label of money on the pages.")
    ] = "",
    ledger: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The ledger whose runs are shown; it is only read."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory written by `fedprice study`.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Calibration of CLIENTS, written by `fedprice calibrate`."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to serve at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 chooses a free one.")
    ] = 8080,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="Name of a proxy in front of it; repeatable."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="FEDPRICE_TOKEN",
            help="Secret that every request must carry; generated if other machines can connect.",
        ),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="URL path under which a proxy serves it.")
    ] = "",
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Do not open a browser.")
    ] = False,
) -> None:
    """Show prices, beliefs, runs and results in a browser, on this machine."""
    require_extras("web")
    if calibration is not None and clients is None:
        raise InputError(
            "`--calibration` says how CLIENTS were measured; name them: fedprice serve CLIENTS "
            "--calibration FILE"
        )
    renaming = renaming_of(clients, rename, by_order=by_order)
    refuse_order(by_order and calibration is None)
    check_currency(currency)
    for option, file in (("", clients), ("--calibration", calibration)):
        if file is not None and not file.is_file():
            raise InputError(f"there is no file {file}.")
        if named := named_file(str(file), ["serve", option, str(file)]):
            raise InputError(named)
    from fedprice.web.app import serve as serve_pages
    from fedprice.web.served_files import Served

    served = Served(
        clients=clients, calibration=calibration, ledger=ledger, results=results,
        rename=tuple(renaming.items()), by_order=by_order, budget=budget, currency=currency,
    )  # fmt: skip
    with suppress(KeyboardInterrupt):  # the usual way to stop it
        serve_pages(
            served, host=host, port=port, names=name or [], token=token, root_path=root_path,
            browser=not no_browser,
            tell=lambda url: stderr().print(f"fedprice is at {url} (Ctrl-C ends it)", markup=False),
        )  # fmt: skip
