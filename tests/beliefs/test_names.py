"""What a client earns under several names, whose costs shrink with their data."""

import numpy as np
import pytest

from fedprice import Beliefs, Bound, Clients, post

OTHERS = [500, 800, 1000, 1500, 2000, 900, 700, 1100, 1000, 1200]


def earned(names: int, power: float) -> float:
    """The profit of a client with 1,000 samples, in all its names together."""
    samples = np.array([1000 / names] * names + OTHERS)
    clients = Clients(samples=samples, grad_norm=2.0)
    beliefs = Beliefs.exponential(cost=50, value=0)
    if power:
        scale = (samples / 1000) ** power
        beliefs = Beliefs.by_client(
            {str(i): beliefs.with_costs_times(s) for i, s in enumerate(scale.tolist())}
        )
        clients = Clients(samples=samples, grad_norm=2.0, ids=list(beliefs.types))
    posted = post(clients, beliefs, bound=Bound(alpha=3, rounds=300), budget=60.0)
    price, cost = float(posted.tariffs.prices[0, 0]), 50.0 / names
    level = min(1.0, price / (2 * cost))
    return names * (price * level - cost * level**2)


@pytest.mark.parametrize(
    ("power", "two", "four"), [(0.0, 1.437, 2.066), (0.5, 0.932, 0.860), (1.0, 0.602, 0.374)]
)
def test_names_gain_only_where_beliefs_ignore_data(power: float, two: float, four: float) -> None:
    """Where costs are believed to grow as the root of the data, a name is paid by its data."""
    one = earned(1, power)
    assert earned(2, power) / one == pytest.approx(two, abs=0.002)
    assert earned(4, power) / one == pytest.approx(four, abs=0.002)
