"""Exact prices for participation in federated learning.

>>> import fedprice as fp
>>> clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0],
...                      cost=[40, 55, 20], value=[0, 4000, 9000])
>>> game = fp.Game(clients, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20)
>>> best = fp.solve(game)
>>> best
Outcome(scheme='equilibrium', status='optimal', num_clients=3, spend=20, expected_loss=0.00180947,
payers=1)
>>> fp.solve(game, scheme="uniform").expected_loss > best.expected_loss
True
"""

from fedprice.bound import Bound
from fedprice.clients import Clients
from fedprice.errors import FedpriceError, InputError, MissingExtraError
from fedprice.game import Game, best_response, price_for, utilities
from fedprice.pricing import SCHEMES, Certificate, Outcome, Scheme, Status, scheme, solve
from fedprice.pricing.frontier import frontier
from fedprice.random_clients import population

__version__ = "0.1.0"

__all__ = [
    "SCHEMES",
    "Bound",
    "Certificate",
    "Clients",
    "FedpriceError",
    "Game",
    "InputError",
    "MissingExtraError",
    "Outcome",
    "Scheme",
    "Status",
    "best_response",
    "frontier",
    "population",
    "price_for",
    "scheme",
    "solve",
    "utilities",
]
