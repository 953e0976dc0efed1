"""The identities of client and server, from configuration, keys and a small file.

A SuperNode that is started with `--node-config 'keys="/etc/fedprice"'` uses the files in that
directory, over which the server has no control:

    client-7.key    its signing key (`fedprice flower keys`); the client's name is 7
    server.pub      the public key of its server
    client.toml     what joining costs it, such as: cost = 12.5

Where the node's configuration is not the client's to choose, as in NVIDIA FLARE, the environment's
FEDPRICE_KEYS names the directory, or one that holds a directory for each site.

A node without such a directory belongs to a simulation: it is a client 1, 2, … with a key that
anybody can compute, and a cost from a table or drawn at random.
"""

from __future__ import annotations

import logging
import math
import os
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import MetricRecord

from fedprice._plumbing.tables import read_table
from fedprice.clients import Clients
from fedprice.errors import InputError, nearest
from fedprice.flower.app import DEFAULT_LEDGER
from fedprice.flower.client import Client
from fedprice.flower.wire import MOST
from fedprice.market.keys import read_key, read_public_key, read_public_keys
from fedprice.market.simulation import simulation_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sized

    from flwr.app import Context

__all__ = ["client_here", "made_up_cost", "server_here"]

_log = logging.getLogger("flwr")  # the log of a Flower app

OWN_FILE = "client.toml"
KEYS = "FEDPRICE_KEYS"
DEFAULT_RUN = "run"
COSTS = 7  # the stream of random numbers for costs
COUNTED = "fedprice.samples"  # in a node's state, so that data is not loaded for every message


def client_here(samples: int | Callable[[Context], Sized | int]) -> Callable[[Context], Client]:
    """Return a function from a node's context to the client that it is, for `ParticipationMod`.

    Parameters
    ----------
    samples
        How many samples the client trains on, or a function of the context that returns their
        number, or the training set itself. It is called once per Flower run.

    Norms need not be given: they are measured.

    Examples
    --------
    >>> from flwr.app import Context, RecordDict
    >>> node = {"partition-id": 2, "num-partitions": 3}
    >>> own = client_here(samples=lambda context: [1.0, 2.0])(Context(1, 1, node, RecordDict(), {}))
    >>> own.name, own.samples
    ('3', 2)
    """

    def client(context: Context) -> Client:
        folder = _folder(context)
        try:
            own = _registered(folder) if folder else _simulated(context)
        except InputError as error:
            if not folder:
                raise
            # The server gets no details, since they may contain a cost.
            _log.error("this node cannot take part: %s", error)
            raise InputError(
                "its configuration is wrong; the log of its node has the details."
            ) from error
        return Client(**own, samples=_counted(samples, context))

    return client


def server_here(context: Context, **changes: Any) -> dict[str, Any]:
    """Return arguments of `PricedParticipation` from the server's environment and the settings.

    Parameters
    ----------
    context
        The server's context, with the app's settings: `keys` is a directory with server.key and the
        clients' public keys; without it, this is a simulation. `clients` is how many to wait for.
        The environment's FEDPRICE_KEYS, FEDPRICE_LEDGER and FEDPRICE_RUN override `keys`, `ledger`
        and `run`.
    changes
        Arguments to override, by their names in `PricedParticipation`.
    """
    config = context.run_config
    found: dict[str, Any] = {
        "ledger": os.environ.get("FEDPRICE_LEDGER") or str(config.get("ledger") or DEFAULT_LEDGER),
        "run": os.environ.get("FEDPRICE_RUN") or str(config.get("run") or DEFAULT_RUN),
        "clients": _whole_number(config, "clients", 0) or None,
    }
    if "key" not in changes:
        if folder := os.environ.get(KEYS) or str(config.get("keys") or ""):
            found["key"] = read_key(Path(folder) / "server.key")
            found["keys"] = read_public_keys(Path(folder))
        else:
            _log.warning(
                "a simulation: anybody can compute its keys, and it uses play money; for "
                "any other run, name a directory of keys in the app's setting `keys`"
            )
            found |= {"key": simulation_key("server"), "fund": True}
            found["seed"] = _whole_number(config, "seed", 0)
    return found | changes


