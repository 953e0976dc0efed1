"""Computations in processes of their own, which take a limited time and a limited memory.

Python cannot stop a computation in a thread, and one that fills the memory would end the server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fedprice._plumbing.children import follow_parent, sparing_children
from fedprice.errors import FedpriceError, InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LONGEST", "close", "computed"]

WORKERS = 2
LONGEST = 10.0  # seconds of a processor
MEMORY = 2**30  # bytes, besides what a worker takes before it begins


async def computed(work: Callable[..., str], *arguments: object, longest: float = LONGEST) -> str:
    """Return what work returns in a worker, or raise the error of fedprice that ended it."""
    try:
        with sparing_children():  # which may have to be started
            future = _pool().submit(_limited, work, arguments, longest)
        return await asyncio.wrap_future(future)
    except BrokenProcessPool:
        close()
        raise InputError("the computation was ended, perhaps as memory ran out.") from None


def close() -> None:
    """End the workers, and what they compute."""
    if _pool.cache_info().currsize:
        pool = _pool()
        _pool.cache_clear()
        for worker in list((pool._processes or {}).values()):
            worker.kill()
        pool.shutdown(cancel_futures=True)


@cache
def _pool() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(WORKERS, context, initializer=_start)


# In a worker


class _TooLong(BaseException):
    """The time is over; nothing that is computed catches this."""


def _start() -> None:
    follow_parent()
    with suppress(ImportError, OSError):  # Windows and macOS
        import resource

        data = int(Path("/proc/self/statm").read_text("ascii").split()[5])
        most = MEMORY + data * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _limited(work: Callable[..., str], arguments: tuple[object, ...], longest: float) -> str:
    timed = hasattr(signal, "setitimer")  # not on Windows
    if timed:
        signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, longest)
    try:
        return work(*arguments)
    except _TooLong:
        raise InputError(
            f"this takes more than {longest:g} seconds of a processor; ask for less, or use the "
            "command line, which has no such limit."
        ) from None
    except MemoryError:
        raise InputError("this takes more than 1 GiB of memory; send fewer clients.") from None
    except FedpriceError as error:  # others may have arguments that cannot be sent
        kind = MissingExtraError if isinstance(error, MissingExtraError) else InputError
        raise kind(str(error)) from None
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _stop(*_: object) -> NoReturn:
    raise _TooLong
