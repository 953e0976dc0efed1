"""The constants that Theorem 1 is stated with, for multinomial logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprice.learning.oracle import gradient, with_bias

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.learning.logistic import LogisticRegression

__all__ = ["Theory", "theory_constants"]


@dataclass(frozen=True, eq=False)
class Theory:
    """The constants that Theorem 1 is stated with.

    Attributes
    ----------
    smoothness, convexity
        L and μ. Without l2, μ is 0 and the theory's α infinite.
    grad_std
        σ_n at w₀ = 0, shape (num_clients,).
    """

    smoothness: float
    convexity: float
    grad_std: FloatArray


def theory_constants(task: LogisticRegression) -> Theory:
    """Return L, μ and σ_n of multinomial logistic regression on these data.

    The Hessian of the cross-entropy is at most ½ Xᵀ X / n, so L is half the largest eigenvalue of
    any client's Xᵀ X / n, plus l2; μ is l2.
    """
    federation, training = task.federation, task.training
    x, y = with_bias(federation.features), federation.labels
    start = np.zeros((federation.num_classes, x.shape[1]))
    smoothness, stds = 0.0, np.empty(federation.num_clients)
    for n in range(federation.num_clients):
        own = slice(federation.offsets[n], federation.offsets[n + 1])
        rows, labels = x[own], y[own]
        top = float(np.linalg.eigvalsh(rows.T @ rows / labels.size)[-1])
        smoothness = max(smoothness, top / 2)
        # ‖∇ of one sample‖² at w₀ = 0 is ‖x‖² ‖p − e_y‖², with p uniform.
        error = 1 - 1 / federation.num_classes
        second = error * float((rows**2).sum(axis=1).mean())
        mean = float((gradient(start, rows, labels, 0.0) ** 2).sum())
        stds[n] = np.sqrt(max(second - mean, 0.0) / training.batch)
    return Theory(smoothness + training.l2, training.l2, stds)
