"""A Flower app in a directory: its settings, and how to run it in this process."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError, nearest
from fedprice.flower.grid import InProcessGrid
from fedprice.market.database_url import has_password

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEFAULT_LEDGER", "FlowerApp", "absolute", "config_text"]

DEFAULT_LEDGER = "sqlite:///market.db"
ROUNDS = ("rounds", "num-server-rounds", "num_server_rounds")  # how apps name their rounds
_SETTING = re.compile(r"""([\w.-]+)=("[^"]*"|'[^']*'|\S+)\s*""")


@dataclass(frozen=True)
class FlowerApp:
    """An app in Flower's layout.

    Attributes
    ----------
    folder, name
        Where its pyproject.toml is, and the name of the project in it.
    config
        Its settings, by flat names. Every client sees them, so `ledger` is empty where a command or
        the environment (FEDPRICE_LEDGER) names one: its URL may contain a password. `clients-file`
        is looked up in the app's directory, then in the user's.
    components, federations
        Where its server and client are; the federations that it names.
    wanted_clients, wanted_ledger, wanted_run
        The number of clients that a command requests, 0 if it does not; the URL of its ledger, and
        the name of its run.
    chosen
        The settings that a command changed.
    track
        Where a command wants to see each round (`fedprice.trackers`).
    """

    folder: Path
    name: str
    config: dict[str, Any]
    components: dict[str, str]
    federations: dict[str, Any] = field(default_factory=dict)
    wanted_clients: int = 0
    wanted_ledger: str = field(default="", repr=False)
    chosen: frozenset[str] = frozenset()
    wanted_run: str = ""
    track: str = ""

    @classmethod
    def read(
        cls,
        folder: Path,
        run_config: str = "",
        *,
        clients: int | None = None,
        rounds: int | None = None,
        ledger: str = "",
        run: str = "",
    ) -> FlowerApp:
        """Read an app, with some settings changed as `flwr run --run-config` takes them.

        Parameters
        ----------
        folder, run_config
            Where it is, and settings such as 'rounds=3 run="first"'.
        clients, rounds
            The numbers of clients and rounds, instead of those in its settings.
        ledger
            The URL of the ledger, instead of the environment's and the setting's.
        run
            The name of the run, instead of the environment's and the setting's.
        """
        try:
            project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
            own = project["tool"]["flwr"]["app"]
            components = dict(own["components"])
        except OSError as error:
            raise InputError(
                f"there is no Flower app in {folder}: pyproject.toml cannot be read "
                f"({error.strerror})."
            ) from error
        except (KeyError, TypeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{folder / 'pyproject.toml'} is not of a Flower app.") from error
        config = _flat(own.get("config", {}))
        changes = _changes(config, run_config)
        if clients is not None and "clients" in config:
            _choose(changes, "clients", clients, "--clients")
        if rounds is not None:
            name = next((name for name in ROUNDS if name in config), None)
            if name is None:
                raise InputError(
                    f"--rounds: the app in {folder} has neither a setting `rounds` nor "
                    "`num-server-rounds`. Set its number of rounds with --run-config."
                )
            _choose(changes, name, rounds, "--rounds")
        if run and "run" in config:
            _choose(changes, "run", run, "--run")
        config |= changes
        if os.environ.get("FEDPRICE_RUN") and "run" in config and "run" not in changes:
            config["run"] = os.environ["FEDPRICE_RUN"]
        url = str(config.get("ledger", ""))
        if (ledger or os.environ.get("FEDPRICE_LEDGER")) and "ledger" in config:
            config["ledger"] = ""
        elif has_password(url):
            raise InputError(
                "the setting `ledger` must not contain a password: clients see the settings. Put "
                "the URL into FEDPRICE_LEDGER, in the server's environment."
            )
        elif url:
            config["ledger"] = absolute(url)
        if table := str(config.get("clients-file", "")):  # other processes run elsewhere
            there = (folder / table).resolve()
            config["clients-file"] = str(there if there.exists() else Path(table).resolve())
        return cls(
            folder.resolve(),
            str(project.get("project", {}).get("name", folder.resolve().name)),
            config,
            components,
            project["tool"]["flwr"].get("federations", {}),
            clients or 0,
            absolute(ledger),
            frozenset(changes),
            run,
        )

    @property
    def ledger(self) -> str:
        """The URL of the ledger: a command's, FEDPRICE_LEDGER, the setting's, or a file here."""
        named = self.wanted_ledger or os.environ.get("FEDPRICE_LEDGER")
        return absolute(named or str(self.config.get("ledger") or DEFAULT_LEDGER))

    @property
    def run(self) -> str:
        """The name of the run: a command's, FEDPRICE_RUN, the setting `run`, or the project's."""
        if "run" in self.config:
            return str(self.config["run"])
        return self.wanted_run or os.environ.get("FEDPRICE_RUN") or self.name

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the app's server, and of no other process."""
        own = {"FEDPRICE_LEDGER": self.ledger, "FEDPRICE_RUN": self.run, "FEDPRICE_KEYS": ""}
        return own | ({"FEDPRICE_TRACK": self.track} if self.track else {})

    @property
    def options(self) -> list[str]:
        """The options of `flwr run` that pass on the settings."""
        return ["--run-config", config_text(self.config)] if self.config else []

    @property
    def clients(self) -> int:
        """How many clients there are: a command's, the app's setting's, or its federation's.

        0 if the number is not given.
        """
        if self.wanted_clients:
            return self.wanted_clients
        if int(self.config.get("clients", 0)):
            return int(self.config["clients"])
        for federation in self.federations.values():
            options = federation.get("options", {}) if isinstance(federation, dict) else {}
            if "num-supernodes" in options:
                return int(options["num-supernodes"])
        return 0

    def require_clients(self) -> int:
        """Return how many clients there are; refuse an app that does not say."""
        if self.clients < 1:
            raise InputError(
                f"an app needs at least one client, and {self.folder / 'pyproject.toml'} does not "
                "say how many it has. Give --clients."
            )
        return self.clients

    def components_here(self) -> tuple[Any, Any]:
        """Return the app's server and its client, loaded into this process."""
        return self._component("serverapp"), self._component("clientapp")

    def run_in_process(self) -> bool:
        """Run the app's server and its clients in this process; return whether in a market."""
        from fedprice.flower.participation import Participation

        clients = self.require_clients()
        before = Participation.started.copy()
        with _environment(self.environment):
            server, client = self.components_here()
            InProcessGrid(client, clients, self.config).start(server)
        if Participation.started == before:
            raise self.unpriced()
        return Participation.started["PricedParticipation"] > before["PricedParticipation"]

    def unpriced(self) -> InputError:
        """Return the message about an app that was run without a market."""
        return InputError(
            f"the server of the app in {self.folder} started no PricedParticipation: nothing was "
            'priced or recorded. See docs/flower.md, "Add pricing to a Flower app".'
        )

    def copied(self, folder: Path) -> Path:
        """Copy the app into a new directory: Flower changes the pyproject.toml of what it runs."""
        shutil.rmtree(folder, ignore_errors=True)
        left_out = shutil.ignore_patterns(".*", "__pycache__", "*.db", "*.db-*", "node_modules")
        return Path(shutil.copytree(self.folder, folder, ignore=left_out))

    def module(self, name: str) -> Any:
        """Import a module of the app, and not that of another app with the same name."""
        package = name.partition(".")[0]
        own = {self.folder / package, self.folder / f"{package}.py"}
        loaded = sys.modules.get(package)
        found = [*getattr(loaded, "__path__", []), getattr(loaded, "__file__", None) or ""]
        if loaded and any(path.exists() for path in own) and own.isdisjoint(map(Path, found)):
            for other in [other for other in sys.modules if other.partition(".")[0] == package]:
                del sys.modules[other]
        sys.path.insert(0, str(self.folder))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(self.folder))

    def _component(self, name: str) -> Any:
        module, _, attribute = str(self.components.get(name, "")).partition(":")
        try:
            return getattr(self.module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"cannot load the {name} of {self.folder}: {error}.") from error


