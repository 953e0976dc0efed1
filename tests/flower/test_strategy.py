"""The market on Flower, in process: the same coins, model and ledger as on the fast engine."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from fedprice.errors import FedpriceError
from fedprice.flower import Client, InProcessGrid, Momentum, PostedPrice, PricedParticipation
from fedprice.flower.wire import to_record
from fedprice.market.ledger import Ledger
from fedprice.market.messages import SigningKey
from tests.flower.apps import SHAPE, client_app, client_of, initial, strategy, train
from tests.market.markets import NAMES, ROUNDS, small_market


def engine() -> tuple[np.ndarray, list[str]]:
    ledger = Ledger("sqlite://")
    history = small_market(ledger, delivery=1.0)
    return history.model, ledger.verify().hashes


def run(grid: InProcessGrid, ledger: Ledger, **changes: object) -> np.ndarray:
    result = strategy(ledger, **changes).start(grid, initial(), num_rounds=ROUNDS)
    return np.asarray(result.arrays["weights"].numpy())


def test_the_same_model_and_ledger_as_the_engine() -> None:
    ledger, grid = Ledger("sqlite://"), InProcessGrid(client_app(), 4)
    model = run(grid, ledger)
    expected, hashes = engine()
    assert np.array_equal(model, expected)
    assert ledger.verify().hashes == hashes


def test_nobody_with_tails_is_contacted() -> None:
    ledger, grid = Ledger("sqlite://"), InProcessGrid(client_app(), 4)
    run(grid, ledger)
    calls = [m for m in grid.sent if m.metadata.message_type == "train"]
    clients = ledger.verify().runs["run"].clients.values()
    assert len(calls) == sum(own.heads for own in clients)
    assert len(calls) < 4 * ROUNDS
    asked = [m.metadata.message_type for m in grid.sent if m.metadata.message_type != "train"]
    assert asked == ["query.profile"] * 4 + ["query.offer"] * 4


def test_a_run_goes_on_from_the_ledger(url: str) -> None:
    """The server dies after some rounds; another one takes up the run with other node ids."""
    expected, hashes = engine()
    first = strategy(Ledger(url))
    grid = InProcessGrid(client_app(), 4)
    arrays = first.agree(grid, initial(), ROUNDS)
    for server_round in range(1, 5):
        sent = first.configure_train(server_round, arrays, {}, grid)  # type: ignore[arg-type]
        arrays, _ = first.aggregate_train(server_round, grid.send_and_receive(sent))
    first.ledger.close()
    grid = InProcessGrid(client_app(), 4)
    grid.contexts = {node + 50: context for node, context in grid.contexts.items()}
    ledger = Ledger(url)
    assert np.array_equal(run(grid, ledger), expected)
    assert ledger.verify().hashes == hashes
    assert np.array_equal(run(grid, ledger), expected)  # settled
    ledger.close()


def raising(message: Message, context: Context) -> Message:
    raise RuntimeError("boom")


def silent(message: Message, context: Context) -> Message:
    return None  # type: ignore[return-value]


def sending(make: Callable[[], np.ndarray]) -> Callable[[Message, Context], Message]:
    def handle(message: Message, context: Context) -> Message:
        content = RecordDict({"arrays": to_record(["weights"], [make()])})
        return Message(content, reply_to=message)

    return handle


FAULTS = {
    "raises": (raising, "failed"),
    "returns nothing": (silent, "failed"),
    "not finite": (sending(lambda: np.full(SHAPE, np.nan, np.float32)), "not finite"),
    "another shape": (sending(lambda: np.zeros((3, 3), np.float32)), "of shape"),
    "another type": (sending(lambda: np.zeros(SHAPE)), "is <f8"),
    "always the same": (sending(lambda: np.ones(SHAPE, np.float32)), "same as an earlier"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_one_client_are_recorded_and_not_paid(fault: str) -> None:
    broken, reason = FAULTS[fault]

    def handle(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            return broken(message, context)
        return train(message, context)

    ledger, grid = Ledger("sqlite://"), InProcessGrid(client_app(handle), 4)
    model = run(grid, ledger)
    assert np.isfinite(model).all()
    clients = ledger.verify().runs["run"].clients
    bob = clients["<b>bob</b>"]
    late = 1 if fault == "always the same" else 0
    assert (bob.heads, bob.joined, bob.refused) == (ROUNDS, late, ROUNDS - late)
    assert bob.paid == bob.payment * late // ROUNDS
    assert all(own.refused == 0 for name, own in clients.items() if name != "<b>bob</b>")
    reasons = {r for e in ledger.entries("run") for r in e.content.get("refused", {}).values()}
    assert all(reason in told for told in reasons)


def test_replayed_and_forged_updates_are_refused() -> None:
    """Somebody answers with an update of an earlier round, or with somebody else's."""
    kept: list[Message] = []

    class Replaying(InProcessGrid):
        def _reply(self, message: Message) -> Message:
            reply = super()._reply(message)
            if message.metadata.message_type == "train" and message.metadata.dst_node_id == 1002:
                kept.append(reply)
                return Message(kept[0].content, reply_to=message)
            return reply

    ledger = Ledger("sqlite://")
    run(Replaying(client_app(), 4), ledger)
    bob = ledger.verify().runs["run"].clients["<b>bob</b>"]
    assert (bob.joined, bob.refused) == (1, ROUNDS - 1)


