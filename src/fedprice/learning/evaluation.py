"""Threads; loss and accuracy of a model over many rows, with the same bits on any of them."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray

    Features = npt.NDArray[np.float32]
    Labels = npt.NDArray[np.int32]

__all__ = ["Spare", "evaluate_model", "loss_and_gradient", "run_all", "thread_pool"]

TASK_ROWS = 2048


@contextmanager
def thread_pool(count: int | None = None) -> Iterator[Executor]:
    """Yield threads, by default one per core; work not started when the block ends is cancelled.

    An interrupt does not wait for them: one that compiles a kernel would take many seconds.
    """
    if hasattr(signal, "siginterrupt"):  # not on Windows
        # After polars is imported, waiting for a thread would otherwise ignore Ctrl-C until it is
        # done.
        signal.siginterrupt(signal.SIGINT, True)
    pool, wait = ThreadPoolExecutor(count or os.cpu_count() or 1), True
    try:
        yield pool
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


class Spare:
    """Threads that help the last of several runs once there are fewer runs left than threads.

    Parameters
    ----------
    helpers
        The threads.
    runs, threads
        How many runs there are, and how many threads they share.
    """

    def __init__(self, helpers: Executor, runs: int, threads: int) -> None:
        self._helpers, self._left, self._threads = helpers, runs, threads
        self._lock = threading.Lock()

    def release(self) -> None:
        """Note that a run has ended."""
        with self._lock:
            self._left -= 1

    def pool(self) -> Executor | None:
        """Return the threads, or None while every one of them has a run of its own."""
        return self._helpers if self._left < self._threads else None


def run_all(work: Callable[[Any], Any], tasks: Iterable[Any], pool: Executor | None) -> list[Any]:
    """Run tasks in the pool, or here if there is none; return their results in order."""
    return list(map(work, tasks) if pool is None else pool.map(work, tasks))


def evaluate_model(
    x: Features, y: Labels, model: Features, classes: int, pool: Executor | None
) -> tuple[float, float]:
    """Return the mean cross-entropy of a padded model and its accuracy."""
    kernels = require("fedprice.learning.kernels", "learn")

    def work(rows: slice) -> tuple[float, int]:
        result: tuple[float, int] = kernels.evaluate_rows(x[rows], y[rows], model, classes)
        return result

    parts = run_all(work, _tasks(y.size), pool)
    size = max(y.size, 1)
    return sum(loss for loss, _ in parts) / size, sum(right for _, right in parts) / size


def loss_and_gradient(
    x: Features,
    y: Labels,
    model: Features,
    classes: int,
    block: tuple[int, ...],
    pool: Executor | None,
) -> tuple[float, FloatArray]:
    """Return the mean cross-entropy of a padded model and its gradient, of the model's shape."""
    kernels = require("fedprice.learning.kernels", "learn")

    def work(rows: slice) -> tuple[float, Features]:
        part = np.zeros_like(model)
        return kernels.loss_gradient(x[rows], y[rows], model, classes, part, block), part

    loss, gradient = 0.0, np.zeros(model.shape)
    for own, part in run_all(work, _tasks(y.size), pool):
        loss += own
        gradient += part
    return loss / y.size, gradient / y.size


def _tasks(count: int) -> list[slice]:
    return [slice(first, first + TASK_ROWS) for first in range(0, count, TASK_ROWS)]
