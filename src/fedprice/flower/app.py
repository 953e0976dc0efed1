"""A Flower app in a directory: its settings, and how to run it in this process."""

from __future__ import annotations

import importlib
import os
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedprice.errors import InputError, nearest
from fedprice.flower.grid import InProcessGrid
from fedprice.market.database import has_password

__all__ = ["FlowerApp", "absolute", "config_text"]

_SETTING = re.compile(r"""([\w.-]+)=("[^"]*"|'[^']*'|\S+)\s*""")


@dataclass(frozen=True)
class FlowerApp:
    """An app in Flower's layout.

    Attributes
    ----------
    folder
        Where its pyproject.toml is.
    config
        Its settings, by flat names. Every client sees them, so `ledger` is empty where the
        environment names one (FEDPRICE_LEDGER): its URL may hold a password.
    components, federations
        Where its server and client are; the federations that it names.
    """

    folder: Path
    config: dict[str, Any]
    components: dict[str, str]
    federations: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, run_config: str = "") -> FlowerApp:
        """Read an app, with some settings changed as `flwr run --run-config` takes them."""
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
            raise InputError(f"{folder / 'pyproject.toml'} is not that of a Flower app.") from error
        config = _changed(_flat(own.get("config", {})), run_config)
        ledger = str(config.get("ledger", ""))
        if os.environ.get("FEDPRICE_LEDGER") and "ledger" in config:
            config["ledger"] = ""
        elif has_password(ledger):
            raise InputError(
                "the setting `ledger` must not hold a password: clients see the settings. Put the "
                "URL into FEDPRICE_LEDGER, in the server's environment."
            )
        elif ledger:
            config["ledger"] = absolute(ledger)
        return cls(
            folder.resolve(), config, components, project["tool"]["flwr"].get("federations", {})
        )

    @property
    def ledger(self) -> str:
        """The URL of the app's ledger: FEDPRICE_LEDGER, or else the setting `ledger`."""
        return absolute(os.environ.get("FEDPRICE_LEDGER") or str(self.config.get("ledger", "")))

    def require(self, *names: str) -> None:
        """Refuse an app that lacks settings."""
        for name in names:
            if name not in self.config:
                raise InputError(
                    f"the app in {self.folder} must have a setting `{name}` (pyproject.toml, "
                    "[tool.flwr.app.config])."
                )

    @property
    def clients(self) -> int:
        """How many clients the app says it has; 0 if it does not."""
        if "clients" in self.config:
            return int(self.config["clients"])
        for federation in self.federations.values():
            options = federation.get("options", {}) if isinstance(federation, dict) else {}
            if "num-supernodes" in options:
                return int(options["num-supernodes"])
        return 0

    def components_here(self) -> tuple[Any, Any]:
        """Return the app's server and its client, loaded into this process."""
        return self._component("serverapp"), self._component("clientapp")

    def run_in_process(self) -> None:
        """Run the app's server and its clients in this process."""
        server, client = self.components_here()
        if int(self.config["clients"]) < 1:
            raise InputError("an app needs at least one of its `clients`.")
        InProcessGrid(client, int(self.config["clients"]), self.config).start(server)

    def module(self, name: str) -> Any:
        """Import a module of the app."""
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
    """Return the URL of a ledger for processes that have other directories than this one.

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
    """Return settings as `flwr run --run-config` takes them.

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


def _changed(config: dict[str, Any], text: str) -> dict[str, Any]:
    changed, rest = dict(config), text.strip()
    while rest:
        found = _SETTING.match(rest)
        if found is None:
            raise InputError(f"--run-config must read like 'rounds=3 run=\"first\"'; got {text!r}.")
        name, value = found.groups()
        if name not in config:
            raise InputError(f"the app has no setting {name!r}. {nearest(name, config)}")
        try:
            changed[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{value} is no value for {name}; text needs quotes.") from error
        wanted = type(config[name])
        if wanted is float and type(changed[name]) is int:
            changed[name] = float(changed[name])
        if type(changed[name]) is not wanted:
            kind = {str: "text", float: "a number", int: "a whole number"}.get(
                wanted, "true or false"
            )
            raise InputError(f"the setting {name} must be {kind}; got {value}.")
        rest = rest[found.end() :]
    return changed
