"""The command `fedprice`."""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]

STOPPED = 130  # the exit code of a command that was interrupted


def main() -> None:
    """Run the command line; every error is one line on stderr and a numbered exit code."""
    try:
        from fedprice.cli.app import run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write("fedprice: stopped.\n")
        code = STOPPED
    if code == STOPPED:
        end_now(code)
    end(code)


def end(code: int) -> None:
    """End the process, without a search of all that the libraries hold for cycles to free."""
    gc.freeze()
    sys.exit(code)


def end_now(code: int) -> None:
    """End the process without waiting for threads: one may still be compiling for seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    if "multiprocessing.util" in sys.modules:  # or its tracker would tell of semaphores left behind
        sys.modules["multiprocessing.util"]._run_finalizers(0)
    os._exit(code)
