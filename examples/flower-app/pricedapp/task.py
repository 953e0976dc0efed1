"""The learning task: logistic regression on the data of one of the paper's setups."""

from functools import lru_cache

import numpy as np
from flwr.app import Context

from fedprice.data import Federation
from fedprice.experiments import setup_of
from fedprice.learning import LogisticRegression, Training


@lru_cache(maxsize=1)
def load(setup: str, clients: int) -> Federation:
    """Return the data of all clients; each uses its own part of it."""
    return setup_of(setup).federation(num_clients=clients)


@lru_cache(maxsize=1)
def logistic_regression(setup: str, clients: int, local_steps: int) -> LogisticRegression:
    """Return the learning task of all clients; each trains on its own part of the data."""
    return LogisticRegression(load(setup, clients), Training(local_steps=local_steps))


def task_of(context: Context) -> LogisticRegression:
    """Return the learning task that the app's settings name."""
    config = context.run_config
    return logistic_regression(
        str(config["setup"]), int(config["clients"]), int(config["local-steps"])
    )


def gradient_norm(task: LogisticRegression, n: int, seed: int) -> float:
    """Return the root mean square norm of a client's gradients while it trains a new model."""
    first = task.updates(task.initial, np.array([n]), 0, seed)
    return float(np.sqrt(first.squares[0] / first.gradients))


MEAN_COST, MEAN_VALUE = 50.0, 20.0


def costs_and_values(clients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what joining costs each client, and what the model is worth to it."""
    costs, values = np.random.default_rng(seed).exponential(size=(2, clients))
    return MEAN_COST * costs, MEAN_VALUE * values
