"""Games from the files and options that the pricing commands share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedprice._plumbing.columns import refuse_totals, renamed
from fedprice._plumbing.tables import read_table
from fedprice.bound import Bound
from fedprice.clients import COLUMNS, LARGEST_WEIGHT, Clients, missing_columns
from fedprice.commands.assumptions import ASSUMED, Assumptions, needs_alpha
from fedprice.commands.measured import read_measured, reading, unsaid, with_norms
from fedprice.commands.price import losses_of
from fedprice.errors import InputError
from fedprice.game import Game

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import polars as pl

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.calibration import Calibration

__all__ = [
    "assuming",
    "read_assumed_game",
    "read_assuming",
    "read_calibration",
    "read_clients",
    "read_game",
    "read_losses",
    "read_measured_assuming",
    "refuse_order",
    "with_floors",
]


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
    by_order: bool = False,
    say: Callable[[str], None] = unsaid,
) -> Game:
    """Make a game from a file of clients, with α and norms as given or as measured.

    `terms` are the clients of the file, if it was read before the calibration was there.
    """
    table, bound, _ = read_clients(
        clients, alpha=alpha, calibration=calibration, rounds=rounds, max_weight=max_weight,
        terms=terms, rename=rename, by_order=by_order, say=say,
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
    by_order: bool = False,
    say: Callable[[str], None] = unsaid,
) -> tuple[Clients, Bound, tuple[str, ...]]:
    """Return a file's clients, the bound, and which columns were assumed.

    Without `types`, costs and values may be missing, and norms are then assumed to be 1.
    `rename` is what a command was told to rename, and None for one that cannot be told; `by_order`
    and `say` are as for `read_measured`.
    """
    assumed: tuple[str, ...] = ()
    if calibration is None:
        refuse_order(by_order)
        bound = Bound(alpha=_ask_alpha(alpha), rounds=rounds)
        with reading(clients, rename):
            if types:
                table = Clients.read(clients, rename=rename)
            else:
                table, assumed = assuming(read_table(clients), rename, types=False)
    else:
        if terms is None:
            table = read_measured(
                clients, calibration, types=types, rename=rename, by_order=by_order, say=say
            )
        else:
            table = with_norms(terms, calibration, by_order=by_order)
        bound = calibration.bound(rounds)
    return with_floors(table, max_weight, calibration), bound, assumed


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
    by_order: bool = False,
    say: Callable[[str], None] = unsaid,
) -> tuple[Game, Assumptions]:
    """Make a game of a file of clients, as `read_game` does, with assumptions for what it lacks.

    α need not be given where no price depends on it.
    """
    if calibration is not None:
        clients, columns = read_measured_assuming(
            path, calibration, rename, by_order=by_order, say=say
        )
        bound = calibration.bound(rounds)
        whence: str | None = "measured"
    else:
        refuse_order(by_order)
        clients, columns = _read_uncalibrated(path, rename)
        if alpha is None and not needs_alpha(clients, scheme):
            whence, alpha = None, 1.0
        else:
            whence = "given"
        bound = Bound(alpha=_ask_alpha(alpha), rounds=rounds)
    clients = with_floors(clients, max_weight, calibration)
    game = Game(clients, bound=bound, budget=budget, cost_exponent=exponent)
    return game, Assumptions(columns, whence)


def _read_uncalibrated(path: Path, rename: Mapping[str, str]) -> tuple[Clients, tuple[str, ...]]:
    """Return the clients of a file that has to have samples itself."""
    try:
        return read_assuming(path, rename)
    except InputError as error:
        if not str(error).startswith(f"{path}: there is no column 'samples'"):
            raise
        raise InputError(f"{error} --calibration FILE supplies samples and norms.") from error


def refuse_order(by_order: bool) -> None:
    """Refuse `--by-order` without a calibration."""
    if by_order:
        raise InputError(
            "--by-order matches rows with measured clients; give --calibration FILE, or leave out "
            "--by-order."
        )


def read_assuming(
    path: Path, rename: Mapping[str, str], *, types: bool = True
) -> tuple[Clients, tuple[str, ...]]:
    """Return the clients of a file, and which columns were assumed (see `assuming`)."""
    with reading(path, rename):
        return assuming(read_table(path), rename, types=types)


def read_measured_assuming(
    path: Path,
    calibration: Calibration,
    rename: Mapping[str, str],
    *,
    by_order: bool = False,
    say: Callable[[str], None] = unsaid,
) -> tuple[Clients, tuple[str, ...]]:
    """Return the clients of a file with measured norms, and which columns were assumed."""
    clients = read_measured(
        path, calibration, types=False, rename=rename, by_order=by_order, say=say
    )
    columns = tuple(name for name in clients.unknown if name == "value")
    return (replace(clients, value=0.0) if columns else clients), columns  # type: ignore[arg-type]


def assuming(
    frame: pl.DataFrame, rename: Mapping[str, str] | None = None, *, types: bool = True
) -> tuple[Clients, tuple[str, ...]]:
    """Return the clients of a table, and which columns were assumed.

    Without `types`, costs and values that the table lacks stay unknown.
    """
    assumed = ASSUMED if types else {"grad_norm": ASSUMED["grad_norm"]}
    frame = renamed(frame, rename, COLUMNS)
    refuse_totals(frame)
    clients = Clients.from_frame(frame, types=types, assume=assumed)
    return clients, tuple(name for name in missing_columns(frame.columns) if name in assumed)


def with_floors(
    clients: Clients, max_weight: float | None, calibration: Calibration | None
) -> Clients:
    """Return clients with floors by the largest weight, which is 1 for what was calibrated."""
    if max_weight is None and calibration is not None:
        max_weight = LARGEST_WEIGHT
    return clients if max_weight is None else clients.with_max_weight(max_weight)


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
        raise InputError("--alpha cannot be combined with --calibration.")
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


def read_losses(path: Path, name: str, clients: Clients) -> FloatArray:
    """Return a column of losses outside the federation, in the order of the clients.

    The file has the columns `client_id` and `without` or `own`, or both.
    """
    with reading(path):
        return losses_of(read_table(path), name, clients)
