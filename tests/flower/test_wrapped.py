"""Strategies of Flower's inside the market: our choice and weights, their aggregation."""

import io
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.server import strategy as legacy
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower

from fedprice._plumbing.arrays import State
from fedprice.errors import InputError
from fedprice.flower.compat import name_server
from fedprice.flower.intake import without_arrays
from fedprice.flower.snapshot import packed, unpacked
from fedprice.flower.suitable import is_bytes, require_numbers
from fedprice.flower.wire import MARKET, market_record, to_record
from fedprice.flower.wrapped import Wrapped
from fedprice.market.messages import RefusedError

NODES = [1000, 1001, 1002, 1003]
WEIGHTS = [0.5, 2.0, 1.0, 0.25]


@pytest.fixture(autouse=True)
def identity() -> None:
    """Flower's messages ask who sends them."""
    name_server()


def model(value: float = 0.0) -> ArrayRecord:
    return to_record(["w", "b"], [np.full((2, 3), value, np.float32), np.full(2, value)])


def reply(n: int, records: dict[str, Any]) -> Message:
    asked = Message(RecordDict(), NODES[n], "train")
    return Message(RecordDict(records | {MARKET: market_record(secret=b"ours")}), reply_to=asked)


def trained(arrays: ArrayRecord, n: int, server_round: int) -> Message:
    """A reply that moves the model by something that depends on all that it may depend on."""
    rng = np.random.default_rng([n, server_round])
    moved = [(a.numpy() + rng.normal(0.1, 0.1, a.shape)).astype(a.dtype) for a in arrays.values()]
    metrics = MetricRecord({"num-examples": 10 * (n + 1), "train_loss": 1.0 + n, "norm_bit": n % 2})
    return reply(n, {"arrays": to_record(list(arrays), moved), "metrics": metrics})


def rounds(
    wrapped: Wrapped,
    arrays: ArrayRecord,
    numbers: Iterable[int],
    train: Callable[[ArrayRecord, int, int], Message] = trained,
) -> ArrayRecord:
    """Rounds in which one client after another has tails."""
    for server_round in numbers:
        heads = [n for n in range(4) if n != server_round % 4]
        sent = wrapped.train_contents(
            server_round, arrays, ConfigRecord(), [NODES[n] for n in heads]
        )
        given = [sent[NODES[n]].array_records["arrays"] for n in heads]
        replies = [train(g, n, server_round) for g, n in zip(given, heads, strict=True)]
        np.random.seed(server_round)  # noqa: NPY002 - Flower's noise
        found, _ = wrapped.aggregate(
            server_round, [(own, WEIGHTS[n]) for own, n in zip(replies, heads, strict=True)]
        )
        assert found is not None
        arrays = found
    return arrays


def tree(n: int) -> dict[str, Any]:
    return {"id": n, "base_weights": [0.1 * n]}


def booster(*trees: dict[str, Any]) -> bytes:
    """What aggregation reads of a model that XGBoost wrote as JSON."""
    parameters = {"num_trees": str(len(trees)), "num_parallel_tree": "1"}
    gbtree = {
        "gbtree_model_param": parameters,
        "iteration_indptr": list(range(len(trees) + 1)),
        "tree_info": [0] * len(trees),
        "trees": list(trees),
    }
    return json.dumps({"learner": {"gradient_booster": {"model": gbtree}}}).encode()


def bytes_model(text: bytes) -> ArrayRecord:
    return ArrayRecord([np.frombuffer(text, np.uint8)])


def bagged(arrays: ArrayRecord, n: int, server_round: int) -> Message:
    own = booster(tree(100 * server_round + n))
    records = {"arrays": bytes_model(own), "metrics": MetricRecord({"num-examples": n + 1})}
    return reply(n, records)


def trees_of(arrays: ArrayRecord) -> list[float]:
    found = json.loads(arrays["0"].numpy().tobytes())
    trees = found["learner"]["gradient_booster"]["model"]["trees"]
    return [float(own["base_weights"][0]) for own in trees]