def _folder(context: Context) -> Path | None:
    """Return the directory of a node's keys; None for a node of a simulation."""
    if own := context.node_config.get("keys"):
        return Path(str(own))
    if not (shared := os.environ.get(KEYS)):
        return None
    site = context.node_config.get("client-name")  # as NVIDIA FLARE calls it
    of_site = Path(shared) / str(site or "")
    return of_site if of_site.is_dir() else Path(shared)


def _registered(folder: Path) -> dict[str, Any]:
    """Return the client that a directory on its node describes."""
    own = own_file(folder / OWN_FILE)
    keys = sorted(folder.glob(f"client-{own['name']}.key" if "name" in own else "client-*.key"))
    if len(keys) != 1:
        cure = (
            f"name one of them in {OWN_FILE}, such as: name = {_name_of(keys[0])!r}."
            if keys
            else "copy the client's key there (`fedprice flower keys` makes them)."
        )
        wanted = f"key of client {own['name']!r}" if "name" in own else "key client-NAME.key"
        raise InputError(f"{folder} must hold one {wanted}; it holds {len(keys)}: {cure}")
    own["receipts"] = folder / own.get("receipts", f"{keys[0].stem}.receipts")
    return own | {
        "name": _name_of(keys[0]),
        "key": read_key(keys[0]),
        "server": read_public_key(folder / "server.pub"),
    }


def _name_of(key: Path) -> str:
    return key.stem.removeprefix("client-")


def _is_number(least: float, most: float, *, above: bool = False) -> Callable[[Any], bool]:
    def holds(given: Any) -> bool:
        if type(given) not in (int, float):
            return False
        return bool(given > least if above else given >= least) and bool(given <= most)

    return holds


_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "cost": (_is_number(0, MOST, above=True), f"a number above 0, at most {MOST:g}"),
    "value": (_is_number(0, MOST), f"a number from 0 to {MOST:g}"),
    "cost_exponent": (_is_number(1, 100, above=True), "a number above 1, at most 100"),
    "least_profit": (_is_number(-math.inf, MOST), f"a number, at most {MOST:g}"),
    "largest_level": (_is_number(0, 1, above=True), "a number above 0, at most 1"),
    "largest_loss": (_is_number(0, math.inf), "a number, at least 0"),
    "rounds": (lambda given: type(given) is int and given > 0, "a whole number above 0"),
    "reveals": (lambda given: type(given) is bool, "true or false"),
    "name": (lambda given: type(given) is str and given != "", "text in quotes"),
    "receipts": (lambda given: type(given) is str and given != "", "a file name in quotes"),
}


def own_file(path: Path) -> dict[str, Any]:
    """Return the fields of a client's small file, or say which line or field is wrong."""
    try:
        own = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"there is no file {path}; it says what joining costs this client, such as: cost = 12.5"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:  # not TOML, or not text
        raise InputError(f"{path} must hold lines such as cost = 12.5; got: {error}.") from error
    for name, given in own.items():
        if name not in _FIELDS:
            raise InputError(f"{path}: unknown field `{name}`. {nearest(name, _FIELDS)}")
        holds, rule = _FIELDS[name]
        if not holds(given):
            raise InputError(f"{path}: `{name}` must be {rule}; got {given!r}.")
    if "cost" not in own:
        raise InputError(f"{path}: `cost` is missing; add a line such as: cost = 12.5")
    return own


