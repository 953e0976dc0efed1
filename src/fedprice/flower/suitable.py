"""Which of Flower's strategies, which models and which replies can be aggregated in a market.

Everything that could end a run is refused as early as possible: a strategy and a model before the
first offer, a reply before it is admitted.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.serverapp import strategy as flower

from fedprice.errors import InputError
from fedprice.flower.compat import NORM_BIT, bagged
from fedprice.flower.wire import MOST, the_arrays
from fedprice.market.messages import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt
    from flwr.app import Array, ArrayRecord, RecordDict

__all__ = [
    "PRIVATE",
    "is_bytes",
    "parts_of",
    "require_aggregable",
    "require_mean",
    "require_numbers",
    "takes_mean",
]

_log = logging.getLogger("flwr")

ADAPTIVE = flower.DifferentialPrivacyClientSideAdaptiveClipping  # reads a bit of every reply
CLIPPING = (
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
    flower.DifferentialPrivacyServerSideFixedClipping,
)
PRIVATE = (ADAPTIVE, flower.DifferentialPrivacyClientSideFixedClipping, *CLIPPING)
UNWEIGHTED = (
    flower.Bulyan,
    flower.FedMedian,
    flower.FedTrimmedAvg,
    flower.FedXgbBagging,
    flower.MultiKrum,  # Krum is a subclass
    flower.QFedAvg,
)
MEANS = (flower.FedAvg, flower.FedAvgM, flower.FedAdagrad, flower.FedAdam, flower.FedYogi)


def takes_mean(strategy: flower.Strategy) -> bool:
    """Return whether a strategy is known to use only the weighted mean of the replies."""
    return type(strategy).aggregate_train in [own.aggregate_train for own in MEANS]


def require_mean(strategy: flower.Strategy) -> None:
    """Refuse a strategy that would not do its work on one reply, the estimate of an aggregator.

    Examples
    --------
    >>> require_mean(flower.FedMedian())
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: FedMedian needs every update, but `aggregator` makes one estimate of
    them. Leave `aggregator` out.
    """
    for part in _inside(strategy):
        name = type(part).__name__
        if isinstance(part, PRIVATE):
            raise InputError(
                f"{name} adds noise to a mean of this round's clipped updates; it covers neither "
                "the weights of `aggregator` nor updates that are remembered without noise. Leave "
                "`aggregator` out, or leave the strategy out and add noise at each client "
                "(LocalDpMod)."
            )
        if isinstance(part, UNWEIGHTED):
            raise InputError(
                f"{name} needs every update, but `aggregator` makes one estimate of them. Leave "
                "`aggregator` out."
            )


def parts_of(strategy: flower.Strategy) -> list[flower.Strategy]:
    """Return a strategy and those inside it, such as the one to which noise is added.

    A strategy that contradicts the market is refused; limitations of others are logged.

    Examples
    --------
    >>> parts_of(flower.FedXgbCyclic())
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: FedXgbCyclic trains one client after another, but here coins decide
    who trains. Use FedXgbBagging.
    """
    _require(strategy)
    parts = _inside(strategy)
    for part in parts:
        _require(part)
        _tell(part)
    for part in parts[1:]:
        if type(part).start is not flower.Strategy.start:
            name, outer = type(part).__name__, type(strategy).__name__
            raise InputError(
                f"{name} has a `start` of its own, which does not run inside {outer}; do its work "
                "in `evaluate_fn`, which is called after each round, or after `start`."
            )
    return parts


def _inside(strategy: flower.Strategy) -> list[flower.Strategy]:
    inner = [value for value in vars(strategy).values() if isinstance(value, flower.Strategy)]
    return [strategy, *(part for own in inner for part in _inside(own))]


def _require(strategy: object) -> None:
    name = type(strategy).__name__
    if not isinstance(strategy, flower.Strategy):
        raise InputError(
            "`strategy` must be one of flwr.serverapp.strategy; got "
            f"{type(strategy).__module__}.{name}."
        )
    if isinstance(strategy, flower.FedXgbCyclic):
        raise InputError(
            "FedXgbCyclic trains one client after another, but here coins decide who trains. Use "
            "FedXgbBagging."
        )
    if not getattr(strategy, "fraction_train", 1.0):
        raise InputError(f"`fraction_train` of {name} must be above 0; got 0. Leave it out.")
    if getattr(strategy, "accountant", None) is not None:
        raise InputError(
            f"the accountant of {name} needs the same number of clients with equal weights in "
            "every round, but here coins decide how many train. Leave `accountant` out."
        )


def _tell(strategy: flower.Strategy) -> None:
    name = type(strategy).__name__
    if getattr(strategy, "fraction_train", 1.0) < 1:
        _log.info("%s: `fraction_train` is not used; coins decide who trains", name)
    if isinstance(strategy, UNWEIGHTED):
        _log.warning("%s does not weight clients: those that join often count more", name)
    if isinstance(strategy, PRIVATE):
        _log.warning(
            "%s scales its noise for equal weights; a client of a larger weight has less privacy",
            name,
        )


def is_bytes(arrays: Iterable[Array | npt.NDArray[Any]]) -> bool:
    """Return whether a model is bytes, such as XGBoost's: exactly one 1-D array of uint8."""
    return [(str(array.dtype), len(array.shape)) for array in arrays] == [("uint8", 1)]


