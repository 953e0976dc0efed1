"""credit: who repays a loan, from a table with numbers and categories."""

import io
from functools import cache

import numpy as np
import pandas as pd

NUMBERS, CATEGORIES = ["age", "income", "debt"], ["city", "job", "housing"]
LEVELS = {"city": list("ABCDEF"), "job": ["clerk", "cook", "nurse"], "housing": ["own", "rent"]}
OFFSETS = np.cumsum([0] + [len(LEVELS[c]) for c in CATEGORIES])


def write_table(partition_id: int, seed: int) -> str:
    """Return a bank's table as CSV; banks are in different cities, and of different sizes."""
    shared, rng = np.random.default_rng(seed), np.random.default_rng([seed, partition_id])
    rows = 150 * (partition_id + 1)
    cities = rng.dirichlet(np.ones(6))
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, rows),
            "income": rng.gamma(4, 600, rows).round(2),
            "debt": rng.gamma(2, 3000, rows).round(2),
            "city": rng.choice(LEVELS["city"], rows, p=cities),
            "job": rng.choice(LEVELS["job"], rows),
            "housing": rng.choice(LEVELS["housing"], rows),
        }
    )
    numbers, codes = encode(table)
    taste = shared.normal(0, 1, OFFSETS[-1])
    score = numbers @ [0.6, 1.5, -1.5] + taste[codes].sum(axis=1) + 1.0
    table["repaid"] = (score + rng.logistic(0, 0.3, rows) > 0).astype(int)
    return table.to_csv(index=False)


def encode(table: pd.DataFrame):
    """Return the numbers, scaled, and the row of the table of effects for each category."""
    numbers = (table[NUMBERS].to_numpy(float) - [49, 2400, 6000]) / [18, 1200, 4200]
    codes = [
        pd.Categorical(table[c], LEVELS[c]).codes + o
        for c, o in zip(CATEGORIES, OFFSETS, strict=False)
    ]
    return numbers, np.stack(codes, axis=1)


@cache
def load_data(partition_id: int, seed: int):
    """Return training and validation data, each as numbers, codes and labels."""
    table = pd.read_csv(io.StringIO(write_table(partition_id, seed)))
    cut = int(0.8 * len(table))
    return [(*encode(part), part["repaid"].to_numpy()) for part in (table[:cut], table[cut:])]


def initial():
    """Return weights (float64, with the intercept) and effects of categories (float32)."""
    return [np.zeros((len(NUMBERS) + 1, 1)), np.zeros(OFFSETS[-1], np.float32)]


def predict(params, numbers, codes):
    """Return the probability to repay."""
    slope, effects = params
    score = numbers @ slope[:-1, 0] + slope[-1, 0] + effects[codes].sum(axis=1)
    return 1 / (1 + np.exp(-score))


def weighted_loss(params, numbers, codes, labels):
    """Return the loss with both classes weighing the same, and these weights."""
    share = np.clip(labels.mean(), 0.05, 0.95)
    weight = np.where(labels == 1, 0.5 / share, 0.5 / (1 - share))
    chance = np.clip(predict(params, numbers, codes), 1e-9, 1 - 1e-9)
    each = -np.where(labels == 1, np.log(chance), np.log(1 - chance))
    return float((weight * each).mean()), weight


def train(params, data, epochs, lr):
    """Run gradient descent; returns the parameters and the loss after each epoch."""
    numbers, codes, labels = data
    slope, effects = (array.copy() for array in params)
    losses = []
    for _ in range(epochs):
        _, weight = weighted_loss([slope, effects], numbers, codes, labels)
        miss = weight * (predict([slope, effects], numbers, codes) - labels) / len(labels)
        slope[:-1, 0] -= lr * (numbers.T @ miss)
        slope[-1, 0] -= lr * miss.sum()
        np.add.at(effects, codes, -lr * np.repeat(miss[:, None], codes.shape[1], axis=1))
        losses.append(weighted_loss([slope, effects], numbers, codes, labels)[0])
    return [slope, effects], losses
