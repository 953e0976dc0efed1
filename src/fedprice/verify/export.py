"""Entries of an exported ledger: each follows from the one before, by the rules and its hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .books import FORMAT, Books
from .forms import (
    GENESIS,
    LARGEST,
    LONGEST_NAME,
    UncheckedError,
    VerificationError,
    canonical,
    chained_hash,
    check_signed,
    entry_digest,
    fail,
    plain,
    require_digest,
    require_name,
    whole,
)
from .kept import check_kept
from .lines import lines_of
from .messages import head_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .books import Posting

__all__ = [
    "check_entries",
    "check_entry",
    "check_export",
    "check_hidden",
    "check_next",
    "entries_of",
    "entry_title",
]

SHOWN = {"number", "content", "postings", "hash", "signature"}  # the fields of an entry
HIDDEN = {"number", "client", "hash", "signature"}  # of one that a partial export does not show


def check_export(path: str | Path, **checks: Any) -> Books:
    """Check an exported ledger; raises `VerificationError`, or OSError if it cannot be read.

    Parameters
    ----------
    checks
        As for `check_entries`.
    """
    with Path(path).open("rb") as file:
        return check_entries(entries_of(file), **checks)


def entries_of(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the entries of an export, line by line; reject anything else."""
    for number, line in lines_of(file):
        if not line:
            continue
        try:
            entry = json.loads(line)
            sound = isinstance(entry, dict) and canonical(entry).encode() == line
        except (ValueError, RecursionError):
            sound = False
        if not sound and b"}\r{" in line:
            raise UncheckedError("the lines of the file end with carriage returns, not line feeds.")
        if not sound or set(entry) not in (SHOWN, HIDDEN):
            old = sound and number == 1 and "signature" not in entry
            why = f" It looks like a format before {FORMAT}." if old else ""
            raise VerificationError(f"line {number} is not an entry of an exported ledger.{why}")
        yield entry


def check_entries(
    entries: Iterable[dict[str, Any]],
    *,
    heads: Iterable[str] = (),
    receipts: Iterable[dict[str, Any]] = (),
    valid: Callable[[str, str, str], bool] = check_signed,
    partial: bool = False,
) -> Books:
    """Check the entries of a ledger, the first one first; return what they add up to.

    Parameters
    ----------
    heads
        Hashes of entries that must be there: what somebody kept as proof.
    receipts
        Messages that a client kept, from `read_receipts`.
    valid
        How signatures are checked; a caller that checks many ledgers may remember them.
    partial
        Whether entries may be hidden; `Books.only` then says which client's are shown.
    """
    books = Books(valid=valid)
    kept = list(receipts)
    books.wanted = {(m["run"], m["round"], m["client"]) for m in kept if m["kind"] == "Receipt"}
    calls: dict[int, list[str]] = {}
    for message in kept:
        if message["kind"] == "Call":
            calls.setdefault(message["number"], []).append(message["run"])
    for entry in entries:
        if entry.keys() == HIDDEN and not partial:
            raise UncheckedError("it is a partial export, and a whole one is needed.")
        check_next(books, entry)
        number = len(books.hashes)
        for name in calls.get(number, ()):
            run = books.runs.get(name)
            books.called[number, name] = -1 if run is None or run.settled else run.done
    if not books.hashes:
        raise VerificationError("there is no entry.")
    for head in heads:
        if head not in books.hashes:
            raise VerificationError(
                f"no entry has the hash {head}; the ledger was truncated or rewritten."
            )
    check_kept(books, kept)
    return books


def check_next(books: Books, entry: dict[str, Any]) -> None:
    """Check the next entry of a ledger, and enter it; an error says which one it is."""
    number = len(books.hashes) + 1
    where = f"entry {number}"
    try:
        if entry.keys() == HIDDEN:
            where = f"{where} (hidden)"
            check_hidden(books, entry, number)
        else:
            where = f"{where} ({entry_title(entry['content']):.{LONGEST_NAME}})"
            check_entry(books, entry, number)
    except VerificationError as error:
        raise VerificationError(f"{where}: {plain(str(error))}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise VerificationError(f"{where} does not have the form of an entry.") from None
    except RecursionError:
        raise VerificationError(f"{where} does not have the form of an entry.") from None


def check_entry(books: Books, entry: dict[str, Any], number: int) -> None:
    """Check one entry, and enter it."""
    content, lines = entry["content"], [_posting(line) for line in entry["postings"]]
    if whole(entry["number"]) != number:
        fail("number", number, entry["number"])
    previous = books.hashes[-1] if books.hashes else GENESIS
    text_digest = entry_digest(canonical(content), canonical(entry["postings"]))
    chained = chained_hash(previous, number, text_digest)
    if entry["hash"] != chained:
        fail("hash", chained, entry["hash"])
    expected, enter = books.expect(content)
    if lines != expected:
        odd = next(
            (pair for pair in zip(expected, lines, strict=False) if pair[0] != pair[1]),
            (f"{len(expected)} postings", f"{len(lines)}"),
        )
        fail("posting", *odd)
    enter()
    _check_head(books, entry["signature"], chained)


def check_hidden(books: Books, entry: dict[str, Any], number: int) -> None:
    """Check an entry of which there is only the hash: the next one that is shown is chained to it.

    Nobody can tell whom it concerns. Hidden entries of the client itself are found where others
    that are shown depend on them, or by what the client kept.
    """
    client = require_name("client", entry["client"])
    if not books.hashes:
        raise VerificationError("the first entry must be shown.")
    if whole(entry["number"]) != number:
        fail("number", number, entry["number"])
    if books.only not in ("", client):
        fail("client", books.only, client)
    books.only, books.hidden = client, books.hidden + 1
    _check_head(books, entry["signature"], require_digest("hash", entry["hash"]))


def _check_head(books: Books, signature: Any, hash_: str) -> None:
    """Apply the hash of the next entry, which the server signs if it has a key."""
    books.hashes.append(hash_)
    if books.server:
        text = head_text(books.ledger, len(books.hashes), hash_)
        books.check(books.server, signature, text, "the server")
    elif signature != "":
        raise VerificationError("it is signed, though the ledger has no server key.")


def entry_title(content: dict[str, Any]) -> str:
    """Return what an entry is about, for people: rounds count from 1, in the entry from 0.

    >>> entry_title({"kind": "round", "of": ["first", 0]})
    "round 1 of run 'first'"
    >>> entry_title({"kind": "open", "of": ["first"]})
    'open first'
    """
    kind, of = content["kind"], content["of"]
    if kind == "round":
        name, number = of
        return f"round {whole(number) + 1} of run {name!r:.{LONGEST_NAME}}"
    return plain(" ".join(f"{part!s:.{LONGEST_NAME}}" for part in [kind, *of[:3]]))


def _posting(line: list[Any]) -> Posting:
    account, amount = line
    if type(account) is not str or type(amount) is not int or not -LARGEST <= amount <= LARGEST:
        raise ValueError(line)
    return account, amount
