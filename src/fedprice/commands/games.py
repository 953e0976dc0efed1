"""Games from the files and options that the pricing commands share."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.bound import Bound
from fedprice.clients import LARGEST_WEIGHT, Clients, missing_columns, require_same
from fedprice.columns import ColumnsError, check_columns, renamed
from fedprice.commands.assumptions import ASSUMED, Assumptions, needs_alpha
from fedprice.commands.price import losses_of
from fedprice.errors import InputError
from fedprice.game import Game
from fedprice.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.calibration import Calibration

__all__ = [
    "assuming",
    "in_order",
    "read_assumed_game",
    "read_assuming",
    "read_calibration",
    "read_clients",
    "read_game",
    "read_losses",
    "read_measured_assuming",
    "read_terms",
    "reading",
]

OWN = ("client_id", "class", "cost", "value", "level_min", "level_max")
MEASURED = ("samples", "weight", "grad_norm", "grad_norm_max", "update_norm")


def read_game(
    clients: Path,
    *,
    budget: float,
    alpha: float | None,
    calibration: Calibration | None,
    rounds: int,
    exponent: float,
    max_weight: float | None,
    terms: Clients | None = None,
    rename: Mapping[str, str] | None = None,
) -> Game:
    """Make a game from a file of clients, with α and norms as given or as measured.

    `terms` are the clients of the file, if it was read before the calibration was there.
    """
    table, bound = read_clients(
        clients, alpha=alpha, calibration=calibration, rounds=rounds, max_weight=max_weight,
        terms=terms, rename=rename,
    )  # fmt: skip
    return Game(table, bound=bound, budget=budget, cost_exponent=exponent)


def read_clients(
    clients: Path,
    *,
    alpha: float | None,
    calibration: Calibration | None,
    rounds: int,
    max_weight: float | None,
    terms: Clients | None = None,
    types: bool = True,
    rename: Mapping[str, str] | None = None,
) -> tuple[Clients, Bound]:
    """Return a file's clients and the bound; without `types`, costs and values may be missing.

    `rename` is what a command was told to rename, and None for one that cannot be told.
    """
    if calibration is None:
        bound = Bound(alpha=_ask_alpha(alpha), rounds=rounds)
        with reading(clients, rename):
            table = Clients.read(clients, types=types, rename=rename)
    else:
        if terms is None:
            terms = _measured_terms(clients, calibration, types=types, rename=rename)
        bound, table = calibration.bound(rounds), _with_norms(terms, calibration)
    return _with_floors(table, max_weight, calibration), bound


def read_assumed_game(
    path: Path,
    *,
    budget: float,
    alpha: float | None,
    calibration: Calibration | None,
    rounds: int,
    exponent: float,
    max_weight: float | None,
    rename: Mapping[str, str],
    scheme: str,
) -> tuple[Game, Assumptions]:
    """Make a game of a file of clients, as `read_game` does, with assumptions for what it lacks.

    α need not be given where no price depends on it.
    """
    if calibration is not None:
        clients, columns = read_measured_assuming(path, calibration, rename)
        bound = calibration.bound(rounds)
        whence: str | None = "measured"
    else:
        clients, columns = read_assuming(path, rename)
        if alpha is None and not needs_alpha(clients, scheme):
            whence, alpha = None, 1.0
        else:
            whence = "given"
        bound = Bound(alpha=_ask_alpha(alpha), rounds=rounds)
    clients = _with_floors(clients, max_weight, calibration)
    game = Game(clients, bound=bound, budget=budget, cost_exponent=exponent)
    return game, Assumptions(columns, whence)


def read_assuming(path: Path, rename: Mapping[str, str]) -> tuple[Clients, tuple[str, ...]]:
    """Return the clients of a file, and which columns were assumed."""
    with reading(path, rename):
        return assuming(read_table(path), rename)


def read_measured_assuming(
    path: Path, calibration: Calibration, rename: Mapping[str, str]
) -> tuple[Clients, tuple[str, ...]]:
    """Return the clients of a file with measured norms, and which columns were assumed."""
    terms = _measured_terms(path, calibration, types=False, rename=rename)
    columns = tuple(name for name in terms.unknown if name == "value")
    if columns:
        terms = replace(terms, value=np.zeros(len(terms)))
    return _with_norms(terms, calibration), columns


def assuming(
    frame: pl.DataFrame, rename: Mapping[str, str] | None = None
) -> tuple[Clients, tuple[str, ...]]:
    """Return the clients of a table, and which columns were assumed."""
    clients = Clients.from_frame(frame, rename=rename, assume=ASSUMED)
    given = [(rename or {}).get(name, name) for name in frame.columns]
    return clients, tuple(name for name in missing_columns(given) if name in ASSUMED)


def _measured_terms(
    path: Path,
    calibration: Calibration,
    *,
    types: bool = True,
    rename: Mapping[str, str] | None = None,
) -> Clients:
    """Return the clients of a file, which must be exactly those of a calibration."""
    whose = f"the calibration of {calibration.name}"
    return read_terms(path, calibration.ids, calibration.samples, whose, types=types, rename=rename)


def _with_floors(
    clients: Clients, max_weight: float | None, calibration: Calibration | None
) -> Clients:
    """Return clients with floors by the largest weight, which is 1 for what was calibrated."""
    if max_weight is None and calibration is not None:
        max_weight = LARGEST_WEIGHT
    return clients if max_weight is None else clients.with_max_weight(max_weight)


@contextmanager
def reading(path: Path, rename: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let errors about a table name its file, and the option that renames its columns.

    A command that has no such option passes None.
    """
    try:
        yield
    except ColumnsError as error:
        text = error.text if str(path) in error.text else f"{path}: {error.text}"
        if rename is None:
            raise ColumnsError(text, error.rename) from error
        old_names = {new: old for old, new in rename.items()}
        both = {old_names.get(old, old): new for old, new in error.rename.items()}
        raise InputError(ColumnsError(text, {**rename, **both}).on_command_line()) from error
    except InputError as error:
        text = str(error)
        raise InputError(text if str(path) in text else f"{path}: {text}") from error


