"""Metrics as Flower's, and runs in which nobody delivers."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from fedprice.errors import InputError, UndeliveredError
from fedprice.flower import (
    Client,
    FullInformation,
    InProcessGrid,
    Limits,
    Periods,
    PostedPrice,
)
from fedprice.flower.evaluation import mean_metrics
from fedprice.market.ledger import Ledger
from tests.flower import apps
from tests.flower.apps import TASK, client_app, client_of, initial, train
from trials.markets import NAMES, ROUNDS


def new_ledger() -> Ledger:
    return Ledger("sqlite://", identity="ab" * 32)  # the same coins every time


def start(ledger: Ledger, handle=train, rounds: int = ROUNDS, evaluate_fn=None, **changes: object):  # type: ignore[no-untyped-def]
    strategy = apps.strategy(ledger, **changes)
    grid = InProcessGrid(client_app(handle), 4)
    return strategy.start(grid, initial(), num_rounds=rounds, evaluate_fn=evaluate_fn)


def told(message: Message, context: Context) -> Message:
    """Train, and report a loss, a list, and more samples than agreed by one client."""
    reply = train(message, context)
    n = int(context.node_config["partition-id"])
    reply.content["metrics"] = MetricRecord(
        {"num-examples": 10 * (n + 1), "train_loss": float(n), "by_class": [float(n), 1.0]}
    )
    return reply


def test_a_metric_that_one_client_lacks_is_the_mean_of_the_others() -> None:
    answers: list[tuple[str, Any]] = []
    for name, found in (
        ("a", {"num-examples": 1.0, "loss": 1.0, "auc": 0.5}),
        ("b", {"num-examples": 3.0, "loss": 5.0}),
        ("c", {"loss": 2.0, "auc": 0.8}),  # counts with the samples that it agreed on
        ("d", {"num-examples": 0.0, "f1": 1.0}),
    ):
        content = RecordDict({"metrics": MetricRecord({**found})})
        answers.append((name, SimpleNamespace(has_error=lambda: False, content=content)))
    means = mean_metrics(answers, dict.fromkeys("abcd", 2))
    assert means is not None
    assert dict(means) == pytest.approx({"loss": (1 + 15 + 4) / 6, "auc": (0.5 + 1.6) / 3})
    assert mean_metrics([], {}) is None


def test_train_metrics_are_averaged_by_examples_and_lists_survive() -> None:
    ledger = new_ledger()
    result = start(ledger, told)
    for number, metrics in result.train_metrics_clientapp.items():
        own = [NAMES.index(name) for name in joined_in(ledger, number - 1)]
        if not own:
            assert set(metrics) == {"called", "joined"}
            continue
        weight = np.array([10.0 * (n + 1) for n in own])
        mean = float(weight @ np.array(own) / weight.sum())
        assert metrics["train_loss"] == pytest.approx(mean)
        assert metrics["by_class"] == pytest.approx([mean, 1.0])
        assert metrics["joined"] == len(own)


def joined_in(ledger: Ledger, round_: int) -> list[str]:
    rounds = [e.content for e in ledger.entries("run") if e.content["kind"] == "round"]
    return list(rounds[round_]["joined"])


def test_evaluation_is_weighted_by_examples() -> None:
    result = start(new_ledger(), evaluate_clients=True)
    samples = TASK.samples
    for found in result.evaluate_metrics_clientapp.values():
        assert found["who"] == pytest.approx(float(samples @ np.arange(4) / samples.sum()))
        assert "num-examples" not in found


def test_metrics_are_kept_beside_the_chain() -> None:
    ledger = new_ledger()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"loss": 1.0 / (1 + server_round), "accuracy": 0.5})

    start(ledger, told, evaluate_fn=evaluate, evaluate_clients=True)
    kept = ledger.metrics("run")
    server = {own.round: own.metrics for own in kept if own.who == "server"}
    assert server == {r: {"loss": 1.0 / (1 + r), "accuracy": 0.5} for r in range(ROUNDS + 1)}
    assert {own.round for own in kept if own.who == "clients"} == set(range(1, ROUNDS + 1))
    assert {own.round for own in kept if own.who == "train"} == set(range(1, ROUNDS + 1))
    ledger.verify()


def test_a_metric_that_is_not_finite_is_reported_as_such(caplog: pytest.LogCaptureFixture) -> None:
    def broken(message: Message, context: Context) -> Message:
        n = int(context.node_config["partition-id"])
        own = MetricRecord({"accuracy": math.nan if n == 2 else 0.5, "num-examples": 10})
        return Message(RecordDict({"metrics": own}), reply_to=message)

    ledger = new_ledger()
    app = client_app()
    app._registered_funcs["evaluate.default"] = broken
    strategy = apps.strategy(ledger, evaluate_clients=True)
    result = strategy.start(InProcessGrid(app, 4), initial(), num_rounds=2)
    assert all(
        math.isnan(float(str(m["accuracy"]))) for m in result.evaluate_metrics_clientapp.values()
    )
    assert "the metric 'accuracy' is not finite" in caplog.text
    kept = [own for own in ledger.metrics("run") if own.who == "clients"]
    assert all(math.isnan(own.metrics["accuracy"]) for own in kept)  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [{"\x1b[31m": 1.0}, {"": 1.0}])
def test_a_metric_that_cannot_be_kept_stops_no_run(
    odd: dict[str, float | list[float]], caplog: pytest.LogCaptureFixture
) -> None:
    def strange(message: Message, context: Context) -> Message:
        reply = train(message, context)
        if context.node_config["partition-id"] == 2:
            reply.content["metrics"] = MetricRecord({"num-examples": 3, **odd})
        return reply

    ledger = new_ledger()
    start(ledger, strange)
    assert ledger.is_settled("run")
    assert "metrics are not kept: " in caplog.text


def test_what_happens_is_logged_in_flowers_form(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="flwr"):
        start(new_ledger(), evaluate_clients=True)
    for line in (
        "Starting PricedParticipation strategy:",
        f"[ROUND 1/{ROUNDS}]",
        "configure_train: Sampled",
        "aggregate_train: Received",
        "aggregate_evaluate: Received 4 results and 0 failures",
        "└──> Aggregated MetricRecord: ",
        "Strategy execution finished in",
        "Aggregated ClientApp-side Evaluate Metrics",
    ):
        assert line in caplog.text


def failing(message: Message, context: Context) -> Message:
    raise RuntimeError("no memory left")


def test_a_run_in_which_nobody_delivers_stops_refunds_and_says_so() -> None:
    ledger = new_ledger()
    with pytest.raises(UndeliveredError, match="nobody delivered, and what was not paid went back"):
        start(ledger, failing)
    own = ledger.verify().runs["run"]
    assert own.settled
    assert own.done == 3
    assert not any(client.joined for client in own.clients.values())
    called = [client for client in own.clients.values() if client.heads == 3]
    assert called
    assert all(client.paid == 0 for client in called if client.payment > 0)
    assert ledger.balance("escrow:run") == 0
    with pytest.raises(UndeliveredError, match="after round 1: "):
        start(new_ledger(), failing, rounds=1)


def test_a_run_that_goes_silent_can_go_on() -> None:
    ledger, broken = new_ledger(), [False]

    def sometimes(message: Message, context: Context) -> Message:
        server_round = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        return (
            failing(message, context) if broken[0] and server_round > 2 else train(message, context)
        )

    broken[0] = True
    with pytest.raises(UndeliveredError, match="to resume the run, start it again"):
        start(ledger, sometimes)
    assert not ledger.is_settled("run")
    broken[0] = False
    start(ledger, sometimes)
    assert ledger.is_settled("run")


def test_silence_in_a_later_period_settles_nothing() -> None:
    ledger = new_ledger()

    def later(message: Message, context: Context) -> Message:
        server_round = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        return failing(message, context) if server_round > 3 else train(message, context)

    with pytest.raises(UndeliveredError, match="to resume the run, start it again"):
        start(ledger, later, periods=Periods(warm_up=3))
    assert not ledger.is_settled("run#2")


@pytest.mark.parametrize("rounds", [3, ROUNDS])
def test_nobody_delivers_in_a_warm_up_nor_after_it(rounds: int) -> None:
    ledger = new_ledger()
    pricing = FullInformation(budget=40.0, alpha=0.75, max_weight=math.inf)  # one round of each
    with pytest.raises(UndeliveredError, match="was stopped and settled after round"):
        start(ledger, failing, rounds=rounds, periods=Periods(warm_up=1), pricing=pricing)
    assert ledger.is_settled("run#2")
    ledger.verify()


def test_a_run_that_was_stopped_and_settled_calls_nobody_again() -> None:
    ledger, called = new_ledger(), []

    def noted(message: Message, context: Context) -> Message:
        called.append(context.node_id)
        return train(message, context)

    with pytest.raises(UndeliveredError):
        start(ledger, failing)
    with pytest.raises(InputError, match="settled before its rounds were over; choose another"):
        start(ledger, noted)
    assert called == []


def test_one_client_that_always_fails_cannot_stop_a_run(caplog: pytest.LogCaptureFixture) -> None:
    def client(context: Context) -> Client:
        own = client_of(context)
        return replace(own, cost=0.01 if own.name == NAMES[0] else 8.0, value=0.0)

    def sabotaged(message: Message, context: Context) -> Message:
        alone = context.node_config["partition-id"] == 0
        return failing(message, context) if alone else train(message, context)

    ledger = Ledger("sqlite://", identity="1" * 64)
    strategy = apps.strategy(ledger, pricing=PostedPrice(budget=8.0), limits=Limits(norm_cap=1e3))
    grid = InProcessGrid(client_app(sabotaged, client), 4)
    strategy.start(grid, initial(), num_rounds=60)
    assert ledger.is_settled("run")
    assert "the program of node 1000 failed\nTraceback (most recent call last)" in caplog.text


def test_a_loss_that_was_never_finite_is_no_divergence(caplog: pytest.LogCaptureFixture) -> None:
    ledger = new_ledger()
    result = start(ledger, evaluate_fn=lambda _, __: MetricRecord({"loss": math.nan}))
    assert ledger.is_settled("run")
    assert len(result.evaluate_metrics_serverapp) == ROUNDS + 1
    assert "the metric 'loss' is not finite" in caplog.text


def test_more_numbers_than_anybody_reads_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def long(message: Message, context: Context) -> Message:
        reply = train(message, context)
        reply.content["metrics"] = MetricRecord(
            {"num-examples": 3, "loss": 1.0, "all": [0.5] * 600_000}
        )
        return reply

    result = start(new_ledger(), long)
    assert all("all" not in found for found in result.train_metrics_clientapp.values())
    assert "has more than 10000 metrics; some are left out" in caplog.text
