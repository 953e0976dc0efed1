"""Splits of a pool of labelled samples over clients: power-law sizes, few classes a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["few_classes", "power_law_sizes", "scaled_sizes"]


def scaled_sizes(raw: npt.NDArray[np.float64], total: int, least: int) -> npt.NDArray[np.int64]:
    """Scale positive numbers to whole ones of at least `least` that sum to `total`.

    Examples
    --------
    >>> scaled_sizes(np.array([1.0, 2.0, 5.0]), total=20, least=3)
    array([ 4,  6, 10])
    """
    if total < least * raw.size:
        raise InputError(f"{total} samples are too few for {raw.size} clients of {least} or more.")
    exact = least + (total - least * raw.size) * raw / raw.sum()
    sizes: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    # Largest remainders first, ties by position.
    sizes[np.argsort(sizes - exact, kind="stable")[: total - sizes.sum()]] += 1
    return sizes


def power_law_sizes(
    num_clients: int,
    total: int,
    rng: np.random.Generator,
    *,
    exponent: float = 1.5,
    least: int = 20,
) -> npt.NDArray[np.int64]:
    """Draw client sizes from a Pareto law, scaled to the total."""
    return scaled_sizes(1 + rng.pareto(exponent, num_clients), total, least)


def few_classes(
    labels: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int64],
    most_classes: int,
    rng: np.random.Generator,
) -> list[npt.NDArray[np.int64]]:
    """Deal samples to clients so that each has between 1 and `most_classes` classes.

    Large clients draw first. Each draws how many classes it may have, then classes at random among
    those with samples left, likelier the more are left, until they can fill it.

    Parameters
    ----------
    labels
        The pool's labels.
    sizes
        How many samples each client gets.
    most_classes
        The most classes of a client.
    rng
        The source of randomness.

    Returns
    -------
    list of arrays
        Indices into the pool, no index twice.
    """
    pools = [rng.permutation(np.flatnonzero(labels == c)) for c in range(int(labels.max()) + 1)]
    left = np.array([pool.size for pool in pools])
    dealt: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)] * sizes.size
    for n in np.argsort(-sizes, kind="stable"):
        wanted = int(rng.integers(1, most_classes + 1))
        open_ = np.flatnonzero(left)
        order = rng.choice(open_, open_.size, replace=False, p=left[open_] / left.sum())
        needed = int(np.searchsorted(np.cumsum(left[order]), sizes[n])) + 1
        classes = order[: max(wanted, needed)]
        if classes.size > most_classes or left[classes].sum() < sizes[n]:
            classes = np.argsort(-left, kind="stable")[:most_classes]
        if left[classes].sum() < sizes[n]:
            raise InputError(
                f"{most_classes} classes have no {sizes[n]} samples left for client {n + 1}; "
                "ask for fewer samples or more classes a client."
            )
        # One of each class, the rest at random without returning.
        classes = classes[: sizes[n]]
        rest = int(sizes[n]) - classes.size
        counts = 1 + rng.multivariate_hypergeometric(left[classes] - 1, rest)
        dealt[n] = np.concatenate(
            [pools[c][left[c] - k : left[c]] for c, k in zip(classes, counts, strict=True)]
        )
        left[classes] -= counts
    return dealt
