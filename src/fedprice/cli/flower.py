"""`fedprice flower`: the market over Flower, in process or as real processes on this machine."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice.cli.calibrate import calibrate
from fedprice.cli.console import FinishedError, StoppedError, stderr, stdout
from fedprice.cli.extras import require_extras
from fedprice.cli.ledger import report_periods
from fedprice.cli.model import model
from fedprice.cli.training import Track
from fedprice.errors import FedpriceError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedprice.flower.app import FlowerApp

__all__ = ["flower"]

flower = typer.Typer(name="flower", no_args_is_help=True, help="Run the market over Flower.")

EXAMPLE = Path("examples/flower-app")
AppFolder = Annotated[Path, typer.Argument(metavar="APP", help="The directory of a Flower app.")]
RunConfig = Annotated[
    str,
    typer.Option("--run-config", metavar="SETTINGS", help="Settings, such as 'budget=30 seed=1'."),
]
Clients = Annotated[
    int | None,
    typer.Option(min=1, help="Number of clients; by default as in the app's pyproject.toml."),
]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Training rounds; by default the app's setting.")
]
Run = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of the run; by default the app's setting or name."),
]
Timeout = Annotated[float, typer.Option(min=1, help="Maximum duration of the run, in seconds.")]


def _app(
    folder: Path,
    run_config: str,
    clients: int | None,
    rounds: int | None,
    ledger: str | None,
    run: str | None,
    track: str | None,
) -> FlowerApp:
    require_extras("flower", "learn")
    from fedprice.flower.app import FlowerApp
    from fedprice.trackers import check_tracker

    app = FlowerApp.read(
        folder, run_config, clients=clients, rounds=rounds, ledger=ledger or "", run=run or ""
    )
    app.require_clients()
    if track is None:
        return app
    tool, place = check_tracker(track)
    return replace(app, track=f"{tool}:{place.resolve()}")


def _is_finished(app: FlowerApp) -> bool:
    from fedprice.market.ledger import Ledger
    from fedprice.market.periods import is_finished

    try:
        ledger = Ledger(app.ledger, create=False)
    except FedpriceError:
        return False  # there is no ledger yet, or the run will report what is wrong with it
    try:
        return is_finished(ledger, app.run)
    finally:
        ledger.close()


def _finished(app: FlowerApp) -> FinishedError:
    from fedprice.market.database_url import masked

    return FinishedError(
        f"run {app.run!r} in {masked(app.ledger)} had already finished; nothing was trained. "
        f"Show it with `fedprice ledger show {app.run}`, or start another one with --run NAME."
    )


def _report(app: FlowerApp) -> None:
    """Show what was recorded of a run; refuse an app that recorded nothing."""
    from fedprice.market.ledger import Ledger
    from fedprice.market.ledger_errors import NoLedgerError

    try:
        ledger = Ledger(app.ledger, create=False)
    except NoLedgerError as error:
        raise app.unpriced() from error
    try:
        if app.run not in ledger.books.runs:
            raise app.unpriced()
    finally:
        ledger.close()
    report_periods(app.ledger, app.run)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Treat a termination signal like Ctrl-C, and say when all processes are down."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError("stopped; all processes have ended.") from error


@flower.command()
def simulate(
    app: AppFolder = EXAMPLE,
    run_config: RunConfig = "",
    clients: Clients = None,
    rounds: Rounds = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="FEDPRICE_LEDGER",
            help="URL of the ledger; by default the app's setting, or else market.db.",
        ),
    ] = None,
    run: Run = None,
    track: Track = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Use Flower's own simulation, with Ray's workers.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=1, help="With --ray: maximum duration in seconds; 3600 by default."),
    ] = None,
) -> None:
    """Run an app in this process, without a network and without starting processes."""
    if timeout is not None and not ray:
        raise InputError(
            "--timeout applies only to --ray; a run in this process can be stopped by Ctrl-C."
        )
    require_extras(*(("ray",) if ray else ()))
    chosen = _app(app, run_config, clients, rounds, ledger, run, track)
    finished = _is_finished(chosen)
    if ray:
        from fedprice.flower.ray_simulation import run_on_ray

        if finished:
            raise _finished(chosen)
        log = Path(f"{re.sub(r'[^A-Za-z0-9._-]', '_', chosen.run)}.log").resolve()
        with _stoppable():
            run_on_ray(chosen, log, timeout=timeout or 3600.0)
        stderr().print(f"the log is {log}", markup=False)
    else:
        # This refuses a finished run that was started with other settings.
        priced = chosen.run_in_process()
        if finished:
            raise _finished(chosen)
        if not priced:
            return  # `Participation` records nothing
    _report(chosen)


flower.command()(calibrate)
flower.command()(model)


@flower.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to write the keys to.")],
    clients: Annotated[int, typer.Option(min=1, help="Number of clients, named 1, 2, …")],
) -> None:
    """Make signing keys for a server and its clients."""
    require_extras("flower", "learn")
    from fedprice.market.keys import write_keys

    write_keys(folder, [str(n + 1) for n in range(clients)])
    stderr().print(f"wrote {clients + 1} keys into {folder}", markup=False)


@flower.command()
def up(
    app: AppFolder = EXAMPLE,
    run_config: RunConfig = "",
    clients: Clients = None,
    rounds: Rounds = None,
    tls: Annotated[
        bool, typer.Option("--tls/--no-tls", help="Encrypt traffic and authenticate nodes.")
    ] = True,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="FEDPRICE_LEDGER", help="URL of the ledger, if not in --work."
        ),
    ] = None,
    run: Run = None,
    track: Track = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep keys, logs, the ledger and clients' files here; resume if they exist.",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The market's keys (`fedprice flower keys`), instead of new ones."
        ),
    ] = None,
    timeout: Timeout = 3600,
) -> None:
    """Start a SuperLink and SuperNodes on this machine, run the market, and shut all down again."""
    chosen = _app(app, run_config, clients, rounds, ledger, run, track)
    if keys is not None and "keys" not in chosen.config:
        raise InputError(
            f"--keys: the app in {app} has no setting `keys` that could name them. Add the line "
            'keys = "" to [tool.flwr.app.config] in its pyproject.toml.'
        )
    from fedprice.flower.processes import DeploymentError, working_directory

    mark = secrets.token_hex(8)
    with working_directory(work, mark) as folder:
        if not ledger and "ledger" not in chosen.chosen:  # the keys made here are for this ledger
            own = f"sqlite:///{folder / 'market.db'}"
            chosen = replace(chosen, wanted_ledger=own)
            chosen.config.update({"ledger": own} if "ledger" in chosen.config else {})
        settings = {
            "keys": str((keys or folder / "keys" / "all").resolve()),
            "at-once": 2 * (os.cpu_count() or 1),  # every message starts a process
        }
        for name in set(settings) & set(chosen.config) - chosen.chosen:
            chosen.config[name] = settings[name]
        if _is_finished(chosen):
            raise _finished(chosen)
        logs = folder if work else Path(tempfile.mkdtemp(prefix="fedprice-logs-"))
        kept = work is not None
        try:
            _deploy(chosen, folder, logs, keys, tls, timeout, mark)
        except DeploymentError:  # its message already points to a log
            kept = any(logs.iterdir())
            raise
        finally:
            if not kept:
                shutil.rmtree(logs)
    if work is not None:
        from fedprice.market.database_url import masked

        told = f"keys, logs and the clients' files are in {work}, the ledger is"
        stderr().print(f"{told} {masked(chosen.ledger)}", markup=False, soft_wrap=True)


def _deploy(
    app: FlowerApp,
    folder: Path,
    logs: Path,
    keys: Path | None,
    tls: bool,
    timeout: float,
    mark: str,
) -> None:
    from fedprice.flower.deployment import Deployment
    from fedprice.flower.processes import DeploymentError
    from fedprice.flower.watch import Watch

    console = stderr()

    def tell(line: str) -> None:
        console.print(line, markup=False)

    def show(line: str) -> None:
        stdout().print(line, markup=False, soft_wrap=True)

    watch = Watch(app.ledger, app.run, show)
    try:
        with _stoppable(), ExitStack() as stack:
            deployment = Deployment(
                folder,
                app.clients,
                tls,
                tell,
                market_keys="keys" in app.config,
                keys=keys,
                environment=app.environment,
                logs=logs,
                mark=mark,
            )
            stack.enter_context(deployment)
            ended = deployment.run(app, watch, timeout=timeout)
            if ended != "finished:completed":
                raise DeploymentError(f"the run failed: {deployment.why()}")
    finally:
        watch.close()
    _report(app)