def _simulated(context: Context) -> dict[str, Any]:
    """Return the client that a node of a simulation represents."""
    node, config = context.node_config, context.run_config
    if type(n := node.get("partition-id")) is not int or n < 0:
        raise InputError(
            "the configuration of this node has no `keys`, nor the `partition-id` of a simulation; "
            "start its SuperNode with --node-config 'keys=\"DIRECTORY\"'."
        )
    name, file = str(n + 1), str(config.get("clients-file") or "")
    if file:
        cost, value = _of_table(Path(file), name)
    else:
        mean, seed = config.get("mean-cost", 1.0), _whole_number(config, "seed", 0)
        if not _is_number(0, MOST, above=True)(mean):
            raise InputError(f"the setting `mean-cost` must be a number above 0; got {mean!r}.")
        cost, value = made_up_cost(n, seed, float(mean)), 0.0
        if n == 0 and COUNTED not in context.state:  # log it only once
            _log.warning(
                "the clients' costs are invented: exponential with a mean of %g for joining every "
                "round (setting `mean-cost`); the setting `clients-file` takes them from a table",
                mean,
            )
    return {
        "name": name,
        "key": simulation_key(f"client {name}"),
        "cost": cost,
        "value": value,
        "least_profit": -math.inf,  # the money is invented, too
        "reveals": True,
    }


def made_up_cost(number: int, seed: int = 0, mean: float = 1.0) -> float:
    """Return a random cost for a client, counted from 0, for which none is given."""
    return float(np.random.default_rng([seed, number, COSTS]).exponential(mean))


def _of_table(path: Path, name: str) -> tuple[float, float]:
    """Return a client's cost and value in a table."""
    try:
        table = _table(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise InputError(
            f"cannot read the setting `clients-file`, {path}: {error.strerror}. Give an absolute "
            "path, or one from the directory of the app."
        ) from error
    if name not in table:
        raise InputError(
            f"{path} has no client {name!r}: clients of a simulation have the ids 1, 2, … in the "
            f"column client_id. {nearest(name, table)}"
        )
    return table[name]


@lru_cache(maxsize=4)
def _table(path: Path, changed: int) -> dict[str, tuple[float, float]]:
    """Return costs and values by client, as `fedprice price` reads them; norms are ignored."""
    import polars as pl

    frame = read_table(path)
    share = "weight" if "weight" in frame.columns else "samples"
    norm = "update_norm" if "update_norm" in frame.columns else "grad_norm"
    missing = [name for name in (share, norm) if name not in frame.columns]
    try:
        clients = Clients.from_frame(frame.with_columns(pl.lit(1.0).alias(n) for n in missing))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    own = zip(clients.cost.tolist(), clients.value.tolist(), strict=True)
    return dict(zip(clients.ids.tolist(), own, strict=True))


def _whole_number(config: Mapping[str, Any], name: str, otherwise: int) -> int:
    given = config.get(name, otherwise)
    if type(given) is not int or given < 0:
        raise InputError(f"the setting `{name}` must be a whole number, at least 0; got {given!r}.")
    return given


def _counted(samples: int | Callable[[Context], Sized | int], context: Context) -> int:
    """Return how many samples a client has, counted once per run."""
    known = context.state.metric_records.get(COUNTED)
    if known is None:
        count = _count(samples(context) if callable(samples) else samples)
        known = context.state[COUNTED] = MetricRecord({"samples": count})
    return int(known["samples"])  # type: ignore[arg-type]


def _count(found: Any) -> int:
    """Return the number of samples in the data that an app returns.

    Examples
    --------
    >>> _count(12), _count(np.zeros((5, 2)))
    (12, 5)
    """
    if isinstance(found, int | np.integer) and not isinstance(found, bool) and found >= 0:
        return int(found)
    found = getattr(found, "dataset", found)  # the length of a loader is in batches
    # The length of a pair (training set, test set) is 2, whatever is in it.
    if isinstance(found, tuple | dict | str | bytes) or not hasattr(found, "__len__"):
        raise InputError(
            "`samples` must be a whole number, the training set, or a function of the context that "
            f"returns one of them; got {type(found).__name__}. Return len(…) of the training set."
        )
    return len(found)
