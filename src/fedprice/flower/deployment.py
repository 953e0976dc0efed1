"""`Deployment`: a SuperLink and its SuperNodes as processes on this machine, up and down again.

Everything listens on 127.0.0.1 and lives in one directory, which others cannot read. All processes,
and whatever they start, carry a mark in their environment, by which they are found and ended.
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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError
from fedprice.flower.app import config_text
from fedprice.flower.certificates import write_certificates, write_node_key
from fedprice.flower.processes import (
    DeploymentError,
    descends,
    end_marked,
    flwr,
    free_port,
    marked,
    offline,
    undisturbed,
)
from fedprice.market.keys import write_keys
from fedprice.tables import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.flower.app import FlowerApp
    from fedprice.flower.namespaces import Namespaces

__all__ = ["Deployment"]

STAGGER = 1.0  # seconds between the starts of SuperNodes
PATIENCE = 2  # times that a command may fail in a row


@dataclass
class Deployment:
    """A SuperLink with SuperNodes, for the time of a `with` block.

    Parameters
    ----------
    folder
        An empty or new directory for keys, certificates, logs and state.
    clients
        How many SuperNodes.
    tls
        Whether to use TLS and node authentication.
    tell
        Called with a line at each step.
    market_keys
        Whether clients sign with keys of their own; otherwise with those of a simulation.
    network
        Namespaces to put the clients into; None leaves them on 127.0.0.1.
    ledger
        The URL of the ledger, which goes into the environment of the server alone; if it is empty,
        the app's settings have it.
    """

    folder: Path
    clients: int
    tls: bool = True
    tell: Callable[[str], None] = lambda _: None
    network: Namespaces | None = None
    market_keys: bool = True
    ledger: str = field(default="", repr=False)
    port: int = field(default=0, init=False)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    _mark: str = field(default_factory=lambda: secrets.token_hex(8), init=False)

    def __enter__(self) -> Deployment:
        """Start everything."""
        if not Path("/proc/self/environ").exists():
            raise DeploymentError("a deployment on one machine needs Linux (/proc).")
        self.folder = self.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise InputError(f"{self.folder} is not empty; choose another directory.")
        self.folder.chmod(0o700)
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
        """End everything, in the order of its dependence, whoever is impatient meanwhile."""
        with undisturbed():
            self._end()

    def _end(self) -> None:
        self.tell("taking everything down")
        for process in reversed(self._processes.values()):
            with suppress(ProcessLookupError):
                process.terminate()
        until = time.monotonic() + 10
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
        end_marked(self._mark)
        for process in self._processes.values():
            process.wait()

    @property
    def host(self) -> str:
        """Where the SuperLink listens."""
        return "127.0.0.1" if self.network is None else self.network.address

    def run(self, app: FlowerApp, watch: Callable[[], None], *, timeout: float) -> str:
        """Run an app, call `watch` now and then, and return how the run ended."""
        started = json.loads(
            self.flwr(
                "run", str(app.folder), "here", "--run-config", config_text(app.config),
                "--format", "json",
            )
        )  # fmt: skip
        if not started.get("success"):
            raise DeploymentError(f"the app did not start: {started.get('error-message', started)}")
        until, failures = time.monotonic() + timeout, 0
        while time.monotonic() < until:
            watch()
            try:
                runs = json.loads(self.flwr("ls", "here", "--format", "json"))["runs"]
                (status,) = (run["status"] for run in runs if run["run-id"] == started["run-id"])
                failures = 0
            except (DeploymentError, ValueError, KeyError) as error:
                failures += 1
                if failures > PATIENCE:
                    raise DeploymentError("the SuperLink does not answer any more.") from error
                time.sleep(2.0)
                continue
            if str(status).startswith("finished"):
                watch()
                said = self.flwr("log", str(started["run-id"]), "here", "--show")
                with whole_file(self.folder / "run.log", private=True) as part:
                    part.write_text(said, "utf-8")
                return str(status)
            time.sleep(2.0)
        self.flwr("stop", str(started["run-id"]), "here")
        raise DeploymentError(f"the run was stopped: it took more than {timeout:g} s.")

    def start_link(self) -> None:
        """Start the SuperLink, and wait until it answers."""
        command = [
            "flower-superlink", "--host", self.host, "--port", str(self.port),
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
        # Its server apps inherit the ledger; clients are started by their SuperNodes.
        self._start("superlink", command, {"FEDPRICE_LEDGER": self.ledger} if self.ledger else {})
        self._await_port("superlink", self.port)

    def start_node(self, number: int) -> None:
        """Start a client's SuperNode, counted from 0."""
        config: dict[str, Any] = {"partition-id": number, "num-partitions": self.clients}
        if self.market_keys:
            config["keys"] = str(self.folder / "keys" / f"client-{number + 1}")
        command = [
            "flower-supernode", "--superlink", f"{self.host}:{self.port}",
            "--host", "127.0.0.1", "--port", str(free_port()),
            "--node-config", config_text(config),
        ]  # fmt: skip
        if self.tls:
            command += [
                "--root-certificates", str(self.folder / "ca.crt"),
                "--auth-supernode-private-key", str(self.folder / f"node-{number + 1}"),
            ]  # fmt: skip
        else:
            command.append("--insecure")
        inside = [] if self.network is None else self.network.prefix(number)
        self._start(f"node-{number + 1}", inside + command)

    def kill(self, name: str) -> None:
        """End a process at once, as a crash would: "superlink" or "node-1" and so on."""
        process = self._processes.pop(name)
        group = [n for n in marked(self._mark) if descends(n, process.pid)]
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
        keys = self.folder / "keys"
        keys.mkdir(0o700)
        names = [str(n + 1) for n in range(self.clients)]
        write_keys(keys / "all", names)
        for name in names:  # each client sees its own key and the server's public one
            own = keys / f"client-{name}"
            own.mkdir(0o700)
            (own / f"client-{name}.key").touch(0o600)
            shutil.copy(keys / "all" / f"client-{name}.key", own)
            shutil.copy2(keys / "all" / "server.pub", own)
            if self.tls:
                write_node_key(self.folder / f"node-{name}")
        connection = f'address = "{self.host}:{self.port}"\n'
        if self.tls:
            write_certificates(self.folder, self.host)
            connection += f'root-certificates = "{self.folder / "ca.crt"}"\n'
        else:
            connection += "insecure = true\n"
        home = self.folder / "homes" / "cli"
        home.mkdir(parents=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{connection}'
        )

    def _environment(self, name: str) -> dict[str, str]:
        return offline(self.folder / "homes" / name, self._mark)

    def _start(
        self, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> None:
        self.tell(f"starting {name}")
        with (self.folder / f"{name}.log").open("ab") as log:
            os.fchmod(log.fileno(), 0o600)
            self._processes[name] = subprocess.Popen(
                command,
                env=self._environment(name) | (environment or {}),
                umask=0o077,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_port(self, name: str, port: int) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and self._processes[name].poll() is None:
            with suppress(OSError), socket.create_connection((self.host, port), timeout=1):
                return
            time.sleep(0.2)
        raise DeploymentError(f"the {name} did not start; see {self.folder / name}.log")

    def await_nodes(self) -> None:
        """Wait until all SuperNodes are online."""
        until = time.monotonic() + 60 + 10 * self.clients
        while time.monotonic() < until:
            listed = json.loads(self.flwr("supernode", "list", "here", "--format", "json"))
            online = sum(node["status"] == "online" for node in listed["nodes"])
            self.tell(f"{online} of {self.clients} SuperNodes online")
            if online >= self.clients:
                return
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise DeploymentError(f"{name} ended; see {self.folder / name}.log")
            time.sleep(1.0)
        raise DeploymentError(f"not all SuperNodes came online; see the logs in {self.folder}")
