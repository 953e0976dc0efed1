"""`flower_task`: any Flower app as a task: its server and clients in this process, with no market.

The app's server is run up to the point where it starts its strategy, which gives the initial model,
the settings of training and the server's evaluation. From then on rounds are simulated: clients get
the app's own train messages, regardless of the strategy.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from fedprice.errors import FedpriceError, InputError
from fedprice.flower.app import FlowerApp
from fedprice.flower.client import PILOT
from fedprice.flower.grid import InProcessGrid
from fedprice.flower.strategy import PricedParticipation
from fedprice.flower.wire import arrays_of, market_fields, the_arrays, to_record
from fedprice.learning.draws import key
from fedprice.learning.functions import client_names, sample_counts
from fedprice.learning.task import Task, Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from flwr.app import ArrayRecord

    from fedprice._plumbing.arrays import Arrays, IntArray

__all__ = ["FlowerTask", "flower_task"]

APPS = 5  # the stream of random numbers of apps: see `fedprice.learning.draws`


def flower_task(folder: Path, run_config: str = "", clients: int | None = None) -> FlowerTask:
    """Return the task of a Flower app.

    Parameters
    ----------
    folder
        Where its pyproject.toml is.
    run_config
        Settings to change, as `flwr run --run-config` takes them.
    clients
        How many clients it has; by default its setting `clients`, or the number of SuperNodes that
        its pyproject.toml names.
    """
    app = FlowerApp.read(folder, run_config)
    count = clients or app.clients
    if not count:
        raise InputError(
            f"{folder} does not say how many clients it has; give it a setting `clients` "
            "(pyproject.toml, [tool.flwr.app.config])."
        )
    return FlowerTask(app, count)


class FlowerTask(Task):
    """A Flower app as a task.

    Random numbers of Python, numpy and PyTorch are seeded before each update, and what a client
    stores in its context is discarded after it, so that pilots can be repeated. Numbers of samples
    come with the replies: "num-examples" in the metrics of a train reply.
    """

    def __init__(self, app: FlowerApp, clients: int) -> None:
        self._app, self.name = app, app.folder.name
        config = dict(app.config)
        config |= {"clients": clients} if "clients" in config else {}
        config |= {"ledger": "sqlite://"} if "ledger" in config else {}  # nothing is recorded
        server, client = app.components_here()
        self._grid = InProcessGrid(client, clients, config)
        for context in self._grid.contexts.values():
            context.node_config[PILOT] = True
        self._started = _started(server, self._grid)
        record = self._started["initial_arrays"]
        self._array_names, self.initial = list(record.keys()), arrays_of(record)
        if not self.layout.size:
            raise InputError(f"the model of {self.name} is empty.")
        self.samples, self.ids = np.ones(clients, np.int64), client_names(None, clients)
        replies = [self._train(self.initial, n, 0, 0) for n in range(clients)]
        self.samples = sample_counts([_samples(reply) for reply in replies])
        named = [market_fields(reply.content).get("client") for reply in replies]
        if all(isinstance(name, str) for name in named):
            self.ids = client_names([str(name) for name in named], clients)

    @property
    def names(self) -> list[str]:
        """The names of the model's arrays."""
        return self._array_names

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the app's code and settings."""
        digest = hashlib.sha256(f"flower\0{sorted(self._grid.run_config.items())}".encode())
        for path in sorted(self._app.folder.rglob("*")):
            if path.suffix in (".py", ".toml") and path.is_file():
                digest.update(f"\0{path.relative_to(self._app.folder)}\0".encode())
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def updates(
        self,
        model: Arrays,
        clients: IntArray,
        round_: int,
        seed: int,
        pool: Executor | None = None,
    ) -> Updates:
        """Let clients train, one after the other."""
        layout = self.layout
        values = np.empty((clients.size, layout.size), layout.dtype)
        buffers = np.empty((clients.size, layout.buffer_size)) if layout.buffer_size else None
        for slot, n in enumerate(clients.tolist()):
            reply = self._train(model, n, round_, seed)
            arrays = arrays_of(the_arrays(reply.content))
            if [a.shape for a in arrays] != [a.shape for a in self.initial]:
                raise InputError(f"{self._where(n, round_)} returned arrays of other shapes.")
            values[slot] = layout.flat(arrays)
            if market_fields(reply.content).get("returns") != "update":  # new weights
                values[slot] -= layout.flat(model)
            if buffers is not None:
                buffers[slot] = layout.flat_buffers(arrays)
        return Updates(values, buffers=buffers)

    def evaluate(self, model: Arrays, pool: Executor | None = None) -> dict[str, float]:
        """Return the evaluation by the app's server, or by its clients, weighted by samples."""
        arrays = to_record(self._array_names, model)
        evaluate: Callable[[int, ArrayRecord], MetricRecord | None] | None
        evaluate = self._started["evaluate_fn"]
        if evaluate is not None:
            with _seeded(0):
                found = evaluate(0, arrays)
            return _with_loss(self.name, dict(found or {}))
        config = ConfigRecord(dict(self._started["evaluate_config"] or {}) | {"server-round": 0})
        sums: dict[str, float] = {}
        for n in range(self.num_clients):
            content = RecordDict({"arrays": arrays, "config": config})
            reply = self._ask(n, "evaluate", content, seed=0)
            own = _metrics(reply)
            for name, value in own.items():
                sums[name] = sums.get(name, 0.0) + float(self.weight[n]) * value
        return _with_loss(self.name, sums)

    def _train(self, model: Arrays, n: int, round_: int, seed: int) -> Message:
        # An update is a function of its arguments: clients remember nothing of earlier rounds.
        self._grid.contexts[self._grid.FIRST + n].state = RecordDict()
        config = dict(self._started["train_config"] or {}) | {"server-round": round_ + 1}
        content = RecordDict(
            {"arrays": to_record(self._array_names, model), "config": ConfigRecord(config)}
        )
        reply = self._ask(n, "train", content, key(seed, APPS, round_, n))
        record = the_arrays(reply.content)
        if list(record.keys()) != self._array_names:
            raise InputError(f"{self._where(n, round_)} returned arrays of other names.")
        return reply

    def _ask(self, n: int, kind: str, content: RecordDict, seed: int) -> Message:
        message = Message(content, self._grid.FIRST + n, kind)
        with _seeded(seed):
            (reply,) = self._grid.send_and_receive([message])
        if reply.has_error():
            raise InputError(
                f"{self.name}: {kind} failed for client {self.ids[n]!r}: {reply.error.reason}."
            )
        return reply

    def _where(self, n: int, round_: int) -> str:
        return f"{self.name}: in round {round_ + 1}, client {self.ids[n]!r}"


