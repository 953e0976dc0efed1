"""Markets whose model is aggregated by a strategy of Flower's, in process."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower

from fedprice.errors import InputError
from fedprice.flower import InProcessGrid, ParticipationMod
from fedprice.flower.wire import to_record
from fedprice.market.ledger import Ledger
from tests.flower import apps
from tests.flower.test_mods import app_of
from tests.flower.test_wrapped import booster, bytes_model, tree, trees_of
from trials.markets import ROUNDS

STRATEGIES: dict[str, Callable[[], flower.Strategy]] = {
    "FedAdam": lambda: flower.FedAdam(eta=0.01),
    "FedYogi": flower.FedYogi,
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.5),
    "FedProx": lambda: flower.FedProx(proximal_mu=0.1),
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
    result = apps.strategy(
        new_ledger(), aggregator=None, strategy=own, evaluate_clients=said
    ).start(InProcessGrid(apps.client_app(), 4), apps.initial(), num_rounds=1)
    asked = fraction > 0 if said is None else said
    assert bool(result.evaluate_metrics_clientapp) is asked
