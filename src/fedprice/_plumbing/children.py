"""Python processes that this one starts: they leave Ctrl-C to it, and end when it does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["follow_parent", "sparing_children"]


@contextmanager
def sparing_children() -> Iterator[None]:
    """Let processes that are started in the block not be interrupted by Ctrl-C, which waits for it.

    A terminal interrupts all processes of a command. A child that is still importing modules would
    show a traceback, and so would one whose parent stops before it has said what to do.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # which would unblock the signal when it is started later
    waiting = False

    def wait(*_: object) -> None:
        nonlocal waiting
        waiting = True

    handler = signal.getsignal(signal.SIGINT)
    # Handlers run in the main thread even if another one, which does not block it, got the signal.
    waits = callable(handler) and threading.current_thread() is threading.main_thread()
    if waits:
        signal.signal(signal.SIGINT, wait)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # children inherit this
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if waits:
            signal.signal(signal.SIGINT, handler)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def follow_parent() -> None:
    """In a child: ignore Ctrl-C from now on, and end at once when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
