"""`Deployment`: a SuperLink and its SuperNodes as processes on this machine, started and stopped.

Everything listens on 127.0.0.1 and uses one directory, which others cannot read. All processes, and
the processes they start, carry a mark in their environment, by which they are found and ended.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprice._plumbing.tables import whole_file
from fedprice.errors import InputError
from fedprice.flower.app import config_text
from fedprice.flower.certificates import (
    holds_certificates,
    write_certificates,
    write_node_key,
)
from fedprice.flower.identity import made_up_cost, own_file
from fedprice.flower.processes import (
    DeploymentError,
    descends,
    end_marked,
    flwr,
    free_port,
    last_error,
    marked,
    offline,
    require_recent,
    undisturbed,
)
from fedprice.market.keys import write_missing_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedprice.flower.app import FlowerApp

__all__ = ["Deployment"]

HOST = "127.0.0.1"  # where everything listens
STAGGER = 1.0  # seconds between the starts of SuperNodes
PATIENCE = 60.0  # seconds for which the SuperLink may fail to answer
REVIVALS = 3  # times that a SuperNode which died is started again
OURS = ".fedprice-deployment"  # marks a directory as ours


@dataclass
class Deployment:
    """A SuperLink with SuperNodes, for the time of a `with` block.

    Parameters
    ----------
    folder
        A directory for keys, certificates and state: new, empty but for the ledger, or that of an
        earlier deployment, whose keys and certificates are used again.
    clients
        The number of SuperNodes.
    tls
        Whether to use TLS and node authentication.
    tell
        Called with a line at each step.
    market_keys
        Whether clients sign with their own keys; otherwise with those of a simulation.
    keys
        The directory of the market's keys, if new ones are not to be made.
    environment
        Environment variables of the server only.
    logs
        The directory for logs; by default the same as for everything else.
    mark
        The mark that all processes carry in their environment.
    """

    folder: Path
    clients: int
    tls: bool = True
    tell: Callable[[str], None] = lambda _: None
    market_keys: bool = True
    keys: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    logs: Path | None = None
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    port: int = field(default=0, init=False)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    _revived: Counter[str] = field(default_factory=Counter, init=False)

    def __enter__(self) -> Deployment:
        """Start everything."""
        if not Path("/proc/self/environ").exists():
            raise DeploymentError("a deployment on one machine needs Linux (/proc).")
        require_recent()
        self.folder = self.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        ledger = self.environment.get("FEDPRICE_LEDGER", "").rpartition("/")[2]
        others = {path.name for path in self.folder.iterdir() if ledger not in _stems(path.name)}
        if others and OURS not in others:
            raise InputError(
                f"{self.folder} is neither empty nor the directory of an earlier deployment; "
                "choose another one."
            )
        self.folder.chmod(0o700)
        (self.folder / OURS).touch()
        try:
            self._prepare()
            self.start_link()
            for n in range(self.clients):
                if self.tls:
                    public = str(self.folder / f"node-{n + 1}.pub")
                    self.flwr("supernode", "register", public, "here", "--name", str(n + 1))
            for n in range(self.clients):
                self.start_node(n)
                time.sleep(STAGGER)
            self.await_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything in the order of dependence, ignoring further interrupts."""
        with undisturbed():
            self._end()

    def _end(self) -> None:
        self.tell("shutting everything down")
        for process in reversed(self._processes.values()):
            with suppress(ProcessLookupError):
                process.terminate()
        until = time.monotonic() + 10
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
        end_marked(self.mark)
        for process in self._processes.values():
            process.wait()

    def run(self, app: FlowerApp, watch: Callable[[], None], *, timeout: float) -> str:
        """Run an app, call `watch` from time to time, and return how the run ended."""
        started = json.loads(
            self.flwr(
                "run", str(app.copied(self.folder / "app")), "here", *app.options,
                "--format", "json",
            )
        )  # fmt: skip
        if not started.get("success"):
            raise DeploymentError(f"the app did not start: {started.get('error-message', started)}")
        until, missing = time.monotonic() + timeout, -1  # looks without its ServerApp, once seen
        while time.monotonic() < until:
            watch()
            status = self._patiently(lambda: self._status(started["run-id"]))
            if status.startswith("finished"):
                watch()
                self._keep_log(started["run-id"])
                return status
            if self._runs("flwr-serverapp"):
                missing = 0
            elif missing >= 0:  # Flower itself notices after a minute and a half
                missing += 1
            if missing > 2:
                self._keep_log(started["run-id"])
                raise DeploymentError(f"the ServerApp died: {self.why()}")
            self._revive()
            time.sleep(2.0)
        self._keep_log(started["run-id"])
        self.flwr("stop", str(started["run-id"]), "here")
        raise DeploymentError(
            f"the run was stopped: it took more than {timeout:g} s. See {self.log('run')}."
        )

    def log(self, name: str) -> Path:
        """Return the log of a process, "superlink" or "node-1" and so on, or of the "run"."""
        return (self.logs or self.folder) / f"{name}.log"

    def why(self) -> str:
        """Return why a run failed, from its log."""
        log = self.log("run")
        found = last_error(log.read_text("utf-8")) or "its log holds no error."
        return f"{found} See {log}."

    def _runs(self, program: str) -> bool:
        """Return whether a program of this deployment is running."""
        lines = [Path(f"/proc/{number}/cmdline") for number in marked(self.mark)]
        for path in lines:
            with suppress(OSError):  # it has just ended
                if program.encode() in path.read_bytes():
                    return True
        return False

    def _revive(self) -> None:
        """Start SuperNodes that died again, a few times."""
        for number in range(self.clients):
            process = self._processes.get(name := f"node-{number + 1}")
            if process is None or process.poll() is None or self._revived[name] >= REVIVALS:
                continue
            self._revived[name] += 1
            self.tell(f"{name} ended (exit status {process.returncode}); see {self.log(name)}")
            self.start_node(number)

    def _online(self) -> str:
        listed = json.loads(self.flwr("supernode", "list", "here", "--format", "json"))
        return str(sum(node["status"] == "online" for node in listed["nodes"]))

    def _status(self, run: str) -> str:
        runs = json.loads(self.flwr("ls", "here", "--format", "json"))["runs"]
        (status,) = (found["status"] for found in runs if found["run-id"] == run)
        return str(status)

    def _keep_log(self, run: str) -> None:
        said = self._patiently(lambda: self.flwr("log", run, "here", "--show"))
        with whole_file(self.log("run"), private=True) as part:
            part.write_text(said, "utf-8")

    def _patiently(self, ask: Callable[[], str]) -> str:
        """Ask the SuperLink again if it fails, as long as its process exists."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return ask()
            except (DeploymentError, ValueError, KeyError) as error:
                link = self._processes.get("superlink")
                if link is None or link.poll() is not None or time.monotonic() > until:
                    raise DeploymentError(
                        f"the SuperLink does not answer any more; see {self.log('superlink')}."
                    ) from error
                time.sleep(2.0)

    def start_link(self) -> None:
        """Start the SuperLink, and wait until it answers."""
        command = [
            "flower-superlink", "--host", HOST, "--port", str(self.port),
            "--database", str(self.folder / "link.db"), "--isolation", "subprocess",
            "--disable-runtime-dependency-installation",
        ]  # fmt: skip
        if self.tls:
            command += [
                "--ssl-ca-certfile", str(self.folder / "ca.crt"),
                "--ssl-certfile", str(self.folder / "server.pem"),
                "--ssl-keyfile", str(self.folder / "server.key"), "--enable-supernode-auth",
            ]  # fmt: skip
        else:
            command.append("--insecure")
        # Its server apps inherit environment and directory; SuperNodes start the clients' apps.
        self._start("superlink", command, Path.cwd(), self.environment)
        self._await_port("superlink", self.port)

    def start_node(self, number: int) -> None:
        """Start a client's SuperNode, counted from 0."""
        config: dict[str, Any] = {"partition-id": number, "num-partitions": self.clients}
        if self.market_keys:
            config["keys"] = str(self.folder / "keys" / f"client-{number + 1}")
        command = [
            "flower-supernode", "--superlink", f"{HOST}:{self.port}",
            "--host", HOST, "--port", str(free_port()),
            "--node-config", config_text(config),
        ]  # fmt: skip
        if self.tls:
            command += [
                "--root-certificates", str(self.folder / "ca.crt"),
                "--auth-supernode-private-key", str(self.folder / f"node-{number + 1}"),
            ]  # fmt: skip
        else:
            command.append("--insecure")
        files = self.folder / "files" / f"client-{number + 1}"
        files.mkdir(parents=True, exist_ok=True)
        self._start(f"node-{number + 1}", command, files)

    def kill(self, name: str) -> None:
        """End a process at once, as a crash would: "superlink" or "node-1" and so on."""
        process = self._processes.pop(name)
        group = [n for n in marked(self.mark) if descends(n, process.pid)]
        for number in (process.pid, *group):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()

    def flwr(self, *arguments: str) -> str:
        """Run Flower's command, and return what it prints."""
        return flwr(arguments, self._environment("cli"), self.folder, timeout=120)

    def _prepare(self) -> None:
        if shutil.which("flower-superlink", path=offline(self.folder, "")["PATH"]) is None:
            raise DeploymentError("there is no command flower-superlink beside this Python.")
        self.port = free_port()
        for path in self.folder.glob("link.db*"):  # of an earlier deployment; not needed
            path.unlink()
        names = [str(n + 1) for n in range(self.clients)]
        self._prepare_keys(names)
        connection = f'address = "{HOST}:{self.port}"\n'
        if self.tls:
            for name in names:
                if not (self.folder / f"node-{name}.pub").exists():  # which is written last
                    write_node_key(self.folder / f"node-{name}")
            if not holds_certificates(self.folder, HOST):
                write_certificates(self.folder, HOST)
            connection += f'root-certificates = "{self.folder / "ca.crt"}"\n'
        else:
            connection += "insecure = true\n"
        home = self.folder / "homes" / "cli"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{connection}'
        )

    def _prepare_keys(self, names: list[str]) -> None:
        """Give each client its own key and the server's public one."""
        folder = self.folder / "keys"
        every = self.keys or folder / "all"
        folder.mkdir(0o700, exist_ok=True)
        if self.keys is None:
            write_missing_keys(every, names)
        for name in names:
            own = folder / f"client-{name}"
            own.mkdir(0o700, exist_ok=True)
            for key in (f"client-{name}.key", "server.pub"):
                if not (every / key).exists():
                    raise InputError(
                        f"{every} has no {key}; make keys with: fedprice flower keys {every} "
                        f"--clients {self.clients}"
                    )
                (own / key).touch(0o600)
                shutil.copy(every / key, own)
            if (every / f"client-{name}.toml").exists():
                own_file(every / f"client-{name}.toml")  # report errors before anything is started
                shutil.copy(every / f"client-{name}.toml", own / "client.toml")
            elif not (own / "client.toml").exists():
                cost = made_up_cost(int(name) - 1)
                (own / "client.toml").write_text(f"cost = {cost!r}  # made up\nreveals = true\n")

    def _environment(self, name: str) -> dict[str, str]:
        return offline(self.folder / "homes" / name, self.mark)

    def _start(
        self,
        name: str,
        command: list[str],
        here: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.tell(f"starting {name}")
        with self.log(name).open("ab") as log:
            os.fchmod(log.fileno(), 0o600)
            self._processes[name] = subprocess.Popen(
                command,
                env={**self._environment(name), **(environment or {})},
                umask=0o077,
                cwd=here,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_port(self, name: str, port: int) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and self._processes[name].poll() is None:
            with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                return
            time.sleep(0.2)
        raise DeploymentError(f"the {name} did not start; see {self.log(name)}.")

    def await_nodes(self) -> None:
        """Wait until all SuperNodes are online."""
        until = time.monotonic() + 60 + 10 * self.clients
        while time.monotonic() < until:
            online = int(self._patiently(self._online))
            self.tell(f"{online} of {self.clients} SuperNodes online")
            if online >= self.clients:
                return
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise DeploymentError(f"{name} ended; see {self.log(name)}.")
            time.sleep(1.0)
        raise DeploymentError(
            f"not all SuperNodes came online; see the logs in {self.logs or self.folder}."
        )


def _stems(name: str) -> tuple[str, str]:
    """Return the name of a file of a ledger, and of the ledger if the file lies beside it."""
    return name, name.partition("-")[0]