def test_unregistered_keys_stay_out() -> None:
    keys = {name: client_of_name(name).key.public for name in NAMES}

    def mallory(context: Context) -> Client:
        own = client_of(context)
        if own.name == "alice":
            return Client(**(vars(own) | {"key": SigningKey(bytes([77]) * 32)}))
        return own

    ledger = Ledger("sqlite://")
    grid = InProcessGrid(client_app(client=mallory), 4)
    with pytest.raises(FedpriceError, match="only 3 of 4 clients"):
        run(grid, ledger, keys=keys, wait=0.0)
    run(InProcessGrid(client_app(client=mallory), 4), ledger, keys=keys, wait=0.0, clients=3)
    assert "alice" not in ledger.verify().runs["run"].clients


def client_of_name(name: str) -> Client:
    grid = InProcessGrid(client_app(), 4)
    return client_of(list(grid.contexts.values())[NAMES.index(name)])


def test_a_client_refuses_what_it_did_not_sign() -> None:
    """Other offers, other servers, tails: the client declines, and is not paid for nothing."""
    ledger, grid = Ledger("sqlite://"), InProcessGrid(client_app(), 4)
    ours = strategy(ledger)
    arrays = ours.agree(grid, initial(), ROUNDS)
    sent = ours.configure_train(1, arrays, {}, grid)  # type: ignore[arg-type]
    (call, *_) = (m for m in sent if m.metadata.dst_node_id == 1000)
    for change, reason in (
        ({"round": -1}, "no such round"),
        ({"round": next_tails(ours, "alice")}, "shows tails"),
        ({"secret": bytes(32)}, "not the one it committed to"),
        ({"secret": "x"}, "not the one it committed to"),
        ({"offer.key": bytes(32)}, "another key"),
        ({"offer.content": b"{}"}, "signature"),
        ({"commitment.signature": bytes(64)}, "signature"),
        ({"commitment.content": b"x"}, "signature"),
    ):
        content = RecordDict(dict(call.content))
        record = dict(call.content.config_records["fedprice"]) | change
        content["fedprice"] = type(call.content.config_records["fedprice"])(record)
        (reply,) = grid.send_and_receive([Message(content, 1000, "train")])
        assert reply.has_error()
        assert reason in str(reply.error.reason)


def next_tails(ours: PricedParticipation, name: str) -> int:
    assert ours.market is not None
    coins = ours.market.agreement.coins[name]
    return next(r for r in range(ROUNDS) if not coins.heads(r))


def test_private_clients_take_a_posted_price() -> None:
    def private(context: Context) -> Client:
        return Client(**(vars(client_of(context)) | {"reveals": False}))

    ledger = Ledger("sqlite://")
    with pytest.raises(FedpriceError, match="keeps its cost or value to itself"):
        run(InProcessGrid(client_app(client=private), 4), ledger)
    pricing = PostedPrice(budget=8.0, alpha=3.0, level_cap=0.9)
    run(InProcessGrid(client_app(client=private), 4), ledger, pricing=pricing)
    clients = ledger.verify().runs["run"].clients
    assert len({own.price for own in clients.values()}) == 1
    assert len({own.level for own in clients.values()}) > 1
    assert sum(own.payment for own in clients.values()) <= 8_000_000


def test_clients_evaluate_and_the_server_too() -> None:
    from flwr.app import MetricRecord

    seen = []

    def evaluate(server_round: int, arrays: object) -> MetricRecord:
        seen.append(server_round)
        return MetricRecord({"round": server_round})

    ours = strategy(Ledger("sqlite://"), evaluate_clients=True)
    grid = InProcessGrid(client_app(), 4)
    result = ours.start(grid, initial(), num_rounds=ROUNDS, evaluate_fn=evaluate)
    assert seen == list(range(ROUNDS + 1))
    assert set(result.evaluate_metrics_clientapp) == set(range(1, ROUNDS + 1))
    (mean,) = {m["who"] for m in result.evaluate_metrics_clientapp.values()}
    assert 0 < float(mean) < 3  # type: ignore[arg-type]


def test_momentum_survives_a_restart(url: str) -> None:
    whole = run(InProcessGrid(client_app(), 4), Ledger("sqlite://"), server_step=Momentum(0.5, 0.5))
    first = strategy(Ledger(url), server_step=Momentum(0.5, 0.5))
    grid = InProcessGrid(client_app(), 4)
    arrays = first.agree(grid, initial(), ROUNDS)
    sent = first.configure_train(1, arrays, {}, grid)  # type: ignore[arg-type]
    first.aggregate_train(1, grid.send_and_receive(sent))
    first.ledger.close()
    ledger = Ledger(url)
    resumed = run(InProcessGrid(client_app(), 4), ledger, server_step=Momentum(0.5, 0.5))
    assert np.array_equal(resumed, whole)
    assert not np.array_equal(whole, engine()[0])
    ledger.close()
