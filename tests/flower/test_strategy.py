"""The market on Flower, in process: the same coins, model and ledger as on the fast engine."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprice.calibration import Calibration, Fit
from fedprice.errors import DivergedError, FedpriceError, UndeliveredError
from fedprice.flower import (
    Client,
    FullInformation,
    InProcessGrid,
    Limits,
    ParticipationMod,
    Periods,
    PostedPrice,
    PricedParticipation,
)
from fedprice.flower.deals import in_order
from fedprice.flower.watch import Watch
from fedprice.flower.wire import hash_of_record, signed_fields, signed_of, to_record
from fedprice.market.agreement import Agreement
from fedprice.market.ledger import Ledger
from fedprice.market.messages import SigningKey
from fedprice.market.offers import Call
from fedprice.market.periods import measured_norms
from fedprice.market.simulation import simulate_market, simulation_key
from fedprice.market.statements import runs_of, statement_of
from fedprice.rounds import (
    AGGREGATORS,
    Adam,
    Bounded,
    Hajek,
    HorvitzThompson,
    Momentum,
    Plain,
    ServerStep,
    run_fingerprint,
)
from tests.flower.apps import (
    CAP,
    OUTCOME,
    SEED,
    SHAPE,
    TASK,
    client_app,
    client_of,
    initial,
    strategy,
    train,
)
from trials.markets import NAMES, ROUNDS


def engine() -> tuple[np.ndarray, list[str]]:
    ledger = new_ledger()
    history = simulate_market(
        TASK, OUTCOME, ledger=ledger, run="run", seed=SEED, norm_cap=CAP, threads=1,
        aggregator=HorvitzThompson(),
    )  # fmt: skip
    return history.model[0], ledger.verify().hashes


def new_ledger(url: str = "sqlite://") -> Ledger:
    """A ledger that does not differ from another one by its identity."""
    return Ledger(url, identity="ab" * 32)


def run(grid: InProcessGrid, ledger: Ledger, **changes: object) -> np.ndarray:
    result = strategy(ledger, **changes).start(grid, initial(), num_rounds=ROUNDS)
    return np.asarray(result.arrays["weights"].numpy())


def test_the_same_model_and_ledger_as_the_engine() -> None:
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    model = run(grid, ledger)
    expected, hashes = engine()
    assert np.array_equal(model, expected)
    assert ledger.verify().hashes == hashes


def test_nobody_with_tails_is_contacted() -> None:
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    run(grid, ledger)
    calls = [kind for kind, _ in grid.sent if kind == "train"]
    clients = ledger.verify().runs["run"].clients.values()
    assert len(calls) == sum(own.heads for own in clients)
    assert len(calls) < 4 * ROUNDS
    asked = [kind for kind, _ in grid.sent if kind != "train"]
    kinds = ["profile", "offer", "reveal", "receipt"]
    assert asked == [f"query.{kind}" for kind in kinds for _ in range(4)]


def test_a_run_goes_on_from_the_ledger(url: str) -> None:
    """The server dies after some rounds; another one takes up the run with other node ids."""
    expected, hashes = engine()
    first = strategy(new_ledger(url))
    grid = InProcessGrid(client_app(), 4)
    arrays = first.agree(grid, initial(), ROUNDS)
    for server_round in range(1, 5):
        sent = first.configure_train(server_round, arrays, {}, grid)  # type: ignore[arg-type]
        arrays, _ = first.aggregate_train(server_round, grid.send_and_receive(sent))
    first.ledger.close()
    grid = InProcessGrid(client_app(), 4)
    grid.contexts = {node + 50: context for node, context in grid.contexts.items()}
    ledger = new_ledger(url)
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


SMALL = np.full(SHAPE, 0.01, np.float32)
FAULTS = {
    "raises": (raising, "failed"),
    "returns nothing": (silent, "failed"),
    "not finite": (sending(lambda: np.full(SHAPE, np.nan, np.float32)), "not finite"),
    "another shape": (sending(lambda: np.zeros((3, 3), np.float32)), "of shape"),
    "too large": (sending(lambda: np.full(SHAPE, 3e38, np.float32)), "is above the cap"),
    "beyond the cap": (sending(lambda: np.full(SHAPE, 1e7, np.float32)), "above the cap"),
    "another type": (sending(lambda: np.zeros(SHAPE)), "is <f8"),
    "always the same": (sending(lambda: SMALL), "same as an earlier"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_one_client_are_recorded_and_not_paid(fault: str) -> None:
    broken, reason = FAULTS[fault]

    def handle(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            return broken(message, context)
        return train(message, context)

    ledger, grid = new_ledger(), InProcessGrid(client_app(handle), 4)
    model = run(grid, ledger)
    assert np.isfinite(model).all()
    clients = ledger.verify().runs["run"].clients
    bob = clients["<b>bob</b>"]
    late = 1 if fault == "always the same" else 0
    assert (bob.heads, bob.joined, bob.refused) == (ROUNDS, late, ROUNDS - late)
    assert bob.paid == bob.payment * late // ROUNDS
    assert all(own.refused == 0 for name, own in clients.items() if name != "<b>bob</b>")
    reasons = {r for e in ledger.entries("run") for r, *_ in e.content.get("refused", {}).values()}
    assert any(reason in told for told in reasons)  # until the client itself gives up
    assert all(reason in told or "its program failed" in told for told in reasons)


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

    ledger = new_ledger()
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

    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=mallory), 4)
    with pytest.raises(FedpriceError, match="only 3 of 4 clients"):
        run(grid, ledger, keys=keys, limits=Limits(wait=0.0))
    run(
        InProcessGrid(client_app(client=mallory), 4),
        ledger,
        keys=keys,
        limits=Limits(wait=0.0),
        clients=3,
    )
    assert "alice" not in ledger.verify().runs["run"].clients


def client_of_name(name: str) -> Client:
    grid = InProcessGrid(client_app(), 4)
    return client_of(list(grid.contexts.values())[NAMES.index(name)])


def test_a_client_refuses_what_it_did_not_sign() -> None:
    """Other offers, other servers, tails: the client declines, and is not paid for nothing."""
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    ours = strategy(ledger)
    arrays = ours.agree(grid, initial(), ROUNDS)
    sent = ours.configure_train(1, arrays, {}, grid)  # type: ignore[arg-type]
    node = next(m.metadata.dst_node_id for m in sent if tails(ours, m.metadata.dst_node_id))
    (call,) = (m for m in sent if m.metadata.dst_node_id == node)
    known = dict(call.content.config_records["fedprice"])

    def changed(name: str, **parts: bytes) -> dict[str, list[bytes]]:
        return signed_fields(name, replace(signed_of(known, name), **parts))

    def called(**changes: Any) -> dict[str, list[bytes]]:
        asked: Call = signed_of(known, "call").open(Call, ours.key.public)
        return signed_fields("call", ours.key.sign(replace(asked, **changes)))

    def heads(round_: int) -> bool:
        own = ours.ledger.run("run").clients[NAMES[node - InProcessGrid.FIRST]]
        return own.coins is not None and own.coins.heads(round_)

    for change, reason in (
        (changed("call", signature=bytes(64)), "signature"),
        (called(round=tails(ours, node)[0]), "shows tails"),
        (called(round=1 << 30), "no such round" if heads(1 << 30) else "shows tails"),
        ({"secret": bytes(32)}, "not the one it committed to"),
        ({"secret": "x"}, "not the one it committed to"),
        ({"secret": [bytes(32)]}, "not the one it committed to"),
        (changed("offer", key=bytes(32)), "another key"),
        (changed("offer", content=b"{}"), "signature"),
        (changed("commitment", signature=bytes(64)), "signature"),
        (changed("commitment", content=b"x"), "signature"),
        ({"commitment": [b"x"]}, "no signed commitment"),
        ({"commitment": ["x", "y", "z"]}, "no signed commitment"),
        ({"commitment": b"xyz"}, "no signed commitment"),
    ):
        content = RecordDict(dict(call.content))
        record = known | change
        content["fedprice"] = type(call.content.config_records["fedprice"])(record)
        (reply,) = grid.send_and_receive([Message(content, node, "train")])
        assert reply.has_error()
        assert reason in str(reply.error.reason)


def test_updates_that_are_checked_meanwhile_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large model is checked while the next client trains, and added before the next check."""
    found = []
    for large in (1 << 60, 1):
        monkeypatch.setattr("fedprice.flower.participation.LARGE", large)
        ledger = new_ledger()
        result = strategy(ledger).start(InProcessGrid(client_app(), 4), initial(), ROUNDS)
        found.append((ledger.head(), hash_of_record(result.arrays)))
    assert found[0] == found[1]


