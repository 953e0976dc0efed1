"""A federation in the layout of the kernels: padded features, and Gram matrices where they pay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import require

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.data.federation import Federation

    FloatArray = npt.NDArray[np.float64]

__all__ = ["Prepared", "prepared"]

LANES = 16  # floats in the widest vector register
GRAM_GAIN = 0.9  # the Gram form must save a tenth of the work
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


@lru_cache(maxsize=1)
def prepared(federation: Federation, seen: int) -> Prepared:
    """Pad the features, and multiply out the Gram matrices where they pay.

    `seen` is how many samples a client sees in a round: local steps times batch.
    """
    kernels = require("fedprice.learning.kernels", "learn")

    def padded(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        wide = np.zeros((len(x), -(-(x.shape[1] + 1) // LANES) * LANES), np.float32)
        wide[:, : x.shape[1]] = x
        wide[:, x.shape[1]] = 1
        return wide

    x = padded(federation.features)
    sizes, features = federation.samples, x.shape[1]
    # Multiply-adds of an update, a class: forward and backward, or K[:, B] g and two passes over X.
    direct = np.full(sizes.size, 2.0 * seen * features)
    by_gram = sizes * (float(seen) + 2.0 * features)
    use_gram = (by_gram < GRAM_GAIN * direct) & (sizes <= GRAM_MOST)
    wide = -(-sizes // LANES) * LANES
    ends = np.cumsum(np.where(use_gram, sizes * wide, 0))
    gram = np.zeros(int(ends[-1]), np.float32)
    gram_at = np.where(use_gram, ends - sizes * wide, -1)
    for n in np.flatnonzero(use_gram):
        own = x[federation.offsets[n] : federation.offsets[n + 1]]
        k = gram[gram_at[n] : gram_at[n] + sizes[n] * wide[n]].reshape(sizes[n], wide[n])
        kernels.gram_matrix(own, k)
    return Prepared(
        x=x,
        y=federation.labels,
        test_x=padded(federation.test_features),
        gram=gram,
        gram_at=gram_at,
        work=np.where(use_gram, by_gram, direct),
    )