def absolute(url: str) -> str:
    """Return the URL of a ledger for processes with other working directories.

    Examples
    --------
    >>> absolute("/data/market.db"), absolute("postgresql://db.internal/market")
    ('sqlite:////data/market.db', 'postgresql://db.internal/market')
    """
    path = url.removeprefix("sqlite:///")
    if not path or "://" in path or path.startswith((":memory:", "file:")):
        return url
    return f"sqlite:///{Path(path).resolve()}"


def config_text(config: dict[str, Any]) -> str:
    """Return settings in the form that `flwr run --run-config` takes.

    Examples
    --------
    >>> config_text({"rounds": 3, "run": "first", "fund": True})
    'rounds=3 run="first" fund=true'
    """
    return " ".join(f"{name}={_toml(value)}" for name, value in config.items())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    if '"' in value or "\\" in value or not value.isprintable():
        raise InputError(f"a setting cannot hold quotes or backslashes; got {value!r}.")
    return f'"{value}"'


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _changes(config: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the settings that a text changes, each of the same type as before."""
    changes, rest = dict[str, Any](), text.strip()
    while rest:
        found = _SETTING.match(rest)
        if found is None:
            raise InputError(f"--run-config must read like 'rounds=3 run=\"first\"'; got {text!r}.")
        name, value = found.groups()
        if name not in config:
            raise InputError(f"the app has no setting {name!r}. {nearest(name, config)}")
        try:
            changes[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{value} is not a value for {name}; text needs quotes.") from error
        wanted = type(config[name])
        if wanted is float and type(changes[name]) is int:
            changes[name] = float(changes[name])
        if type(changes[name]) is not wanted:
            kind = {str: "text", float: "a number", int: "a whole number"}.get(
                wanted, "true or false"
            )
            raise InputError(f"the setting {name} must be {kind}; got {value}.")
        rest = rest[found.end() :]
    return changes


def _choose(changes: dict[str, Any], name: str, value: int | str, option: str) -> None:
    """Take a setting from an option; refuse it if --run-config sets another value."""
    if changes.setdefault(name, value) != value:
        raise InputError(
            f"{option} is {value}, but --run-config says {name}={changes[name]}; give one of them."
        )


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """Change this process's environment inside a `with` block."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
