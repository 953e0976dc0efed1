"""Buffers on Flower: running statistics, counters, masks. They are averaged, never stepped."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprice.errors import InputError
from fedprice.flower import (
    Client,
    InProcessGrid,
    ParticipationMod,
    PostedPrice,
    PricedParticipation,
)
from fedprice.flower.wire import arrays_of, to_record
from fedprice.learning.layout import Layout, buffers_among
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulation_key
from fedprice.rounds import HorvitzThompson

NAMES = ["weight", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked", "seen", "mask"]
COUNT = 6

Seen = list[tuple[int, list[np.ndarray]]]
Fit = Callable[[int, list[np.ndarray]], list[np.ndarray]]


def model() -> list[np.ndarray]:
    return [
        np.zeros(3, np.float32),
        np.zeros(2, np.float32),
        np.ones(2, np.float32),
        np.array(0, np.int64),
        np.array([5], np.uint8),
        np.array([True, False]),
    ]


def trained(n: int, old: list[np.ndarray]) -> list[np.ndarray]:
    """Return what client n makes of a model: a tiny variance, an unsigned count that falls."""
    return [
        np.float32(0.95) * old[0] + np.float32(0.1 * (n + 1)),
        np.full(2, n, np.float32),
        np.full(2, 0.01 * (n + 1), np.float32),
        np.array(10 * (n + 1), np.int64),
        np.array([n], np.uint8),
        np.array([n > 1, True]),
    ]


def app_of(seen: Seen, fit: Fit) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        n = int(context.node_config["partition-id"])
        old = arrays_of(message.content.array_records["arrays"])
        new = fit(n, old)
        seen.append((n, old))
        metrics = MetricRecord({"num-examples": n + 1})
        content = RecordDict({"arrays": to_record(NAMES, new), "metrics": metrics})
        return Message(content, reply_to=message)

    def client(context: Context) -> Client:
        n = int(context.node_config["partition-id"])
        return Client(
            str(n + 1), simulation_key(f"client {n + 1}"), samples=n + 1, cost=2.0, grad_norm=1.0
        )

    ParticipationMod(client).answer(app)
    return app


def run(
    rounds: int = 5, fit: Fit = trained, first_only: bool = False, **changes: object
) -> tuple[list[np.ndarray], Ledger, Seen]:
    ledger, seen = Ledger("sqlite://", identity="0" * 64), Seen()
    settings: dict[str, object] = {
        "key": simulation_key("server"),
        "pricing": PostedPrice(budget=20.0, alpha=1.0),
        "clients": COUNT,
        "fund": True,
        "seed": 3,
        "aggregator": HorvitzThompson(),
    }
    strategy = PricedParticipation(ledger, "run", **(settings | changes))  # type: ignore[arg-type]
    grid = InProcessGrid(app_of(seen, fit), COUNT)
    if first_only:
        arrays = strategy.agree(grid, to_record(NAMES, model()), rounds)
        sent = strategy.configure_train(1, arrays, ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(sent))
        return arrays_of(arrays), ledger, seen
    result = strategy.start(grid, to_record(NAMES, model()), num_rounds=rounds)
    return arrays_of(result.arrays), ledger, seen


def weights(ledger: Ledger) -> dict[int, float]:
    """Return who joined a run of one round, with which weight."""
    (round_,) = (e.content for e in ledger.entries("run") if e.content["kind"] == "round")
    return {int(name) - 1: float(own[1]) for name, own in round_["joined"].items()}


def test_buffers_are_averaged_over_whoever_joined() -> None:
    found, ledger, _ = run(first_only=True)
    joined = weights(ledger)
    assert 1 < len(joined) < COUNT
    total = sum(joined.values())
    means = [
        sum(w * np.asarray(trained(n, model())[i], np.float64) for n, w in joined.items()) / total
        for i in range(len(NAMES))
    ]
    np.testing.assert_allclose(found[1], means[1], rtol=1e-6)
    np.testing.assert_allclose(found[2], means[2], rtol=1e-6)
    assert found[3] == np.rint(means[3])
    assert found[3].dtype == np.int64
    assert found[4] == np.rint(means[4])
    assert found[4].dtype == np.uint8
    np.testing.assert_array_equal(found[5], means[5] >= 0.5)
    # Parameters get the unbiased step, whose weights do not add up to 1.
    step = sum(w * 0.1 * (n + 1) for n, w in joined.items())
    np.testing.assert_allclose(found[0], step, rtol=1e-5)
    assert abs(total - 1) > 0.05


def test_running_variances_stay_positive_whatever_the_weights() -> None:
    # With steps weighted a/q, 1 + Σ a/q (v − 1) falls below 0 as soon as Σ a/q exceeds 1.
    found, _, seen = run(rounds=12)
    assert all((old[2] > 0).all() for _, old in seen)
    assert found[2].min() > 0
    assert found[2].max() <= 0.061


def test_a_client_that_moves_only_buffers_is_refused() -> None:
    def only_buffers(n: int, old: list[np.ndarray]) -> list[np.ndarray]:
        new = trained(n, old)
        return [old[0], *new[1:]] if n == 0 else new

    _, ledger, _ = run(rounds=8, fit=only_buffers)
    own = ledger.verify().runs["run"].clients["1"]
    assert own.heads > 0
    assert (own.joined, own.refused) == (0, own.heads)


def test_buffers_that_are_not_finite_are_refused() -> None:
    def broken(n: int, old: list[np.ndarray]) -> list[np.ndarray]:
        new = trained(n, old)
        if n == 1:
            new[1] = np.full(2, np.nan, np.float32)
        return new

    found, ledger, _ = run(rounds=4, fit=broken)
    assert np.isfinite(found[1]).all()
    reasons = {
        why
        for entry in ledger.entries("run")
        for why, *_ in entry.content.get("refused", {}).values()
    }
    assert reasons == {"it is not finite."}


def test_a_negative_variance_is_refused() -> None:
    def broken(n: int, old: list[np.ndarray]) -> list[np.ndarray]:
        new = trained(n, old)
        if n == 1:
            new[2] = np.full(2, -1e30, np.float32)
        return new

    found, ledger, _ = run(rounds=4, fit=broken)
    assert found[2].min() > 0
    reasons = {
        why
        for entry in ledger.entries("run")
        for why, *_ in entry.content.get("refused", {}).values()
    }
    assert reasons == {"its bn.running_var is not a variance: it is below 0, or not a number."}


def test_which_arrays_are_buffers_can_be_said() -> None:
    found, ledger, _ = run(first_only=True, buffers=["bn.running_mean"])
    joined = weights(ledger)
    total = sum(joined.values())
    assert abs(total - 1) > 0.05
    mean = sum(w * n for n, w in joined.items()) / total
    np.testing.assert_allclose(found[1], mean, rtol=1e-6)
    # A variance that is said to be no buffer is stepped like a parameter.
    step = sum(w * (0.01 * (n + 1) - 1) for n, w in joined.items())
    np.testing.assert_allclose(found[2], 1 + step, rtol=1e-5)
    with pytest.raises(InputError, match=r"matches none of weight, bn\.running_mean"):
        run(rounds=1, buffers=["batchnorm*"])


def test_a_run_with_buffers_goes_on_after_a_stop() -> None:
    whole, _, _ = run(rounds=6)
    ledger, seen = Ledger("sqlite://", identity="0" * 64), Seen()

    def strategy() -> PricedParticipation:
        return PricedParticipation(
            ledger,
            "run",
            key=simulation_key("server"),
            pricing=PostedPrice(budget=20.0, alpha=1.0),
            clients=COUNT,
            fund=True,
            seed=3,
            aggregator=HorvitzThompson(),
        )

    def stop(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 3:
            raise KeyboardInterrupt

    grid = InProcessGrid(app_of(seen, trained), COUNT)
    with pytest.raises(KeyboardInterrupt):
        strategy().start(grid, to_record(NAMES, model()), num_rounds=6, evaluate_fn=stop)
    grid = InProcessGrid(app_of(seen, trained), COUNT)
    result = strategy().start(grid, to_record(NAMES, model()), num_rounds=6)
    for one, other in zip(whole, arrays_of(result.arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_whole_numbers_of_64_bits_do_not_wrap() -> None:
    layout = Layout.of([np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.uint64)])
    _, signed, unsigned = layout.arrays(np.zeros(1), np.array([2.0**63, 2.0**64]))
    assert signed[0] == 2**63 - 1024
    assert unsigned[0] == 2**64 - 2048


def test_no_buffer_of_one_client_ends_the_run() -> None:
    largest = np.finfo(np.float32).max

    def huge(n: int, old: list[np.ndarray]) -> list[np.ndarray]:
        new = trained(n, old)
        new[2] = np.full(2, largest if n < COUNT - 1 else 1.0, np.float32)
        return new

    found, ledger, _ = run(rounds=5, fit=huge)  # after five refusals a client declines
    assert np.abs(found[2]).max() <= 1.0
    refused = [
        own[0] for e in ledger.entries("run") for own in e.content.get("refused", {}).values()
    ]
    assert refused
    assert all("a buffer is too large" in reason for reason in refused)


@pytest.mark.parametrize(
    "model",
    [
        [np.array([0.1, -0.0, np.inf, np.nan, 1e-45], np.float32), np.ones((2, 3), order="F")],
        [np.array([0.1, 6e-8], np.float16), np.array(3.5)],
        [np.ones(2, ">f4"), np.array([1, 1 << 62]), np.array([True, False])],
        [],
    ],
)
def test_a_model_in_its_own_types_is_what_64_bits_make_of_it(model: list[Any]) -> None:
    layout = Layout.of(model, [array.dtype.kind != "f" for array in model])
    there_and_back = layout.arrays(layout.flat(model), layout.flat_buffers(model))
    for own, other, given in zip(layout.own(model), there_and_back, model, strict=True):
        assert (own.dtype, own.shape, own.tobytes()) == (other.dtype, other.shape, other.tobytes())
        assert not np.shares_memory(own, given)


def test_a_model_of_nothing_but_buffers_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to train"):
        run(buffers=["*"])


def test_truth_values_are_buffers_even_beside_whole_numbers() -> None:
    """As parameters, every update of theirs was too large for them: nobody could deliver."""
    assert buffers_among([np.zeros(2, np.int32), np.zeros(2, bool)]) == (False, True)
    with pytest.raises(InputError, match="nothing to train"):
        buffers_among([np.zeros(2, bool)])
