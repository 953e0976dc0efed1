"""`Intake`: reads and checks the replies to calls; `SignedIntake`: has the market check them, too.

A reply contains new weights, or an update new − old; its parameters become one flat row, and its
buffers another. One row is used for all replies: a large model is not copied more than once.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedprice._plumbing.arrays import in_parts
from fedprice.flower.wire import (
    arrays_of,
    hash_of_record,
    market_fields,
    named_arrays,
    signed_of,
    the_arrays,
    to_record,
    with_content,
)
from fedprice.learning.task import Updates
from fedprice.market.messages import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from flwr.app import Message

    from fedprice._plumbing.arrays import Arrays, FloatArray
    from fedprice.flower.wrapped import Wrapped
    from fedprice.learning.layout import Layout
    from fedprice.market.run import MarketRun

__all__ = ["Intake", "SignedIntake", "without_arrays"]

_log = logging.getLogger("flwr")

CHUNK = 1 << 16  # numbers that are looked at at once: usually the first ones have changed
GONE = {3, 4, 5}  # Flower's codes for a message, a reply or a node that is unavailable
VARIANCES = ("running_var", "moving_variance")  # as PyTorch and Keras call them


class Intake:
    """Processes the replies of a run's rounds, one after the other.

    Parameters
    ----------
    names, layout
        The model.
    strategy
        A Flower strategy that aggregates; replies that it cannot aggregate are refused.
    scale
        What the weighted updates of a round, of whom this client's is one, are at most a multiple
        of.
    cap
        The largest norm of a client's updates.
    """

    _pays = False  # whether an update that changes nothing is refused

    def __init__(
        self,
        names: Sequence[str],
        layout: Layout,
        strategy: Wrapped | None = None,
        *,
        scale: Callable[[str], float],
        cap: Callable[[str], float] = lambda _: math.inf,
    ) -> None:
        self._names, self._layout, self._strategy = names, layout, strategy
        self._scale, self._cap = scale, cap
        forms = zip(layout.dtypes, layout.shapes, strict=True)
        self._is_bytes = [(str(kind), len(shape)) for kind, shape in forms] == [("uint8", 1)]
        self._row = np.empty((1, 0 if self._is_bytes else layout.size), layout.dtype)

    def check(self, client: str, reply: Message, model: Arrays) -> Updates:
        """Return the update in a client's reply, or refuse it.

        The next call overwrites what this one returned.

        Parameters
        ----------
        client, reply
            Who answered, and what.
        model
            The model from which the client started.
        """
        _require_reply(reply, client)
        arrays = named_arrays(the_arrays(reply.content), self._names)
        if not self._fits(arrays):
            raise RefusedError("its arrays have other shapes than the model.")
        buffers = self._changed(client, reply, arrays, model)
        if self._is_bytes:
            return Updates(self._row)
        norm = math.sqrt(float(np.einsum("i,i->", *[self._row[0]] * 2, dtype=np.float64)))
        if not math.isfinite(norm):
            raise RefusedError("it is not finite.")
        return Updates(self._row, buffers=buffers, norms=np.array([norm]))

    def _fits(self, arrays: Arrays) -> bool:
        return self._is_bytes or [own.shape for own in arrays] == list(self._layout.shapes)

    def _changed(
        self, client: str, reply: Message, arrays: Arrays, model: Arrays, *, is_update: bool = False
    ) -> FloatArray | None:
        """Write the update into the row, if nothing speaks against it; return the buffers."""
        if self._strategy is not None:
            self._strategy.require_fit(self.with_weights(reply, model).content)
        if self._is_bytes:
            return None
        buffers = self._read(arrays, None if is_update else model)
        if self._pays and [array.dtype for array in arrays] == list(self._layout.dtypes):
            self._require_change(model)
        self._require_small(client, arrays)
        self._require_variances(arrays)
        return buffers

    def with_weights(self, reply: Message, base: Arrays) -> Message:
        """Return a reply that was admitted with new weights, where it has new − old."""
        if market_fields(reply.content).get("returns") != "update":
            return reply
        return self.rebased(reply, [np.zeros_like(own) for own in base], base)

    def rebased(self, reply: Message, start: Arrays, base: Arrays) -> Message:
        """Return a reply as if its client had started from `base` instead of `start`."""
        (name,) = reply.content.array_records
        arrays = arrays_of(reply.content.array_records[name])
        weights = [
            own if is_buffer else np.asarray(new + (own - old), new.dtype)
            for own, old, new, is_buffer in zip(
                arrays, start, base, self._layout.buffers, strict=True
            )
        ]
        content = RecordDict({**reply.content, name: to_record(self._names, weights)})
        return with_content(reply, content)

    def _read(self, arrays: Arrays, base: Arrays | None) -> FloatArray | None:
        """Write new − old of the parameters into the row; return the buffers."""
        layout, (row,) = self._layout, self._row
        old = [None] * len(arrays) if base is None else layout.parameters(base)
        for part, own, start in zip(
            layout.split(row), layout.parameters(arrays), old, strict=False
        ):
            _subtract(own.reshape(-1), None if start is None else start.reshape(-1), part)
        return layout.flat_buffers(arrays)[None] if layout.buffer_size else None

    def _require_change(self, model: Arrays) -> None:
        """Refuse an update that leaves the model as it was, in the model's own type."""
        parts = zip(self._layout.split(self._row[0]), self._layout.parameters(model), strict=True)
        for part, old in parts:
            flat = old.reshape(-1)
            for at in range(0, flat.size, CHUNK):
                before, change = flat[at : at + CHUNK], part[at : at + CHUNK]
                with np.errstate(over="ignore", invalid="ignore"):
                    if ((before + change).astype(before.dtype) != before).any():
                        return
        raise RefusedError("it changes nothing in the numbers of the model.")

    def _require_variances(self, arrays: Arrays) -> None:
        """Refuse running variances below 0: a model that is evaluated with them gives NaN."""
        for name, array, kept in zip(self._names, arrays, self._layout.buffers, strict=True):
            if kept and name.endswith(VARIANCES) and array.size and not array.min() >= 0:
                raise RefusedError(f"its {name} is not a variance: it is below 0, or not a number.")

    def _require_small(self, client: str, arrays: Arrays) -> None:
        """Refuse an update whose weighted sum with others the model's numbers could not hold."""
        layout, scale, cap = self._layout, self._scale(client), self._cap(client)
        for array, largest, is_buffer in zip(arrays, layout.largest, layout.buffers, strict=True):
            # Buffers have no cap; whole numbers are clipped where they go out of range.
            floats = is_buffer and array.dtype.kind == "f" and array.size
            if floats and scale * max(float(array.max()), -float(array.min())) >= largest:
                raise RefusedError("a buffer is too large for the numbers of the model.")
        for part, largest in zip(
            layout.split(self._row[0]), layout.parameters(layout.largest), strict=True
        ):
            # Nothing above its cap is accepted, so usually there is no need to check.
            if scale * cap >= largest and part.size:
                top = max(float(part.max()), -float(part.min()))
                if scale * top >= largest:
                    raise RefusedError("it is too large for the numbers of the model.")


