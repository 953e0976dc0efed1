"""What a file is that a command could not read, and which command takes it."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["named_file"]

HEAD = 1 << 16  # bytes that tell what a file is


class _Kind(NamedTuple):
    """A kind of file that fedprice writes or reads.

    Attributes
    ----------
    text
        What it is and what to do with it, with its path as {}.
    takers
        The commands that take it as an argument, and the options that do.
    """

    text: str
    takers: frozenset[str]


def _kind(text: str, *takers: str) -> _Kind:
    return _Kind(text, frozenset(takers))


KINDS = {
    "clients": _kind(
        "{} is a table of clients; fedprice price {} prices it, and --clients {} trains with it.",
        "price", "compare", "post", "serve", "--clients",
    ),
    "beliefs": _kind("{} has beliefs; give it as --beliefs {}, to `fedprice post`.", "--beliefs"),
    "calibration": _kind(
        "{} is a calibration; give it as --calibration {}, beside a table of clients.",
        "--calibration",
    ),
    "export": _kind(
        "{} is an exported ledger; fedprice verify {} checks it.",
        "verify", "--export", "--offer", "--receipts",
    ),
    "ledger": _kind(
        "{} is a ledger; fedprice ledger runs --ledger {} lists its runs.",
        "verify", "ledger", "--ledger", "--export",
    ),
    "data": _kind(
        "{} has data to train on; fedprice data show {} shows them, and fedprice calibrate {} "
        "measures them.",
        "calibrate", "simulate", "study", "data",
    ),
    "result": _kind(
        "{} is a result of fedprice; give the file that it was made from. Offers are answered with "
        "fedprice respond --offer {}.",
        "--offer",
    ),
    "code": _kind(
        "{} is Python code; name a function in it, as {}:FUNCTION.",
        "calibrate", "simulate", "study",
    ),
}  # fmt: skip
RESULTS = {"summary", "schemes", "frontier", "settings", "best"}  # first names of our JSON
# Where files are read: anything else, such as -o, may name a file of any kind.
PLACES = frozenset().union(*(kind.takers for kind in KINDS.values())) | {
    "reveal", "--scheme", "--availability", "--outside",
}  # fmt: skip
PRICED = {"level", "payment", "expected_level", "expected_payment"}


def named_file(message: str, arguments: Sequence[str]) -> str | None:
    """Return what a file is that an error names, if it was given where nothing takes it.

    Parameters
    ----------
    message
        The error.
    arguments
        The command line, from the command on.
    """
    command, previous = (arguments[0] if arguments else ""), ""
    for argument in arguments[1:]:
        option, mark, value = argument.partition("=")
        if not (mark and option.startswith("--")):
            option, value = previous, argument
        previous = argument
        if value in message and (kind := KINDS.get(_kind_of(Path(value)))):
            place = option if option.startswith("-") else command
            if place in PLACES and place not in kind.takers:
                return kind.text.replace("{}", value)
    return None


def _kind_of(path: Path) -> str:
    """Return the name of a file's kind; empty for any other."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            head = file.read(HEAD)
    except (OSError, ValueError):  # a name that no file can have
        return ""
    if path.suffix == ".py":
        return "code"
    if head.startswith(b"SQLite format 3"):
        return "ledger" if _is_ledger(path) else ""
    if head.startswith(b"PAR1"):
        import polars as pl

        try:
            return _kind_of_table(set(pl.read_parquet_schema(path)))
        except pl.exceptions.PolarsError:
            return ""
    first = head.decode("utf-8-sig", "replace").lstrip()
    if first.startswith("{"):
        return _kind_of_json(first)
    return _kind_of_table(set(re.split("[,;\t]", first.partition("\n")[0].strip())))


def _kind_of_json(text: str) -> str:
    try:
        line = json.loads(text.partition("\n")[0])
        if {"content", "postings", "hash"} <= set(line):
            return "export"
    except (ValueError, RecursionError):
        pass
    if re.match(r'{\s*"format": "fedprice calibration', text):
        return "calibration"
    name = re.match(r'{\s*"(\w+)"', text)
    return "result" if name is not None and name[1] in RESULTS else ""


def _kind_of_table(columns: set[str]) -> str:
    if {"client_id", "label"} <= columns:
        return "data"
    if "client_id" in columns and PRICED & columns and "impact" not in columns:
        return "result"
    if {"cost", "value", "probability"} <= columns:
        return "beliefs"
    return "clients" if "client_id" in columns and {"cost", "samples"} & columns else ""


def _is_ledger(path: Path) -> bool:
    try:
        with closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)
        ) as database:
            found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'postings'")
            return found.fetchone() is not None
    except sqlite3.Error:
        return False
