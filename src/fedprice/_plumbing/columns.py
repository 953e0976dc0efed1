"""Columns under other names: `rename`, and what to rename where names look familiar."""

from __future__ import annotations

import csv
import difflib
import re
import shlex
from typing import TYPE_CHECKING

from fedprice.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

__all__ = [
    "ColumnsError",
    "check_columns",
    "parse_rename",
    "refuse_totals",
    "rename_text",
    "renamed",
    "renaming_of",
    "suggested",
]

LONGEST = 200  # characters of a column's name
MOST_SHOWN = 50  # names of columns in a message
LONGEST_LIST = 400  # characters of a list of names in a message
# Words in the names of columns that people use for ours.
_FAMILIAR = {
    "client_id": "bank center centre client clinic hospital id institution name node organisation "
    "organization participant partner party practice site ward",
    "samples": "case count data example image n patient people person record row sample size",
    "weight": "share",
    "cost": "charge cost expense fee",
    "value": "benefit valuation value worth",
    "grad_norm": "gradient norm",
    "update_norm": "update",
    "level_min": "floor minimum",
    "level_max": "cap maximum",
    "class": "category group kind",
}
_TOTALS = (
    "gesamt",
    "insgesamt",
    "somme",
    "sum",
    "suma",
    "summe",
    "totaal",
    "total",
    "totale",
    "totals",
)


class ColumnsError(InputError):
    """A table has columns of other names than are needed; `rename` says which may be which."""

    def __init__(self, text: str, rename: Mapping[str, str]) -> None:
        pairs = [f"{old!r} to {new!r}" for old, new in rename.items()]
        super().__init__(f"{text} Rename {', '.join(pairs)}.")
        self.text, self.rename = text, dict(rename)

    def on_command_line(self) -> str:
        """Return the message with the option that renames the columns, ready to be pasted."""
        return f"{self.text} Try --rename {shlex.quote(rename_text(self.rename))}"


def _quoted(pair: str) -> str:
    """Return a pair as one field of CSV."""
    return '"' + pair.replace('"', '""') + '"' if re.search('[,"\\r\\n]', pair) else pair


def rename_text(rename: Mapping[str, str]) -> str:
    """Return the value of `--rename` that `parse_rename` reads."""
    return ",".join(_quoted(f"{old}={new}") for old, new in rename.items())


def parse_rename(text: str | None) -> dict[str, str]:
    """Return what OLD=NEW,OLD=NEW says; a pair with a comma in a name stands in double quotes.

    None, for an option that was not given, renames nothing.

    Examples
    --------
    >>> parse_rename("hospital=client_id,patients=samples")
    {'hospital': 'client_id', 'patients': 'samples'}
    >>> parse_rename('"cost, EUR=cost",n=samples')
    {'cost, EUR': 'cost', 'n': 'samples'}
    """
    found: dict[str, str] = {}
    if text is None:
        return found
    try:
        pairs = next(csv.reader([text]), None) or [""]
    except csv.Error:  # a line break outside quotes
        pairs = [""]
    for pair in pairs:
        old, mark, new = pair.rpartition("=")
        if not (old and mark and new):
            raise InputError(
                "--rename must be OLD=NEW,OLD=NEW, such as hospital=client_id,patients=samples; "
                f"got {text!r}."
            )
        if old in found:
            raise InputError(f"--rename has {old!r} twice; give each column once.")
        found[old] = new
    return found


def renaming_of(table: object, text: str | None, *, by_order: bool = False) -> dict[str, str]:
    """Return what `--rename` says about a table that may not be given, as `--by-order` must not.

    Examples
    --------
    >>> renaming_of(None, "hospital=client_id")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: --rename applies to the columns of CLIENTS, and there is no...
    """
    if table is None and text is not None:
        raise InputError(
            "--rename applies to the columns of CLIENTS, and there is no table of clients; "
            "name it, or leave out --rename."
        )
    if table is None and by_order:
        raise InputError(
            "--by-order is for the rows of CLIENTS, and there is no table of clients; name it, or "
            "leave out --by-order."
        )
    return parse_rename(text)


def renamed(
    frame: pl.DataFrame, rename: Mapping[str, str] | None, known: Sequence[str]
) -> pl.DataFrame:
    """Return a table with some columns under other names, which must be known ones."""
    if not rename:
        return frame
    for old, new in rename.items():
        if old not in frame.columns:
            raise InputError(
                f"there is no column {old!r} to rename to {new!r}. {nearest(old, frame.columns)}"
            )
        if new not in known:
            raise InputError(f"cannot rename {old!r} to {new!r}. {nearest(new, known)}")
    names = [rename.get(name, name) for name in frame.columns]
    for new in rename.values():
        if names.count(new) > 1:
            both = [old for old, name in zip(frame.columns, names, strict=True) if name == new]
            raise InputError(f"the columns {both[0]!r} and {both[1]!r} cannot both be {new!r}.")
    return frame.rename(dict(rename))


