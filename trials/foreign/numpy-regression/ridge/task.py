"""ridge: the model and its data."""

import numpy as np

FEATURES = 12


def load_data(partition_id: int, seed: int):
    """Return training and validation rows of one partition; the means of partitions differ."""
    slope = np.random.default_rng(seed).normal(0, 1, FEATURES)
    rng = np.random.default_rng([seed, partition_id])
    rows = int(rng.integers(60, 400))
    x = rng.normal(rng.normal(0, 0.7, FEATURES), 1.0, (rows, FEATURES))
    y = x @ slope + 3.0 + rng.normal(0, 0.5, rows)
    cut = int(0.8 * rows)
    return x[:cut], y[:cut], x[cut:], y[cut:]


def get_initial():
    """Return weights and intercept."""
    return [np.zeros(FEATURES), np.zeros(1)]


def train(weights, x, y, epochs, lr, penalty, rng):
    """Run epochs of mini-batch gradient descent."""
    slope, intercept = weights
    for _ in range(epochs):
        for batch in np.array_split(rng.permutation(len(y)), max(1, len(y) // 16)):
            miss = x[batch] @ slope + intercept - y[batch]
            slope = slope - lr * (x[batch].T @ miss / len(batch) + penalty * slope)
            intercept = intercept - lr * miss.mean()
    return [slope, intercept]


def test(weights, x, y):
    """Return the mean squared error, and the explained share of the variance."""
    miss = x @ weights[0] + weights[1] - y
    return float((miss**2).mean()), float(1 - (miss**2).sum() / ((y - y.mean()) ** 2).sum())
