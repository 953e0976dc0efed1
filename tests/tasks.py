"""A small task made of functions: clients that pull a model of two arrays, each its own way."""

from collections.abc import Callable

import numpy as np

from fedprice._plumbing.arrays import Arrays
from fedprice.learning import FunctionTask, Task

Update = Callable[[Arrays, int, int, int], Arrays]


def pulls(count: int, seed: int = 0) -> Update:
    """Return an update function of models with shapes (2, 2) and (1,)."""
    rng = np.random.default_rng(seed)
    goals, pull = rng.normal(size=(count, 5)), rng.uniform(0.1, 0.6, (count, 1))

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        noise = np.random.default_rng([seed, round_, client]).normal(size=5)
        flat = np.concatenate([model[0].ravel(), model[1]])
        moved = pull[client] * (goals[client] - flat) + 0.1 * noise
        return [moved[:4].reshape(2, 2), moved[4:]]

    return update


def small_task(
    count: int = 4, seed: int = 0, *, update: Update | None = None, dtype: str = "f8"
) -> FunctionTask:
    samples = np.random.default_rng(seed).integers(10, 200, count)
    return Task.of(
        initial=[np.zeros((2, 2), dtype), np.ones(1, dtype)],
        samples=samples,
        update=update or pulls(count, seed),
        evaluate=lambda model: {
            "loss": float(((model[0] - 1) ** 2).sum() + 1),
            "size": float(abs(model[1][0])),
        },
    )
