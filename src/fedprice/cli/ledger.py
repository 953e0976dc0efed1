"""`fedprice ledger` and `fedprice verify`: inspect a ledger, and verify it."""

from __future__ import annotations

import datetime
import re
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice._plumbing.table_limits import limited_content
from fedprice._plumbing.tables import check_output, json_text
from fedprice.cli import options
from fedprice.cli.console import Delivery, stderr, stdout
from fedprice.cli.market_tables import as_wide_as_terminal, luck_line, market_table
from fedprice.errors import InputError, UnverifiedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from fedprice.market.ledger import Ledger

__all__ = [
    "DEFAULT_URL",
    "LedgerUrl",
    "Unsigned",
    "ledger",
    "micro_units_of",
    "opened_ledger",
    "report_periods",
    "verify",
]

ledger = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    help="Inspect and maintain a ledger: runs, payouts, verification, exports.",
)

CUT_SHORT = (
    "An export that was cut short at its end verifies, too. To see that nothing is missing, give "
    "--head HASH, the newest head that you know from the server, or --receipts FILE, what your "
    "client kept."
)
LEDGER_HELP = "sqlite:///FILE, postgresql+psycopg://…, or an SQLite file."
# Columns that a narrow terminal leaves out, the first one first.
SPARE_OF_RUNS = ("follows", "refused", "missed", "joined", "done", "clients", "rounds")
SPARE_OF_CLIENTS = ("declared", "grad_norm", "shown", "update_norm", "price", "level")

LedgerUrl = Annotated[
    str, typer.Option("--ledger", metavar="URL", envvar="FEDPRICE_LEDGER", help=LEDGER_HELP)
]
DEFAULT_URL = "sqlite:///market.db"


@contextmanager
def opened_ledger(url: str) -> Iterator[Ledger]:
    """Open an existing ledger, and close it."""
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
    unit: Annotated[str | None, typer.Option(help="Currency of a new ledger, such as EUR.")] = None,
    deposit: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Deposit this amount.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="CLIENT", help="Client to credit; by default the treasury."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Reference of the deposit, which counts once per account."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The server's private key.")
    ] = None,
    format_: options.StdoutFormat = options.Format.TABLE,
) -> None:
    """Create or open a ledger, deposit money, and show all balances."""
    import polars as pl

    from fedprice.market.keys import read_key
    from fedprice.market.ledger import Ledger
    from fedprice.market.money import money

    if (deposit is None) != (reference is None) or (to is not None and deposit is None):
        raise InputError("--deposit and --reference require each other, and --to requires both.")
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
    shown = rows.drop("model", "escrow", *(["follows"] if not rows["follows"].count() else []))
    _send(shown, format_, f"runs, in {opened.unit}", delivery, SPARE_OF_RUNS, data=rows)


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
    from fedprice.market.statements import clients_of, tariff_of
    from fedprice.verify import next_period

    format_ = options.Format.TABLE if delivery is None else delivery.format
    following = next_period(run)
    with opened_ledger(url) as opened:
        rows, found = clients_of(opened, run)
        if opened.opening(following) is None:
            following = ""
        measured = opened.metrics(run)
    state = "settled" if found.settled else "open"
    title = f"{run}: {found.done} of {found.rounds} rounds, {state}, in {opened.unit}"
    offered = map(tariff_of, found.clients.values())
    short = rows.with_columns(rows["tariff"].replace({str(own): own.brief for own in offered}))
    empty = [name for name in (*SPARE_OF_CLIENTS, "tariff") if not rows[name].count()]
    by = "-o FILE.csv" if delivery is not None else "fedprice ledger show -o FILE.csv"
    _send(
        short.drop(empty),
        format_,
        title,
        delivery,
        SPARE_OF_CLIENTS,
        data=rows,
        more=f"{by} has all",
    )
    if format_ is options.Format.TABLE:
        _say(f"model {found.model or 'as it was'}")
        if found.settled and (luck := luck_line(rows)):
            _say(luck)
        for line in (str(own) for own in measured if own.round == measured[-1].round):
            if line:
                _say(line)
        if rows["shown"].count():
            _say("shown: the gradient norm that a client's updates prove, as root mean square")
        for how, what in (
            ("below shown", "shown gradient norm above the declared one"),
            ("far above shown", "declared gradient norm far above the shown one"),
        ):
            names = ", ".join(map(repr, rows.filter(declared=how)["client"]))
            if names:
                _say(f"{what} (meaningful for plain SGD only): {names}")
    return following or None


def _say(line: str) -> None:
    stdout().print(as_wide_as_terminal(line), markup=False)


Heads = Annotated[
    list[str] | None,
    typer.Option("--head", metavar="HASH", help="Expected hash of an entry; repeatable."),
]
Unsigned = Annotated[bool, typer.Option("--unsigned", help="Accept transfers that nobody signed.")]


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
            "postings; .beancount is for that accounting program.",
        ),
    ],
    url: LedgerUrl = DEFAULT_URL,
    client: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Export only what concerns this client, to a .jsonl file; of other entries it "
            "has the hashes, so that the chain can be checked.",
        ),
    ] = None,
    date: Annotated[
        datetime.datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Date in accounting files; by default today."),
    ] = None,
    force: options.Force = False,
) -> None:
    """Write the ledger to a file, after it was verified: all of it, or one client's part."""
    from fedprice.market.export import BOOKS, EXPORTS
    from fedprice.market.export import export as write

    check_output(output, EXPORTS, force=force)
    if date is not None and output.suffix != BOOKS:
        raise InputError(f"--date applies only to {BOOKS} files; got -o {output}.")
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
        typer.Option(
            metavar="FILE", help="Receipts that the client kept; the ledger must contain them."
        ),
    ] = None,
    unsigned: Unsigned = False,
) -> None:
    """Check an exported ledger without trusting who wrote it: signatures, coins, pay, chain."""
    from fedprice.commands.verify import verify as compute

    if key is not None and client is None:
        raise InputError("--key is a client's; name the client with --client.")
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
    is_bundle = not any(line.startswith("verified") for line in lines)
    if not heads and receipts is None and not is_bundle:
        stdout().print(CUT_SHORT, markup=False, soft_wrap=True)


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
        text = limited_content(Path(text)).decode(errors="replace").strip()
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
    spare: Sequence[str] = (),
    *,
    data: pl.DataFrame | None = None,
    more: str = "-o FILE.csv has all",
) -> None:
    """Send rows where they are wanted; on screen under a title, without spare columns if need be.

    `data` is what files have, if that is more than the screen has, and `more` says where columns
    are that were left out.
    """
    whole = rows if data is None else data
    (delivery or Delivery(format=format_)).send(
        whole,
        to_json=lambda: json_text(rows=whole),
        to_screen=lambda: market_table(rows, title, spare, more=more),
    )
