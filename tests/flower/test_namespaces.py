"""Network namespaces: each client in its own, shaped, and nothing left behind."""

import os
import subprocess
from contextlib import ExitStack

import pytest

from fedprice.flower.namespaces import Namespaces
from fedprice.flower.processes import DeploymentError


def test_namespaces_come_and_go() -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    told: list[str] = []
    network = Namespaces("abcd1234", 2, bandwidth=5.0, delay=10.0, tell=told.append)
    with ExitStack() as stack:
        try:
            stack.enter_context(network)
        except DeploymentError as error:
            pytest.skip(str(error))
        shaped = run([*network.prefix(1), "tc", "qdisc", "show", "dev", "eth0"])
        assert "5Mbit" in shaped
        assert ("netem" in shaped) != bool(told)  # or it was said that there is no delay
        assert "10.213.0.3/16" in run([*network.prefix(1), "ip", "addr", "show", "eth0"])
    assert "abcd1234" not in run(["ip", "netns", "list"])
    assert "fpabcd1234" not in run(["ip", "link", "show"])


def run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
