"""The learning task: logistic regression on the data of one of the paper's setups."""

from functools import lru_cache

import numpy as np
from flwr.app import Context

from fedprice.data import Federation
from fedprice.experiments import setup_of
from fedprice.learning import Training


@lru_cache(maxsize=1)
def load(setup: str, clients: int) -> Federation:
    """Return the data of all clients; each uses its own part of it."""
    return setup_of(setup).federation(num_clients=clients)


def federation_of(context: Context) -> Federation:
    """Return the data that the app's settings name."""
    return load(str(context.run_config["setup"]), int(context.run_config["clients"]))


def training_of(context: Context) -> Training:
    """Return how the app's settings train."""
    config = context.run_config
    return Training(rounds=int(config["rounds"]), local_steps=int(config["local-steps"]))


def initial_model(federation: Federation) -> np.ndarray:
    """Return the model to start from: zeros, the bias in the last column."""
    return np.zeros((federation.num_classes, federation.features.shape[1] + 1), np.float32)


def costs_and_values(clients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what joining costs each client, and what the model is worth to it."""
    costs, values = np.random.default_rng(seed).exponential(size=(2, clients))
    return 50 * costs, 20 * values
