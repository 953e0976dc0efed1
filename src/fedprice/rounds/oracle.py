"""The round loop, written to be read: the paper's pseudocode in plain numpy, float64.

The fast loop agrees with it to float tolerance for the same seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.learning.draws import batch_rows, joiners
from fedprice.learning.oracle import evaluate, local_update, with_bias
from fedprice.rounds.aggregation.base import Arrivals

if TYPE_CHECKING:
    from fedprice.arrays import FloatArray
    from fedprice.learning.logistic import LogisticRegression
    from fedprice.rounds.aggregation import Aggregator

__all__ = ["train"]


def train(
    task: LogisticRegression,
    levels: FloatArray,
    aggregator: Aggregator,
    *,
    rounds: int,
    seed: int,
    evaluate_every: int,
) -> tuple[FloatArray, list[tuple[int, float, float]]]:
    """Return the final model, and (round, loss, test accuracy) at each evaluation."""
    federation, training = task.federation, task.training
    x, y = with_bias(federation.features), federation.labels
    test_x, test_y = with_bias(federation.test_features), federation.test_labels
    w = np.zeros((federation.num_classes, x.shape[1]))
    state = aggregator.start(federation.num_clients, w.size)
    evaluations = []
    for r in range(rounds + 1):
        if r % evaluate_every == 0 or r == rounds:
            loss = evaluate(w, x, y, training.l2)[0]
            evaluations.append((r, loss, evaluate(w, test_x, test_y, 0.0)[1]))
        if r == rounds:
            break
        joined = joiners(seed, r, levels)
        updates = np.zeros((joined.size, w.size), np.float32)
        for i, n in enumerate(joined):
            own = slice(federation.offsets[n], federation.offsets[n + 1])
            rows = batch_rows(seed, r, int(n), training.local_steps, training.batch, y[own].size)
            update, _ = local_update(w, x[own], y[own], rows, training.rate(r), training.l2)
            updates[i] = update.ravel()
        round_ = aggregator.begin(state, Arrivals(joined, federation.weight, levels, w.size))
        round_.add(joined, updates)
        w += round_.finish().reshape(w.shape)
        state = round_.state()
    return w, evaluations
