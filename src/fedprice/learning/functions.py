"""`FunctionTask`: a task made from plain functions, whose results are checked before use."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.data.federation import check_names, numbered
from fedprice.errors import FedpriceError, InputError
from fedprice.learning.layout import Layout, buffers_among
from fedprice.learning.task import Task, Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from fedprice._plumbing.arrays import Arrays, IntArray

__all__ = ["FunctionTask", "client_names", "sample_counts"]


class FunctionTask(Task):
    """What `Task.of` returns; its docstring has the parameters."""

    def __init__(
        self,
        *,
        initial: Sequence[npt.ArrayLike],
        samples: npt.ArrayLike,
        update: Callable[[Arrays, int, int, int], Sequence[npt.ArrayLike]],
        evaluate: Callable[[Arrays], dict[str, float]],
        ids: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        buffers: Sequence[str] | None = None,
        name: str = "task",
        version: str = "",
    ) -> None:
        for what, function in (("update", update), ("evaluate", evaluate)):
            if not callable(function):
                raise InputError(f"`{what}` must be a function; got {function!r}.")
        if isinstance(initial, np.ndarray) or not isinstance(initial, list | tuple):
            raise InputError(
                f"`initial` must be a list of arrays; got {type(initial).__name__}. Wrap a single "
                "array in [ ]."
            )
        self.initial = [np.array(array) for array in initial]
        self._names = [f"array{i}" for i in range(len(initial))] if names is None else list(names)
        if len(set(self._names)) != len(initial):
            raise InputError(
                f"`names` must name each of the {len(initial)} arrays of the model, all different; "
                f"got {', '.join(map(str, self._names)) or 'none'}."
            )
        self._buffers = buffers
        if not self.layout.size:
            raise InputError("`initial` must hold at least one number; got an empty model.")
        if not all(np.isfinite(array).all() for array in self.initial):
            raise InputError("`initial` must be finite; it holds NaN or infinity.")
        self.samples = sample_counts(samples)
        self.ids = client_names(ids, self.samples.size)
        self.name, self._version = str(name), str(version)
        self._update, self._evaluate = update, evaluate
        self._repeated = False

    def __repr__(self) -> str:
        return f"Task({self.name!r}, num_clients={self.num_clients}, size={self.layout.size})"

    @property
    def names(self) -> list[str]:
        """The names of the model's arrays."""
        return self._names

    @cached_property
    def layout(self) -> Layout:
        """How the model's arrays become flat vectors."""
        return Layout.of(self.initial, buffers_among(self.initial, self._names, self._buffers))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the initial model, samples, names and version; functions cannot be hashed."""
        digest = hashlib.sha256(b"functions\0")
        kept = [str(self.layout.buffers)] if self.layout.buffer_size else []
        for text in (self.name, self._version, *self.ids, *kept):
            digest.update(f"{len(text)}:{text}\0".encode())
        for array in (self.samples, *self.initial):
            digest.update(f"{array.dtype.str}{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def updates(
        self,
        model: Arrays,
        clients: IntArray,
        round_: int,
        seed: int,
        pool: Executor | None = None,
    ) -> Updates:
        """Call the update function for each client, and check what it returns."""
        layout = self.layout
        values = np.empty((clients.size, layout.size), layout.dtype)
        buffers = np.empty((clients.size, layout.buffer_size)) if layout.buffer_size else None
        kept = layout.flat_buffers(model)
        for slot, n in enumerate(clients.tolist()):
            row = values[slot]
            own = None if buffers is None else buffers[slot]
            given = self._write(row, own, model, n, round_, seed)
            if not self._repeated:  # once per task: resuming after a stop relies on it
                if not row.any() and not all(map(np.array_equal, given, model)):
                    raise InputError(
                        f"`update` must return new − old; {self._where(n, round_)}, it changed the "
                        "arrays that it was given and returned zeros. Copy them first."
                    )
                again = np.empty_like(row)
                self._write(again, None, model, n, round_, seed)
                if not np.array_equal(row, again, equal_nan=True):
                    raise InputError(
                        f"`update` must be a function of its arguments; {self._where(n, round_)}, "
                        "the same call twice gave different updates. Seed all its randomness "
                        "from `seed`, `round_` and `client`."
                    )
                self._repeated = True
        return Updates(values, buffers=None if buffers is None else kept + buffers)

    def evaluate(self, model: Arrays, pool: Executor | None = None) -> dict[str, float]:
        """Call the evaluation function, and check what it returns."""
        found = _called("evaluate", "", self._evaluate, [array.copy() for array in model])
        if not isinstance(found, dict) or "loss" not in found:
            raise InputError(
                f'`evaluate` must return a dictionary with "loss"; got {_brief(found)}.'
            )
        metrics = {}
        for name, value in found.items():
            try:
                metrics[str(name)] = float(value)
            except Exception:  # a user's number type may raise anything
                raise InputError(
                    f"`evaluate` must return numbers; got {_brief(value)} for {name!r}."
                ) from None
        return metrics

    def _write(
        self,
        row: npt.NDArray[Any],
        buffers: npt.NDArray[Any] | None,
        model: Arrays,
        client: int,
        round_: int,
        seed: int,
    ) -> Arrays:
        """Write one client's update into flat rows; return the arrays that it was given."""
        where = self._where(client, round_)
        own = [array.copy() for array in model]  # a function may change its arguments
        found = _called("update", f" {where}", self._update, own, client, round_, seed)
        if not isinstance(found, list | tuple) or len(found) != len(self.initial):
            got = f"{len(found)} arrays" if isinstance(found, list | tuple) else _brief(found)
            raise InputError(
                f"`update` must return a list of {len(self.initial)} arrays, new − old; {where}, "
                f"got {got}."
            )
        changes = []
        for i, (given, old) in enumerate(zip(found, self.initial, strict=True), start=1):
            try:
                array = np.asarray(given)
            except Exception as error:
                raise InputError(
                    f"`update` must return arrays; {where}, array {i} cannot be read as one: "
                    f"{_told(error)}."
                ) from error
            if array.shape != old.shape:
                raise InputError(
                    f"`update` must return arrays of the model's shapes; {where}, array {i} has "
                    f"shape {array.shape}, not {old.shape}."
                )
            if array.dtype.kind not in ("f" if old.dtype.kind == "f" else "fiub"):
                raise InputError(
                    f"`update` must return new − old in floating point; {where}, array {i} is of "
                    f"type {array.dtype}."
                )
            changes.append(array)
        for part, array in zip(
            self.layout.split(row), self.layout.parameters(changes), strict=True
        ):
            part[:] = array.reshape(-1)
        if buffers is not None:
            buffers[:] = self.layout.flat_buffers(changes)
        return own

    def _where(self, client: int, round_: int) -> str:
        return f"for client {self.ids[client]!r} in round {round_ + 1}"


def _called(what: str, where: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except FedpriceError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"`{what}` failed{where}: {_told(error)}.") from error


def _told(error: BaseException) -> str:
    """Return an error of a user's code as one line."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _brief(value: object) -> str:
    if value is None:
        return "nothing"
    shown = " ".join(repr(value).split())
    return f"{type(value).__name__} {shown:.60}"


def sample_counts(given: npt.ArrayLike) -> IntArray:
    """Return numbers of samples, one per client, or refuse invalid ones."""
    counts = np.asarray(given)
    if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "fiu":
        raise InputError(
            f"`samples` must be a list with one number per client; got {_brief(given)}."
        )
    bad = ~np.isfinite(counts) | (counts < 1) | (counts != np.floor(counts)) | (counts > 2**53)
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(
            f"`samples` must be whole numbers from 1 to 2^53; got {counts[at]} for client {at + 1}."
        )
    return counts.astype(np.int64)


def client_names(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Return the clients' names, by default the numbers from "1" on."""
    if given is None:
        return numbered(count)
    names = tuple(str(name) for name in given)
    check_names(names, count)
    return names
