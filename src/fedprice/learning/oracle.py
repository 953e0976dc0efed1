"""Logistic regression by local SGD, written to be read: plain numpy, float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray


__all__ = ["evaluate", "gradient", "local_update", "with_bias"]


def with_bias(x: npt.NDArray[np.float32]) -> FloatArray:
    """Return features with a constant 1 appended: the bias is one more weight."""
    return np.hstack([x, np.ones((len(x), 1))])


def probabilities(w: FloatArray, x: FloatArray) -> FloatArray:
    """Return softmax(x wᵀ), shape (rows, classes)."""
    z = x @ w.T
    p: FloatArray = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def gradient(w: FloatArray, x: FloatArray, y: npt.NDArray[np.int32], l2: float) -> FloatArray:
    """Return the gradient of the mean cross-entropy plus l2/2 ‖w‖², shape (classes, features)."""
    error = probabilities(w, x)
    error[np.arange(y.size), y] -= 1
    return error.T @ x / y.size + l2 * w


def evaluate(
    w: FloatArray, x: FloatArray, y: npt.NDArray[np.int32], l2: float
) -> tuple[float, float]:
    """Return the loss (with its l2 term) and the accuracy of a model."""
    z = x @ w.T
    top = z.max(axis=1)
    loss = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - z[np.arange(y.size), y]
    accuracy = (z.argmax(axis=1) == y).mean()
    return float(loss.mean() + l2 / 2 * (w**2).sum()), float(accuracy)


def local_update(
    w: FloatArray,
    x: FloatArray,
    y: npt.NDArray[np.int32],
    rows: npt.NDArray[np.int64],
    rate: float,
    l2: float,
) -> tuple[FloatArray, FloatArray]:
    """Return w_n − w after the local steps, and the squared norm of each stochastic gradient."""
    own, squares = w.copy(), []
    for batch in rows:
        g = gradient(own, x[batch], y[batch], l2)
        squares.append((g**2).sum())
        own -= rate * g
    return own - w, np.array(squares)