class _StartedError(BaseException):
    """Ends a server app when it starts its strategy; apps do not catch it by accident."""


def _started(server: Any, grid: InProcessGrid) -> dict[str, Any]:
    """Run a server app until it starts its strategy; return the arguments of that call."""
    found: dict[str, Any] = {}

    def start(
        self: Strategy,
        grid: Any,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Any = None,
    ) -> None:
        found.update(
            initial_arrays=initial_arrays,
            train_config=train_config,
            evaluate_config=evaluate_config,
            evaluate_fn=evaluate_fn,
        )
        raise _StartedError

    kept = {kind: kind.__dict__["start"] for kind in _strategies() if "start" in kind.__dict__}
    ledger = os.environ.get("FEDPRICE_LEDGER")
    os.environ["FEDPRICE_LEDGER"] = "sqlite://"  # nothing is recorded
    try:
        for kind in kept:
            kind.start = start
        with _seeded(0):
            grid.start(server)
    except _StartedError:
        return found
    except FedpriceError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the server of the app failed: {type(error).__name__}: {error}."
        ) from error
    finally:
        for kind, own in kept.items():
            kind.start = own
        if ledger is None:
            del os.environ["FEDPRICE_LEDGER"]
        else:
            os.environ["FEDPRICE_LEDGER"] = ledger
    raise InputError(
        "the server of the app starts no strategy of flwr.serverapp; fedprice runs apps of "
        "Flower's Message API (strategy.start(grid=…, initial_arrays=…))."
    )


def _strategies() -> list[Any]:
    """Return Strategy and all that derive from it, ours included."""
    found: list[Any] = [Strategy, PricedParticipation]
    waiting: list[Any] = [Strategy]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind not in found:
                found.append(kind)
            waiting.append(kind)
    return found


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the generators that apps use; PyTorch's only if the app has loaded it."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (what apps use)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed % 2**63)
    yield


def _metrics(reply: Message) -> dict[str, float]:
    return {
        name: float(value)
        for record in reply.content.metric_records.values()
        for name, value in record.items()
        if isinstance(value, int | float)
    }


def _samples(reply: Message) -> float:
    count = market_fields(reply.content).get("samples", _metrics(reply).get("num-examples"))
    if not isinstance(count, int | float):
        raise InputError(
            'a train reply must say its number of samples as the metric "num-examples"; got '
            f"{', '.join(_metrics(reply)) or 'no metrics'}."
        )
    return float(count)


def _with_loss(name: str, found: dict[str, Any]) -> dict[str, float]:
    """Return metrics with the loss under its own name."""
    metrics = {str(k): float(v) for k, v in found.items() if isinstance(v, int | float)}
    metrics.pop("num-examples", None)
    losses = [k for k in metrics if k.lower().endswith("loss")]
    if "loss" not in metrics and len(losses) == 1:
        metrics["loss"] = metrics.pop(losses[0])
    if "loss" not in metrics:
        raise InputError(
            f"{name} must evaluate to a metric named loss, by its server or by its clients; got "
            f"{', '.join(metrics) or 'none'}."
        )
    return metrics
