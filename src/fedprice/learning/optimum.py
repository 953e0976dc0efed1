"""Optima of the loss, by L-BFGS: the global one, and each client's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.learning.oracle import evaluate, gradient, with_bias

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.data.federation import Federation

    FloatArray = npt.NDArray[np.float64]

__all__ = ["best_loss", "optimum", "own_optimum_losses"]

RIDGE = 1e-4  # where the loss itself has no minimum: separable data, or a client with one class


def optimum(
    x: FloatArray, y: npt.NDArray[np.int32], num_classes: int, l2: float = RIDGE
) -> FloatArray:
    """Return the minimiser of the mean cross-entropy plus l2/2 ‖w‖², shape (classes, features)."""
    from scipy.optimize import minimize

    shape = (num_classes, x.shape[1])
    w_size = num_classes * x.shape[1]

    def both(w: FloatArray) -> tuple[float, FloatArray]:
        w = w.reshape(shape)
        return evaluate(w, x, y, l2)[0], gradient(w, x, y, l2).ravel()

    options = {"maxiter": 500, "ftol": 1e-9, "gtol": 1e-5}
    found = minimize(both, np.zeros(w_size), jac=True, method="L-BFGS-B", options=options)
    w: FloatArray = found.x.reshape(shape)
    return w


def best_loss(federation: Federation, l2: float = RIDGE) -> float:
    """Return F*, the least global loss, its l2 term included."""
    x, y = with_bias(federation.features), federation.labels
    return evaluate(optimum(x, y, federation.num_classes, l2), x, y, l2)[0]


def own_optimum_losses(federation: Federation, l2: float = RIDGE) -> FloatArray:
    """Return F(w_n*) of every client: its own optimum, judged by the global loss (equation 8).

    With no l2 the optimum of a client whose classes are separable lies at infinity; the small ridge
    keeps it finite.
    """
    x, y = with_bias(federation.features), federation.labels
    losses = np.empty(federation.num_clients)
    for n in range(federation.num_clients):
        own = slice(federation.offsets[n], federation.offsets[n + 1])
        w = optimum(x[own], y[own], federation.num_classes, l2)
        losses[n] = evaluate(w, x, y, 0.0)[0]
    return losses
