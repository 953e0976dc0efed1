"""`read_federation`: read a user's data file: CSV, Parquet or npz (docs/data.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprice._plumbing.tables import TABLE_SUFFIXES, read_table
from fedprice.data.federation import Federation
from fedprice.data.rows import Rows, npz_rows, table_rows
from fedprice.errors import InputError, number_like

if TYPE_CHECKING:
    import polars as pl

    from fedprice._plumbing.arrays import BoolArray, IntArray

__all__ = ["DATA_SUFFIXES", "read_federation"]

DATA_SUFFIXES = (*TABLE_SUFFIXES, ".npz")
TEST_SHARE = 0.2

_WHOLE = re.compile(r"-?[0-9]{1,18}")


def read_federation(
    path: str | Path,
    *,
    name: str | None = None,
    test_share: float | None = None,
    seed: int = 0,
) -> Federation:
    """Return the federation in a data file: CSV, Parquet or npz, by its suffix.

    A table has the columns `client_id` and `label`, optionally `split` with `train` or `test`, and
    one numeric column per feature. An npz has the arrays `features`, `labels` and `client_ids`,
    optionally `test_features` and `test_labels`.

    Classes are the distinct labels in order, numbered from 0. Clients are in the order of their
    numbers if all ids are whole numbers, else in the order in which they first appear; a client's
    samples are in the order of the file.

    Parameters
    ----------
    path
        The file to read.
    name
        What the data are, for results; by default the file's name without its suffix.
    test_share
        If the file does not say what the test set is: the share of each client's rows, 0.2 by
        default, that becomes the test set. Every client and every class keeps a training row.
    seed
        Determines which rows those are.

    Raises
    ------
    InputError
        If the file cannot be read as a federation; the message says where and why.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "wards.npz"
    ...     np.savez(path, features=np.eye(10), labels=[0, 1] * 5, client_ids=["a"] * 5 + ["b"] * 5)
    ...     federation = read_federation(path)
    >>> federation
    Federation('wards', num_clients=2, samples=8, num_features=10, num_classes=2)
    >>> federation.ids, federation.samples.tolist(), federation.test_labels.size
    (('a', 'b'), [4, 4], 2)
    """
    path = Path(path)
    if path.suffix.lower() not in DATA_SUFFIXES:
        raise InputError(
            f"cannot tell the format of {path} by its suffix; use one of "
            f"{', '.join(DATA_SUFFIXES)}."
        )
    try:
        rows = npz_rows(path) if path.suffix.lower() == ".npz" else table_rows(read_table(path))
        return _federation(rows, name or path.stem, test_share, seed)
    except InputError as error:
        text = str(error)
        raise InputError(text if str(path) in text else f"{path}: {text}") from error


def _federation(rows: Rows, name: str, test_share: float | None, seed: int) -> Federation:
    count = len(rows.labels)
    test = np.zeros(count, bool) if rows.test is None else rows.test
    ids, clients = _clients(rows, test)
    distinct = rows.labels.filter(~test).unique().sort()
    if len(distinct) < 2:
        raise InputError(
            "a federation needs at least two classes; all training rows have the label "
            f"{distinct[0]!r}. Add rows of another class."
        )
    labels = _positions(rows.labels, distinct)
    if (labels < 0).any():
        row = int(np.argmax(labels < 0))
        raise InputError(
            "the test set must have no class that is unseen in training; got "
            f"{rows.labels[row]!r} in {rows.place(row)}. Move a row of this class to training."
        )
    if rows.test is None:
        test = _hold_out(clients, labels, test_share, seed)
    elif test_share is not None:
        raise InputError("the file has a test set of its own; leave out `test_share`.")
    if not test.any():
        raise InputError(
            "the test set has no rows. Mark some rows as test."
            if rows.test is not None
            else f"{count} rows are too few to set some aside as a test set. Add rows, raise "
            "`test_share`, or bring a test set."
        )
    sizes = np.bincount(clients[~test], minlength=len(ids))
    # Rows of the test set sort to the end, after those of all clients.
    order = np.argsort(np.where(test, len(ids), clients), kind="stable")
    train, rest = np.split(order, [sizes.sum()])
    return Federation(
        name=name,
        features=rows.features[train],
        labels=labels[train].astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        test_features=rows.features[rest],
        test_labels=labels[rest].astype(np.int32),
        num_classes=len(distinct),
        ids=ids,
    )


def _clients(rows: Rows, test: BoolArray) -> tuple[tuple[str, ...], IntArray]:
    """Return the clients' ids in order, and each row's client (−1: a test row without one)."""
    import polars as pl

    named = (rows.ids.is_not_null() & (rows.ids.str.strip_chars() != "")).fill_null(False)
    nameless = ~named.to_numpy() & ~test
    if nameless.any():
        row = int(np.argmax(nameless))
        raise InputError(f"every training row needs a client id; {rows.place(row)} has none.")
    ids = rows.ids.filter(named).unique(maintain_order=True).to_list()
    if all(map(_WHOLE.fullmatch, ids)):
        ids.sort(key=int)
    clients = _positions(rows.ids, pl.Series(ids, dtype=pl.String))
    sizes = np.bincount(clients[~test], minlength=len(ids))
    if not sizes.size:
        raise InputError("there are no training rows. Mark some rows as train.")
    if not sizes.all():
        who = int(np.argmin(sizes))
        raise InputError(
            f"every client needs training rows; client {ids[who]!r} has only test rows, the first "
            f"in {rows.place(int(np.argmax(clients == who)))}. Mark some of its rows as train, or "
            "leave the client id of test rows empty."
        )
    return tuple(ids), clients


def _positions(column: pl.Series, distinct: pl.Series) -> IntArray:
    """Return the position of each entry of a column in `distinct`, or −1 if it is not there."""
    import polars as pl

    positions = pl.Series(np.arange(len(distinct)))
    found: IntArray = column.replace_strict(
        distinct, positions, default=-1, return_dtype=pl.Int64
    ).to_numpy()
    return found


def _hold_out(
    clients: IntArray, labels: IntArray, test_share: float | None, seed: int
) -> BoolArray:
    """Return which rows become the test set: a random share of each client's."""
    share = TEST_SHARE if test_share is None else number_like("test_share", test_share)
    if not 0 < share < 1:
        raise InputError(f"`test_share` must be above 0 and below 1; got {share:g}.")
    if not (isinstance(seed, int | np.integer) and seed >= 0):
        raise InputError(f"`seed` must be a whole number, at least 0; got {seed!r}.")
    sizes = np.bincount(clients)
    # Fractions of a row are carried from client to client, so many small clients give their share.
    sums = np.floor(np.cumsum(sizes * share) + 1e-6).astype(np.int64)
    wanted = np.minimum(np.diff(sums, prepend=0), sizes - 1)
    shuffled = np.lexsort((np.random.default_rng(seed).random(clients.size), clients))
    rank = np.arange(clients.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    test = np.zeros(clients.size, bool)
    test[shuffled[rank < np.repeat(wanted, sizes)]] = True
    first = np.unique(labels, return_index=True)[1]
    test[first[np.setdiff1d(labels, labels[~test])]] = False
    return test
