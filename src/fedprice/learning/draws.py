"""Random numbers of training, by hashing: which clients join, which samples a step sees.

Every number is a function of (seed, round, client, position), so it does not depend on who else
joins, on the order of work, or on threads; two schemes of the same seed share their coins. The
versions here are for reading and for the oracle; `kernels` has the same ones compiled.

Coins. Client n joins round r if a uniform number u_{n,r} is below its level. With many clients and
few joiners, most of these numbers need not be drawn: a binary tree over the clients has in every
node the least u below it. The least of m uniform numbers is drawn directly, 1 − (1 − U)^{1/m}; it
lies in either half with the same probability, and the other half's least lies above it, drawn in
the same way. A node whose least u is not below the highest level of its clients is not visited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["batch_rows", "coin_uniforms", "joiners"]

COINS, BATCHES, DELIVERIES, PILOTS, PHASES, PLACES, ABSENCES = 1, 2, 3, 4, 5, 6, 7  # streams
_MASK = (1 << 64) - 1
_Z = TypeVar("_Z", int, "npt.NDArray[Any]")  # numbers of 64 bits


def mix(z: _Z) -> _Z:
    """Hash 64-bit numbers (the finaliser of SplitMix64)."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def key(seed: int, stream: int, round_: int, client: _Z) -> _Z:
    """Return the key of a stream of numbers, for one client or several."""
    return mix(mix(mix(mix(seed & _MASK) + stream & _MASK) + round_ & _MASK) + client & _MASK)


def keys(seed: int, stream: int, round_: int, count: int) -> npt.NDArray[np.uint64]:
    """Return the keys of the first clients, shape (count,)."""
    return key(seed, stream, round_, np.arange(count, dtype=np.uint64))


def uniform(z: int) -> float:
    """Return a number in [0, 1) with 53 random bits."""
    return (z >> 11) * 2.0**-53


def uniforms(seed: int, stream: int, round_: int, count: int) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each of the first clients, shape (count,)."""
    found: npt.NDArray[np.float64] = np.multiply(keys(seed, stream, round_, count) >> 11, 2.0**-53)
    return found


def batch_rows(
    seed: int, round_: int, client: int, steps: int, batch: int, samples: int
) -> npt.NDArray[np.int64]:
    """Return the samples of each local step, shape (steps, batch), drawn with replacement.

    Examples
    --------
    >>> batch_rows(seed=0, round_=3, client=1, steps=2, batch=4, samples=10)
    array([[3, 6, 7, 9],
           [7, 8, 0, 3]])
    """
    start = key(seed, BATCHES, round_, client)
    rows = [(mix(start + i & _MASK) >> 32) * samples >> 32 for i in range(steps * batch)]
    return np.array(rows, dtype=np.int64).reshape(steps, batch)


def coin_uniforms(seed: int, round_: int, count: int) -> npt.NDArray[np.float64]:
    """Return u_{n,r} of all clients, shape (count,): the whole tree, for reading and testing."""
    size = tree_size(count)
    start = key(seed, COINS, round_, 0)
    least = np.empty(2 * size)
    least[1] = -np.expm1(np.log1p(-uniform(mix(start))) / size)
    leaves = size
    for node in range(1, size):
        if node & (node - 1) == 0:  # first of its depth
            leaves //= 2
        drawn = mix(start + node & _MASK)
        other = -np.expm1(np.log1p(-uniform(mix(drawn))) / leaves)
        above = least[node] + (1 - least[node]) * other
        left = drawn >> 63 == 0
        least[2 * node] = least[node] if left else above
        least[2 * node + 1] = above if left else least[node]
    return least[size : size + count]


def joiners(seed: int, round_: int, levels: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the clients that join a round, in order."""
    return np.flatnonzero(coin_uniforms(seed, round_, levels.size) < levels)


def tree_size(count: int) -> int:
    """Return the number of leaves of the tree over this many clients: a power of two."""
    return 1 << (count - 1).bit_length() if count > 1 else 1


def highest_levels(levels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the highest level below each node of the tree, the root at 1, the leaves last."""
    size = tree_size(levels.size)
    tree = np.zeros(2 * size)
    tree[size : size + levels.size] = levels
    while size > 1:
        tree[size // 2 : size] = np.maximum(
            tree[size : 2 * size : 2], tree[size + 1 : 2 * size : 2]
        )
        size //= 2
    return tree
