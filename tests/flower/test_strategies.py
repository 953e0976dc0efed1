"""Markets whose model is made by a strategy of Flower's, in process."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower

from fedprice.errors import InputError
from fedprice.flower import InProcessGrid, ParticipationMod
from fedprice.flower.wire import to_record
from fedprice.market.ledger import Ledger
from fedprice.rounds import Aggregator, Hajek, HorvitzThompson, Memory, Momentum
from fedprice.rounds.aggregation import Arrivals, Collector
from tests.flower import apps
from tests.flower.test_mods import app_of
from tests.flower.test_wrapped import booster, bytes_model, tree, trees_of
from trials.markets import ROUNDS

# What a strategy was given in each round: the model that was sent, and models with their weights.
Seen = list[tuple[np.ndarray, list[tuple[np.ndarray, float]]]]


def noting(seen: Seen, **settings: Any) -> flower.FedAdam:
    """A user's own strategy: FedAdam that notes what it is given."""

    class Noting(flower.FedAdam):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            assert self.current_arrays is not None
            replies = list(replies)
            given = []
            for own in replies:
                (arrays,) = own.content.array_records.values()
                (metrics,) = own.content.metric_records.values()
                given.append((arrays["weights"].numpy(), float(metrics["num-examples"])))  # type: ignore[arg-type]
            seen.append((self.current_arrays["weights"], given))
            return super().aggregate_train(server_round, replies)

    return Noting(**settings)


STRATEGIES: dict[str, Callable[[], flower.Strategy]] = {
    "FedAdam": lambda: flower.FedAdam(eta=0.01),
    "FedYogi": flower.FedYogi,
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.5),
    "FedProx": lambda: flower.FedProx(proximal_mu=0.1),
    "one that aggregates itself": lambda: noting([]),
}


def new_ledger(url: str = "sqlite://") -> Ledger:
    return Ledger(url, identity="ab" * 32)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_with_a_strategy_goes_on_from_the_ledger(name: str, url: str) -> None:
    whole = new_ledger()
    expected = apps.strategy(whole, aggregator=None, strategy=STRATEGIES[name]()).start(
        InProcessGrid(app_of([None]), 4), apps.initial(), num_rounds=ROUNDS
    )
    first = apps.strategy(new_ledger(url), aggregator=None, strategy=STRATEGIES[name]())
    grid = InProcessGrid(app_of([None]), 4)
    arrays = first.agree(grid, apps.initial(), ROUNDS)
    for server_round in range(1, 5):
        sent = first.configure_train(server_round, arrays, ConfigRecord(), grid)
        arrays, _ = first.aggregate_train(server_round, grid.send_and_receive(sent))
    first.ledger.close()
    ledger = new_ledger(url)
    result = apps.strategy(ledger, aggregator=None, strategy=STRATEGIES[name]()).start(
        InProcessGrid(app_of([None]), 4), apps.initial(), num_rounds=ROUNDS
    )
    assert np.array_equal(result.arrays["weights"].numpy(), expected.arrays["weights"].numpy())
    assert ledger.verify().hashes == whole.verify().hashes
    ledger.close()


def trained(**changes: Any) -> np.ndarray:
    result = apps.strategy(new_ledger(), **changes).start(
        InProcessGrid(app_of([None]), 4), apps.initial(), num_rounds=ROUNDS
    )
    return np.asarray(result.arrays["weights"].numpy())


class Away(InProcessGrid):
    """A grid whose clients can be offline, all of them."""

    away = False

    def get_node_ids(self) -> list[int]:
        return [] if self.away else super().get_node_ids()