class SignedIntake(Intake):
    """Has the market check the replies, too.

    Parameters
    ----------
    market
        The market.
    names, layout, strategy
        As for `Intake`.
    """

    _pays = True

    def __init__(
        self,
        market: MarketRun,
        names: Sequence[str],
        layout: Layout,
        strategy: Wrapped | None = None,
    ) -> None:
        count, caps = len(market.agreement.deals), market.agreement.caps
        super().__init__(
            names,
            layout,
            strategy,
            scale=lambda client: 4 * count * market.weight(client),
            cap=lambda client: caps.get(client, math.inf),
        )
        self._market = market

    def take(
        self, client: str, reply: Message, model: Arrays, reach: float | None
    ) -> Updates | None:
        """Return the update in a client's reply, as `check`, or None if it is refused.

        `reach` is η E of the round, where it is known.
        """
        signed = None
        try:
            _require_reply(reply, client)
            fields, cap = market_fields(reply.content), self._cap(client)
            if type(norm := fields.get("norm")) is float and norm > cap:
                # Counted as refused for its norm, so that a cap that is too low grows.
                reason = f"its norm {norm:.4g} is above the cap of {cap:.4g}: it did not send it."
                self._market.refuse(client, reason, norm=cap)
                return None
            signed = signed_of(fields, "update")
            record, is_update = the_arrays(reply.content), fields.get("returns") == "update"
            arrays = named_arrays(record, self._names)
            digest = hash_of_record(record, update=is_update)
            if self._is_bytes and is_update:
                raise RefusedError(
                    "a model of bytes cannot be subtracted; return the model itself."
                )
            if self._fits(arrays):
                buffers = self._changed(client, reply, arrays, model, is_update=is_update)
            else:
                buffers, self._row[:] = None, 0.0  # the market then refuses it with the reason
        except RefusedError as error:
            self._market.refuse(client, str(error), signed)
            return None
        change = arrays if self._is_bytes else [*self._layout.split(self._row[0])]
        norm = self._market.accept(
            client, signed, arrays, reach=reach, digest=digest, change=change
        )
        norms = None if self._is_bytes else np.array([norm])
        return Updates(self._row, buffers=buffers, norms=norms) if norm else None


def _subtract(new: npt.NDArray[Any], old: npt.NDArray[Any] | None, out: npt.NDArray[Any]) -> None:
    """Write new − old in the arrays' own precision; unsigned whole numbers do not wrap."""
    kind = None if new.dtype.kind == "f" else np.float64

    def write(part: slice) -> None:
        # In the thread that does it; what is not finite is refused later.
        with np.errstate(over="ignore", invalid="ignore"):
            if old is None:
                out[part] = new[part]
            else:
                np.subtract(new[part], old[part], out=out[part], dtype=kind, casting="unsafe")

    in_parts(new.size, write)


def without_arrays(reply: Message) -> Message:
    """Return a reply with all but its arrays."""
    content = RecordDict()
    # Not `array_records`, whose reference cycle would keep the arrays in memory.
    for name, record in reply.content.items():
        if not isinstance(record, ArrayRecord):
            content[name] = record
    return with_content(reply, content)


def _require_reply(reply: Message, client: str) -> None:
    """Refuse an error instead of a reply."""
    if reply.has_error():
        # For the operator only; texts of strangers do not belong in the ledger.
        _log.warning("the program of %s failed: %.200r", client, reply.error.reason)
        what = "it is unavailable" if reply.error.code in GONE else "its program failed"
        raise RefusedError(f"{what} (Flower's code {reply.error.code}).")