def check_columns(given: Sequence[str], known: Sequence[str], missing: Sequence[str]) -> None:
    """Refuse a table with columns that are not known, or without some that are needed.

    Parameters
    ----------
    given
        The names of the table's columns.
    known
        All names that a table may have.
    missing
        The names of those that it needs and does not have.

    Examples
    --------
    >>> check_columns(["hospital", "cost"], ["client_id", "cost"], ["client_id"])
    Traceback (most recent call last):
    ...
    fedprice._plumbing.columns.ColumnsError: there is no column 'client_id'; the columns are
    hospital, cost.
    Rename 'hospital' to 'client_id'.
    """
    for name in given:
        if len(name) > LONGEST:  # searching it for a likeness would take long
            raise InputError(
                f"the first line must be the names of columns; got one of {len(name):,} "
                f"characters, which begins with {name[:20]!r}."
            )
        if "_duplicated_" in name:  # what polars makes of a name that it has seen
            raise InputError(f"there are two columns {name.partition('_duplicated_')[0]!r}.")
    unknown = [name for name in given if name not in known]
    rename = suggested(unknown, missing, [name for name in known if name not in given])
    odd = [name for name in unknown if name not in rename]
    if odd and "client_id" in missing and "client_id" not in rename.values():
        rename = {odd[0]: "client_id", **rename}  # in another language, who it is stands first
        odd = []  # any of which may be needed
    *first, last = map(repr, missing or [""])
    names = f"{', '.join(first)} or {last}" if first else last
    more = f", … ({len(given) - MOST_SHOWN} more)" if len(given) > MOST_SHOWN else ""
    shown = ", ".join(given[:MOST_SHOWN])
    shown = shown if len(shown) <= LONGEST_LIST else f"{shown[:LONGEST_LIST]}…"
    lacks = f"there is no column {names}; the columns are {shown}{more}."
    if rename:
        text = lacks if missing else f"unknown column {next(iter(rename))!r:.100}."
        leave = f" Leave out {', '.join(map(repr, odd[:MOST_SHOWN]))}." if odd else ""
        raise ColumnsError(text + leave, rename)
    if unknown:
        raise InputError(f"unknown column {unknown[0]!r:.100}. {nearest(unknown[0], known)}")
    if missing:
        raise InputError(lacks)


def refuse_totals(frame: pl.DataFrame) -> None:
    """Refuse a table whose last row has the sums of the others: it would be priced as a client.

    It is known by its name, or by its samples and costs if there are at least three others.

    Examples
    --------
    >>> import polars as pl
    >>> refuse_totals(pl.DataFrame({"client_id": ["a", "b", "Total"], "samples": [1, 2, 3]}))
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: row 3 ('Total') looks like the sum of the other rows; delete it. ...
    """
    if "client_id" not in frame.columns or frame.height < 2:
        return
    name = str(frame["client_id"][-1] or "")
    words = re.findall(r"\w+", name.casefold())
    if (words and words[-1] in _TOTALS and len(words) <= 2) or _adds_up(frame):
        raise InputError(
            f"row {frame.height} ({name!r:.60}) looks like the sum of the other rows; delete it. "
            "If it is a client, move it up, so that it is not the last row."
        )


def _adds_up(frame: pl.DataFrame) -> bool:
    """Return whether the samples and costs of the last row are the sums of those above."""
    import polars as pl

    if frame.height < 4 or not {"samples", "cost"} <= set(frame.columns):
        return False
    numbers = frame.select(pl.col("samples", "cost").cast(pl.Float64, strict=False))
    *_, sums = numbers.head(-1).sum().rows()
    return all(
        last is not None and total > 0 and abs(last - total) <= 1e-9 * total
        for last, total in zip(numbers.row(-1), sums, strict=True)
    )


def suggested(
    unknown: Iterable[str], missing: Sequence[str], other: Iterable[str]
) -> dict[str, str]:
    """Return which unknown columns may be which of ours, those that are missing first.

    Examples
    --------
    >>> needed = ["client_id", "samples", "cost"]
    >>> suggested(["Hospital", "n_patients", "cost (EUR)", "city"], needed, ["value"])
    {'Hospital': 'client_id', 'n_patients': 'samples', 'cost (EUR)': 'cost'}
    """
    unknown, found = list(unknown), {}
    for target in dict.fromkeys([*missing, *other]):
        left = [name for name in unknown if name not in found]
        scores = {name: _likeness(name, target) for name in left}
        best = max(left, key=lambda name: scores[name], default=None)  # the first of equals
        if best is not None and scores[best] > 0:
            found[best] = target
    return {name: found[name] for name in unknown if name in found}


def _likeness(name: str, target: str) -> float:
    """Return how much a name looks like one of ours, 0 if not at all."""
    words = re.findall("[a-z]+", name.lower())
    singular = {word.removesuffix("s") for word in words} | set(words)
    if singular & set(_FAMILIAR.get(target, "").split()):
        return 1 + 1 / len(words)
    matcher = difflib.SequenceMatcher(None, name.lower(), target)
    if matcher.real_quick_ratio() <= 0.7:  # an upper bound, by the lengths alone
        return 0.0
    likeness = matcher.ratio()
    return likeness if likeness > 0.7 else 0.0