def test_a_strategy_gets_the_estimate_as_one_reply_even_if_nobody_is_called() -> None:
    seen: Seen = []
    steps: list[np.ndarray] = []

    class Spied(Memory):
        def begin(self, state: Any, arrivals: Arrivals) -> Collector:  # type: ignore[override]
            collector = super().begin(state, arrivals)
            finish = collector.finish

            def noted() -> np.ndarray:
                steps.append(finish())
                return steps[-1]

            vars(collector)["finish"] = noted
            return collector

    ours = apps.strategy(new_ledger(), aggregator=Spied(), strategy=noting(seen, eta=0.01))
    grid = Away(app_of([None]), 4)
    arrays = ours.agree(grid, apps.initial(), ROUNDS)
    for server_round in range(1, ROUNDS + 1):
        grid.away = server_round in (1, 5)
        calls = ours.configure_train(server_round, arrays, ConfigRecord(), grid)
        assert bool(calls) is not grid.away
        before = arrays["weights"].numpy()
        arrays, _ = ours.aggregate_train(server_round, grid.send_and_receive(calls))
        sent, ((mean, weight),) = seen[-1]
        assert weight == 1
        assert np.array_equal(sent, before)
        assert np.array_equal(mean, (sent + steps[-1].reshape(sent.shape)).astype(np.float32))
        assert steps[-1].any() == (server_round > 1)
    assert len(seen) == len(steps) == ROUNDS


def test_flowers_averages_and_optimisers_train_with_memory() -> None:
    expected = trained(aggregator=Memory())
    for own in (flower.FedAvg(), flower.FedProx(proximal_mu=0.1)):  # the app ignores μ
        np.testing.assert_allclose(trained(aggregator=None, strategy=own), expected, atol=1e-6)
    assert not np.allclose(trained(aggregator=HorvitzThompson()), expected, atol=1e-3)
    moved = trained(aggregator=None, strategy=flower.FedAvgM(server_momentum=0.5))
    expected = trained(aggregator=Memory(), server_step=Momentum(0.5))
    np.testing.assert_allclose(moved, expected, atol=1e-6)


def test_what_a_strategy_makes_of_our_weights_is_hajeks() -> None:
    seen: Seen = []
    alone = trained(aggregator=None, strategy=noting(seen))
    assert max(len(given) for _, given in seen) > 1
    np.testing.assert_allclose(
        alone, trained(aggregator=Hajek(), strategy=flower.FedAdam()), atol=1e-5
    )


@pytest.mark.parametrize(
    "own",
    [
        flower.FedMedian(),
        flower.FedTrimmedAvg(),
        flower.Krum(),
        flower.MultiKrum(),
        flower.Bulyan(),
        flower.QFedAvg(0.1),
        flower.FedXgbBagging(),
        flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(), 0.1, 1.0, 4),
        flower.DifferentialPrivacyServerSideAdaptiveClipping(flower.FedAdam(), 0.1, 4),
        flower.DifferentialPrivacyClientSideFixedClipping(flower.FedAvg(), 0.1, 1.0, 4),
        flower.DifferentialPrivacyClientSideAdaptiveClipping(flower.FedAvg(), 0.1, 4),
    ],
)
@pytest.mark.parametrize("aggregator", [Memory(), HorvitzThompson()])
def test_a_strategy_that_needs_every_update_refuses_an_aggregator(
    own: flower.Strategy, aggregator: Aggregator
) -> None:
    private = type(own).__name__.startswith("DifferentialPrivacy")
    with pytest.raises(InputError, match="without noise" if private else "needs every update"):
        apps.strategy(new_ledger(), aggregator=aggregator, strategy=own)
    alone = apps.strategy(new_ledger(), aggregator=None, strategy=own)
    assert not isinstance(alone.aggregator, Memory)


def test_a_strategy_takes_the_servers_step() -> None:
    with pytest.raises(InputError, match="`strategy` takes the server's step"):
        apps.strategy(new_ledger(), strategy=flower.FedAvg(), server_step=Momentum(0.5))


def grow(message: Message, context: Context) -> Message:
    """Add one tree, as an app of XGBoost does."""
    n = int(context.node_config["partition-id"])
    round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
    arrays = bytes_model(booster(tree(100 * round_ + n)))
    metrics = MetricRecord({"num-examples": 1 + n})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def bytes_app(train: Callable[[Message, Context], Message] = grow) -> ClientApp:
    app = ClientApp()
    app.train()(train)
    ParticipationMod(apps.client_of).answer(app)
    return app


