"""`fedprice ledger` and `fedprice verify`: look at the money, and check it."""

from __future__ import annotations

import datetime
import re
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice.cli import options
from fedprice.cli.console import Delivery, stderr, stdout
from fedprice.errors import InputError, UnverifiedError
from fedprice.tables import check_output, json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    from rich.console import RenderableType

    from fedprice.market.ledger import Ledger

__all__ = [
    "DEFAULT_URL",
    "LedgerUrl",
    "ledger",
    "micro_units_of",
    "opened_ledger",
    "report_periods",
    "verify",
]

ledger = typer.Typer(
    no_args_is_help=True, help="Look at a ledger and keep it: runs, statements, payouts, proof."
)

LEDGER_HELP = "sqlite:///FILE, postgresql+psycopg://…, or an SQLite file."
SHOWN = 20  # rounds of a statement on screen
LONG = "note"  # a column of text, which is wrapped
LONG_WIDTH = 60

LedgerUrl = Annotated[
    str, typer.Option("--ledger", metavar="URL", envvar="FEDPRICE_LEDGER", help=LEDGER_HELP)
]
DEFAULT_URL = "sqlite:///market.db"


@contextmanager
def opened_ledger(url: str) -> Iterator[Ledger]:
    """Open a ledger that is there, and close it."""
    from fedprice.market.ledger import Ledger

    found = Ledger(url, create=False)
    try:
        yield found
    finally:
        found.close()


@ledger.command("open")
def open_(
    url: Annotated[
        str, typer.Argument(metavar="URL", envvar="FEDPRICE_LEDGER", help=LEDGER_HELP)
    ] = DEFAULT_URL,
    unit: Annotated[
        str | None, typer.Option(help="What a new ledger's money is, such as EUR.")
    ] = None,
    deposit: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Bring money in from outside.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="CLIENT", help="Whose it is; by default the treasury's.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="What the deposit is; the same one into an account counts once."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The server's private key.")
    ] = None,
    format_: options.StdoutFormat = options.Format.TABLE,
) -> None:
    """Open a ledger, new or old, bring in money, and show all balances."""
    import polars as pl

    from fedprice.market.keys import read_key
    from fedprice.market.ledger import Ledger
    from fedprice.market.money import money

    if (deposit is None) != (reference is None) or (to is not None and deposit is None):
        raise InputError("--deposit and --reference belong together; --to goes with them.")
    amount = None if deposit is None else micro_units_of("--deposit", deposit)
    opened = Ledger(url, unit=unit, key=None if key is None else read_key(key))
    try:
        if amount is not None and reference is not None:
            account = "treasury" if to is None else f"client:{to}"
            new = opened.deposit(account, amount, reference)
            said = f"{deposit} {opened.unit} for {account}, {reference}"
            stderr().print(f"{'deposited' if new else 'recorded before'}: {said}", markup=False)
        kept = opened.balances()
        # Names that are numbers in the order of numbers.
        balances = {a: kept[a] for a in sorted(kept, key=lambda a: (a[:6], len(a), a))}
    finally:
        opened.close()
    rows = pl.DataFrame(
        {
            "account": list(balances),
            "balance": [money(amount) for amount in balances.values()],
        },
        schema={"account": pl.String, "balance": pl.Decimal(38, 6)},
    )
    stderr().print(f"identity {opened.identity}", markup=False, soft_wrap=True)
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
    with opened_ledger(url) as opened:
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
    """Show the clients of a run: what was agreed, what they did, and what they were paid.

    Later periods of the run x are called x#2, x#3, …
    """
    following = report_run(url, run, Delivery(output, None, format_, force))
    if following is not None:
        stderr().print(f"the next period is {following}", markup=False)


def report_periods(url: str, run: str) -> None:
    """Show the clients of a run, period by period."""
    period: str | None = run
    while period is not None:
        period = report_run(url, period)


def report_run(url: str, run: str, delivery: Delivery | None = None) -> str | None:
    """Show the clients of a run; return the name of the period that follows it, if there is one."""
    from fedprice.market.periods import next_period
    from fedprice.market.statements import clients_of, tariff_of

    format_ = options.Format.TABLE if delivery is None else delivery.format
    following = next_period(run)
    with opened_ledger(url) as opened:
        rows, found = clients_of(opened, run)
        if opened.opening(following) is None:
            following = ""
        measured = opened.metrics(run)
    state = "settled" if found.settled else "open"
    title = f"{run}: {found.done} of {found.rounds} rounds, {state}, in {opened.unit}"
    plain = rows["tariff"].null_count() == rows.height  # prices alone
    shown = [name for name in rows.columns if not (plain and name == "tariff")]
    offered = map(tariff_of, found.clients.values())
    short = rows.with_columns(rows["tariff"].replace({str(own): own.brief for own in offered}))
    _send(short, format_, title, delivery, shown, data=rows)
    if format_ is options.Format.TABLE:
        stdout().print(f"model {found.model or 'as it was'}", markup=False)
        for line in (str(own) for own in measured if own.round == measured[-1].round):
            if line:
                stdout().print(line, markup=False)
        if rows["shown"].count():
            told = "shown: the gradient norm that a client's updates prove, as root mean square"
            stdout().print(told, markup=False)
        for how, what in (
            ("below shown", "shown gradient norm above the declared one"),
            ("far above shown", "declared gradient norm far above the shown one"),
        ):
            names = ", ".join(map(repr, rows.filter(declared=how)["client"]))
            if names:
                stdout().print(f"{what} (meaningful for plain SGD only): {names}", markup=False)
    return following or None


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
    with opened_ledger(url) as opened:
        rows, runs_ = statement_of(opened, client)
    title = f"{client}, in {opened.unit}: balance {rows['balance'][-1]:,}"
    if format_ is not options.Format.TABLE:
        _send(rows, format_, title, delivery)
        return
    rare = rows.filter(~pl.col("event").is_in(["tails", "joined"]))
    _send(runs_, format_, title, delivery, data=rows)
    shown = f"without tails and joins, the last {min(rare.height, SHOWN)} of {rare.height}"
    screen = stdout()
    table = _table(rare.tail(SHOWN), f"entries {shown}; -o FILE.csv has all")
    screen.width = max(screen.width, screen.measure(table).maximum)
    screen.print(table)


