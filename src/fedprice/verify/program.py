"""The program: `fedprice verify`, `python -m fedprice.verify`, and `python verify.pyz`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .export import check_entries, entries_of
from .forms import HASH, UncheckedError, VerificationError, plain
from .kept import describe_kept, read_receipts, signed_messages
from .report import check_keys, describe, require_signed

if TYPE_CHECKING:
    from .books import Books

__all__ = ["add_arguments", "main", "verified"]


def is_hash(text: str) -> str:
    """Return a hash or key from the command line; reject anything else."""
    if not HASH.match(text):
        raise argparse.ArgumentTypeError(f"64 hexadecimal digits are wanted; got {text!r}")
    return text


def main(arguments: list[str] | None = None) -> int:
    """Check an export from the command line; 0 if it verifies, 4 if not, 2 if it cannot be told."""
    parser = argparse.ArgumentParser(prog="verify", description="Check an exported ledger.")
    add_arguments(parser)
    given = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        with Path(given.export).open("rb") as file:
            lines = verified(given, file)
        sys.stdout.write("".join(line + "\n" for line in lines))
        sys.stdout.flush()
    except VerificationError as error:
        sys.stderr.write(plain(f"{given.export} does not verify: {error}") + "\n")
        return 4
    except UncheckedError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        name = error.filename or given.export
        sys.stderr.write(plain(f"cannot read {name}: {error.strerror}") + "\n")
        return 2
    except MemoryError:
        sys.stderr.write(plain(f"{given.export} is too large for this machine's memory") + "\n")
        return 2
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `main` takes."""
    add = parser.add_argument
    add("export", metavar="EXPORT", help="an export of a ledger, or a client's receipts")
    add("--client", metavar="NAME", help="show one client only")
    add("--key", metavar="HEX", type=is_hash, help="that client's public key")
    add("--server", metavar="HEX", type=is_hash, help="the server's public key")
    add("--head", metavar="HASH", type=is_hash, action="append", default=[], help="must be there")
    add(
        "--receipts",
        metavar="FILE",
        help="receipts that the client kept; the ledger must contain them",
    )
    add("--unsigned", action="store_true", help="accept transfers that nobody signed")


def verified(given: Any, file: BinaryIO) -> list[str]:
    """Return the findings about an export that verifies, by what `add_arguments` takes."""
    if given.key is not None and given.client is None:
        raise UncheckedError("--key is a client's; name the client with --client.")
    if file.peek(12)[:12] == b'{"content":"':  # type: ignore[attr-defined]
        if given.client or given.key or given.server or given.head or given.receipts:
            raise UncheckedError(
                f"{given.export} is a client's receipts, not an export: leave out the other "
                "options, and compare the keys that are shown."
            )
        return [*describe_kept(signed_messages(file, str(given.export)))]
    receipts = [] if given.receipts is None else read_receipts(given.receipts)
    books = check_entries(entries_of(file), heads=given.head, receipts=receipts, partial=True)
    if books.only and given.client not in {None, books.only}:
        raise UncheckedError(f"{given.export} shows only what concerns client {books.only!r}.")
    names = {name for run in books.runs.values() for name in (*run.clients, *run.dropped)}
    names |= {name for made in books.offered.values() for name in made.offers}
    names |= {account[7:] for account in books.balances if account.startswith("client:")}
    if given.client not in {None, *names}:
        raise UncheckedError(f"{given.export} has no client {given.client!r}.")
    check_keys(books, given.client, given.key, given.server)
    require_signed(books, given.unsigned)
    told = [] if given.receipts is None else [_found(books, receipts, given)]
    return [*describe(books, given.client or books.only or None), *told]


def _found(books: Books, kept: list[dict[str, Any]], given: Any) -> str:
    """Return how many of a client's messages were found; refuse a file that shows nothing."""
    own = books.keys.get(f"client:{given.client}", [])
    about = [m for m in kept if m["signed by"] in own or m.get("client") == given.client]
    if not kept or (given.client is not None and not about):
        whose = "" if given.client is None else f" of client {given.client!r}"
        raise UncheckedError(f"{given.receipts} holds no message{whose} to be found in a ledger.")
    kinds = ("Commitment", "Roster", "Opening", "Ending", "Call", "Receipt", "Head")
    counts = (f"{sum(m['kind'] == kind for m in kept)} {kind.lower()}s" for kind in kinds)
    return f"found as kept: {', '.join(counts)}"
