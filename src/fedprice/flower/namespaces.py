"""A network namespace for each client, with its own bandwidth and delay (Linux, as root)."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedprice.flower.processes import DeploymentError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Namespaces"]

SUBNET = "10.213"  # a private network for this deployment


@dataclass
class Namespaces:
    """A bridge with one namespace per client, for the duration of a `with` block.

    Parameters
    ----------
    mark
        Part of all names, so that several deployments do not collide.
    clients
        The number of namespaces.
    bandwidth, delay
        Megabits per second and milliseconds of each client's link.
    tell
        Called with a line if the machine cannot delay packets.
    """

    mark: str
    clients: int
    bandwidth: float
    delay: float
    tell: Callable[[str], None]
    _made: int = field(default=0, init=False)

    @property
    def address(self) -> str:
        """Where the server listens."""
        return f"{SUBNET}.0.1"

    def __enter__(self) -> Namespaces:
        """Set the network up."""
        if shutil.which("ip") is None or shutil.which("tc") is None:
            raise DeploymentError("--netns needs the commands ip and tc (Debian: iproute2).")
        try:
            self._ip("link", "add", self._bridge, "type", "bridge")
            self._ip("addr", "add", f"{self.address}/16", "dev", self._bridge)
            self._ip("link", "set", self._bridge, "up")
            for n in range(self.clients):
                self._add(n)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Take the network down."""
        for n in range(self._made):
            with suppress(DeploymentError):
                self._ip("netns", "del", self._name(n))
        with suppress(DeploymentError):
            self._ip("link", "del", self._bridge)

    def prefix(self, number: int) -> list[str]:
        """Return the prefix that runs a command in a client's namespace."""
        return ["ip", "netns", "exec", self._name(number)]

    @property
    def _bridge(self) -> str:
        return f"fp{self.mark[:8]}"

    def _name(self, number: int) -> str:
        return f"fp-{self.mark[:8]}-{number + 1}"

    def _add(self, number: int) -> None:
        name, outer = self._name(number), f"v{self.mark[:6]}{number + 1}"
        self._ip("netns", "add", name)
        self._made = number + 1
        self._ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._ip("link", "set", outer, "master", self._bridge)
        self._ip("link", "set", outer, "up")
        host = number + 2
        inside = f"{SUBNET}.{host // 250}.{host % 250}/16"
        self._ip("-n", name, "addr", "add", inside, "dev", "eth0")
        for device in ("lo", "eth0"):
            self._ip("-n", name, "link", "set", device, "up")
        rate = f"{self.bandwidth:g}mbit"
        shape = ["tc", "qdisc", "add", "dev", "eth0", "root"]
        try:
            link = ["netem", "delay", f"{self.delay:g}ms", "rate", rate]
            _run(self.prefix(number) + shape + link)
        except DeploymentError:
            if number == 0:
                self.tell("this kernel cannot delay packets (netem); bandwidth only")
            bucket = ["tbf", "rate", rate, "burst", "32kbit", "latency", "400ms"]
            _run(self.prefix(number) + shape + bucket)

    @staticmethod
    def _ip(*arguments: str) -> None:
        _run(["ip", *arguments])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise DeploymentError(
            f"this machine does not allow --netns: {' '.join(command[:4])}: {reason[-1]}"
        )