def test_trees_are_bagged_by_whoever_joins() -> None:
    ledger = new_ledger()
    result = apps.strategy(ledger, aggregator=None, strategy=flower.FedXgbBagging()).start(
        InProcessGrid(bytes_app(), 4), ArrayRecord([np.zeros(0, np.uint8)]), num_rounds=ROUNDS
    )
    clients = ledger.verify().runs["run"].clients.values()
    assert all(own.joined == own.heads for own in clients)
    assert len(trees_of(result.arrays)) == sum(own.joined for own in clients)


def test_a_client_that_sends_no_model_is_refused_and_nobody_else() -> None:
    def broken(message: Message, context: Context) -> Message:
        reply = grow(message, context)
        if context.node_config["partition-id"] == 0:
            reply.content["arrays"] = bytes_model(b"{}")
        return reply

    ledger = new_ledger()
    apps.strategy(ledger, aggregator=None, strategy=flower.FedXgbBagging()).start(
        InProcessGrid(bytes_app(broken), 4), bytes_model(b""), num_rounds=ROUNDS
    )
    refused = [own.refused for own in ledger.verify().runs["run"].clients.values()]
    assert refused[0] > 0
    assert refused[1:] == [0, 0, 0]


@pytest.mark.parametrize("strategy", [None, flower.FedAvg()])
def test_bytes_are_refused_before_anything_is_offered(strategy: flower.Strategy | None) -> None:
    grid = InProcessGrid(bytes_app(), 4)
    with pytest.raises(InputError, match="the model is bytes, which cannot be averaged"):
        apps.strategy(new_ledger(), aggregator=None, strategy=strategy).start(
            grid, bytes_model(b"{}"), num_rounds=ROUNDS
        )
    assert "query.offer" not in [kind for kind, _ in grid.sent]


def halve(message: Message, context: Context) -> Message:
    """Move the parameters somewhere, and halve the running variance."""
    arrays = message.content.array_records["arrays"]
    round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
    rng = np.random.default_rng([round_, int(context.node_config["partition-id"])])
    old, variance = arrays.to_numpy_ndarrays()
    moved = [old + rng.normal(size=old.shape).astype(old.dtype), 0.5 * variance]
    return Message(RecordDict({"arrays": to_record(list(arrays), moved)}), reply_to=message)


def test_no_running_variance_becomes_negative_under_an_optimiser() -> None:
    ones = np.ones(20, np.float32)
    settings = {"aggregator": None, "learning_rate": None, "local_steps": None}
    result = apps.strategy(new_ledger(), strategy=flower.FedAdam(), **settings).start(
        InProcessGrid(app_of([None], halve), 4),
        to_record(["w", "bn.running_var"], [ones, ones]),
        num_rounds=ROUNDS,
    )
    assert np.allclose(result.arrays["bn.running_var"].numpy(), 0.5**ROUNDS)


@pytest.mark.parametrize("said", [None, True, False])
@pytest.mark.parametrize("fraction", [0.0, 0.1])
def test_clients_evaluate_as_is_said_or_else_as_the_strategy_would_ask(
    said: bool | None, fraction: float
) -> None:
    own = flower.FedAvg(fraction_evaluate=fraction)
    if said and not fraction:
        with pytest.raises(InputError, match="contradicts fraction_evaluate=0"):
            apps.strategy(new_ledger(), aggregator=None, strategy=own, evaluate_clients=said)
        return
    result = apps.strategy(
        new_ledger(), aggregator=None, strategy=own, evaluate_clients=said
    ).start(InProcessGrid(apps.client_app(), 4), apps.initial(), num_rounds=1)
    asked = fraction > 0 if said is None else said
    assert bool(result.evaluate_metrics_clientapp) is asked
