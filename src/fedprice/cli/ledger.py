"""`fedprice ledger` and `fedprice verify`: look at the money, and check it."""

from __future__ import annotations

import datetime
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice.cli import options
from fedprice.cli.console import Delivery, UnverifiedError, json_text, stderr, stdout
from fedprice.errors import InputError
from fedprice.tables import check_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    from rich.console import RenderableType

    from fedprice.market.ledger import Ledger

__all__ = ["LedgerUrl", "ledger", "verify"]

ledger = typer.Typer(no_args_is_help=True, help="Look at a ledger: runs, statements, proof.")

LEDGER_HELP = "sqlite:///FILE, postgresql+psycopg://…, or an SQLite file."
SHOWN = 20  # rounds of a statement on screen
NOTE_WIDTH = 60
EVENTS = ("joined", "tails", "missed", "refused")  # of a round

LedgerUrl = Annotated[
    str, typer.Option("--ledger", metavar="URL", envvar="FEDPRICE_LEDGER", help=LEDGER_HELP)
]
DEFAULT_URL = "sqlite:///market.db"


@contextmanager
def _opened(url: str) -> Iterator[Ledger]:
    from fedprice.market.ledger import Ledger

    found = Ledger(url, create=False)
    try:
        yield found
    finally:
        found.close()


@ledger.command("open")
def open_(
    url: Annotated[str, typer.Argument(metavar="URL", help=LEDGER_HELP)] = DEFAULT_URL,
    unit: Annotated[
        str | None, typer.Option(help="What a new ledger's money is, such as EUR.")
    ] = None,
    deposit: Annotated[
        float | None, typer.Option(metavar="AMOUNT", help="Bring money in from outside.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="CLIENT", help="Whose it is; by default the treasury's.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="What the deposit is; the same one twice counts once.")
    ] = None,
    format_: options.StdoutFormat = options.Format.TABLE,
) -> None:
    """Open a ledger, new or old, bring in money, and show all balances."""
    import polars as pl

    from fedprice.market.ledger import Ledger
    from fedprice.market.money import micro_units
    from fedprice.market.statements import money

    if deposit is not None and not 0 < deposit < 1e12:
        raise InputError(f"--deposit must be above 0 and below 1e12; got {deposit}.")
    if (deposit is None) != (reference is None) or (to is not None and deposit is None):
        raise InputError("--deposit and --reference belong together; --to goes with them.")
    opened = Ledger(url, unit=unit)
    try:
        if deposit is not None and reference is not None:
            account = "treasury" if to is None else f"client:{to}"
            opened.deposit(account, micro_units(deposit), reference)
        balances = opened.balances()
    finally:
        opened.close()
    rows = pl.DataFrame(
        {
            "account": list(balances),
            "balance": [money(amount) for amount in balances.values()],
        },
        schema={"account": pl.String, "balance": pl.Decimal(38, 6)},
    )
    _send(rows, format_, f"{opened.name}, in {opened.unit}")


@ledger.command()
def runs(
    url: LedgerUrl = DEFAULT_URL,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """List the runs, with what they cost and brought in."""
    from fedprice.market.statements import runs_of

    delivery = Delivery(output, None, format_, force)
    with _opened(url) as opened:
        rows = runs_of(opened)
    shown = [name for name in rows.columns if name not in ("model", "escrow")]
    _send(rows, format_, f"runs, in {opened.unit}", delivery, shown)


@ledger.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")],
    url: LedgerUrl = DEFAULT_URL,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Show the clients of a run: what was agreed, what they did, and what they were paid."""
    from fedprice.market.statements import clients_of

    delivery = Delivery(output, None, format_, force)
    with _opened(url) as opened:
        rows = clients_of(opened, run)
        found = opened.verify().runs[run]
    state = "settled" if found.settled else "open"
    title = f"run {run}, {found.done} of {found.rounds} rounds, {state}, in {opened.unit}"
    _send(rows, format_, title, delivery)
    if format_ is options.Format.TABLE:
        stdout().print(f"model {found.model}", markup=False)
        more = rows.filter(rows["shown"] > rows["grad_norm"])["client"].to_list()
        if more:
            names = ", ".join(map(repr, more))
            stdout().print(f"declared less gradient norm than shown: {names}", markup=False)


@ledger.command()
def statement(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The client's name.")],
    url: LedgerUrl = DEFAULT_URL,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Show a client's statement: offered, chosen, drawn, delivered, paid, and why not."""
    import polars as pl

    from fedprice.market.statements import statement_of

    delivery = Delivery(output, None, format_, force)
    with _opened(url) as opened:
        rows = statement_of(opened, client)
    counts = {event: int((rows["event"] == event).sum()) for event in rows["event"].unique()}
    rare = rows.filter(~pl.col("event").is_in(["tails", "joined"]))
    title = f"{client}, in {opened.unit}: balance {rows['balance'][-1]:,}"
    if format_ is options.Format.TABLE:
        _send(rare.head(SHOWN), format_, title, delivery, data=rows)
        if rare.height > SHOWN:
            stdout().print(f"… and {rare.height - SHOWN} more; -o FILE.csv has all", markup=False)
        told = ", ".join(f"{counts[e]} {e}" for e in EVENTS if e in counts)
        stdout().print(f"rounds: {told or 'none yet'}", markup=False)
    else:
        _send(rows, format_, title, delivery)


@ledger.command("verify")
def verify_ledger(
    url: LedgerUrl = DEFAULT_URL,
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="An entry's hash that must be there.")
    ] = None,
) -> None:
    """Check the database, the chain, every coin, weight, payment and balance."""
    from fedprice.market.database import LedgerError
    from fedprice.verify import describe

    with _opened(url) as opened:
        try:
            report = opened.verify(head)
        except LedgerError as error:
            raise UnverifiedError(str(error)) from error
    for line in describe(report):
        stdout().print(line, markup=False, soft_wrap=True)