Heads = Annotated[
    list[str] | None,
    typer.Option("--head", metavar="HASH", help="An entry's hash that must be there; repeat it."),
]
Unsigned = Annotated[
    bool, typer.Option("--unsigned", help="Let money pass that moved without a signature.")
]


@ledger.command("verify")
def verify_ledger(
    url: LedgerUrl = DEFAULT_URL, head: Heads = None, unsigned: Unsigned = False
) -> None:
    """Check the database, the chain, every signature, coin, weight, payment and balance."""
    from fedprice.verify import VerificationError, describe, require_signed

    heads = _heads(head)
    with opened_ledger(url) as opened:
        books = opened.verify(*heads)
    try:
        require_signed(books, unsigned)
    except VerificationError as error:
        raise UnverifiedError(f"{opened.name} does not verify: {error}") from error
    for line in describe(books):
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
    client: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Show only what concerns this client, in a .jsonl file: of all other entries it "
            "has the hashes, so that the chain can still be checked.",
        ),
    ] = None,
    date: Annotated[
        datetime.datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The date in books; by default today."),
    ] = None,
    force: options.Force = False,
) -> None:
    """Write the ledger to a file, after it was verified: all of it, or one client's part."""
    from fedprice.market.export import BOOKS, EXPORTS
    from fedprice.market.export import export as write

    check_output(output, EXPORTS, force=force)
    if date is not None and output.suffix not in BOOKS:
        raise InputError(f"--date is for books ({', '.join(BOOKS)}); got -o {output}.")
    day = (date or datetime.datetime.now()).date()
    with opened_ledger(url) as opened:
        count, hidden = write(opened, output, date=day, client=client)
    said = f", {hidden} of them as hashes only" if client is not None else ""
    stderr().print(f"wrote {output}: {count} entries{said}", markup=False)


@ledger.command()
def backup(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The copy, an SQLite file.")
    ],
    url: Annotated[
        str, typer.Argument(metavar="LEDGER", envvar="FEDPRICE_LEDGER", help=LEDGER_HELP)
    ] = DEFAULT_URL,
    force: options.Force = False,
) -> None:
    """Copy a ledger, its write-ahead log included, while it is in use; the copy is verified."""
    from fedprice.market.backup import back_up

    check_output(output, (output.suffix,), force=force)
    report = back_up(url, output)
    said = f"wrote {output}: {len(report.hashes)} entries, the last one {report.hashes[-1]}"
    stderr().print(said, markup=False)


def verify(
    exported: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="A .jsonl file of `fedprice ledger export`.")
    ],
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show one client only.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="HEX", help="That client's public key, or its file.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="HEX", help="The server's public key, or its file.")
    ] = None,
    head: Heads = None,
    receipts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What the client kept, to be found in the ledger."),
    ] = None,
    unsigned: Unsigned = False,
) -> None:
    """Check an exported ledger without trusting who wrote it: signatures, coins, pay, chain."""
    from fedprice.commands.verify import verify as compute

    if key is not None and client is None:
        raise InputError("--key is a client's; name it with --client.")
    keys = {"key": _public_key("--key", key), "server": _public_key("--server", server)}
    heads = _heads(head)
    try:
        with exported.open("rb") as file:
            lines = compute(
                file, str(exported), client=client, **keys, heads=heads, receipts=receipts,
                unsigned=unsigned,
            )  # fmt: skip
    except OSError as error:
        path = error.filename or exported
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    for line in lines:
        stdout().print(line, markup=False, soft_wrap=True)


def micro_units_of(option: str, text: str) -> int:
    """Return an amount as it was typed, exactly: plain digits, and at most six decimals.

    Examples
    --------
    >>> micro_units_of("--deposit", "12.5")
    12500000
    """
    fits = re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text)
    units = int(Decimal(text).scaleb(6)) if fits else 0
    if not units:
        raise InputError(
            f"{option} must be above 0 and below 1e12, with at most six decimals; got {text}."
        )
    return units


def _public_key(option: str, text: str | None) -> str | None:
    """Return a public key that was typed, or that is in a file."""
    if text is not None and text.endswith(".key"):
        raise InputError(f"{option} must be a public key, or its file; {text} is a private one.")
    if text is not None and Path(text).is_file():
        text = Path(text).read_text("utf-8", errors="replace").strip()
    if text is not None and not re.fullmatch("[0-9a-f]{64}", text):
        raise InputError(f"{option} must be 64 hexadecimal digits, or a file with them.")
    if text is not None:
        from fedprice.market.messages import require_public_key

        require_public_key(option, bytes.fromhex(text))
    return text


def _heads(given: list[str] | None) -> list[str]:
    for text in given or []:
        if not re.fullmatch("[0-9a-f]{64}", text):
            raise InputError(f"--head must be 64 hexadecimal digits; got {text!r}.")
    return given or []


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
            no_wrap=name != LONG,
            max_width=LONG_WIDTH if name == LONG else None,
        )
    for row in rows.iter_rows():
        table.add_row(*(Text(safe(_cell(value))) for value in row))
    return table


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
