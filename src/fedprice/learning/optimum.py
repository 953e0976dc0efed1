"""Optima of the loss, by L-BFGS: the global one, and each client's own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import require
from fedprice.learning.evaluation import evaluate_model, loss_and_gradient, thread_pool
from fedprice.learning.prepared import class_blocks, padded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.data.federation import Federation

    Features = npt.NDArray[np.float32]

__all__ = ["best_loss", "optimum", "own_optimum_losses"]

RIDGE = 1e-4  # where the loss itself has no minimum: separable data, or a client with one class


def optimum(
    x: Features, y: npt.NDArray[np.int32], num_classes: int, l2: float, pool: Executor | None = None
) -> tuple[Features, float]:
    """Return the minimiser of the mean cross-entropy plus l2/2 ‖w‖², padded, and the minimum.

    x are features as `padded` returns them.
    """
    from scipy.optimize import minimize

    block, classes = class_blocks(num_classes)
    shape = (classes, x.shape[1])

    def both(flat: FloatArray) -> tuple[float, FloatArray]:
        model = flat.reshape(shape).astype(np.float32)
        loss, gradient = loss_and_gradient(x, y, model, num_classes, block, pool)
        return loss + l2 / 2 * float(flat @ flat), gradient.ravel() + l2 * flat

    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-7}
    start = np.zeros(classes * x.shape[1])
    found = minimize(both, start, jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(shape).astype(np.float32), float(found.fun)


def best_loss(federation: Federation, l2: float = 0.0, ridge: float = 1e-4) -> float:
    """Return F*, the least global loss, its l2 term included.

    Without l2 the minimum may lie at infinity; then it is the loss, without any l2 term, at the
    minimum with a small ridge.
    """
    x, y, classes = padded(federation.features), federation.labels, federation.num_classes
    with _threads() as pool:
        model, least = optimum(x, y, classes, l2 or ridge, pool)
        return least if l2 else evaluate_model(x, y, model, classes, pool)[0]


def own_optimum_losses(federation: Federation, l2: float = RIDGE) -> FloatArray:
    """Return F(w_n*) of every client: the global loss at its own optimum (equation 8).

    With no l2 the optimum of a client whose classes are separable lies at infinity; the small ridge
    keeps it finite.
    """
    x, y, classes = padded(federation.features), federation.labels, federation.num_classes

    def work(n: int) -> float:
        own = slice(federation.offsets[n], federation.offsets[n + 1])
        model, _ = optimum(x[own], y[own], classes, l2)
        return evaluate_model(x, y, model, classes, None)[0]

    with _threads() as pool:
        return np.array(list(pool.map(work, range(federation.num_clients))))


@contextmanager
def _threads() -> Iterator[Executor]:
    """Yield our own threads, and limit BLAS to one, so that they do not compete."""
    limits = require("threadpoolctl", "learn").threadpool_limits
    with limits(1, "blas"), thread_pool() as pool:
        yield pool