def tails(ours: PricedParticipation, node: int) -> list[int]:
    """The rounds in which a node's coin shows tails."""
    assert ours.market is not None
    coins = ours.ledger.run("run").clients[NAMES[node - InProcessGrid.FIRST]].coins
    assert coins is not None
    return [r for r in range(ROUNDS) if not coins.heads(r)]


class Moody(InProcessGrid):
    """A grid on which some messages are answered otherwise, or not at all."""

    def __init__(self, mood: Callable[[Message, Message], Message | None]) -> None:
        super().__init__(client_app(), 4)
        self._mood = mood

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids += super().push_messages([message])
            changed = self._mood(message, self._replies[ids[-1]])
            if changed is None:
                del self._replies[ids[-1]]
            else:
                self._replies[ids[-1]] = changed
        return ids


def test_a_client_that_hangs_holds_up_nobody() -> None:
    """With one message under way at a time, the others are still asked."""

    def mood(message: Message, reply: Message) -> Message | None:
        hangs = message.metadata.message_type == "train" and message.metadata.dst_node_id == 1002
        return None if hangs else reply

    ledger = new_ledger()
    run(Moody(mood), ledger, limits=Limits(at_once=1, round_timeout=0.1))
    clients = ledger.verify().runs["run"].clients
    assert clients["<b>bob</b>"].missed == ROUNDS
    assert all(own.missed == 0 for name, own in clients.items() if name != "<b>bob</b>")


