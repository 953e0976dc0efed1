"""What was measured during training: loss, accuracy and whatever else an app returns.

Metrics are stored outside the chain: they are not signed, no entry contains their hash, and no
payment depends on them. `verify` neither needs nor trusts them.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError
from fedprice.market.messages import require_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WHO", "RoundMetrics", "metrics_line", "metrics_text", "require_place", "round_metrics"]

WHO = ("train", "clients", "server")  # in the order in which they are measured
LARGEST_INT = 2**63
LARGEST = 1 << 20  # bytes of the metrics of one round
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no numbers for them
_SHOWN = re.compile(r"(^|[^a-z])(loss|acc|accuracy)([^a-z]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class RoundMetrics:
    """Metrics of a round.

    Attributes
    ----------
    run, round
        The period, and how many rounds of the whole run were done: 0 is before the first.
    who
        What they are: "server" (the server's evaluation), "clients" (the clients' evaluation) or
        "train" (the clients' training).
    metrics
        Numbers and lists of numbers by name; they may be NaN or infinite.
    """

    run: str
    round: int
    who: str
    metrics: Mapping[str, float | int | list[float | int]]

    def __str__(self) -> str:
        """Return one line for people: "round 3: loss 0.412, accuracy 0.871"; empty with neither."""
        line = metrics_line(self)
        where = f"round {self.round}" if self.round else "before round 1"
        return f"{where}: {line}" if line else ""


def metrics_line(own: RoundMetrics) -> str:
    """Return the losses and accuracies among some metrics, for people; empty without any.

    Examples
    --------
    >>> metrics_line(RoundMetrics("run", 3, "server", {"loss": 0.41234, "accuracy": 0.871}))
    'loss 0.4123, accuracy 0.871'
    >>> metrics_line(RoundMetrics("run", 3, "clients", {"eval_loss": math.nan, "seconds": 2}))
    'clients: eval_loss nan'
    """
    shown = ", ".join(
        f"{name} {value:.4g}"
        for name, value in own.metrics.items()
        if not isinstance(value, list) and _SHOWN.search(name)
    )
    return shown if own.who == "server" or not shown else f"{own.who}: {shown}"


def require_place(round_: object, who: object) -> None:
    """Refuse metrics with a wrong round or origin."""
    if type(round_) is not int or not 0 <= round_ < LARGEST_INT:
        raise InputError(f"`round` must be a whole number, at least 0; got {round_!r:.40}.")
    if who not in WHO:
        raise InputError(f"`who` must be one of {', '.join(WHO)}; got {who!r:.40}.")


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """Return metrics as they are stored: JSON, in which numbers that are not finite are text.

    Examples
    --------
    >>> metrics_text({"loss": math.inf, "per class": [0.5, math.nan], "samples": 3})
    '{"loss":"inf","per class":[0.5,"nan"],"samples":3}'
    """
    plain = {
        name: [_stored(name, part) for part in value]
        if isinstance(value, list | tuple)
        else _stored(name, value)
        for name, value in _named(metrics).items()
    }
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    if len(text) > LARGEST:
        raise InputError(
            f"the metrics of a round take {len(text):,} bytes; at most {LARGEST:,} are kept. "
            "Return fewer of them, or shorter lists."
        )
    return text


def round_metrics(run: str, round_: int, who: str, text: str) -> RoundMetrics:
    """Return the metrics in a row of a ledger.

    Examples
    --------
    >>> text = '{"loss":"inf","per class":[0.5,"nan"],"samples":3}'
    >>> round_metrics("run", 3, "server", text).metrics
    {'loss': inf, 'per class': [0.5, nan], 'samples': 3}
    """
    require_place(round_, who)
    try:
        metrics = {
            name: [_read(part) for part in value] if isinstance(value, list) else _read(value)
            for name, value in _named(json.loads(text)).items()
        }
        return RoundMetrics(run, round_, who, metrics)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise InputError("its metrics cannot be read.") from error


def _named(metrics: Any) -> Any:
    """Return metrics whose names may be shown on a terminal; refuse others."""
    for name in metrics:
        require_name("metric", name)
    return metrics


def _stored(name: str, value: object) -> float | int | str:
    if isinstance(value, Integral) and not isinstance(value, bool):
        whole = int(value)
        if abs(whole) < LARGEST_INT:
            return whole
    elif isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    raise InputError(
        f"metric {name!r} must be a number of at most 64 bits, or a list of them; got "
        f"{value!r:.40}."
    )


def _read(value: object) -> float | int:
    if isinstance(value, str):
        return _NOT_FINITE[value]
    if type(value) is float or (type(value) is int and abs(value) < LARGEST_INT):
        return value
    raise TypeError