def require_numbers(arrays: ArrayRecord, strategy: flower.Strategy | None) -> None:
    """Refuse a model that the strategy, or without one this package, cannot aggregate.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr.app import ArrayRecord
    >>> require_numbers(ArrayRecord([np.zeros(2, np.uint8)]), None)
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: the model is bytes, which cannot be averaged; give
    `strategy=FedXgbBagging()`.
    """
    bags = isinstance(strategy, flower.FedXgbBagging)
    foreign = strategy is not None and not type(strategy).__module__.startswith("flwr.")
    if is_bytes(arrays.values()) and not bags and not foreign:
        raise InputError(
            "the model is bytes, which cannot be averaged; give `strategy=FedXgbBagging()`."
        )
    if bags and not (is_bytes(arrays.values()) and list(arrays) == ["0"]):
        raise InputError(
            "FedXgbBagging needs a model of bytes, `ArrayRecord([np.frombuffer(model, np.uint8)])`;"
            f" got {len(arrays)} arrays, of which the first are named {list(arrays)[:3]}."
        )
    for part in [] if strategy is None else _inside(strategy):
        for name, array in arrays.items():
            if isinstance(part, (*PRIVATE, flower.QFedAvg)) and "float" not in array.dtype:
                raise InputError(
                    f"{type(part).__name__} scales all arrays, which breaks counters and the like; "
                    f"got {name!r} of {array.dtype}. Leave it out of the model."
                )


def require_aggregable(content: RecordDict, strategy: flower.Strategy) -> None:
    """Refuse a reply that a strategy cannot aggregate, so that it does not stop the others."""
    metrics = {n: v for record in content.metric_records.values() for n, v in record.items()}
    if isinstance(strategy, flower.FedXgbBagging):
        try:
            model = the_arrays(content)["0"].numpy().tobytes()
            # Merge the model with itself, to read it both as the earlier and as the later one.
            twice = bagged(model, model)
        except Exception as error:  # the bytes may be anything
            raise RefusedError("its model is not one that XGBoost wrote.") from error
        if not twice:
            raise RefusedError("its model is empty.")
        own = json.loads(model)["learner"]["gradient_booster"]["model"]
        count, each = (
            int(own["gbtree_model_param"][name]) for name in ("num_trees", "num_parallel_tree")
        )
        if not 1 <= each <= count == len(own["trees"]):  # it adds nothing, or breaks others' trees
            raise RefusedError("its model does not hold as many trees as it says.")
    if isinstance(strategy, flower.QFedAvg):
        loss = metrics.get(strategy.train_loss_key)
        # Powers of it scale the update, and must fit into the model's data type.
        if not (isinstance(loss, int | float) and 0 <= loss <= MOST ** (1 / max(strategy.q, 1))):
            raise RefusedError(f"it has no metric {strategy.train_loss_key!r} of at least 0.")
    if isinstance(strategy, CLIPPING):
        new, old = (
            record.to_numpy_ndarrays() for record in (the_arrays(content), strategy.current_arrays)
        )
        same = [own.shape for own in new] == [own.shape for own in old]
        # As Flower computes the norm that it divides by, in the model's type.
        if same and not sum(np.linalg.norm(a - b) ** 2 for a, b in zip(new, old, strict=True)):
            raise RefusedError("it leaves the model as it is, which cannot be clipped.")
    if isinstance(strategy, ADAPTIVE) and not isinstance(metrics.get(NORM_BIT), int):
        raise RefusedError(f"it has no metric {NORM_BIT!r}; its app needs adaptiveclipping_mod.")