def test_whoever_does_not_answer_at_first_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprice.flower.presence.ASK_AGAIN", 0.1)
    failed: list[int] = []

    def mood(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "query.profile" and len(failed) < 3:
            failed.append(message.metadata.dst_node_id)
            return Message(Error(0, "a hiccup"), reply_to=message)
        return reply

    ledger = new_ledger()
    run(Moody(mood), ledger)
    assert len(failed) == 3
    assert len(ledger.verify().runs["run"].clients) == 4


def test_nobody_can_answer_with_anothers_profile() -> None:
    """A node that repeats what bob said is not bob, and bob keeps his address."""
    said: list[Message] = []

    def mood(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "query.profile":
            if message.metadata.dst_node_id == 1002:
                said.append(reply)
            elif message.metadata.dst_node_id == 1003 and said:
                return Message(said[0].content, reply_to=message)
        return reply

    ledger = new_ledger()
    with pytest.raises(FedpriceError, match="only 3 of 4"):
        run(Moody(mood), ledger, limits=Limits(wait=0.0))


def test_other_data_than_it_was_priced_for() -> None:
    """A client that commits to more samples than it declared is not in the run."""
    asked: list[int] = []

    def greedy(context: Context) -> Client:
        own = client_of(context)
        if own.name != "alice":
            return own
        asked.append(1)
        return Client(**(vars(own) | {"samples": own.samples * (1 + 9 * (len(asked) > 1))}))

    ledger = new_ledger()
    run(InProcessGrid(client_app(client=greedy), 4), ledger)
    assert "alice" not in ledger.verify().runs["run"].clients


def test_a_resumed_run_knows_its_clients_keys() -> None:
    """Even where keys are taken as they come: an impostor is turned away after a restart."""
    ledger = new_ledger()
    first, grid = strategy(ledger), InProcessGrid(client_app(), 4)
    arrays = first.agree(grid, initial(), ROUNDS)
    sent = first.configure_train(1, arrays, {}, grid)  # type: ignore[arg-type]
    first.aggregate_train(1, grid.send_and_receive(sent))

    def impostor(context: Context) -> Client:
        own = client_of(context)
        if own.name == "<b>bob</b>":
            return Client(**(vars(own) | {"key": SigningKey(bytes([66]) * 32)}))
        return own

    run(InProcessGrid(client_app(client=impostor), 4), ledger, limits=Limits(wait=0.1))
    bob = ledger.verify().runs["run"].clients["<b>bob</b>"]
    assert (bob.joined, bob.missed) == (1, ROUNDS - 1)
    with pytest.raises(FedpriceError, match="is the ledger of the server"):
        run(InProcessGrid(client_app(), 4), ledger, key=SigningKey(bytes([5]) * 32))


ODD: list[np.ndarray] = [
    np.array(0.5, np.float32), np.arange(3), np.zeros((0, 2), np.float32), np.ones(2, "<f2"),
]  # fmt: skip


def test_models_of_any_real_arrays() -> None:
    """Scalars, counters, empty and half-precision arrays, in a model of several."""
    names = ["scale", "count", "none", "half"]

    def handle(message: Message, context: Context) -> Message:
        n = int(context.node_config["partition-id"])
        round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        arrays = [record.numpy() for record in message.content.array_records["arrays"].values()]
        moved = [
            np.asarray(a + a.dtype.type(1 + n) * (1 if a.dtype.kind == "i" else round_ / 64))
            for a in arrays
        ]
        new = [a.astype(old.dtype) for a, old in zip(moved, arrays, strict=True)]
        return Message(RecordDict({"arrays": to_record(names, new)}), reply_to=message)

    market = ParticipationMod(client_of)  # returns weights
    app = ClientApp(mods=[market])
    market.answer(app)
    app.train()(handle)
    ledger = new_ledger()
    ours = strategy(ledger, learning_rate=None, local_steps=None)  # no caps follow from norms
    result = ours.start(InProcessGrid(app, 4), to_record(names, ODD), num_rounds=3)
    ended = [array.numpy() for array in result.arrays.values()]
    assert [(a.dtype, a.shape) for a in ended] == [(a.dtype, a.shape) for a in ODD]
    assert ended[0] > ODD[0]
    assert (ended[1] > ODD[1]).all()
    assert sum(own.joined for own in ledger.verify().runs["run"].clients.values()) > 3


def test_swapped_layers_are_refused() -> None:
    def handle(message: Message, context: Context) -> Message:
        return Message(RecordDict({"arrays": to_record(["other"], [ODD[0]])}), reply_to=message)

    ledger = new_ledger()
    with pytest.raises(UndeliveredError, match="nobody delivered"):
        run(InProcessGrid(client_app(handle), 4), ledger)
    clients = ledger.verify().runs["run"].clients.values()
    assert sum(own.joined for own in clients) == 0


@pytest.mark.parametrize("own", [{"reveals": False}, {"grad_norm": 1e9}])
def test_one_clients_declarations_stop_nobody_else(own: dict[str, Any]) -> None:
    """It hides its cost, or declares a norm that would let it throw the model."""

    def odd(context: Context) -> Client:
        usual = client_of(context)
        return Client(**vars(usual) | own) if usual.name == "alice" else usual

    ledger = new_ledger()
    run(InProcessGrid(client_app(client=odd), 4), ledger)
    assert set(ledger.verify().runs["run"].clients) == set(NAMES) - {"alice"}


def test_private_clients_take_a_posted_price() -> None:
    def private(context: Context) -> Client:
        return Client(**(vars(client_of(context)) | {"reveals": False}))

    ledger = new_ledger()
    with pytest.raises(FedpriceError, match="keeps its cost or value to itself"):
        run(InProcessGrid(client_app(client=private), 4), ledger)
    pricing = PostedPrice(budget=8.0, alpha=3.0, level_cap=0.9)
    run(InProcessGrid(client_app(client=private), 4), ledger, pricing=pricing)
    clients = ledger.verify().runs["run"].clients
    data = dict(zip(NAMES, TASK.samples.tolist(), strict=True))
    per_sample = [own.tariff[0][1] / data[name] for name, own in clients.items()]
    assert per_sample == pytest.approx([per_sample[0]] * len(NAMES), rel=1e-5)
    assert len({own.level for own in clients.values()}) > 1
    assert sum(own.payment for own in clients.values()) <= 8_000_000


def test_clients_evaluate_and_the_server_too() -> None:
    seen = []

    def evaluate(server_round: int, arrays: object) -> MetricRecord:
        seen.append(server_round)
        return MetricRecord({"round": server_round})

    ours = strategy(new_ledger(), evaluate_clients=True)
    grid = InProcessGrid(client_app(), 4)
    result = ours.start(grid, initial(), num_rounds=ROUNDS, evaluate_fn=evaluate)
    assert seen == list(range(ROUNDS + 1))
    assert set(result.evaluate_metrics_clientapp) == set(range(1, ROUNDS + 1))
    (mean,) = {m["who"] for m in result.evaluate_metrics_clientapp.values()}
    assert 0 < float(mean) < 3  # type: ignore[arg-type]


def test_momentum_survives_a_restart(url: str) -> None:
    whole = run(InProcessGrid(client_app(), 4), new_ledger(), server_step=Momentum(0.5, 0.5))
    first = strategy(new_ledger(url), server_step=Momentum(0.5, 0.5))
    grid = InProcessGrid(client_app(), 4)
    arrays = first.agree(grid, initial(), ROUNDS)
    sent = first.configure_train(1, arrays, {}, grid)  # type: ignore[arg-type]
    first.aggregate_train(1, grid.send_and_receive(sent))
    first.ledger.close()
    ledger = new_ledger(url)
    resumed = run(InProcessGrid(client_app(), 4), ledger, server_step=Momentum(0.5, 0.5))
    assert np.array_equal(resumed, whole)
    assert not np.array_equal(whole, engine()[0])
    ledger.close()


STEPS = [Plain(), Momentum(0.5), Adam(), Bounded(1.5, 3)]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        # `make test` has every aggregator and every step, but not each with each.
        pytest.param(name, step, marks=[pytest.mark.slow] if (at - turn) % len(STEPS) else [])
        for at, name in enumerate(AGGREGATORS)
        for turn, step in enumerate(STEPS)
    ],
)
def test_every_aggregator_and_server_step_as_on_the_engine(name: str, step: ServerStep) -> None:
    """The same bits in both places, and with a restart in the middle."""
    here, there = new_ledger(), new_ledger()
    task = run_fingerprint(TASK, 1.0, rounds=ROUNDS, seed=SEED, aggregator=AGGREGATORS[name])
    changes: dict[str, Any] = {"aggregator": AGGREGATORS[name], "server_step": step, "task": task}
    first, grid = strategy(here, **changes), InProcessGrid(client_app(), 4)
    arrays = first.agree(grid, initial(), ROUNDS)
    for server_round in range(1, 4):
        sent = first.configure_train(server_round, arrays, ConfigRecord(), grid)
        arrays, _ = first.aggregate_train(server_round, grid.send_and_receive(sent))
    model = run(InProcessGrid(client_app(), 4), here, **changes)
    history = simulate_market(
        TASK, OUTCOME, ledger=there, run="run", seed=SEED, aggregator=AGGREGATORS[name],
        server_step=step, norm_cap=CAP,
    )  # fmt: skip
    assert np.array_equal(model, history.model[0])
    assert here.verify().hashes == there.verify().hashes


