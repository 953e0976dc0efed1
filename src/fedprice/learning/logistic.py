"""`LogisticRegression`: multinomial logistic regression by local SGD, compiled.

The updates of many clients are computed at once by compiled code that releases the interpreter
lock, spread over threads; each is a function of model, round, seed and client alone, so any number
of threads gives the same bits. `oracle` is the version to read.
"""

from __future__ import annotations

import hashlib
import os
import threading
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import require
from fedprice.learning.evaluation import evaluate_model, run_all
from fedprice.learning.optimum import best_loss
from fedprice.learning.prepared import Prepared, aligned, prepared
from fedprice.learning.task import Task, Updates
from fedprice.learning.training import Training

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import numpy.typing as npt

    from fedprice._plumbing.arrays import Arrays, FloatArray, IntArray
    from fedprice.data.federation import Federation

__all__ = ["LogisticRegression"]

RATES = 1000  # learning rates that enter the fingerprint


class LogisticRegression(Task):
    """Multinomial logistic regression from w₀ = 0 on a federation.

    The model is one float32 array of shape (classes, features + 1), the bias last. Metrics are the
    loss over all training samples, its l2 term included, and the accuracy on the test set.

    Parameters
    ----------
    federation
        The clients' data.
    training
        Local steps, batch, learning rate; the paper's by default.

    Examples
    --------
    >>> from fedprice.data.synthetic import synthetic
    >>> task = LogisticRegression(synthetic(num_clients=4, samples=400), Training(local_steps=5))
    >>> task.num_clients, task.initial[0].shape
    (4, (10, 61))
    """

    parallel = convex = True

    def __init__(self, federation: Federation, training: Training | None = None) -> None:
        self.federation, self.training = federation, training or Training()
        self.name, self.ids, self.samples = federation.name, federation.ids, federation.samples
        shape = (federation.num_classes, federation.features.shape[1] + 1)
        self.initial = [np.zeros(shape, np.float32)]
        self._rooms = threading.local()
        self._at_start: dict[str, float] | None = None  # the metrics of w₀

    def __repr__(self) -> str:
        return f"LogisticRegression({self.federation!r}, {self.training!r})"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the data, and of how the clients train."""
        training = self.training
        rates = np.array([training.rate(r) for r in range(RATES)])
        parts = (
            "logistic regression",
            self.federation.fingerprint,
            training.local_steps,
            training.batch,
            float(training.l2),
            hashlib.sha256(rates.data).hexdigest(),
        )
        return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()

    def prepare(self) -> Prepared:
        """Return the data in the layout of the kernels; the same object on every call."""
        return prepared(self.federation, self.training.seen)

    def updates(
        self,
        model: Arrays,
        clients: IntArray,
        round_: int,
        seed: int,
        pool: Executor | None = None,
    ) -> Updates:
        """Return the updates, with the squared norms of the stochastic gradients behind them."""
        kernels = require("fedprice.learning.kernels", "learn")
        data, training = self.prepare(), self.training
        wide = self._wide(data, model)
        values = np.empty((clients.size, *model[0].shape), np.float32)
        norms = np.empty((clients.size, 2))

        def work(slots: IntArray) -> None:
            kernels.update_clients(
                data.x, data.y, self.federation.offsets, data.gram, data.gram_at, clients, slots,
                wide, self.federation.num_classes, seed, round_, training.local_steps,
                training.batch, training.rate(round_), training.l2, self._room("own", data), values,
                norms, data.block,
            )  # fmt: skip

        shares = 1 if pool is None else os.cpu_count() or 1
        run_all(work, _shares(data.work[clients], shares), pool)
        flat = values.reshape(clients.size, -1)
        return Updates(flat, norms[:, 0], norms[:, 1], training.local_steps)

    def evaluate(self, model: Arrays, pool: Executor | None = None) -> dict[str, float]:
        """Return the loss over all training samples, and the accuracy on the test set."""
        if model[0].any():
            return self._evaluated(model, pool)
        if self._at_start is None:  # every run of a task starts there
            self._at_start = self._evaluated(model, pool)
        return self._at_start.copy()

    def _evaluated(self, model: Arrays, pool: Executor | None) -> dict[str, float]:
        data, classes = self.prepare(), self.federation.num_classes
        wide = self._wide(data, model)
        loss, _ = evaluate_model(data.x, data.y, wide, classes, pool)
        if self.training.l2:
            loss += self.training.l2 / 2 * float((wide.astype(np.float64) ** 2).sum())
        labels = self.federation.test_labels
        accuracy = evaluate_model(data.test_x, labels, wide, classes, pool)[1]
        return {"loss": loss, "accuracy": accuracy}

    @property
    def names(self) -> list[str]:
        """The name of the model's only array."""
        return ["weights"]

    def reach(self, round_: int) -> float:
        """Return η E of a round."""
        return self.training.rate(round_) * self.training.local_steps

    def least_loss(self) -> float:
        """Return F* by L-BFGS; without l2, the loss at the minimum with a small ridge."""
        return best_loss(self.federation, self.training.l2)

    def label_order(self) -> IntArray:
        """Return the clients by their most common label, then by their mean label."""
        return self.federation.label_order()

    def _wide(self, data: Prepared, model: Arrays) -> npt.NDArray[np.float32]:
        """Return the model padded, as the kernels need it."""
        wide, (classes, features) = self._room("wide", data), model[0].shape
        wide[:classes, :features] = model[0]
        return wide

    def _room(self, name: str, data: Prepared) -> npt.NDArray[np.float32]:
        """Return memory for a padded model, which each thread keeps for its next round."""
        room: npt.NDArray[np.float32] | None = getattr(self._rooms, name, None)
        if room is None:
            room = aligned(*data.model_shape)
            setattr(self._rooms, name, room)
        return room


def _shares(work: FloatArray, count: int) -> list[IntArray]:
    """Split slots into shares of about equal work: the largest first, to the smallest share."""
    if count == 1 or work.size < 2:
        return [np.arange(work.size)]
    loads = np.zeros(count)
    shares: list[list[int]] = [[] for _ in range(count)]
    for slot in np.argsort(-work, kind="stable").tolist():
        least = int(np.argmin(loads))
        shares[least].append(slot)
        loads[least] += work[slot]
    return [np.array(share, np.int64) for share in shares if share]
