"""`fedprice serve`: the same in a browser."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fedprice.cli.console import stderr
from fedprice.cli.extras import require_extras
from fedprice.errors import InputError

__all__ = ["serve"]


def serve(
    clients: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CLIENTS]", help="CSV or Parquet to begin with; by default an example."
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The ledger whose runs are shown; never written."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What `fedprice reproduce` wrote.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="α and norms of CLIENTS, as `fedprice calibrate` writes."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to serve at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")
    ] = 8080,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="A name of a proxy in front; repeatable."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="FEDPRICE_TOKEN",
            help="What every request must bring; made up for addresses that others can reach.",
        ),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="The path below which a proxy shows it.")
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
    for file in (clients, calibration):
        if file is not None and not file.is_file():
            raise InputError(f"there is no file {file}.")
    from fedprice.web.app import serve as serve_pages
    from fedprice.web.served import Served

    served = Served(clients=clients, calibration=calibration, ledger=ledger, results=results)
    with suppress(KeyboardInterrupt):  # the usual end
        serve_pages(
            served, host=host, port=port, names=name or [], token=token, root_path=root_path,
            browser=not no_browser,
            tell=lambda url: stderr().print(f"fedprice is at {url} (Ctrl-C ends it)", markup=False),
        )  # fmt: skip
