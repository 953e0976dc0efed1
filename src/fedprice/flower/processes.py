"""Flower's processes on this machine: kept offline, and found by a mark in their environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedprice.errors import FedpriceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "DeploymentError",
    "descends",
    "end_marked",
    "flwr",
    "free_port",
    "marked",
    "offline",
    "undisturbed",
]

MARK = "FEDPRICE_DEPLOYMENT"
PATIENCE = 5.0  # seconds in which processes may end by themselves


class DeploymentError(FedpriceError):
    """A process did not do what it was started for; the text says where to look."""

    exit_code = 7


def offline(home: Path, mark: str) -> dict[str, str]:
    """Return a marked environment in which Flower and Ray stay on this machine.

    It has no FEDPRICE_LEDGER, which is for the server alone.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {name: value for name, value in os.environ.items() if name != "FEDPRICE_LEDGER"}
    return own | {
        "PATH": path,
        MARK: mark,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps Ray's listeners on 127.0.0.1
    }


def flwr(
    arguments: Sequence[str], environment: dict[str, str], folder: Path, *, timeout: float
) -> str:
    """Run Flower's command, and return what it prints."""
    try:
        done = subprocess.run(
            ["flwr", *arguments],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            umask=0o077,
        )
    except subprocess.TimeoutExpired as error:
        raise DeploymentError(
            f"flwr {' '.join(arguments[:2])} took more than {timeout:g} s."
        ) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise DeploymentError(f"flwr {' '.join(arguments[:2])} failed: {lines[-1]}")
    return done.stdout


def marked(mark: str) -> list[int]:
    """Return the processes whose environment has this mark."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [n for n in numbers if f"{MARK}={mark}".encode() in _environment_of(n)]


def end_marked(mark: str) -> None:
    """Wait a little for marked processes to end, then end them."""
    until = time.monotonic() + PATIENCE
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.2)
    while (left := marked(mark)) and time.monotonic() < until + PATIENCE:
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.1)  # until they are gone, and nothing that they had just started is left


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and requests to end, until what has to be taken down is down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {kind: signal.signal(kind, signal.SIG_IGN) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def descends(number: int, ancestor: int) -> bool:
    """Return whether a process descends from another."""
    while number > 1:
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        number = int(fields[1])
        if number == ancestor:
            return True
    return False


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _environment_of(number: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    return []