def equal(one: ArrayRecord, other: ArrayRecord) -> bool:
    return list(one) == list(other) and all(one[name] == other[name] for name in one)


# What is sent


def sent_by(strategy: flower.Strategy, config: ConfigRecord | None = None) -> RecordDict:
    config = ConfigRecord({"lr": 0.1}) if config is None else config
    contents = Wrapped(strategy).train_contents(3, model(), config, NODES)
    assert list(contents) == NODES
    return contents[NODES[0]]


def test_fedprox_sends_its_mu_and_keeps_it_in_the_settings_as_in_flower() -> None:
    config = ConfigRecord({"lr": 0.1})
    sent = sent_by(flower.FedProx(proximal_mu=0.25), config)["config"]
    assert dict(sent) == dict(config) == {"lr": 0.1, "server-round": 3, "proximal-mu": 0.25}
    config["lr"] = 0.2
    assert sent["lr"] == 0.1


def test_clipping_sends_its_norm() -> None:
    strategy = flower.DifferentialPrivacyClientSideFixedClipping(flower.FedAvg(), 0.0, 1.5, 4)
    assert sent_by(strategy)["config"]["clipping_norm"] == 1.5


def test_a_strategy_that_wants_many_nodes_is_not_waited_for() -> None:
    strategy = flower.FedAvg(
        fraction_train=0.001, min_train_nodes=700, min_available_nodes=10**6, arrayrecord_key="m"
    )
    assert list(sent_by(strategy)) == ["m", "config"]
    assert (strategy.fraction_train, strategy.min_train_nodes) == (0.001, 700)


