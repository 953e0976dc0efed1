"""Clients drawn at random modelled on the paper's Setup 1."""

from __future__ import annotations

import numpy as np

from fedprice.clients import Clients
from fedprice.errors import InputError

__all__ = ["EXAMPLE_ALPHA", "EXAMPLE_SEED", "population"]

EXAMPLE_ALPHA = 3.3  # the bound's α that goes with gradient norms of this size

EXAMPLE_SEED = (
    25  # an ordinary draw; at the equilibrium three clients pay, as in the paper's Table V
)


def population(
    num_clients: int = 40,
    *,
    mean_cost: float = 50.0,
    mean_value: float = 4000.0,
    seed: int = EXAMPLE_SEED,
) -> Clients:
    """Draw clients with exponential costs and values and power-law sample counts.

    As in Setup 1 of the paper, c ~ Exp(50), v ~ Exp(4000), and 40 clients have 22,377 samples, in
    shares that follow a Pareto law with exponent 1.5. The gradient norms, which the paper does not
    print, are lognormal around 5.

    Parameters
    ----------
    num_clients
        N ≥ 1.
    mean_cost, mean_value
        Means of the two exponential distributions.
    seed
        The same seed gives the same clients.

    Examples
    --------
    >>> float(population().samples.sum())
    22377.0
    """
    if num_clients < 1:
        raise InputError(f"`num_clients` must be at least 1; got {num_clients}.")
    rng = np.random.default_rng(seed)
    total = round(num_clients * 22_377 / 40)
    shares = 1 + rng.pareto(1.5, num_clients)
    samples = np.floor(total * shares / shares.sum())
    samples[: total - int(samples.sum())] += 1
    return Clients(
        samples=samples,
        grad_norm=rng.lognormal(np.log(5), 0.4, num_clients),
        cost=rng.exponential(mean_cost, num_clients),
        value=rng.exponential(mean_value, num_clients),
    )