def private(context: Context) -> Client:
    return Client(**(vars(client_of(context)) | {"grad_norm": None}))


def test_a_client_tells_nothing_to_a_server_that_it_does_not_trust() -> None:
    """Its cost and value are its own, so the key is checked first, not only with the offer."""
    grid, mallory = InProcessGrid(client_app(), 4), simulation_key("mallory")
    with pytest.raises(FedpriceError, match="only 0 of 4 clients showed up"):
        run(grid, new_ledger(), key=mallory, limits=Limits(wait=0.5))


def test_norms_are_measured_in_a_warm_up_period() -> None:
    """Nobody declares a norm: a flat level first, then prices from what was measured."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=private), 4)
    with pytest.raises(FedpriceError, match="declares no gradient norm, and none was measured"):
        run(grid, new_ledger())
    run(grid, ledger, periods=Periods(warm_up=4, level=0.6, every=5))
    runs = ledger.verify().runs
    assert [(name, run.rounds, run.follows) for name, run in runs.items()] == [
        ("run", 4, ""), ("run#2", 5, "run"), ("run#3", 3, "run#2"),
    ]  # fmt: skip
    assert len({own.level for own in runs["run"].clients.values()}) == 1
    assert len({own.level for own in runs["run#2"].clients.values()}) > 1
    spent = sum(own.paid for run in runs.values() for own in run.clients.values())
    last = runs["run#3"]
    assert spent <= 4_000_000 + sum(own.earned(3, 1) for own in last.clients.values())
    norms = measured_norms(ledger, ["run"])
    profiles = {
        name: json.loads(deal.offer.content)["impact"]
        for name, deal in Agreement.load(ledger, "run#2").deals.items()
    }
    weight = TASK.weight[[NAMES.index(name) for name in profiles]]
    known = [norms.get(name, np.median(list(norms.values()))) for name in profiles]
    assert [float(k) for k in profiles.values()] == pytest.approx(
        (0.75 * weight**2 * np.array(known) ** 2 / ROUNDS).tolist()
    )


def test_periods_go_on_after_a_restart() -> None:
    """Stopped in the middle of the second period, the run ends in the same ledger and model."""
    periods = Periods(warm_up=4, level=0.6, every=5)
    whole = new_ledger()
    expected = run(InProcessGrid(client_app(client=private), 4), whole, periods=periods)

    class StopError(Exception):
        pass

    def stop(server_round: int, arrays: object) -> None:
        if server_round == 6:
            raise StopError

    ledger = new_ledger()
    first = strategy(ledger, periods=periods)
    grid = InProcessGrid(client_app(client=private), 4)
    with pytest.raises(StopError):
        first.start(grid, initial(), num_rounds=ROUNDS, evaluate_fn=stop)
    assert ledger.rounds_done("run#2") == 1
    model = run(InProcessGrid(client_app(client=private), 4), ledger, periods=periods)
    assert np.array_equal(model, expected)
    assert ledger.verify().hashes == whole.verify().hashes


def test_clients_come_and_go_between_periods() -> None:
    """One leaves after the first period, another one comes: who is there agrees."""

    class Changing(InProcessGrid):
        later = False

        def get_node_ids(self) -> list[int]:
            nodes = super().get_node_ids()
            return nodes[1:] if self.later else nodes[:3]

    def evaluate(server_round: int, arrays: object) -> None:
        grid.later = server_round >= 6

    ledger, grid = new_ledger(), Changing(client_app(client=private), 4)
    ours = strategy(ledger, periods=Periods(warm_up=6, level=0.9), clients=3)
    ours.start(grid, initial(), num_rounds=ROUNDS, evaluate_fn=evaluate)
    runs = ledger.verify().runs
    assert list(runs["run"].clients) == in_order(NAMES[:3])
    assert list(runs["run#2"].clients) == in_order(NAMES[1:])


def test_a_round_that_makes_the_loss_explode_is_not_taken() -> None:
    """The run stops before it, and goes on from the round before with another server step."""
    losses = {4: 1e6}

    def evaluate(server_round: int, arrays: object) -> MetricRecord:
        return MetricRecord({"loss": losses.get(server_round, 1.0)})

    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    with pytest.raises(DivergedError, match=r"round 4: the loss is 1e\+06 after round 4"):
        strategy(ledger).start(grid, initial(), num_rounds=ROUNDS, evaluate_fn=evaluate)
    assert ledger.rounds_done("run") == 3
    losses.clear()
    bounded = strategy(ledger, server_step=Bounded(1.0, 1))
    bounded.start(grid, initial(), num_rounds=ROUNDS, evaluate_fn=evaluate)
    assert ledger.rounds_done("run") == ROUNDS


def test_watch_and_statement_tell_of_periods(tmp_path: Path) -> None:
    url, told = f"sqlite:///{tmp_path / 'market.db'}", list[str]()
    ledger = new_ledger(url)
    grid = InProcessGrid(client_app(client=private), 4)
    run(grid, ledger, periods=Periods(warm_up=4, level=0.6))
    watch = Watch(url, "run", told.append)
    watch()
    watch.close()
    assert [line for line in told if "agreed" in line] == [
        "4 clients agreed, for 4 rounds", "period 2: 4 clients agreed, for 8 rounds",
    ]  # fmt: skip
    rounds = [line.split(":")[0] for line in told if line.startswith("round")]
    assert rounds == [f"round {r}" for r in range(1, ROUNDS + 1)]
    rows, runs = statement_of(ledger, "alice")
    assert runs["run"].to_list() == ["run", "run#2"]
    opened = rows.filter(rows["event"] == "opened")["note"].to_list()
    assert "for 8 rounds" in opened[1]
    assert opened[1].endswith(f"in the previous period: {opened[0]}")
    assert runs_of(ledger)["follows"].to_list() == [None, "run"]
    ledger.close()


def test_prices_from_a_calibration_file(tmp_path: Path) -> None:
    """α and norms by client from the file of `fedprice calibrate`; no warm-up is needed."""
    fit = Fit(3.0, 2.0, 4.0, 0.0, np.array([1.0, 2.0, 3.0]))
    Calibration(
        "test", tuple(NAMES[:3]), TASK.samples[:3], "0" * 64, "horvitz-thompson", "plain", None,
        fit, None, np.array([1]), np.ones((2, 1)),
    ).write(tmp_path / "calibration.json")  # fmt: skip
    pricing = FullInformation(budget=4.0, calibration=tmp_path / "calibration.json")
    ledger = new_ledger()
    run(InProcessGrid(client_app(client=private), 4), ledger, pricing=pricing)
    deals = Agreement.load(ledger, "run").deals
    impacts = {name: float(deal.offered.impact) for name, deal in deals.items()}
    weight = dict(zip(NAMES, TASK.weight.tolist(), strict=True))
    norms = dict(zip(NAMES, [1.0, 2.0, 3.0, 2.0], strict=True))  # dora counts like the median
    assert impacts == pytest.approx(
        {name: 3.0 * (weight[name] * norms[name]) ** 2 / ROUNDS for name in NAMES}
    )
    with pytest.raises(FedpriceError, match="give exactly one of `alpha` and `calibration`"):
        FullInformation(budget=4.0)
    with pytest.raises(FedpriceError, match="made with the aggregator 'horvitz-thompson', and α"):
        strategy(ledger, pricing=pricing, aggregator=Hajek())


def test_a_priced_run_has_a_largest_weight() -> None:
    """By default no update weighs more than the whole model."""
    ledger = new_ledger()
    pricing = FullInformation(budget=4.0, alpha=3.0)
    run(InProcessGrid(client_app(), 4), ledger, pricing=pricing)
    terms = Agreement.load(ledger, "run").terms
    weight = dict(zip(NAMES, TASK.weight.tolist(), strict=True))
    assert all(own.level / 2**32 > 0.999 * weight[name] for name, own in terms.items())
    low = FullInformation(budget=-100.0, alpha=3.0, max_weight=0.5)
    with pytest.raises(FedpriceError, match=r"with a largest weight of 0\.5; it needs"):
        run(InProcessGrid(client_app(), 4), new_ledger(), pricing=low)


def test_a_run_goes_on_that_was_stopped_between_two_periods() -> None:
    """After one period is settled, and before the next one is opened."""
    periods = Periods(warm_up=4, level=0.6, every=5)
    whole = new_ledger()
    run(InProcessGrid(client_app(client=private), 4), whole, periods=periods)
    ledger = new_ledger()
    first = strategy(ledger, periods=periods)
    grid = InProcessGrid(client_app(client=private), 4)
    arrays = first.agree(grid, initial(), ROUNDS)
    for server_round in range(1, 5):
        sent = first.configure_train(server_round, arrays, ConfigRecord(), grid)
        arrays, _ = first.aggregate_train(server_round, grid.send_and_receive(sent))
    ledger.settle("run")
    run(InProcessGrid(client_app(client=private), 4), ledger, periods=periods)
    assert ledger.verify().hashes == whole.verify().hashes


@pytest.mark.parametrize("registered", [False, True])
def test_whoever_did_not_agree_at_first_may_join_the_next_period(registered: bool) -> None:
    """Declining an offer, or coming late, costs one period."""
    keys = {name: client_of_name(name).key.public for name in NAMES}

    def mood(message: Message, reply: Message) -> Message:
        first = '"run":"run"' in str(message.content.config_records.get("fedprice"))
        asked = (message.metadata.message_type, message.metadata.dst_node_id)
        if first and asked == ("query.offer", 1000):
            return Message(Error(0, "not now"), reply_to=message)
        return reply

    class Late(Moody):
        def get_node_ids(self) -> list[int]:
            called = any(kind == "train" for kind, _ in self.sent)
            return super().get_node_ids()[: 4 if called else 3]

    ledger, grid = new_ledger(), Late(mood)
    changes = {"keys": keys if registered else None, "periods": Periods(every=6), "clients": 3}
    run(grid, ledger, **changes)
    runs = ledger.verify().runs
    assert set(runs["run"].clients) == set(NAMES[1:3])
    assert set(runs["run#2"].clients) == set(NAMES)


def test_settled_periods_are_those_of_the_same_run() -> None:
    ledger = new_ledger()
    run(InProcessGrid(client_app(), 4), ledger, periods=Periods(every=6))
    again = strategy(ledger, periods=Periods(every=6))
    for changes, rounds in (
        ({"periods": Periods(every=6)}, 18),
        ({"periods": Periods(every=6), "task": "1" * 64}, ROUNDS),
        ({"periods": Periods(every=6), "pricing": PostedPrice(1.0, 3.0)}, ROUNDS),
    ):
        again = strategy(ledger, **changes)
        with pytest.raises(FedpriceError, match="started with other rounds, or another budget"):
            again.start(InProcessGrid(client_app(), 4), initial(), num_rounds=rounds)
    assert list(ledger.verify().runs) == ["run", "run#2"]


def test_a_warm_up_that_nobody_joined_is_repeated() -> None:
    ledger = new_ledger()
    periods = Periods(warm_up=1, level=1e-6, every=6)
    unbound = FullInformation(budget=4.0, alpha=3.0, max_weight=1e9)
    run(InProcessGrid(client_app(client=private), 4), ledger, periods=periods, pricing=unbound)
    runs = ledger.verify().runs
    assert sum(own.heads for own in runs["run"].clients.values()) == 0
    assert len({own.level for own in runs["run#2"].clients.values()}) == 1


def test_copies_of_an_earlier_period_are_refused() -> None:
    def handle(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            return sending(lambda: SMALL)(message, context)
        return train(message, context)

    ledger = new_ledger()
    run(InProcessGrid(client_app(handle), 4), ledger, periods=Periods(every=1))
    runs = ledger.verify().runs.values()
    assert sum(one.clients["<b>bob</b>"].joined for one in runs) == 1


def test_norms_are_declared_by_all_or_by_none() -> None:
    def mixed(context: Context) -> Client:
        own = client_of(context)
        return own if own.name != "alice" else private(context)

    with pytest.raises(FedpriceError, match="'alice' declares no gradient norm, while others do"):
        run(InProcessGrid(client_app(client=mixed), 4), new_ledger())
