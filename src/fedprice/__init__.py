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

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from fedprice.bound import Bound
from fedprice.clients import Clients
from fedprice.errors import DivergedError, FedpriceError, InputError, MissingExtraError
from fedprice.game import Game, best_response, price_for, utilities
from fedprice.pricing import (
    SCHEMES,
    Certificate,
    Outcome,
    Scheme,
    Status,
    scale_to_budget,
    scheme,
    solve,
)
from fedprice.pricing.frontier import frontier
from fedprice.random_clients import population

if TYPE_CHECKING:
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.evidence import Evidence
    from fedprice.beliefs.from_others import post_from_others
    from fedprice.beliefs.lies import manipulability
    from fedprice.beliefs.posted import Posted
    from fedprice.beliefs.posting import post
    from fedprice.beliefs.refusals import refusals
    from fedprice.beliefs.revealed import reveal
    from fedprice.calibration import Calibration, calibrate
    from fedprice.data.federation import Federation
    from fedprice.experiments.user_study import study
    from fedprice.learning.logistic import LogisticRegression
    from fedprice.learning.task import Task
    from fedprice.learning.training import Training
    from fedprice.market.ledger import Ledger
    from fedprice.market.simulation import simulate_market
    from fedprice.rounds.simulation import simulate
    from fedprice.steps import best_steps

__version__ = "0.1.0"

# Imported when first used: pricing needs none of them.
_LATER = {
    "Beliefs": "fedprice.beliefs.beliefs",
    "Calibration": "fedprice.calibration",
    "Evidence": "fedprice.beliefs.evidence",
    "Federation": "fedprice.data.federation",
    "Ledger": "fedprice.market.ledger",
    "LogisticRegression": "fedprice.learning.logistic",
    "Posted": "fedprice.beliefs.posted",
    "Task": "fedprice.learning.task",
    "Training": "fedprice.learning.training",
    "best_steps": "fedprice.steps",
    "calibrate": "fedprice.calibration",
    "manipulability": "fedprice.beliefs.lies",
    "post": "fedprice.beliefs.posting",
    "post_from_others": "fedprice.beliefs.from_others",
    "refusals": "fedprice.beliefs.refusals",
    "reveal": "fedprice.beliefs.revealed",
    "simulate": "fedprice.rounds.simulation",
    "simulate_market": "fedprice.market.simulation",
    "study": "fedprice.experiments.user_study",
}

__all__ = [
    "SCHEMES",
    "Beliefs",
    "Bound",
    "Calibration",
    "Certificate",
    "Clients",
    "DivergedError",
    "Evidence",
    "Federation",
    "FedpriceError",
    "Game",
    "InputError",
    "Ledger",
    "LogisticRegression",
    "MissingExtraError",
    "Outcome",
    "Posted",
    "Scheme",
    "Status",
    "Task",
    "Training",
    "best_response",
    "best_steps",
    "calibrate",
    "frontier",
    "manipulability",
    "population",
    "post",
    "post_from_others",
    "price_for",
    "refusals",
    "reveal",
    "scale_to_budget",
    "scheme",
    "simulate",
    "simulate_market",
    "solve",
    "study",
    "utilities",
]


# Names that are about to be removed, and what to use instead: (module, name). Remove their imports
# above, or nobody is warned.
_LEAVING: dict[str, tuple[str, str]] = {}


def __getattr__(name: str) -> Any:
    if name in _LEAVING:
        module, instead = _LEAVING[name]
        warnings.warn(
            f"fedprice.{name} is about to be removed; use {module}.{instead}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(importlib.import_module(module), instead)
    if name not in _LATER:
        raise AttributeError(f"module 'fedprice' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
