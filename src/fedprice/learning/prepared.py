"""A federation in the layout of the kernels: padded features, and Gram matrices where useful."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import require

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.data.federation import Federation


__all__ = ["Prepared", "aligned", "class_blocks", "padded", "prepared"]

LANES = 16  # floats in the widest vector register
SIDE = 4  # rows and classes of a block of the forward product
BESIDE = 32  # rows whose softmax is computed at a time
WIDEST_BLOCK = 28  # classes that the backward product takes at a time
GRAM_SLOWER = 1.0  # time of a multiply-add in the Gram form, relative to the direct form
GRAM_FIXED = 150.0  # its further cost per sample seen, in multiply-adds per class
GRAM_MOST = 4096  # samples; beyond, its matrix is too large


@dataclass(frozen=True, eq=False)
class Prepared:
    """A federation in the layout of the kernels."""

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int32]
    test_x: npt.NDArray[np.float32]
    gram: npt.NDArray[np.float32]
    gram_at: npt.NDArray[np.int64]
    work: FloatArray
    block: tuple[int, ...]
    model_shape: tuple[int, int]


def aligned(*shape: int) -> npt.NDArray[np.float32]:
    """Return zeros that start on a cache line, for aligned vector loads."""
    size = math.prod(shape)
    raw = np.zeros(size + LANES, np.float32)
    skipped = -raw.ctypes.data // raw.itemsize % LANES
    return raw[skipped : skipped + size].reshape(shape)


@lru_cache(maxsize=1)
def prepared(federation: Federation, seen: int) -> Prepared:
    """Pad the features, and compute the Gram matrices where they are faster.

    `seen` is how many samples a client sees in a round: local steps times batch.
    """
    kernels = require("fedprice.learning.kernels", "learn")
    x = padded(federation.features)
    sizes, features = federation.samples, x.shape[1]
    # Multiply-adds per update and class: forward and backward, or K[:, B] g and two passes over X.
    direct = np.full(sizes.size, 2.0 * seen * features)
    by_gram = GRAM_SLOWER * sizes * (float(seen) + 2.0 * features) + GRAM_FIXED * seen
    use_gram = (by_gram < direct) & (sizes <= GRAM_MOST) & (sizes >= SIDE)
    wide = gram_width(sizes)
    ends = np.cumsum(np.where(use_gram, sizes * wide, 0))
    gram = aligned(int(ends[-1]))
    gram_at = np.where(use_gram, ends - sizes * wide, -1)
    for n in np.flatnonzero(use_gram):
        own = x[federation.offsets[n] : federation.offsets[n + 1]]
        k = gram[gram_at[n] : gram_at[n] + sizes[n] * wide[n]].reshape(sizes[n], wide[n])
        kernels.gram_matrix(own, k)
    block, classes = class_blocks(federation.num_classes)
    return Prepared(
        x=x,
        y=federation.labels,
        test_x=padded(federation.test_features),
        gram=gram,
        gram_at=gram_at,
        work=np.where(use_gram, by_gram, direct),
        block=block,
        model_shape=(classes, features),
    )


def padded(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return features with a constant 1 for the bias, padded to whole vectors."""
    wide = aligned(len(x), up_to(x.shape[1] + 1, LANES))
    wide[:, : x.shape[1]] = x
    wide[:, x.shape[1]] = 1
    return wide


def class_blocks(num_classes: int) -> tuple[tuple[int, ...], int]:
    """Return a tuple as long as a block of classes, and the number of classes padded to it."""
    blocks = -(-num_classes // WIDEST_BLOCK)
    block = max(-(-num_classes // blocks), SIDE)
    return (0,) * block, blocks * block


def gram_width(count: Any) -> Any:
    """Return the length of the rows of a Gram matrix of so many samples.

    An odd number of cache lines: with an even one, the rows of a batch share few sets of the cache.
    """
    return up_to(count, LANES) | LANES


def up_to(count: Any, multiple: int) -> Any:
    """Return the least multiple not below a count."""
    return -(-count // multiple) * multiple
