"""`fedprice statement`: what a client was asked for, delivered and was paid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice._plumbing.tables import json_text
from fedprice.cli import options
from fedprice.cli.console import Delivery
from fedprice.cli.extras import require_extras
from fedprice.cli.ledger import DEFAULT_URL, LedgerUrl, Unsigned, opened_ledger
from fedprice.cli.market_tables import as_wide_as_terminal, luck_line, market_table
from fedprice.errors import InputError

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

    from fedprice.verify import Books

__all__ = ["statement"]

DEFAULT_FILE = DEFAULT_URL.removeprefix("sqlite:///")
SHOWN = 20  # entries on screen
MOST_ROUNDS = 100  # named on screen, of those that were missed or refused for one reason
SPARE = ("rounds", "lost")  # columns that a narrow terminal leaves out, the first one first
TOLD = ("tails", "joined", "missed", "refused")  # events that the table of runs counts


def statement(
    context: typer.Context,
    client: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Whose statement it is; an export for one client says it itself.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of a ledger: what `fedprice ledger export` wrote, whole or for this "
            "client. It is verified first.",
        ),
    ] = None,
    receipts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of a ledger: what the client kept. Shows what it proves by itself; -o "
            "writes it for somebody else to check with `fedprice verify`.",
        ),
    ] = None,
    url: LedgerUrl = DEFAULT_URL,
    unsigned: Unsigned = False,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Show a client's statement: offered, chosen, drawn, delivered, paid, and why not."""
    if receipts is not None:
        odd = [name for name in ("client", "export", "url", "unsigned", "format_")
               if options.given(context, name)]  # fmt: skip
        if odd:
            raise InputError("--receipts goes with -o and --force only: it is one client's file.")
        _bundle(receipts, output, force)
        return
    if export is not None and options.given(context, "url"):
        raise InputError("--export cannot be combined with --ledger.")
    if export is None and unsigned:
        raise InputError("--unsigned applies only to an export: give --export FILE, too.")
    require_extras("market")
    delivery = Delivery(output, None, format_, force)
    if export is None and _nobody_named(context) and not Path(DEFAULT_FILE).exists():
        raise InputError(
            f"there is no ledger {DEFAULT_FILE} here. As a client, read what the server exported "
            "for you: --export FILE. As the server, name the ledger: --ledger URL."
        )
    if client is None and export is not None:
        from fedprice.market.exported import shown_client

        client = shown_client(export)
    if client is None:
        raise InputError("say whose statement it is: --client NAME.")
    if export is None:
        from fedprice.market.statements import statement_of

        with opened_ledger(url) as opened:
            rows, runs = statement_of(opened, client)
        unit, hidden = opened.unit, 0
    else:
        rows, runs, books = _in_export(export, client, unsigned)
        unit, hidden = books.unit, books.hidden
    title = f"{client}, in {unit}: balance {rows['balance'][-1]:,}"
    delivery.send(
        rows,
        to_json=lambda: json_text(rows=rows),
        to_screen=lambda: _screen(rows, runs, title, hidden),
    )


def _bundle(path: Path, output: Path | None, force: bool) -> None:
    """Show what a client's messages prove, and write them down for others."""
    from fedprice._plumbing.tables import check_output, whole_file
    from fedprice.cli.console import stdout
    from fedprice.market.verifying import verifying
    from fedprice.verify import describe_kept, signed_messages

    if output is not None:
        check_output(output, (".jsonl",), force=force)
    try:
        with path.open("rb") as file, verifying(str(path)):
            messages = list(signed_messages(file, str(path)))
            lines = list(describe_kept(messages))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    if output is not None:
        with whole_file(output) as part:
            part.write_text("".join(own["line"] + "\n" for own in messages), "utf-8", newline="")
    for line in lines:
        stdout().print(line, markup=False, soft_wrap=True)


def _nobody_named(context: typer.Context) -> bool:
    """Tell whether neither the command line nor the environment names a ledger."""
    source = context.get_parameter_source("url")
    return source is not None and source.name == "DEFAULT"


def _in_export(path: Path, client: str, unsigned: bool) -> tuple[pl.DataFrame, pl.DataFrame, Books]:
    from fedprice.market.exported import statement_in

    try:
        with path.open("rb") as file:
            if file.peek(15)[:15] == b"SQLite format 3":
                raise InputError(
                    f"{path} is a database, not an export; try: fedprice statement --client NAME "
                    f"--ledger {path}"
                )
            return statement_in(file, str(path), client, unsigned=unsigned)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error


def _screen(rows: pl.DataFrame, runs: pl.DataFrame, title: str, hidden: int) -> RenderableType:
    import polars as pl
    from rich.console import Group
    from rich.text import Text

    from fedprice.market.statements import undelivered_in
    from fedprice.pricing.display import safe

    lines = []
    for run in runs["run"]:
        whose = f"{run}: " if runs.height > 1 else ""
        lines += [f"{whose}{own.sentence(MOST_ROUNDS)}" for own in undelivered_in(rows, run)]
    if hidden:
        lines.append(
            f"The export is partial, and hides {hidden:,} {'entry' if hidden == 1 else 'entries'}; "
            "`fedprice verify` says what that cannot show."
        )
    parts: list[RenderableType] = []
    if runs.height:
        parts.append(market_table(runs, title, SPARE, more="widen the terminal"))
        if luck := luck_line(runs):
            lines.insert(0, luck)
    parts += [Text(as_wide_as_terminal(safe(line))) for line in lines]
    other = rows.filter(~pl.col("event").is_in(TOLD))
    if other.height:
        last = f", the last {SHOWN} of {other.height}" if other.height > SHOWN else ""
        heading = f"other entries{last}; -o FILE.csv has every round"
        shown = other.tail(SHOWN).drop("round", *(["run"] if runs.height == 1 else []))
        parts.append(market_table(shown, heading if runs.height else f"{title}; {heading}"))
    return Group(*parts)
