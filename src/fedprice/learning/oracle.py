"""Federated training, written to be read: the paper's pseudocode in plain numpy, float64.

The fast engine agrees with it to float tolerance for the same seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.learning.draws import batch_rows, joiners

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.arrays import FloatArray
    from fedprice.data.federation import Federation
    from fedprice.learning.aggregation import Aggregator
    from fedprice.learning.training import Training


__all__ = ["evaluate", "gradient", "local_update", "train"]


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


def train(
    federation: Federation,
    levels: FloatArray,
    training: Training,
    aggregator: Aggregator,
    seed: int,
) -> tuple[FloatArray, list[tuple[int, float, float]]]:
    """Return the final model, and (round, loss, test accuracy) at each evaluation."""
    x, y = with_bias(federation.features), federation.labels
    test_x, test_y = with_bias(federation.test_features), federation.test_labels
    w = np.zeros((federation.num_classes, x.shape[1]))
    state = aggregator.start(federation.num_clients, w.size)
    evaluations = []
    for r in range(training.rounds + 1):
        if r % training.evaluate_every == 0 or r == training.rounds:
            loss = evaluate(w, x, y, training.l2)[0]
            evaluations.append((r, loss, evaluate(w, test_x, test_y, 0.0)[1]))
        if r == training.rounds:
            break
        joined = joiners(seed, r, levels)
        updates = np.zeros((joined.size, w.size), np.float32)
        for i, n in enumerate(joined):
            own = slice(federation.offsets[n], federation.offsets[n + 1])
            rows = batch_rows(seed, r, int(n), training.local_steps, training.batch, y[own].size)
            update, _ = local_update(w, x[own], y[own], rows, training.rate(r), training.l2)
            updates[i] = update.ravel()
        w += aggregator.step(state, joined, updates, federation.weight, levels).reshape(w.shape)
    return w, evaluations
