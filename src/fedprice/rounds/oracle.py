"""The round loop and its memory, written to be read: plain numpy, float64.

The fast loop and `Memory` agree with them to float tolerance for the same seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.learning.draws import batch_rows, joiners
from fedprice.learning.oracle import evaluate, local_update, with_bias
from fedprice.rounds.aggregation.base import Arrivals

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.learning.logistic import LogisticRegression
    from fedprice.rounds.aggregation import Aggregator

__all__ = ["PlainMemory", "train"]


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


class PlainMemory:
    """What `Memory` computes, client by client; call `step` with each round's updates.

    Parameters
    ----------
    weight, probability
        a_n, and the probability p_n that an update arrives, shape (num_clients,).
    coefficient, cap, share
        As for `Memory`.
    """

    def __init__(
        self, weight: FloatArray, probability: FloatArray,
        coefficient: float | None, cap: float, share: float,
    ) -> None:  # fmt: skip
        self.weight, self.probability = weight, probability
        self.coefficient, self.cap, self.share = coefficient, cap, share
        self.last: dict[int, FloatArray] = {}  # h_n
        self.age: dict[int, int] = {}  # t_n
        # Sums of ⟨Δ, h⟩, ‖h‖² and ‖Δ‖² by doublings of the age:
        self.products, self.squares, self.lengths = np.zeros((3, 8))

    def predicts(self, n: int) -> float:
        """Return c(t_n), 0 for a client that never joined."""
        if n not in self.last:
            return 0.0
        if self.coefficient is not None:
            return self.coefficient
        known = np.flatnonzero(self.squares > 1e-200)
        older = known[known >= self.bin(n)]
        if not older.size:
            return 0.0
        some = known[known <= older[0]]  # its own bin or the next older one, and all younger ones
        learned = self.products[some] / self.squares[some]
        predicted = (
            np.maximum(self.products[some], 0) ** 2 / self.squares[some] / self.lengths[some]
        )
        doubt = 2 * (1 - predicted.min()) * self.weight[n] * self.age[n]
        return float(np.clip(learned.min(), 0, 1) / max(doubt, 1))

    def bin(self, n: int) -> int:
        """Return the doubling that a client's age is in: 1, 2–3, 4–7, …, 128 and more."""
        return min(self.age[n].bit_length() - 1, 7)

    def step(self, updates: dict[int, FloatArray], size: int) -> FloatArray:
        """Return the step of a round with these updates by client, and remember them."""
        a, p = self.weight, self.probability
        c = {n: self.predicts(n) for n in range(a.size)}
        nothing = np.zeros(size)
        total = sum((a[n] * c[n] * h for n, h in self.last.items()), nothing)
        scale = 1 - self.share + self.share * sum(a[n] / p[n] for n in updates)
        for n, update in updates.items():
            surprise = update - c[n] * self.last.get(n, nothing)
            total = total + max(a[n], min(a[n] / p[n], self.cap)) * surprise / scale
        self.products *= 0.9
        self.squares *= 0.9
        self.lengths *= 0.9
        for n in updates.keys() & self.last.keys():
            known = a[n] ** 2 * (1 - p[n]) / p[n] ** 2
            self.products[self.bin(n)] += known * (updates[n] @ self.last[n])
            self.squares[self.bin(n)] += known * (self.last[n] @ self.last[n])
            self.lengths[self.bin(n)] += known * (updates[n] @ updates[n])
        self.age = {n: age + 1 for n, age in self.age.items()} | dict.fromkeys(updates, 1)
        self.last |= updates
        return total
