"""`Wrapped`: a Flower strategy inside the market: our selection and weights, its aggregation.

Coins decide who trains, so the strategy's own sampling is not used. It decides what is sent
(FedProx its μ, clipping its norm) and how replies become a model (FedAdam, FedYogi, bagging of
trees).

With an aggregator, a strategy gets one reply of weight 1: the model moved by the estimate. Without,
each reply carries our weight a/(qρ) where Flower expects the number of examples. Flower divides by
the sum of the weights, so what a strategy averages is then Hájek's self-normalised estimate. Its
bias is −Cov(H, W), with H the unbiased estimate and W the sum of the weights (docs/stability.md);
it vanishes as the variance of W does, or where all updates agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from fedprice.errors import InputError
from fedprice.flower.configured import changed, contents
from fedprice.flower.consistent import consistent, with_weight
from fedprice.flower.snapshot import PLAIN, packed, unpacked
from fedprice.flower.suitable import PRIVATE, parts_of, require_aggregable
from fedprice.flower.wire import the_arrays, to_record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy.typing as npt
    from flwr.app import ArrayRecord, ConfigRecord

    from fedprice._plumbing.arrays import State

__all__ = ["Wrapped"]

OPTIMISERS = (flower.FedAdagrad, flower.FedAdam, flower.FedYogi)
# Attributes that these reset from the model whenever they configure training need not be stored.
RENEWED: dict[str, tuple[type, ...]] = {
    "current_arrays": (*OPTIMISERS, flower.QFedAvg, *PRIVATE),
    "current_bst": (flower.FedXgbBagging,),
}


class Wrapped:
    """Uses a strategy's configuration and aggregation, for clients and weights chosen elsewhere.

    Parameters
    ----------
    strategy
        A strategy of `flwr.serverapp.strategy`, or the user's own.
    """

    def __init__(self, strategy: flower.Strategy) -> None:
        self.strategy, self._parts = strategy, parts_of(strategy)
        # Its own: `started` puts the market's in their place.
        self._configure_train = strategy.configure_train
        self._configure_evaluate = strategy.configure_evaluate
        self._aggregate_train = strategy.aggregate_train
        self._aggregate_evaluate = strategy.aggregate_evaluate
        self._given = [dict(vars(part)) for part in self._parts]
        self._key: str = self._setting("weighted_by_key", "num-examples")
        self._types: dict[str, np.dtype[Any]] = {}

    def train_contents(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, nodes: Sequence[int]
    ) -> dict[int, RecordDict]:
        """Return what the strategy sends to each of these nodes for training.

        To be called before `aggregate` in every round: strategies store the model here, and may
        change the settings. A node that the strategy skips gets what the first one gets.
        """
        self._types = {name: np.dtype(array.dtype) for name, array in arrays.items()}
        ask = self._configure_train
        sent = contents(ask, self._parts, server_round, arrays, config, nodes)
        if nodes and not sent:
            name = type(self.strategy).__name__
            raise InputError(
                f"{name} sends nothing in round {server_round}, but coins call clients."
            )
        first = list(sent.values())[:1]
        return {
            node: RecordDict(dict(content))
            for node in nodes
            for content in ([sent[node]] if node in sent else first)
        }

    def evaluate_contents(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, nodes: Sequence[int]
    ) -> dict[int, RecordDict]:
        """Return what the strategy sends for evaluation to those of these nodes that it chooses."""
        ask = self._configure_evaluate
        return contents(ask, self._parts, server_round, arrays, config, nodes)

    def require_fit(self, content: RecordDict) -> None:
        """Refuse a reply that the strategy cannot aggregate; it must not stop the others.

        Its arrays are the client's new model, under the names that they should have.
        """
        for part in self._parts:
            require_aggregable(content, part)

    def aggregate(
        self,
        server_round: int,
        replies: Sequence[tuple[Message, float]],
        buffers: Collection[str] = (),
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the model and the train metrics that the strategy computes from weighted replies.

        The model has the types of the one that was sent, whatever the strategy computes in; it is
        None where the strategy takes no step. Metrics are weighted by the clients' numbers of
        examples, as in Flower, or equally unless all replies have one.

        Parameters
        ----------
        replies
            The admitted replies, with the clients' new models as arrays, and our weights.
        buffers
            Names of arrays that are not parameters. They are averaged even where the strategy is an
            optimiser, which could make a running variance negative.
        """
        total = sum(weight for _, weight in replies)
        if not total > 0:
            return None, None
        messages, examples = consistent([reply for reply, _ in replies], self._key), {}
        for message, (_, weight) in zip(messages, replies, strict=True):
            unweighted = message.content
            # A Python float: a numpy float would turn float32 models into float64.
            message.content = with_weight(unweighted, self._key, float(weight))
            examples[id(message.content)] = unweighted
        average = self._setting("train_metrics_aggr_fn", None)

        def by_examples(contents: list[RecordDict], key: str) -> MetricRecord:
            found: MetricRecord = average([examples[id(content)] for content in contents], key)
            return found

        with changed(self._parts, {"train_metrics_aggr_fn": by_examples}):
            arrays, metrics = self._aggregate_train(server_round, messages)
        if arrays is None:
            return None, metrics
        model = {name: array.numpy() for name, array in arrays.items()}
        # Only for an optimiser that is not inside another strategy, whose noise must stay.
        if isinstance(self.strategy, (*OPTIMISERS, flower.FedAvgM)):
            shares = [(the_arrays(own.content), float(weight / total)) for own, weight in replies]
            for name in buffers:
                model[name] = np.asarray(sum(own[name].numpy() * share for own, share in shares))
        typed = [_typed(array, self._types.get(name)) for name, array in model.items()]
        return to_record(list(model), typed), metrics

    def step(
        self,
        server_round: int,
        mean: ArrayRecord,
        replies: Sequence[Message],
        buffers: Collection[str] = (),
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the model and the train metrics that the strategy computes from a mean of models.

        Parameters
        ----------
        mean
            What the strategy gets as one reply of weight 1.
        replies
            The admitted replies, of which only the metrics are used.
        buffers
            As for `aggregate`.
        """
        average = self._setting("train_metrics_aggr_fn", flower.FedAvg().train_metrics_aggr_fn)
        contents = [reply.content for reply in consistent(replies, self._key)]
        metrics = average(contents, self._key) if contents else MetricRecord()
        content = RecordDict({"arrays": mean, "metrics": MetricRecord(dict(metrics))})
        with changed(self._parts, {"train_metrics_aggr_fn": lambda *_: metrics}):
            return self.aggregate(server_round, [(Message(content, 0, "train"), 1.0)], buffers)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the metrics that the strategy computes from the clients' evaluations."""
        sound = [reply for reply in replies if not reply.has_error()]
        if not sound:
            return None
        return self._aggregate_evaluate(server_round, consistent(sound, self._key))

    def state(self) -> State:
        """Return the state that the strategy keeps between rounds; nothing if it keeps none.

        Unchanged settings are not part of it, nor is the noise of differential
        privacy: Flower draws it from numpy's global generator, so such runs cannot be repeated.
        """
        state: State = {}
        for number, part in enumerate(self._parts):
            for name, value in vars(part).items():
                renewed = isinstance(part, RENEWED.get(name, ()))
                own = None if renewed or self._is_given(number, name, value) else packed(value)
                state |= {f"{number}.{name}.{key}": array for key, array in (own or {}).items()}
        if state:
            state["strategy"] = np.frombuffer(self.name.encode(), np.uint8)
        return state

    def restore(self, state: State) -> None:
        """Restore the state of another strategy of the same kind."""
        if state and (begun := state["strategy"].tobytes().decode()) != self.name:
            raise InputError(
                f"this run was started with the strategy {begun}; got {self.name}. Give the same "
                "strategy, or choose another name for the run."
            )
        kept: dict[tuple[str, str], State] = {}
        for name, array in state.items():
            if name != "strategy":
                number, attribute, key = name.split(".")
                kept.setdefault((number, attribute), {})[key] = array
        for (number, attribute), own in kept.items():
            setattr(self._parts[int(number)], attribute, unpacked(own))

    def _is_given(self, number: int, name: str, value: Any) -> bool:
        """Return whether an attribute is another strategy, or an unchanged setting."""
        given = self._given[number].get(name, ...)
        same = type(value) in PLAIN and type(given) is type(value) and given == value
        return isinstance(value, flower.Strategy) or same

    @property
    def name(self) -> str:
        """Its name, with the strategies inside it."""
        return " of ".join(type(part).__name__ for part in self._parts)

    @property
    def starts(self) -> bool:
        """Whether it has a `start` of its own."""
        return type(self.strategy).start is not flower.Strategy.start

    @property
    def evaluates(self) -> bool:
        """Whether it asks clients to evaluate the model."""
        return bool(self._setting("fraction_evaluate", 1.0))

    def _setting(self, name: str, default: Any) -> Any:
        return next((getattr(part, name) for part in self._parts if hasattr(part, name)), default)


def _typed(array: npt.NDArray[Any], dtype: np.dtype[Any] | None) -> npt.NDArray[Any]:
    """Return an array in a model's type; integers are rounded, truth values by the majority."""
    if dtype is None or array.dtype == dtype:
        return array
    if dtype.kind == "b":
        return array >= 0.5
    return (np.rint(array) if dtype.kind in "iu" else array).astype(dtype)