@ledger.command()
def export(
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="A .jsonl file has everything, for `fedprice verify`; .csv and .parquet have the "
            "postings; .beancount and .hledger are books.",
        ),
    ],
    url: LedgerUrl = DEFAULT_URL,
    date: Annotated[
        datetime.datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The date in books; by default today."),
    ] = None,
    force: options.Force = False,
) -> None:
    """Write the ledger to a file, after it was verified."""
    from fedprice.market.export import EXPORTS
    from fedprice.market.export import export as write

    check_output(output, EXPORTS, force=force)
    with _opened(url) as opened:
        count = write(opened, output, date=(date or datetime.datetime.now()).date())
    stderr().print(f"wrote {output}: {count} entries", markup=False)


def verify(
    exported: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="A .jsonl file of `fedprice ledger export`.")
    ],
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show one client only.")
    ] = None,
) -> None:
    """Check an exported ledger without trusting who wrote it: coins, weights, payments, chain."""
    from fedprice.errors import nearest
    from fedprice.verify import VerificationError, check_export, describe

    try:
        report = check_export(exported)
    except VerificationError as error:
        raise UnverifiedError(f"{exported} does not verify: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {exported}: {error.strerror}.") from error
    known = {name for run in report.runs.values() for name in run.clients}
    if client is not None and client not in known:
        raise InputError(f"{exported} has no client {client!r}. {nearest(client, sorted(known))}")
    for line in describe(report, client):
        stdout().print(line, markup=False, soft_wrap=True)


def _send(
    rows: pl.DataFrame,
    format_: options.Format,
    title: str,
    delivery: Delivery | None = None,
    columns: list[str] | None = None,
    *,
    data: pl.DataFrame | None = None,
) -> None:
    """Send rows where they are wanted; on screen under a title, and only some columns."""
    whole = rows if data is None else data
    (delivery or Delivery(format=format_)).send(
        whole,
        to_json=lambda: json_text(rows=whole),
        to_screen=lambda: _table(rows.select(columns or rows.columns), title),
    )


def _table(rows: pl.DataFrame, title: str) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from fedprice.pricing.display import safe

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), title=Text(safe(title)))
    for name, kind in rows.schema.items():
        table.add_column(
            name.replace("_", "\n"),
            justify="right" if kind.is_numeric() else "left",
            no_wrap=name != "note",
            max_width=NOTE_WIDTH if name == "note" else None,
        )
    for row in rows.iter_rows():
        table.add_row(*(Text(safe(_cell(value))) for value in row))
    return table


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
