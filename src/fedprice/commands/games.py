"""Games from the files and options that the pricing commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprice.bound import Bound
from fedprice.clients import LARGEST_WEIGHT, Clients, require_same
from fedprice.commands.price import losses_of
from fedprice.errors import InputError, nearest
from fedprice.game import Game
from fedprice.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.calibration import Calibration

__all__ = [
    "in_order",
    "read_calibration",
    "read_clients",
    "read_game",
    "read_losses",
    "read_terms",
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
) -> Game:
    """Make a game from a file of clients, with α and norms as given or as measured.

    `terms` are the clients of the file, if it was read before the calibration was there.
    """
    table, bound = read_clients(
        clients, alpha=alpha, calibration=calibration, rounds=rounds, max_weight=max_weight,
        terms=terms,
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
) -> tuple[Clients, Bound]:
    """Return a file's clients and the bound; without `types`, costs and values may be missing."""
    if calibration is None:
        bound = Bound(alpha=_ask_alpha(alpha), rounds=rounds)
        table = Clients.read(clients, types=types)
    else:
        whose = f"the calibration of {calibration.name}"
        if terms is None:
            terms = read_terms(clients, calibration.ids, calibration.samples, whose, types=types)
        bound, table = calibration.bound(rounds), _with_norms(terms, calibration)
    if max_weight is None and calibration is not None:
        max_weight = LARGEST_WEIGHT
    if max_weight is not None:
        table = table.with_max_weight(max_weight)
    return table, bound


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
    path: Path, ids: Sequence[str], samples: IntArray, whose: str, *, types: bool = True
) -> Clients:
    """Return clients with cost and value from a file, their norms 1 until they are measured.

    They are in the order of the file, which must have exactly the clients that `ids` names.
    """
    import polars as pl

    frame = read_table(path)
    for name in frame.columns:
        if name in MEASURED:
            raise InputError(
                f"{path}: leave out the column {name!r}; samples and norms are measured."
            )
        if name not in OWN:
            raise InputError(f"{path}: unknown column {name!r}. {nearest(name, OWN)}")
    if "client_id" not in frame.columns:
        raise InputError(f"{path}: there is no column 'client_id'.")
    given = frame["client_id"].cast(pl.String).fill_null("").to_list()
    require_same(path, given, ids, whose)
    at = {name: n for n, name in enumerate(ids)}
    own = pl.Series("samples", samples[[at[name] for name in given]])
    try:
        measured = frame.with_columns(own, pl.lit(1.0).alias("grad_norm"))
        return Clients.from_frame(measured, types=types)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_losses(path: Path, name: str, clients: Clients) -> FloatArray:
    """Return a column of losses outside the federation, in the order of the clients.

    The file has the columns `client_id` and `without` or `own`, or both.
    """
    try:
        return losses_of(read_table(path), name, clients)
    except InputError as error:
        text = str(error)
        raise InputError(text if str(path) in text else f"{path}: {text}") from error


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