class Own(flower.FedAvg):
    """A strategy of a user's own, which waits for nodes and sends each another rate."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        while len(nodes := list(grid.get_node_ids())) < 1500:
            pass
        return [
            grid.create_message(
                RecordDict({"arrays": arrays, "config": ConfigRecord({"rate": node})}),
                "train",
                node,
                str(server_round),
            )
            for node in nodes
            if node != NODES[2]
        ]


def test_each_node_gets_what_the_strategy_sends_it_and_else_what_the_first_gets() -> None:
    contents = Wrapped(Own()).train_contents(1, model(), ConfigRecord(), NODES)
    rates = [contents[node]["config"]["rate"] for node in NODES]
    assert rates == [NODES[0], NODES[1], NODES[0], NODES[3]]


def test_a_strategy_that_sends_messages_itself_is_refused() -> None:
    class Sender(flower.FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            return grid.send_and_receive([])

    with pytest.raises(InputError, match="must not send messages on its own"):
        sent_by(Sender())


def test_a_strategy_that_sends_nothing_is_refused() -> None:
    class Silent(flower.FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            return []

    with pytest.raises(InputError, match="Silent sends nothing in round 3"):
        sent_by(Silent())


def test_as_many_clients_evaluate_as_the_strategy_says() -> None:
    wrapped = Wrapped(flower.FedAvg(fraction_evaluate=0.1, min_available_nodes=99))
    contents = wrapped.evaluate_contents(2, model(), ConfigRecord(), NODES)
    assert len(contents) == 2  # Flower's `min_evaluate_nodes`
    assert contents.keys() <= set(NODES)
    assert all(own["config"]["server-round"] == 2 for own in contents.values())
    assert len(wrapped.evaluate_contents(2, model(), ConfigRecord(), NODES[:1])) == 1
    assert wrapped.evaluates
    assert not Wrapped(flower.FedAvg(fraction_evaluate=0.0)).evaluates


def test_nobody_is_sent_anything_where_all_coins_show_tails() -> None:
    assert Wrapped(flower.FedAvg()).train_contents(1, model(), ConfigRecord(), []) == {}


# What is made of the replies


def values(*given: dict[str, Any] | None) -> list[tuple[Message, float]]:
    """Replies with models of ones, twos, …, and these metrics."""
    return [
        (
            reply(n, {"arrays": model(n + 1.0)} | ({} if m is None else {"m": MetricRecord(m)})),
            WEIGHTS[n],
        )
        for n, m in enumerate(given)
    ]


def after(
    replies: list[tuple[Message, float]], strategy: flower.Strategy | None = None
) -> tuple[ArrayRecord, MetricRecord]:
    wrapped = Wrapped(strategy or flower.FedAvg())
    wrapped.train_contents(1, model(), ConfigRecord(), NODES)
    arrays, metrics = wrapped.aggregate(1, replies)
    assert arrays is not None
    assert metrics is not None
    return arrays, metrics


def test_models_are_averaged_by_our_weights_and_metrics_by_examples() -> None:
    metrics = [{"num-examples": n, "loss": float(n), "list": [1.0, float(n)]} for n in (1, 2, 5, 2)]
    arrays, found = after(values(*metrics))
    mean = sum(w * (n + 1) for n, w in enumerate(WEIGHTS)) / sum(WEIGHTS)
    np.testing.assert_allclose(arrays["w"].numpy(), np.full((2, 3), mean), rtol=1e-6)
    assert found == {"loss": pytest.approx(3.4), "list": pytest.approx([1.0, 3.4])}


def test_a_users_average_of_metrics_sees_each_reply_once_and_unweighted() -> None:
    seen = []

    def average(contents: list[RecordDict], key: str) -> MetricRecord:
        seen.append([dict(content.metric_records["m"]) for content in contents])
        return MetricRecord({"most": 1})

    strategy = flower.DifferentialPrivacyServerSideFixedClipping(
        flower.FedAvg(train_metrics_aggr_fn=average), 0.0, 1.0, 2
    )
    _, found = after(values({"num-examples": 3}, {"num-examples": 4}), strategy)
    assert found == {"most": 1}
    assert seen == [[{"num-examples": 3}, {"num-examples": 4}]]
    assert strategy.strategy.train_metrics_aggr_fn is average  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ([None, None], {}),
        ([{"loss": 1.0}, {"loss": 3.0}], {"loss": 2.0}),
        ([{"loss": 1.0, "num-examples": 9}, {"loss": 3.0}], {"loss": 2.0}),
        ([{"loss": 1.0, "num-examples": 9}, None], {}),
        ([{"loss": 1.0, "num-examples": 0}, {"loss": 3.0, "num-examples": 0}], {"loss": 2.0}),
        ([{"loss": 1.0, "num-examples": -1}, {"loss": 3.0, "num-examples": 1}], {"loss": 2.0}),
        ([{"loss": 1.0, "num-examples": [1]}, {"loss": 3.0, "num-examples": 1}], {"loss": 2.0}),
        ([{"loss": 1.0, "x": [1]}, {"loss": 3.0, "x": [1, 2]}], {"loss": 2.0}),
        ([{"loss": 1.0, "x": 1}, {"loss": 3.0, "y": 1}], {"loss": 2.0}),
        ([{"loss": 1.0, "num-examples": math.nan}, {"loss": 3.0}], {"loss": 2.0}),
    ],
)
def test_no_metrics_of_one_client_end_the_run(
    metrics: list[dict[str, Any] | None], expected: dict[str, float]
) -> None:
    arrays, found = after(values(*metrics))
    assert found == expected
    np.testing.assert_allclose(arrays["b"].numpy(), (0.5 * 1 + 2.0 * 2) / 2.5)


def test_a_metric_that_is_not_finite_is_reported_as_such() -> None:
    _, found = after(values({"loss": math.nan}, {"loss": 1.0}))
    assert math.isnan(float(found["loss"]))  # type: ignore[arg-type]


def test_records_of_other_names_do_not_end_the_run() -> None:
    replies = values({"loss": 1.0}, {"loss": 1.0}, {"loss": 1.0})
    content = replies[1][0].content
    content["others"] = content.pop("m")
    content["weights"] = content.pop("arrays")
    _, found = after(replies)
    assert found == {"loss": 1.0}


def test_names_of_strangers_are_logged_without_control_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    after(values({"loss": 1.0}, {"loss": 1.0, "\x1b[2J": 1.0}, {"loss": 1.0}))
    assert "left out" in caplog.text
    assert "\x1b" not in caplog.text


def test_settings_named_like_the_arrays_do_not_end_the_run() -> None:
    replies = values({"loss": 1.0}, {"loss": 1.0}, {"loss": 1.0})
    content = replies[1][0].content
    content["weights"] = content.pop("arrays")
    content["arrays"] = ConfigRecord()
    _, found = after(replies)
    assert found == {"loss": 1.0}


@pytest.mark.parametrize("strategy", [flower.FedMedian(), flower.Bulyan(), flower.FedTrimmedAvg()])
def test_replies_are_left_as_they_came(strategy: flower.Strategy) -> None:
    replies = values({"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0}, {"loss": 4.0})
    after(replies, strategy)
    for n, (own, _) in enumerate(replies):
        assert equal(own.content.array_records["arrays"], model(n + 1.0))
        assert own.content[MARKET] == {"secret": b"ours"}
        assert own.content["m"] == {"loss": n + 1.0}


def test_no_strategy_sees_the_markets_record() -> None:
    seen: list[tuple[list[str], int]] = []

    class Curious(flower.FedAvg):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            replies = list(replies)
            seen.extend((sorted(own.content), own.metadata.src_node_id) for own in replies)
            return super().aggregate_train(server_round, replies)

    after(values({"num-examples": 1}), Curious())
    assert seen == [(["arrays", "m"], NODES[0])]


def test_the_model_keeps_its_types() -> None:
    """FedAdam computes in float64, and any average makes floats of counters and truth values."""
    arrays = to_record(
        ["w", "count", "byte", "mask"],
        [
            np.ones(2, np.float32),
            np.array(7, np.int64),
            np.array([200], np.uint8),
            np.array([True, False]),
        ],
    )
    wrapped = Wrapped(flower.FedAdam())
    wrapped.train_contents(1, arrays, ConfigRecord(), NODES)
    replies = [(reply(n, {"arrays": arrays}), np.float64(WEIGHTS[n])) for n in range(3)]
    found, _ = wrapped.aggregate(1, replies)
    assert found is not None
    assert [array.dtype for array in found.values()] == ["float32", "int64", "uint8", "bool"]
    assert found["byte"].numpy() == [200]
    assert found["count"].numpy() == 7


@pytest.mark.parametrize("name", ["FedAdam", "FedYogi", "FedAdagrad", "FedAvgM"])
def test_no_optimiser_makes_a_running_variance_negative(name: str) -> None:
    strategy = flower.FedAvgM(server_momentum=0.99) if name == "FedAvgM" else STRATEGIES[name]()
    wrapped = Wrapped(strategy)
    arrays = to_record(["w", "var", "count"], [np.ones(2, np.float32)] * 2 + [np.array(0)])
    for server_round in range(1, 40):
        sent = wrapped.train_contents(server_round, arrays, ConfigRecord(), NODES)[NODES[0]]
        w, var, count = sent.array_records["arrays"].to_numpy_ndarrays()
        moved = to_record(["w", "var", "count"], [w - 1, 0.5 * var, count + 3])
        replies = [(reply(n, {"arrays": moved}), WEIGHTS[n]) for n in range(3)]
        found, _ = wrapped.aggregate(server_round, replies, ["var", "count"])
        assert found is not None
        np.testing.assert_allclose(found["var"].numpy(), 0.5 * var, rtol=1e-5)
        assert found["count"].numpy() == count + 3
        arrays = found
    assert np.isfinite(arrays["w"].numpy()).all()


@pytest.mark.parametrize("own", [False, True])
def test_the_mean_is_one_reply_with_the_metrics_of_all(own: bool) -> None:
    seen: list[list[float]] = []

    def largest(contents: list[RecordDict], key: str) -> MetricRecord:
        seen.append([float(own["m"]["loss"]) for own in contents])  # type: ignore[arg-type]
        return MetricRecord({"loss": max(seen[-1])})

    wrapped = Wrapped(flower.FedAvg(train_metrics_aggr_fn=largest if own else None))
    metrics = [{"num-examples": n, "loss": float(n)} for n in (1, 2, 5, 2)]
    replies = [without_arrays(reply) for reply, _ in values(*metrics)]
    wrapped.train_contents(1, model(), ConfigRecord(), NODES)
    arrays, found = wrapped.step(1, model(0.3), replies)
    assert arrays is not None
    assert equal(arrays, model(0.3))
    assert found == {"loss": 5.0 if own else pytest.approx(3.4)}
    assert seen == ([[1.0, 2.0, 5.0, 2.0]] if own else [])
    arrays, found = wrapped.step(2, model(0.4), [])
    assert arrays is not None
    assert equal(arrays, model(0.4))
    assert found == {}


def test_without_replies_or_weights_no_step_is_taken() -> None:
    strategy = flower.DifferentialPrivacyServerSideAdaptiveClipping(flower.FedAvg(), 0.0, 4)
    wrapped = Wrapped(strategy)
    wrapped.train_contents(1, model(), ConfigRecord(), NODES)
    assert wrapped.aggregate(1, []) == (None, None)
    assert wrapped.aggregate(1, [(values({"loss": 1.0})[0][0], 0.0)]) == (None, None)


def test_evaluations_are_averaged_by_examples_without_those_that_failed() -> None:
    answers = [
        reply(n, {"metrics": MetricRecord({"acc": n / 2, "num-examples": 1 + 2 * n})})
        for n in range(2)
    ]
    failed = Message(Error(2, "boom"), reply_to=Message(RecordDict(), NODES[2], "evaluate"))
    wrapped = Wrapped(flower.FedAvg())
    assert wrapped.aggregate_evaluate(1, [*answers, failed]) == {"acc": pytest.approx(0.375)}
    assert wrapped.aggregate_evaluate(1, [failed]) is None


# Which strategies


def server_side(**settings: Any) -> flower.Strategy:
    return flower.DifferentialPrivacyServerSideFixedClipping(
        flower.FedAdam(), noise_multiplier=0.1, clipping_norm=0.5, num_sampled_clients=3, **settings
    )


STRATEGIES: dict[str, Callable[[], flower.Strategy]] = {
    "FedAvg": flower.FedAvg,
    "FedAdam": flower.FedAdam,
    "FedYogi": flower.FedYogi,
    "FedAdagrad": flower.FedAdagrad,
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.9, server_learning_rate=0.5),
    "FedProx": lambda: flower.FedProx(proximal_mu=0.1),
    "FedMedian": flower.FedMedian,
    "FedTrimmedAvg": flower.FedTrimmedAvg,
    "Krum": flower.Krum,
    "MultiKrum": lambda: flower.MultiKrum(num_nodes_to_select=2),
    "Bulyan": flower.Bulyan,
    "QFedAvg": lambda: flower.QFedAvg(client_learning_rate=0.1),
    "client-side fixed clipping": lambda: flower.DifferentialPrivacyClientSideFixedClipping(
        flower.FedAvg(), 0.1, 0.5, 3
    ),
    "client-side adaptive clipping": lambda: flower.DifferentialPrivacyClientSideAdaptiveClipping(
        flower.FedAvg(), 0.1, 3
    ),
    "server-side fixed clipping": server_side,
    "server-side adaptive clipping": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(
        flower.FedYogi(), 0.1, 3
    ),
}


def saved(state: State) -> State:
    """A state as a file gives it back."""
    file = io.BytesIO()
    np.savez(file, **state)  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", STRATEGIES)
def test_three_rounds_and_three_after_a_restart_are_six(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # Flower's take seconds in a process of tests
    whole = rounds(Wrapped(STRATEGIES[name]()), model(), range(1, 7))
    first = Wrapped(STRATEGIES[name]())
    half = rounds(first, model(), range(1, 4))
    second = Wrapped(STRATEGIES[name]())
    second.restore(saved(first.state()))
    assert equal(rounds(second, half, range(4, 7)), whole)
    assert not equal(whole, half)
    assert all(np.isfinite(array.numpy()).all() for array in whole.values())
    assert [array.dtype for array in whole.values()] == ["float32", "float64"]


@pytest.mark.parametrize("name", ["FedAdam", "FedAvgM", "server-side adaptive clipping"])
def test_without_its_memory_a_strategy_goes_on_otherwise(name: str) -> None:
    whole = rounds(Wrapped(STRATEGIES[name]()), model(), range(1, 7))
    half = rounds(Wrapped(STRATEGIES[name]()), model(), range(1, 4))
    assert not equal(rounds(Wrapped(STRATEGIES[name]()), half, range(4, 7)), whole)


def test_only_what_changed_and_is_not_sent_is_remembered() -> None:
    wrapped = Wrapped(server_side())
    rounds(wrapped, model(), [1])
    names = {name.rpartition(".")[0] for name in wrapped.state()} - {""}
    assert names - {"0._pending_events"} == {"1.m_t", "1.v_t"}  # of accountants: Flower 1.34
    wrapped = Wrapped(flower.FedAvg())
    rounds(wrapped, model(), [1])
    assert wrapped.state() == {}
    wrapped.restore({})


def test_settings_are_those_of_the_strategy_that_is_given() -> None:
    first, second = Wrapped(flower.FedAdam(eta=0.1)), flower.FedAdam(eta=0.2)
    rounds(first, model(), [1])
    Wrapped(second).restore(first.state())
    assert second.eta == 0.2
    assert second.m_t is not None


def test_another_strategy_than_before_is_refused() -> None:
    first = Wrapped(server_side())
    rounds(first, model(), [1])
    begun = "DifferentialPrivacyServerSideFixedClipping of FedAdam"
    with pytest.raises(InputError, match=f"started with the strategy {begun}; got FedYogi"):
        Wrapped(flower.FedYogi()).restore(first.state())


def test_a_users_strategy_remembers_whatever_arrays_and_values_it_has() -> None:
    class Mine(flower.FedAvg):
        kept: ClassVar[dict[str, Any]] = {
            "array": np.arange(3),
            "scalar": np.float32(0.1),
            "nested": {"a": [np.ones(2), (1, None)], 7: b"\x00\xff"},
            "empty": b"",
            "record": model(3.0),
            "number": math.inf,
            "text": "ü",
            "truth": True,
        }

    first, second = Mine(), Mine()
    wrapped, other = Wrapped(first), Wrapped(second)
    vars(first).update(Mine.kept, handler=print, nothing=None)
    other.restore(saved(wrapped.state()))
    assert type(second.scalar) is np.float32  # type: ignore[attr-defined]
    assert not hasattr(second, "handler")
    assert second.nothing is None  # type: ignore[attr-defined]
    back, there = packed({name: vars(second)[name] for name in Mine.kept}), packed(Mine.kept)
    assert back is not None
    assert there is not None
    assert list(back) == list(there)
    assert all(np.array_equal(back[name], there[name]) for name in back)


def test_arrays_of_objects_are_not_kept() -> None:
    assert packed([np.array([print], object)]) is None
    assert packed(np.zeros(2, complex)) is None  # a ledger keeps none either
    assert packed({(1, 2): 3}) is None


def test_restored_arrays_are_copies() -> None:
    array: npt.NDArray[Any] = np.zeros(2)
    state = packed([array])
    assert state is not None
    unpacked(state)[0][:] = 1
    assert not array.any()


class Accountant:
    """As much of an accountant as a strategy looks at."""

    def __init__(self) -> None:
        p = pytest.importorskip("flwr.supercore.privacy_accounting")  # from Flower 1.34 on

        self.config = p.PrivacyConfig(
            target_delta=1e-5,
            population_size=4,
            neighboring_relation=p.NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=p.SamplingMethod.NO_AMPLIFICATION,
        )


class Starter(flower.FedAvg):
    def start(self, *_: Any, **__: Any) -> flower.Result:
        return flower.Result()


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        (flower.FedXgbCyclic, "FedXgbCyclic trains one client after another, but here coins"),
        (lambda: flower.FedAvg(fraction_train=0.0), "`fraction_train` of FedAvg must be above 0"),
        (
            lambda: flower.DifferentialPrivacyClientSideFixedClipping(
                flower.FedXgbCyclic(), 0.1, 1.0, 2
            ),
            "FedXgbCyclic trains one client after another",
        ),
        (
            lambda: flower.DifferentialPrivacyServerSideFixedClipping(
                flower.FedAvg(), 0.1, 1.0, 2, accountant=Accountant()  # type: ignore[arg-type]
            ),
            "needs the same number of clients with equal weights",
        ),
        (
            lambda: flower.DifferentialPrivacyClientSideFixedClipping(Starter(), 0.1, 1.0, 2),
            "Starter has a `start` of its own, which does not run inside Differential",
        ),
        (legacy.FedAvg, "must be one of flwr.serverapp.strategy; got flwr.*FedAvg"),
        (lambda: SecAggPlusWorkflow(3, 2), "must be one of .*; got flwr.*SecAggPlusWorkflow"),
    ],
)  # fmt: skip
def test_strategies_that_contradict_the_market_are_refused(
    strategy: Callable[[], flower.Strategy], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        Wrapped(strategy())


@pytest.mark.parametrize(
    ("strategy", "line"),
    [
        (lambda: flower.FedAvg(fraction_train=0.5), "`fraction_train` is not used"),
        (flower.FedMedian, "does not weight clients"),
        (flower.Krum, "does not weight clients"),
        (server_side, "scales its noise for equal weights"),
    ],
)
def test_what_a_strategy_loses_is_said_once(
    strategy: Callable[[], flower.Strategy],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(
            f"fedprice.flower.suitable._log.{level}", lambda *args: lines.append(args[0] % args[1:])
        )
    rounds(Wrapped(strategy()), model(), [1, 2])
    assert [line in own for own in lines] == [True]


# Bytes


def test_trees_are_bagged_and_a_run_goes_on() -> None:
    whole = rounds(Wrapped(flower.FedXgbBagging()), bytes_model(b""), range(1, 7), bagged)
    first = Wrapped(flower.FedXgbBagging())
    half = rounds(first, bytes_model(b""), range(1, 4), bagged)
    second = Wrapped(flower.FedXgbBagging())
    second.restore(saved(first.state()))
    assert equal(rounds(second, half, range(4, 7), bagged), whole)
    expected = [
        0.1 * (100 * server_round + n)
        for server_round in range(1, 7)
        for n in range(4)
        if n != server_round % 4
    ]
    assert trees_of(whole) == pytest.approx(expected)
    assert is_bytes(whole.values())


def test_a_model_of_bytes_is_refused_unless_a_strategy_can_aggregate_it() -> None:
    text, numbers = bytes_model(b"{}"), model()
    require_numbers(numbers, None)
    require_numbers(numbers, flower.FedAdam())
    require_numbers(text, flower.FedXgbBagging())
    require_numbers(bytes_model(b""), flower.FedXgbBagging())
    require_numbers(text, Own())  # a user's own strategy knows what it does
    noisy = flower.DifferentialPrivacyServerSideFixedClipping(flower.FedXgbBagging(), 1, 1, 1)
    for strategy in (None, flower.FedAvg(), noisy):
        with pytest.raises(InputError, match="the model is bytes, which cannot be averaged; give"):
            require_numbers(text, strategy)
    for arrays in (numbers, to_record(["model"], [np.zeros(3, np.uint8)])):
        with pytest.raises(InputError, match="FedXgbBagging needs a model of bytes"):
            require_numbers(arrays, flower.FedXgbBagging())


@pytest.mark.parametrize("name", [name for name in STRATEGIES if "clip" in name] + ["QFedAvg"])
def test_counters_are_refused_where_a_strategy_scales_all_arrays(name: str) -> None:
    """Flower counts what a counter moves towards the norm that it clips to."""
    arrays = to_record(["w", "batches"], [np.zeros(2), np.array(3)])
    with pytest.raises(InputError, match=r"got 'batches' of int64\. Leave it"):
        require_numbers(arrays, STRATEGIES[name]())


@pytest.mark.parametrize("name", ["server-side fixed clipping", "server-side adaptive clipping"])
def test_a_reply_that_moves_nothing_is_refused_where_the_server_clips(name: str) -> None:
    """Flower divides by the norm of the update."""
    wrapped = Wrapped(STRATEGIES[name]())
    wrapped.train_contents(1, model(), ConfigRecord(), NODES)
    wrapped.require_fit(RecordDict({"arrays": model(1.0)}))
    wrapped.require_fit(RecordDict({"arrays": ArrayRecord([np.ones(1)])}))  # refused elsewhere
    with pytest.raises(RefusedError, match="it leaves the model as it is"):
        wrapped.require_fit(RecordDict({"arrays": model()}))


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ([np.zeros(3, np.uint8)], True),
        ([np.zeros(0, np.uint8)], True),
        ([np.zeros((3, 1), np.uint8)], False),
        ([np.zeros(3, np.int8)], False),
        ([np.zeros(3, np.uint8), np.zeros(3, np.uint8)], False),
        ([], False),
    ],
)
def test_bytes_are_one_row_of_uint8(arrays: list[npt.NDArray[Any]], expected: bool) -> None:
    assert is_bytes(ArrayRecord(arrays).values()) is expected
    assert is_bytes(arrays) is expected


LYING = booster(tree(1)).replace(b'"num_parallel_tree": "1"', b'"num_parallel_tree": "9"')


NOTHING = LYING.replace(b'"9"', b'"0"')  # it adds no tree, so its trees need not even be a list
COUNTED = booster(tree(1)).replace(b'"num_trees": "1"', b'"num_trees": "%s"' % (b"9" * 4299 + b"0"))


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"\xff", b"[1]", b"[" * 10**5, LYING, NOTHING, COUNTED]
)
def test_bytes_that_are_no_model_are_refused(text: bytes) -> None:
    wrapped = Wrapped(flower.FedXgbBagging())
    wrapped.require_fit(RecordDict({"arrays": bytes_model(booster(tree(1)))}))
    with pytest.raises(RefusedError, match=r"not one that XGBoost wrote|is empty|as many trees"):
        wrapped.require_fit(RecordDict({"arrays": bytes_model(text)}))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("QFedAvg", {"train_loss": 0.5}, {}),
        ("QFedAvg", {"train_loss": 1}, {"train_loss": math.nan}),
        ("QFedAvg", {"train_loss": 0.0}, {"train_loss": -1.0}),
        ("QFedAvg", {"train_loss": 0.0}, {"train_loss": [1.0]}),
        ("QFedAvg", {"train_loss": 1e5}, {"train_loss": 1e150}),
        ("client-side adaptive clipping", {"norm_bit": 1}, {"loss": 1.0}),
    ],
)
def test_replies_that_lack_what_the_strategy_reads_are_refused(
    name: str, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    wrapped = Wrapped(STRATEGIES[name]())
    wrapped.require_fit(RecordDict({"arrays": model(), "metrics": MetricRecord(good)}))
    with pytest.raises(RefusedError, match="it has no metric"):
        wrapped.require_fit(RecordDict({"arrays": model(), "metrics": MetricRecord(bad)}))


def test_other_strategies_refuse_no_reply() -> None:
    Wrapped(flower.FedAvg()).require_fit(RecordDict())
