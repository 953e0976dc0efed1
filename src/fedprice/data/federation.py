"""`Federation`: a data set split over clients, with a test set."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["Federation", "check_names", "numbered"]


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """The samples of all clients, client by client, and a test set that belongs to no client.

    Attributes
    ----------
    name
        What the data are, for results.
    features, labels
        Training samples: float32 of shape (samples, num_features), int32 of shape (samples,).
    offsets
        Client n has the samples offsets[n] to offsets[n + 1]; shape (num_clients + 1,).
    test_features, test_labels
        The test set, of the same form.
    num_classes
        Labels are 0 … num_classes − 1.
    ids
        Names of the clients, distinct; by default "1", "2", …

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.eye(4), np.array([0, 1, 1, 0])
    >>> federation = Federation.of("toy", [(x[:1], y[:1]), (x[1:], y[1:])], (x, y), num_classes=2)
    >>> federation
    Federation('toy', num_clients=2, samples=4, num_features=4, num_classes=2)
    >>> federation.weight
    array([0.25, 0.75])
    >>> federation.ids
    ('1', '2')
    """

    name: str
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    test_features: npt.NDArray[np.float32]
    test_labels: npt.NDArray[np.int32]
    num_classes: int
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = np.diff(self.offsets)
        ids = self.ids or numbered(sizes.size)
        object.__setattr__(self, "ids", ids)
        check_names(ids, sizes.size, f" of {self.name}")
        if self.offsets.size and (self.offsets[0], self.offsets[-1]) != (0, len(self.labels)):
            raise InputError(
                f"`offsets` of {self.name} must run from 0 to {len(self.labels)}, the number of "
                f"labels; got {self.offsets[0]} to {self.offsets[-1]}."
            )
        if sizes.size == 0:
            raise InputError(f"{self.name} needs at least one client.")
        if (sizes < 1).any():
            empty = ids[int(np.argmax(sizes < 1))]
            raise InputError(f"every client needs data; client {empty!r} of {self.name} has none.")
        for part, x, y in (
            ("training", self.features, self.labels),
            ("test", self.test_features, self.test_labels),
        ):
            if x.ndim != 2 or x.shape[0] != y.size or x.shape[1] != self.features.shape[1]:
                raise InputError(
                    f"the {part} set of {self.name} must have one row of features per label; "
                    f"got {x.shape} features and {y.size} labels."
                )
            if not np.isfinite(x).all():
                row = int(np.argmax(~np.isfinite(x).all(axis=1)))
                raise InputError(
                    f"sample {row + 1} of the {part} set of {self.name} is not finite."
                )
            if y.size and not 0 <= y.min() <= y.max() < self.num_classes:
                raise InputError(
                    f"labels of {self.name} must be 0 to {self.num_classes - 1}; "
                    f"the {part} set has {y.min()} to {y.max()}."
                )

    @classmethod
    def of(
        cls,
        name: str,
        clients: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
        test: tuple[npt.ArrayLike, npt.ArrayLike],
        *,
        num_classes: int,
        ids: Sequence[str] | None = None,
    ) -> Federation:
        """Return a federation of one (features, labels) pair per client.

        Examples
        --------
        >>> own = ([[0.5], [1.5]], [0, 1])
        >>> Federation.of("toy", [own, own], own, num_classes=2, ids=["north", "south"]).ids
        ('north', 'south')
        """
        if not clients:
            raise InputError(f"{name} needs at least one client.")
        names = numbered(len(clients)) if ids is None else tuple(map(str, ids))
        check_names(names, len(clients), f" of {name}")
        parts = [
            _arrays(f"client {who!r} of {name}", x, y)
            for who, (x, y) in zip(names, clients, strict=True)
        ]
        test_x, test_y = _arrays(f"the test set of {name}", *test)
        for who, (x, _) in zip(names, parts, strict=True):
            if x.shape[1] != test_x.shape[1]:
                raise InputError(
                    f"client {who!r} of {name} has {x.shape[1]} features per sample, the test set "
                    f"{test_x.shape[1]}."
                )
        return cls(
            name=name,
            features=np.concatenate([x for x, _ in parts]),
            labels=np.concatenate([y for _, y in parts]),
            offsets=np.cumsum([0, *(y.size for _, y in parts)]),
            test_features=test_x,
            test_labels=test_y,
            num_classes=num_classes,
            ids=names,
        )

    @classmethod
    def read(cls, path: str | Path) -> Federation:
        """Read a federation from your own CSV, Parquet or npz file (docs/data.md)."""
        from fedprice.data.files import read_federation

        return read_federation(path)

    def __repr__(self) -> str:
        return (
            f"Federation({self.name!r}, num_clients={self.num_clients}, "
            f"samples={self.labels.size}, num_features={self.features.shape[1]}, "
            f"num_classes={self.num_classes})"
        )

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return self.offsets.size - 1

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """Number of samples of each client, shape (num_clients,)."""
        return np.diff(self.offsets)

    @property
    def weight(self) -> npt.NDArray[np.float64]:
        """Each client's share of the samples, shape (num_clients,)."""
        return self.samples / self.labels.size

    def client(self, n: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """Return the features and labels of client n, without a copy."""
        rows = slice(self.offsets[n], self.offsets[n + 1])
        return self.features[rows], self.labels[rows]

    def label_order(self) -> npt.NDArray[np.int64]:
        """Return the clients by their most common label, then by their mean label."""
        count, classes = self.num_clients, self.num_classes
        cells = np.repeat(np.arange(count), self.samples) * classes + self.labels
        counts = np.bincount(cells, minlength=count * classes).reshape(count, classes)
        return np.lexsort([counts @ np.arange(classes) / self.samples, counts.argmax(axis=1)])

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the whole federation, in hexadecimal."""
        digest = hashlib.sha256(f"{self.name}\0{self.num_classes}".encode())
        for array in (
            self.features,
            self.labels,
            self.offsets,
            self.test_features,
            self.test_labels,
        ):
            digest.update(f"\0{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        if self.ids != numbered(self.num_clients):
            digest.update(f"\0{json.dumps(self.ids)}".encode())
        return digest.hexdigest()


def numbered(num_clients: int) -> tuple[str, ...]:
    """Return the names that clients have if nobody named them: the numbers from "1" on."""
    return tuple(map(str, range(1, num_clients + 1)))


def check_names(names: tuple[str, ...], num_clients: int, of: str = "") -> None:
    """Refuse names that are not one for each client, distinct and not empty."""
    if len(names) != num_clients:
        raise InputError(
            f"`ids` must name each of the {num_clients} clients{of}; got {len(names)} names."
        )
    if "" in names:
        raise InputError(f"`ids`{of} must not be empty; name {names.index('') + 1} is.")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InputError(f"`ids`{of} must be distinct; got {twice!r} more than once.")


def _arrays(
    whose: str, features: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    x, y = np.asarray(features, np.float32), np.asarray(labels)
    if y.size == 0:
        raise InputError(f"every client needs data; {whose} has none.")
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise InputError(
            f"{whose} must have one row of features per label; got {x.shape} features and "
            f"{y.shape} labels."
        )
    whole = y.astype(np.int32)
    if not np.array_equal(whole, y):
        raise InputError(f"labels of {whose} must be whole numbers.")
    return x, whole
