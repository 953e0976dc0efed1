"""Splits of a pool of labelled samples over clients: power-law sizes, few classes per client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["few_classes", "power_law_sizes", "scaled_sizes", "split"]

TRIES = 1000  # Dirichlet splits to draw until every client has enough samples


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
    """Split samples over clients so that each has between 1 and `most_classes` classes.

    Large clients draw first. Each draws how many classes it may have, then classes at random among
    those with samples left, in proportion to what is left, until they can fill it.

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
    owned: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)] * sizes.size
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
                "ask for fewer samples or more classes per client."
            )
        # One of each class, and the rest at random without replacement.
        classes = classes[: sizes[n]]
        rest = int(sizes[n]) - classes.size
        counts = 1 + rng.multivariate_hypergeometric(left[classes] - 1, rest)
        owned[n] = np.concatenate(
            [pools[c][left[c] - k : left[c]] for c, k in zip(classes, counts, strict=True)]
        )
        left[classes] -= counts
    return owned


def split(
    labels: npt.NDArray[np.int32],
    num_clients: int,
    how: str,
    rng: np.random.Generator,
    *,
    least: int = 5,
) -> list[npt.NDArray[np.int64]]:
    """Split all samples over clients by a named rule.

    Parameters
    ----------
    labels
        The pool's labels.
    num_clients
        Number of clients.
    how
        "iid": at random; "dirichlet:A": each class is split in shares drawn from a Dirichlet law,
        which are the more uneven the smaller A is; "shards:K": samples are sorted by class and cut
        into equal shards, of which each client gets K.
    rng
        The source of randomness.
    least
        The fewest samples of a client.

    Returns
    -------
    list of arrays
        Indices into the pool, no index twice.

    References
    ----------
    B. McMahan and others, Communication-efficient learning of deep networks from decentralized
    data, AISTATS 2017 (shards). T.-M. H. Hsu, H. Qi and M. Brown, Measuring the effects of
    non-identical data distribution for federated visual classification, 2019 (Dirichlet).

    Examples
    --------
    >>> labels = np.repeat(np.arange(3, dtype=np.int32), 40)
    >>> owned = split(labels, 4, "dirichlet:0.5", np.random.default_rng(0))
    >>> sum(rows.size for rows in owned), min(rows.size for rows in owned) >= 5
    (120, True)
    """
    kind, _, text = how.partition(":")
    if labels.size < least * num_clients:
        raise InputError(
            f"{labels.size} samples are too few for {num_clients} clients of {least} or more."
        )
    if kind == "iid" and not text:
        return list(np.array_split(rng.permutation(labels.size), num_clients))
    number = _positive(text)
    if kind == "shards" and number is not None and number % 1 == 0:
        count = min(int(number) * num_clients, labels.size)
        mixed = rng.permutation(labels.size)
        shards = np.array_split(mixed[np.argsort(labels[mixed], kind="stable")], count)
        given = np.array_split(rng.permutation(count), num_clients)
        return [np.concatenate([shards[i] for i in some]) for some in given]
    if kind != "dirichlet" or number is None:
        raise InputError(
            f"a partition is iid, dirichlet:A or shards:K, such as dirichlet:0.3; got {how!r}."
        )
    pools = [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    for _ in range(TRIES):
        shares = rng.dirichlet(np.full(num_clients, number), len(pools))
        cuts = [
            np.round(np.cumsum(own)[:-1] * pool.size).astype(np.int64)
            for own, pool in zip(shares, pools, strict=True)
        ]
        parts = [np.split(pool, cut) for pool, cut in zip(pools, cuts, strict=True)]
        owned = [np.concatenate([own[n] for own in parts]) for n in range(num_clients)]
        if min(rows.size for rows in owned) >= least:
            return owned
    raise InputError(
        f"{how} leaves some of {num_clients} clients with fewer than {least} samples; ask for a "
        "larger number or fewer clients."
    )


def _positive(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None
