"""skdigits: the model and its data."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

CLASSES = np.arange(10)


@cache
def load_data(partition_id: int, num_partitions: int, seed: int):
    """Return one partition: many pictures of a few digits, and fewer of all others."""
    pictures, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    favourite = np.array_split(rng.permutation(CLASSES), num_partitions)
    owner = rng.integers(num_partitions, size=len(labels))
    for partition, digits in enumerate(favourite):
        owner[np.isin(labels, digits) & (rng.random(len(labels)) < 0.3)] = partition
    own = rng.permutation(np.flatnonzero(owner == partition_id))
    train, test = np.split(own, [int(0.8 * len(own))])
    return pictures[train] / 16, labels[train], pictures[test] / 16, labels[test]


def get_model(lr: float, penalty: str, seed: int) -> SGDClassifier:
    """Return a model whose parameters are there before it has seen any data."""
    model = SGDClassifier(
        loss="log_loss", penalty=penalty, learning_rate="constant", eta0=lr, random_state=seed
    )
    return model.partial_fit(np.zeros((1, 64)), [0], classes=CLASSES)


def get_params(model: SGDClassifier):
    """Return the parameters as a list of arrays."""
    return [model.coef_, model.intercept_]


def set_params(model: SGDClassifier, params) -> None:
    """Set the parameters."""
    model.coef_, model.intercept_ = params
