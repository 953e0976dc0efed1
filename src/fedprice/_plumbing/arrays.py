"""The array types that signatures name, work on large vectors, and a number for intervals."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "LARGE",
    "NORMAL_95",
    "Arrays",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "State",
    "at_once",
    "each_meanwhile",
    "in_parts",
    "scratch",
]

_S = TypeVar("_S")
_T = TypeVar("_T")

NORMAL_95 = 1.959963984540054  # half of a 95 % interval, in standard errors
LARGE = 1 << 21  # vectors of at least this size are shared among several cores

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Arrays = list[npt.NDArray[Any]]  # a model, or an update of it
State = dict[str, npt.NDArray[Any]]  # what is remembered between rounds, by name


def in_parts(size: int, work: Callable[[slice], _T], *, each: int = 1) -> list[_T]:
    """Call a function for all parts of a vector, at the same time if it is large.

    Parameters
    ----------
    size, each
        How many items there are to work on, and how many numbers each has.
    work
        What to do with a part; what it returns comes back in the order of the parts.
    """
    count = _cores() if size * each >= LARGE else 1
    step = -(-size // count)
    parts = [slice(start, min(start + step, size)) for start in range(0, size, step or 1)]
    return at_once(parts, work) if count > 1 else [work(part) for part in parts]


def at_once(items: Sequence[_S], work: Callable[[_S], _T]) -> list[_T]:
    """Return what a function gives for each item; several cores share the items."""
    if len(items) > 1 and _cores() > 1:
        return list(_threads().map(work, items))
    return [work(own) for own in items]


def each_meanwhile(
    items: Iterable[_S], work: Callable[[_S], _T], then: Callable[[_T], object], *, large: bool
) -> None:
    """Call two functions for each item, one after the other: `then` gets what `work` returns.

    If items are large, `work` runs while the next item is made, on all cores but one. It gets few
    turns while the other thread holds Python's lock, so it should consist of few, long calls;
    `then` runs when nothing else does.
    """
    if not large:
        for item in items:
            then(work(item))
            del item  # it may be large, and the next one is not there yet
        return
    with ThreadPoolExecutor(1, "fedprice", _leave_a_core) as worker:
        last: Future[_T] | None = None
        try:
            for item in items:
                if last is not None:
                    ready, last = last, None
                    then(ready.result())
                last = worker.submit(work, item)
                del item
        finally:  # what was begun is finished, even if making the next item fails
            if last is not None:
                then(last.result())


def scratch(size: int) -> FloatArray:
    """Return room for some numbers, which later calls in the same thread return again.

    New memory of this size costs more than what is done in it: the system clears it page by page.
    The largest room that was asked for, some megabytes, is kept until the thread ends.
    """
    room: FloatArray | None = getattr(_of_thread, "scratch", None)
    if room is None or room.size < size:
        room = _of_thread.scratch = np.empty(size)
    return room[:size]


_of_thread = threading.local()


def _cores() -> int:
    """Return how many cores the work of this thread may use."""
    return getattr(_of_thread, "cores", os.cpu_count() or 1)


def _leave_a_core() -> None:
    _of_thread.cores = max(1, (os.cpu_count() or 1) - 1)


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="fedprice")
