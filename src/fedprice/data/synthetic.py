"""Synthetic(α, β): clients whose models and inputs differ by a chosen amount.

References
----------
Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. "Federated Optimization in Heterogeneous Networks."
MLSys 2020. Section 5.1.
"""

from __future__ import annotations

import numpy as np

from fedprice.data.federation import Federation
from fedprice.data.partition import scaled_sizes
from fedprice.errors import InputError

__all__ = ["synthetic"]

DIMENSIONS, CLASSES = 60, 10
TEST_SHARE = 0.2  # test samples per client, relative to its training samples


def synthetic(
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    num_clients: int = 40,
    samples: int = 22_377,
    seed: int = 0,
) -> Federation:
    """Draw Synthetic(α, β).

    For each client u ~ N(0, α), B ~ N(0, β) and a feature mean v ~ N(B, 1) in 60 dimensions; inputs
    x ~ N(v, diag(j^−1.2)); weights W, b ~ N(u, 1); labels y = argmax(Wᵀ x + b) of 10 classes. Sizes
    are lognormal(4, 2) + 50, scaled to the total. As in the authors' code, α and β are standard
    deviations.

    Parameters
    ----------
    alpha, beta
        How much models, and inputs, differ between clients.
    num_clients, samples
        Clients, and training samples in total.
    seed
        The same seed gives the same bits.
    """
    if not (alpha >= 0 and beta >= 0 and np.isfinite(alpha + beta)):
        raise InputError(f"`alpha` and `beta` must be at least 0; got {alpha} and {beta}.")
    rng = np.random.default_rng(seed)
    sizes = scaled_sizes(rng.lognormal(4, 2, num_clients) + 50, samples, least=1)
    spread = np.arange(1, DIMENSIONS + 1) ** -0.6  # standard deviations of diag(j^-1.2)
    train, test = [], []
    for size in sizes:
        own = rng.spawn(1)[0]
        u, b_mean = own.normal(0, alpha), own.normal(0, beta)
        center = own.normal(b_mean, 1, DIMENSIONS)
        w, b = own.normal(u, 1, (DIMENSIONS, CLASSES)), own.normal(u, 1, CLASSES)
        extra = int(np.ceil(TEST_SHARE * size))
        x = center + spread * own.standard_normal((size + extra, DIMENSIONS))
        y = np.argmax(x @ w + b, axis=1)
        train.append((x[:size], y[:size]))
        test.append((x[size:], y[size:]))
    return Federation.of(
        f"synthetic({alpha:g}, {beta:g}), {num_clients} clients, seed {seed}",
        train,
        (np.concatenate([x for x, _ in test]), np.concatenate([y for _, y in test])),
        num_classes=CLASSES,
    )
