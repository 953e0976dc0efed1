"""Handwritten digits of 8 × 8 pixels over clients: real data that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from fedprice.data.federation import Federation
from fedprice.data.partition import split
from fedprice.errors import require

__all__ = ["digits"]

TEST_SHARE = 0.2


def digits(*, num_clients: int = 20, partition: str = "dirichlet:0.3", seed: int = 0) -> Federation:
    """Split 1,797 digits: a fifth is the test set, the rest goes to the clients.

    Parameters
    ----------
    num_clients, partition
        How to split the samples; see `split`.
    seed
        The same seed gives the same bits.

    References
    ----------
    E. Alpaydin and C. Kaynak, Optical recognition of handwritten digits, UCI Machine Learning
    Repository, 1998.
    """
    data = require("sklearn.datasets", "digits").load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.target))
    x, y = (data.data[order] / 16).astype(np.float32), data.target[order].astype(np.int32)
    test = round(TEST_SHARE * len(y))
    owned = split(y[test:], num_clients, partition, rng)
    return Federation.of(
        f"digits, {num_clients} clients, {partition}, seed {seed}",
        [(x[test:][rows], y[test:][rows]) for rows in owned],
        (x[:test], y[:test]),
        num_classes=10,
    )
