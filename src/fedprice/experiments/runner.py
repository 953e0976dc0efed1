"""Runs cells on worker processes or on a Ray cluster, and returns their results."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from fedprice._plumbing.children import follow_parent, sparing_children
from fedprice.errors import InputError, require
from fedprice.experiments.cells import Cell, Curve, TaskSource, compute
from fedprice.learning import LogisticRegression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fedprice.learning import Task

__all__ = ["run_cells"]

TICK = 0.5  # seconds between checks of the workers' progress
STRIDE = 10  # rounds that a worker reports at a time

_done: Any = None  # in a worker: rounds done by all workers, shared


def run_cells(
    cells: Sequence[Cell], workers: int | str, progress: Callable[[int, int], None]
) -> Iterator[tuple[Cell, Curve]]:
    """Compute cells, and yield each with its result as it arrives.

    Cells of a setup run on processes or a cluster. Those of a user's task run on threads of this
    process, since no other process could create the task.

    Parameters
    ----------
    cells
        What to compute.
    workers
        How many processes, one thread each; or "ray" for a Ray cluster: the one that RAY_ADDRESS
        names, or a local one on loopback.
    progress
        Called from time to time with the numbers of rounds and cells done so far.
    """
    if isinstance(cells[0].source, TaskSource):
        return _on_threads(cells, cells[0].source.task, int(workers), progress)
    return _on_ray(cells, progress) if workers == "ray" else _on_processes(cells, workers, progress)  # type: ignore[arg-type]


def _on_threads(
    cells: Sequence[Cell], task: Task, workers: int, progress: Callable[[int, int], None]
) -> Iterator[tuple[Cell, Curve]]:
    rounds = finished = 0
    lock, stopping = threading.Lock(), threading.Event()

    def tell(_: int) -> None:
        nonlocal rounds
        if stopping.is_set():
            raise CancelledError
        with lock:
            rounds += 1

    if isinstance(task, LogisticRegression):
        task.prepare()  # once, before the threads
    with ThreadPoolExecutor(workers if task.parallel else 1) as pool:
        try:
            waiting = {pool.submit(compute, c, c.fingerprint(), tell): c for c in cells}
            while waiting:
                done, _ = wait(waiting, timeout=TICK, return_when=FIRST_COMPLETED)
                for future in done:
                    finished += 1
                    yield waiting.pop(future), future.result()
                progress(rounds, finished)
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)


def _on_processes(
    cells: Sequence[Cell], workers: int, progress: Callable[[int, int], None]
) -> Iterator[tuple[Cell, Curve]]:
    context = multiprocessing.get_context("spawn")
    with sparing_children():  # or a semaphore that is half made would be left behind
        rounds = context.Value("q", 0)
        pool = ProcessPoolExecutor(
            min(workers, len(cells)), context, initializer=_start_worker, initargs=(rounds,)
        )
    finished = 0
    try:
        with sparing_children():
            waiting = {pool.submit(_work, cell, cell.fingerprint()): cell for cell in cells}
        while waiting:
            done, _ = wait(waiting, timeout=TICK, return_when=FIRST_COMPLETED)
            for future in done:
                finished += 1
                yield waiting.pop(future), future.result()
            progress(rounds.value, finished)
        pool.shutdown()
    except BaseException as error:
        for child in list((pool._processes or {}).values()):
            child.kill()
        pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise InputError(
                "a worker was killed, perhaps as memory ran out; all progress is kept. Run the "
                "same command again, with fewer --workers."
            ) from error
        raise


def _start_worker(rounds: Any) -> None:
    """Share the counter, leave Ctrl-C to the parent process, and end with it."""
    global _done
    _done = rounds
    follow_parent()


def _work(cell: Cell, fingerprint: str) -> Curve:
    def progress(done: int) -> None:
        if done % STRIDE == 0 or done == cell.rounds:
            with _done.get_lock():
                _done.value += STRIDE if done % STRIDE == 0 else done % STRIDE

    return compute(cell, fingerprint, progress)


def _on_ray(
    cells: Sequence[Cell], progress: Callable[[int, int], None]
) -> Iterator[tuple[Cell, Curve]]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = require("ray", "ray")
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False)
    else:
        ray.init(
            include_dashboard=False, log_to_driver=False, logging_level="ERROR",
            _node_ip_address="127.0.0.1",
        )  # fmt: skip
    try:
        remote = ray.remote(compute)
        waiting = {remote.remote(cell, cell.fingerprint()): cell for cell in cells}
        rounds = finished = 0
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=TICK)
            for reference in done:
                cell = waiting.pop(reference)
                curve: Curve = ray.get(reference)
                rounds, finished = rounds + cell.rounds, finished + 1
                yield cell, curve
            progress(rounds, finished)
    finally:
        ray.shutdown()