def read_calibration(
    path: Path | None, alpha: float | None, impact: str | None = None
) -> Calibration | None:
    """Return the calibration in a file, if one is given; `--alpha` must then not be given.

    `impact` says which of its norms to price with, if not those that it was made for.
    """
    if path is None:
        if impact is not None:
            raise InputError(
                "--impact chooses between the norms of a calibration; give --calibration FILE, or "
                "leave it out and name the column of the table grad_norm or update_norm."
            )
        return None
    if alpha is not None:
        raise InputError("give either --alpha or --calibration, one of the two.")
    from fedprice.calibration import Calibration

    found = Calibration.read(path)
    return found if impact is None else found.with_impact(impact)


def _ask_alpha(alpha: float | None) -> float:
    """Return α, which has no sensible default."""
    if alpha is None:
        raise InputError(
            "prices need the bound's α: give --alpha, or --calibration FILE as `fedprice "
            "calibrate` writes it."
        )
    return alpha


def _with_norms(terms: Clients, calibration: Calibration) -> Clients:
    """Return clients with their norms as measured."""
    at = {name: n for n, name in enumerate(calibration.ids)}
    rows = [at[name] for name in terms.ids]
    return terms.with_norms(calibration.fit.norm[rows], calibration.norms)


def read_terms(
    path: Path,
    ids: Sequence[str],
    samples: IntArray,
    whose: str,
    *,
    types: bool = True,
    rename: Mapping[str, str] | None = None,
) -> Clients:
    """Return clients with cost and value from a file, their norms 1 until they are measured.

    They are in the order of the file, which must have exactly the clients that `ids` names.
    `rename` is what a command was told to rename, and None for one that cannot be told.
    """
    import polars as pl

    with reading(path, rename):
        for old, new in (rename or {}).items():
            if new in MEASURED:
                raise InputError(f"leave out the column {old!r}; samples and norms are measured.")
        frame = renamed(read_table(path), rename, OWN)
        for name in frame.columns:
            if name in MEASURED:
                raise InputError(f"leave out the column {name!r}; samples and norms are measured.")
        needed = ("client_id", *(name for name in ("cost", "value") if types))
        check_columns(frame.columns, OWN, [name for name in needed if name not in frame.columns])
        given = frame["client_id"].cast(pl.String).fill_null("").to_list()
        require_same(path, given, ids, whose)
        at = {name: n for n, name in enumerate(ids)}
        own = pl.Series("samples", samples[[at[name] for name in given]])
        measured = frame.with_columns(own, pl.lit(1.0).alias("grad_norm"))
        return Clients.from_frame(measured, types=types)


def read_losses(path: Path, name: str, clients: Clients) -> FloatArray:
    """Return a column of losses outside the federation, in the order of the clients.

    The file has the columns `client_id` and `without` or `own`, or both.
    """
    with reading(path):
        return losses_of(read_table(path), name, clients)


def in_order(path: Path, clients: Clients, ids: Sequence[str], whose: str) -> Clients:
    """Return the clients of a file in the order of `ids`, which must name the same ones."""
    require_same(path, clients.ids.tolist(), ids, whose)
    at = {name: row for row, name in enumerate(clients.ids)}
    rows = [at[name] for name in ids]
    share = {"weight": clients.weight} if clients.samples is None else {"samples": clients.samples}
    names = ("cost", "value", "level_min", "level_max")
    columns: dict[str, Any] = share | {name: getattr(clients, name) for name in names}
    if clients.classes is not None:
        columns["classes"] = clients.classes
    columns = {name: column[rows] for name, column in columns.items()}
    ordered = Clients(ids=list(ids), grad_norm=1.0, **columns)
    return ordered.with_norms(clients.norm[rows], clients.norms)
