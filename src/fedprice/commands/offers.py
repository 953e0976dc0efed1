"""The offer to one client in what `fedprice price -o` and `fedprice post -o` write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice._plumbing.table_limits import limited_content
from fedprice._plumbing.tables import number_column, read_table
from fedprice.errors import InputError, nearest
from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TABLES", "Contract", "read_offered"]

TABLES = (".csv", ".parquet", ".json")


class Contract(NamedTuple):
    """One level for one payment, to take or leave as a whole."""

    level: float
    payment: float
    level_max: float


def read_offered(path: Path, client: str | None) -> tuple[str, Tariffs | Contract]:
    """Return whom a table of offers is read for, and its offer: a price is a tariff of one block.

    Parameters
    ----------
    path
        A .csv, .parquet or .json file with one row per client, and the columns `client_id` and
        `price`, or `level_1`, `price_1`, … for the blocks of a tariff or the rows of a menu. With
        a true `bought`, the offer is a contract for `level` and `payment`.
    client
        Whose row to read; None if there is only one.
    """
    rows, form = _rows(path)
    own = _row(rows, client, path)
    name = str(own.get("client_id", client or ""))
    if _is_there(own.get("price")):
        most = own.get("level_max")
        cap = _number(own, "level_max", path) if _is_there(most) else 1.0
        if str(own.get("bought")).lower() == "true":
            level, payment = (_number(own, column, path) for column in ("level", "payment"))
            if not 0 < level <= 1:
                raise InputError(f"{path}: the level of {name!r} must be in (0, 1]; got {level}.")
            return name, Contract(level, payment, cap)
        return name, _tariffs([cap], [_number(own, "price", path)], path)
    blocks = sum(column.startswith("level_") and column[6:].isdigit() for column in own)
    if not blocks:
        raise InputError(
            f"{path} has neither a column 'price' nor 'level_1' and 'price_1': it is not a table "
            "of offers as `fedprice price -o` and `fedprice post -o` write it."
        )
    if form is None:
        raise InputError(
            f"{path} does not say whether any level can be chosen or only those that it lists; "
            "give what `fedprice post -o FILE.json` writes."
        )
    ends = [_number(own, f"level_{n + 1}", path) for n in range(blocks)]
    prices = [_number(own, f"price_{n + 1}", path) for n in range(blocks)]
    return name, _tariffs(ends, prices, path, menu=form == "menu")


def _rows(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of a table, and the form of what is posted, if the file says it."""
    if path.suffix != ".json":
        return read_table(path).rows(named=True), None
    try:
        whole = json.loads(limited_content(path))
        rows, form = whole["clients"], whole["summary"].get("form")
        if not all(isinstance(row, dict) for row in rows):
            raise TypeError
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise InputError(
            f"{path} holds no clients and summary, as `fedprice price -o` and `fedprice post -o` "
            "write them."
        ) from None
    return rows, form


def _row(rows: list[dict[str, Any]], client: str | None, path: Path) -> dict[str, Any]:
    if not rows:
        raise InputError(f"{path} has no rows.")
    if client is None:
        if len(rows) > 1:
            raise InputError(f"{path} has offers to {len(rows):,} clients; name yours: --client.")
        return rows[0]
    if "client_id" not in rows[0]:
        raise InputError(f"{path} has no column 'client_id' in which to find {client!r}.")
    names = [str(row.get("client_id")) for row in rows]
    if names.count(client) != 1:
        many = f"{names.count(client)} rows of" if client in names else "no"
        hint = "" if client in names else f" {nearest(client, names)}"
        raise InputError(f"{path} has {many} client {client!r}.{hint}")
    return rows[names.index(client)]


def _is_there(value: Any) -> bool:
    return value is not None and value != ""


def _number(row: dict[str, Any], column: str, path: Path) -> float:
    import polars as pl

    try:
        return float(number_column(pl.Series(column, [row.get(column)]))[0])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _tariffs(ends: list[float], prices: list[float], path: Path, *, menu: bool = False) -> Tariffs:
    try:
        return Tariffs(np.array([ends]), np.array([prices]), menu)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
