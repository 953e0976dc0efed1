"""An app on Flower's own simulation: Ray workers on this machine, for the duration of one run."""

from __future__ import annotations

import json
import secrets
import signal
from contextlib import suppress
from os import cpu_count, kill
from pathlib import Path
from typing import TYPE_CHECKING

from fedprice.flower.app import config_text
from fedprice.flower.processes import (
    DeploymentError,
    end_marked,
    flwr,
    free_port,
    marked,
    offline,
    reason_of,
    require_recent,
    undisturbed,
    working_directory,
)

if TYPE_CHECKING:
    from fedprice.flower.app import FlowerApp

__all__ = ["run_on_ray"]


def run_on_ray(app: FlowerApp, log: Path, *, timeout: float = 3600.0) -> None:
    """Run an app with `flwr run` on Ray, and end the processes that this leaves behind.

    Relative paths in the app are relative to this process's directory.

    Parameters
    ----------
    log
        The file to which the output of Flower and the app is appended.
    timeout
        The maximum duration in seconds.
    """
    require_recent()
    mark, here = secrets.token_hex(8), Path.cwd()
    resources = {
        "num-supernodes": app.require_clients(),
        "client-resources-num-cpus": 1,
        "init-args-num-cpus": cpu_count() or 1,
    }
    with working_directory(None, mark) as home:
        environment = offline(home, mark) | {
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
            **app.environment,
        }
        try:
            said = flwr(
                [
                    "run", str(app.copied(home / "app")), "--stream", *app.options,
                    "--federation-config", config_text(resources),
                ],
                environment,
                here,
                timeout=timeout,
                log=log,
            )  # fmt: skip
            listed = flwr(["ls", "--format", "json"], environment, here, timeout=60)
            runs = json.loads(listed)["runs"]
            if not runs or runs[0]["status"] != "finished:completed":
                raise DeploymentError(f"the run failed: {reason_of(said)} See {log}.")
        finally:
            with undisturbed():
                for number in marked(mark):
                    with suppress(ProcessLookupError):
                        kill(number, signal.SIGTERM)
                end_marked(mark)
