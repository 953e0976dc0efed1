"""Flower's processes on this machine: kept offline, and found by a mark in their environment.

A command that starts processes notes them in a directory of the user (`working_directory`). The
next command cleans up the processes and temporary files that a killed command has left behind.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from fedprice._plumbing.tables import whole_file
from fedprice.errors import FedpriceError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "DeploymentError",
    "descends",
    "end_marked",
    "flwr",
    "free_port",
    "last_error",
    "marked",
    "offline",
    "reason_of",
    "require_recent",
    "undisturbed",
    "working_directory",
]

MARK = "FEDPRICE_DEPLOYMENT"
DEPLOYABLE = 1, 41  # the first Flower whose SuperLink listens on one port, with HTTP
PATIENCE = 5.0  # seconds in which processes may end by themselves
_PORTS = range(10_240, 32_768)  # systems give higher ones to connections
_given: set[int] = set()
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RAISED = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception|Exit|Interrupt)\b.*)")
_WRAPPED = "The above exception was the direct cause of the following exception:"


class DeploymentError(FedpriceError):
    """A process failed; the message says where to look."""

    exit_code = 7


def require_recent() -> None:
    """Refuse a Flower whose programs have other options than ours use."""
    installed = version("flwr")
    if tuple(map(int, re.findall(r"\d+", installed)[:2])) < DEPLOYABLE:
        least = ".".join(map(str, DEPLOYABLE))
        raise DeploymentError(
            f"`flower up` and --ray need Flower {least}; {installed} is installed, which suffices "
            f"for `flower simulate`. Run: pip install --upgrade 'flwr>={least}'"
        )


def offline(home: Path, mark: str) -> dict[str, str]:
    """Return a marked environment in which Flower and Ray stay on this machine.

    It has neither FEDPRICE_LEDGER, which is for the server only, nor FEDPRICE_KEYS: a deployment
    gives each process its keys.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    ours = {"FEDPRICE_LEDGER", "FEDPRICE_KEYS"}
    own = {name: value for name, value in os.environ.items() if name not in ours}
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
    arguments: Sequence[str],
    environment: dict[str, str],
    folder: Path,
    *,
    timeout: float,
    log: Path | None = None,
) -> str:
    """Run Flower's command, and return what it prints, if that does not go to a log."""
    what = f"flwr {' '.join(arguments[:1])}"
    with (log or Path(os.devnull)).open("ab") as file:
        start = file.tell() if log else 0
        try:
            done = subprocess.run(
                ["flwr", *arguments],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file if log else subprocess.PIPE,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
                text=True,
                timeout=timeout,
                check=False,
                umask=0o077,
            )
        except subprocess.TimeoutExpired as error:
            see = f"; see {log}" if log else ""
            raise DeploymentError(f"{what} took more than {timeout:g} s{see}.") from error
    said = done.stdout or ""
    if log:
        said = log.read_bytes()[start:].decode("utf-8", "replace")
    if done.returncode != 0:
        see = f" See {log}." if log else ""
        raise DeploymentError(f"{what} failed: {reason_of(done.stderr or said)}{see}")
    return said


def reason_of(log: str) -> str:
    r"""Return why a program failed: the last error in its log, or else its last line.

    An error that wraps another one says less, such as "ending simulation", unless it is ours.

    Examples
    --------
    >>> reason_of("Traceback …\nfedprice.errors.InputError: too few.\nShutting down\n")
    'InputError: too few.'
    >>> reason_of("")
    'it printed nothing.'
    """
    return last_error(log) or ["it printed nothing.", *_lines(log)][-1]


def last_error(log: str) -> str:
    r"""Return the last error in a program's log, or an empty text if there is none.

    Examples
    --------
    >>> last_error("{'loss': '0.693'}\n")
    ''
    """
    raised, wraps = "", False
    for line in _lines(log):
        if found := _RAISED.match(line):
            if not wraps or line.startswith("fedprice."):
                raised = found[1]
            wraps = False
        wraps = wraps or line == _WRAPPED
    return raised


def _lines(log: str) -> list[str]:
    return [line.strip() for line in _COLOUR.sub("", log).splitlines() if line.strip()]


def marked(mark: str) -> list[int]:
    """Return the processes whose environment has this mark."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [n for n in numbers if f"{MARK}={mark}".encode() in _environment_of(n)]


def end_marked(mark: str, patience: float = PATIENCE) -> None:
    """Wait briefly for marked processes to end, then kill them."""
    until = time.monotonic() + patience
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.2)
    while (left := marked(mark)) and time.monotonic() < until + PATIENCE:
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.1)  # until they and all that they had just started are gone


@contextmanager
def working_directory(kept: Path | None, mark: str) -> Iterator[Path]:
    """Yield a directory for marked processes; clean up after commands that were killed.

    Parameters
    ----------
    kept
        The directory; None makes a temporary one, which is deleted afterwards, or when the next
        command starts if this one is killed.
    mark
        The mark that the processes carry in their environment.
    """
    notes = _notes()
    in_use = _clean_up(notes)
    folder = kept.resolve() if kept is not None else Path(tempfile.mkdtemp(prefix="fedprice-"))
    if str(folder) in in_use:
        raise InputError(f"{kept} is in use by process {in_use[str(folder)]}; end that one first.")
    note = {"mark": mark, "pid": os.getpid(), "started": _started(os.getpid())}
    note |= {"folder": str(folder), "temporary": kept is None}
    with whole_file(notes / f"{mark}.json", private=True) as part:
        part.write_text(json.dumps(note), "utf-8")
    try:
        yield folder
    finally:
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)
        (notes / f"{mark}.json").unlink(missing_ok=True)


def _clean_up(notes: Path) -> dict[str, int]:
    """Clean up after killed commands; return which directories are in use."""
    in_use = {}
    for path in notes.glob("*.json"):
        with suppress(FileNotFoundError):  # its command has just ended
            note = json.loads(path.read_text("utf-8"))
            if note["started"] == _started(note["pid"]):
                in_use[note["folder"]] = note["pid"]
                continue
            end_marked(note["mark"], patience=0.0)
            if note["temporary"]:
                shutil.rmtree(note["folder"], ignore_errors=True)
            path.unlink()
    return in_use


def _notes() -> Path:
    """Return the directory in which this user's commands note what they start."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = (
        Path(runtime) / "fedprice"
        if runtime and Path(runtime).is_dir()
        else Path(tempfile.gettempdir()) / f"fedprice-{os.getuid()}"
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise InputError(f"{folder} must be accessible only to you; delete it or chmod 700 it.")
    return folder


def _started(number: int) -> str:
    """Return when a process was started, which differs for a later one with the same id."""
    with suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and termination signals until everything is shut down."""
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
    """Return a free port of 127.0.0.1, another one with every call.

    It is not one that the system gives to connections, which could take it before its server does.
    """
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.socket() as found:
            found.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    raise DeploymentError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free.")


def _environment_of(number: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    return []
