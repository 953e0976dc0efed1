"""An app on Flower's own simulation: Ray workers on this machine, for the time of one run."""

from __future__ import annotations

import json
import secrets
import signal
from contextlib import suppress
from os import cpu_count, kill
from typing import TYPE_CHECKING

from fedprice.flower.app import config_text
from fedprice.flower.processes import (
    DeploymentError,
    end_marked,
    flwr,
    free_port,
    marked,
    offline,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fedprice.flower.app import FlowerApp

__all__ = ["run_on_ray"]


def run_on_ray(app: FlowerApp, folder: Path, *, timeout: float = 600.0) -> None:
    """Run an app with `flwr run` on Ray, and end what that leaves behind.

    Parameters
    ----------
    folder
        For Flower's state; nothing of it is needed afterwards.
    """
    mark = secrets.token_hex(8)
    environment = offline(folder, mark) | {
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
        "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
        "FEDPRICE_LEDGER": app.ledger,
    }
    resources = {
        "num-supernodes": int(app.config["clients"]),
        "client-resources-num-cpus": 1,
        "init-args-num-cpus": cpu_count() or 1,
    }
    try:
        said = flwr(
            [
                "run", str(app.folder), "--stream", "--run-config", config_text(app.config),
                "--federation-config", config_text(resources),
            ],
            environment,
            folder,
            timeout=timeout,
        )  # fmt: skip
        runs = json.loads(flwr(["ls", "--format", "json"], environment, folder, timeout=60))["runs"]
        if not runs or runs[0]["status"] != "finished:completed":
            (folder / "run.log").write_text(said, "utf-8")
            raise DeploymentError(f"the run did not complete; see {folder / 'run.log'}")
    finally:
        for number in marked(mark):
            with suppress(ProcessLookupError):
                kill(number, signal.SIGTERM)
        end_marked(mark)
