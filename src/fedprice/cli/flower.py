"""`fedprice flower`: the market over Flower, in process or as real processes on this machine."""

from __future__ import annotations

import os
import re
import secrets
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice.cli.calibrate import calibrate
from fedprice.cli.console import StoppedError, stderr, stdout
from fedprice.cli.extras import require_extras
from fedprice.cli.ledger import report_periods

if TYPE_CHECKING:
    from fedprice.flower.app import FlowerApp

__all__ = ["flower"]

flower = typer.Typer(no_args_is_help=True, help="Run the market over Flower.")

EXAMPLE = Path("examples/flower-app")
AppFolder = Annotated[
    Path, typer.Argument(metavar="APP", help="The directory of a Flower app with these settings.")
]
RunConfig = Annotated[
    str,
    typer.Option("--run-config", metavar="SETTINGS", help="Settings, such as 'budget=30 seed=1'."),
]


def _app(folder: Path, run_config: str) -> FlowerApp:
    require_extras("flower", "learn")
    from fedprice.flower.app import FlowerApp

    app = FlowerApp.read(folder, run_config)
    app.require("clients", "ledger", "run")
    return app


@flower.command()
def simulate(
    app: AppFolder = EXAMPLE,
    run_config: RunConfig = "",
    ray: Annotated[
        bool, typer.Option("--ray", help="Use Flower's own simulation, with Ray's workers.")
    ] = False,
) -> None:
    """Run an app in this process: no network, no start-up."""
    require_extras(*(("ray",) if ray else ()))
    chosen = _app(app, run_config)
    if ray:
        from fedprice.flower.ray_simulation import run_on_ray

        with tempfile.TemporaryDirectory(prefix="fedprice-") as folder:
            run_on_ray(chosen, Path(folder))
    else:
        chosen.run_in_process()
    report_periods(chosen.ledger, str(chosen.config["run"]))


flower.command()(calibrate)


@flower.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write them.")],
    clients: Annotated[int, typer.Option(min=1, help="How many clients, named 1, 2, …")],
) -> None:
    """Make signing keys for a server and its clients."""
    require_extras("flower", "learn")
    from fedprice.market.keys import write_keys

    write_keys(folder, [str(n + 1) for n in range(clients)])
    stderr().print(f"wrote {clients + 1} keys into {folder}", markup=False)


@flower.command()
def up(
    app: AppFolder = EXAMPLE,
    clients: Annotated[int, typer.Option(min=1, help="SuperNodes to start.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 5,
    tls: Annotated[
        bool, typer.Option("--tls/--no-tls", help="Encrypt, and authenticate nodes.")
    ] = True,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="FEDPRICE_LEDGER", help="Where to record, if not in --work."
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep keys, logs and the ledger in this directory."),
    ] = None,
    run_config: RunConfig = "",
    netns: Annotated[
        bool,
        typer.Option("--netns", help="Put each client into a network namespace of its own (root)."),
    ] = False,
    bandwidth: Annotated[
        float, typer.Option(min=0.01, help="Of each namespace, in megabits a second.")
    ] = 20.0,
    delay: Annotated[float, typer.Option(min=0, help="Of each namespace, in milliseconds.")] = 20.0,
    timeout: Annotated[
        float, typer.Option(min=1, help="The most seconds the run may take.")
    ] = 3600,
) -> None:
    """Start a SuperLink and SuperNodes on this machine, run the market, take all down again."""
    with tempfile.TemporaryDirectory(prefix="fedprice-") as spare:
        folder = (work or Path(spare) / "work").resolve()
        chosen = _app(app, run_config)
        from fedprice.flower.app import absolute

        own = f"sqlite:///{folder / 'market.db'}"
        settings = {
            "clients": clients,
            "rounds": rounds,
            "ledger": "" if ledger else own,  # a URL that was given may hold a password
            "keys": str(folder / "keys" / "all"),
            "at-once": 2 * (os.cpu_count() or 1),  # every message starts a process
        }
        for name, value in settings.items():
            if name in chosen.config:
                chosen.config[name] = value
        shape = (bandwidth, delay) if netns else None
        _deploy(chosen, absolute(ledger or own), folder, tls, timeout, shape)


def _deploy(
    app: FlowerApp,
    url: str,
    folder: Path,
    tls: bool,
    timeout: float,
    shape: tuple[float, float] | None,
) -> None:
    from fedprice.flower.deployment import Deployment
    from fedprice.flower.namespaces import Namespaces
    from fedprice.flower.processes import DeploymentError
    from fedprice.flower.watch import Watch

    console = stderr()

    def tell(line: str) -> None:
        console.print(line, markup=False)

    run = str(app.config["run"])
    watch = Watch(url, run, lambda line: stdout().print(line, markup=False, soft_wrap=True))
    clients = int(app.config["clients"])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            network = None
            if shape is not None:
                made = Namespaces(secrets.token_hex(4), clients, *shape, tell)
                network = stack.enter_context(made)
            deployment = Deployment(folder, clients, tls, tell, network, ledger=url)
            stack.enter_context(deployment)
            ended = deployment.run(app, watch, timeout=timeout)
    except KeyboardInterrupt as error:
        raise StoppedError("stopped; all processes are down.") from error
    finally:
        watch.close()
    if ended != "finished:completed":
        lines = (folder / "run.log").read_text("utf-8").splitlines()
        reasons = [line for line in lines if re.match(r"[\w.]+Error: ", line)]
        raise DeploymentError(f"the run ended as {ended}. {reasons[-1] if reasons else ''}")
    report_periods(url, run)
