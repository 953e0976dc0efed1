"""`Participation`: without money, keys or code at the clients."""

import json
import logging
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Result

import fedprice as fp
from fedprice.errors import InputError, UndeliveredError
from fedprice.flower import InProcessGrid, Limits, Participation, PostedPrice, PricedParticipation
from fedprice.flower.app import FlowerApp
from fedprice.flower.ray_simulation import run_on_ray
from fedprice.flower.wire import to_record
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulation_key
from fedprice.rounds import FedAvg as Mean
from fedprice.rounds import HorvitzThompson
from tests.conftest import Run
from tests.flower import apps
from tests.flower.plain import plain_app
from tests.flower.test_strategy import new_ledger

QUICK = Limits(wait=0.2, round_timeout=5.0)
TARGETS = np.array([[0.0, 8.0], [2.0, 0.0], [4.0, 4.0], [10.0, 0.0]])
SAMPLES = [10, 20, 30, 40]


def app(*, tells: bool = False, fails: Iterable[int] = ()) -> ClientApp:
    """Clients that go half way to a target of their own, in Flower's own words."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        n = int(context.node_config["partition-id"])
        if n in fails:
            raise RuntimeError("it burns")
        model = message.content.array_records["arrays"]["w"].numpy()
        rate = float(message.content.config_records["config"].get("lr", 0.5))  # type: ignore[arg-type]
        new = to_record(["w"], [model + rate * (TARGETS[n] - model)])
        metrics = MetricRecord({"num-examples": SAMPLES[n], "who": float(n)})
        return Message(RecordDict({"arrays": new, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        n = int(context.node_config["partition-id"])
        metrics = MetricRecord({"num-examples": SAMPLES[n], "who": float(n)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    if tells:

        @app.query()
        def node(message: Message, context: Context) -> Message:
            kind = "clinic" if int(context.node_config["partition-id"]) < 2 else "phone"
            told = ConfigRecord({**context.node_config, "kind": kind})
            return Message(RecordDict({"node": told}), reply_to=message)

    return app


def initial() -> ArrayRecord:
    return to_record(["w"], [np.zeros(2)])


def run(
    strategy: flower.Strategy, rounds: int = 3, client_app: ClientApp | None = None, **more: Any
) -> tuple[np.ndarray, Result, InProcessGrid]:
    grid = InProcessGrid(client_app or app(), len(TARGETS))
    result = strategy.start(grid, initial(), num_rounds=rounds, **more)
    return result.arrays["w"].numpy(), result, grid


def test_at_level_1_it_is_fedavg() -> None:
    theirs, expected, _ = run(FedAvg())
    ours, result, grid = run(Participation(seed=0))
    np.testing.assert_allclose(ours, theirs)
    assert len(grid.sent) == 2 * 3 * 4
    assert result.train_metrics_clientapp[2]["who"] == pytest.approx(
        expected.train_metrics_clientapp[2]["who"]
    )
    assert result.evaluate_metrics_clientapp[3]["who"] == pytest.approx(2.0)


@pytest.mark.parametrize("coins", ["spaced", "independent", "shared", "blocks"])
def test_levels_decide_how_often_clients_are_called(coins: str) -> None:
    strategy = Participation({1000: 1.0, 1001: 0.5, 1003: 0.1}, coins=coins, seed=1, limits=QUICK)
    run(strategy, rounds=100)
    assert list(strategy.drawn) == ["1000", "1001", "1003"]
    np.testing.assert_allclose(list(strategy.drawn.values()), [100, 50, 10], atol=14)
    assert strategy.drawn == strategy.delivered


def test_coins_and_weights_are_the_same_with_the_same_seed_and_others_without() -> None:
    models = [run(Participation(0.5, seed=seed), 6)[0].tolist() for seed in (3, 3, 5)]
    assert models[0] == models[1] != models[2]
    drawn = [run(Participation(0.5, coins="independent"), 30)[0].tolist() for _ in range(2)]
    assert drawn[0] != drawn[1]


def target(weights: Iterable[float]) -> Any:
    return np.array(list(weights)) @ TARGETS / sum(weights)


def mean_model(strategy: Participation, last: int = 200, **more: Any) -> Any:
    """Return the mean of the last models, which coins make scatter."""
    models = []

    def keep(server_round: int, arrays: ArrayRecord) -> None:
        models.append(arrays["w"].numpy())

    run(strategy, 300, evaluate_fn=keep, **more)
    return np.mean(models[-last:], axis=0)


SMALL: dict[str, Any] = {"train_config": ConfigRecord({"lr": 0.05})}


@pytest.mark.parametrize("aggregator", [None, HorvitzThompson()])
def test_whoever_joins_rarely_counts_as_much_as_it_should(aggregator: Any) -> None:
    levels = {1000: 1.0, 1001: 0.3, 1002: 0.3, 1003: 0.2}
    ours = mean_model(Participation(levels, aggregator=aggregator, seed=2, limits=QUICK), **SMALL)
    biased = mean_model(Participation(levels, aggregator=Mean(), seed=2, limits=QUICK), **SMALL)
    assert np.abs(ours - target(SAMPLES)).max() < 0.6
    assert np.abs(biased - target(SAMPLES)).max() > 1.2


def test_weights_of_ones_own_take_the_place_of_numbers_of_examples() -> None:
    weights = {1000: 0.4, 1001: 0.4, 1002: 0.1, 1003: 0.1}
    model, *_ = run(Participation(weights=weights, limits=QUICK), 60)
    np.testing.assert_allclose(model, target([4, 4, 1, 1]), atol=1e-6)


def test_who_fails_counts_for_less_and_who_fails_at_times_counts_in_full() -> None:
    fails: set[int] = set()
    strategy = Participation(aggregator=HorvitzThompson(), seed=0, evaluate_clients=False)
    strategy.seed = 0
    seen = []

    def at_times(server_round: int, arrays: ArrayRecord) -> None:
        fails.clear()
        fails.update({3} if server_round % 3 else ())
        seen.append(arrays["w"].numpy())

    run(strategy, 300, app(fails=fails), evaluate_fn=at_times, **SMALL)
    assert strategy.delivered["1003"] == pytest.approx(100, abs=2)
    assert np.abs(np.mean(seen[-200:], axis=0) - target(SAMPLES)).max() < 0.3


def test_clients_are_chosen_by_a_setting_of_their_nodes() -> None:
    strategy = Participation({"clinic": 1.0, "phone": 0.1}, by="kind", seed=0)
    _, _, grid = run(strategy, 30, app(tells=True))
    assert list(strategy.drawn.values())[:2] == [30, 30]
    assert all(2 <= count <= 4 for count in list(strategy.drawn.values())[2:])
    chosen = Participation({"clinic": 1.0}, by="kind", limits=QUICK)
    _, _, grid = run(chosen, 2, app(tells=True))
    assert {node for kind, node in grid.sent if kind == "train"} == {1000, 1001}


def test_clients_are_named_by_a_setting_of_their_nodes() -> None:
    weights = {0: 0.7, 1: 0.1, 2: 0.1, 3: 0.1}
    strategy = Participation(weights=weights, by="partition-id")
    model, *_ = run(strategy, 60, app(tells=True))
    assert sorted(strategy.drawn) == ["0", "1", "2", "3"]
    np.testing.assert_allclose(model, target(weights.values()), atol=1e-6)


def test_levels_come_from_a_table_or_from_a_budget(tmp_path: Path) -> None:
    file = tmp_path / "levels.csv"
    file.write_text("client_id,level,samples\n1000,1,10\n1001,0.5,20\n")
    strategy = Participation(file, seed=0, limits=QUICK)
    run(strategy, 10)
    assert strategy.drawn == {"1000": 10, "1001": 5}
    clients = fp.Clients(
        samples=[10, 20, 30], grad_norm=1.0, cost=[1, 2, 9], value=0, ids=["1000", "1001", "1002"]
    )
    game = fp.Game(clients, bound=fp.Bound(alpha=3.0, rounds=10), budget=2.0)
    expected = fp.solve(game).levels
    for ours in (Participation(clients, budget=2.0), Participation(fp.solve(game))):
        assert list(ours.levels.by_name.values()) == pytest.approx(expected, rel=1e-6)
    clients.write(tmp_path / "clients.csv")
    assert Participation(tmp_path / "clients.csv", budget=2.0).levels == ours.levels


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((0.0,), "`levels` must be above 0 and at most 1; got 0.0"),
        (({"a": 1.5},), "the level of 'a' must be above 0 and at most 1; got 1.5"),
        (({},), "`levels` must name at least one client"),
        (({"a": "x"},), "`levels` must be a number; got 'x'"),
        (([0.5],), "`levels` must be a number, a mapping"),
        ((0.5, {"weights": {"a": 0.4, "b": 0.4}}), "`weights` must sum to 1; got 0.8"),
        ((0.5, {"weights": {"a": 1.5, "b": -0.5}}), "the weight of 'b' must be at least 0"),
        (({"a": 1}, {"weights": {"b": 1}}), "`levels` names 'a', which `weights` does not"),
        (({"a": 1, "b": 1}, {"enough": 3}), "`enough` must be 1 to 2, the clients; got 3"),
        ((0.5, {"enough": 0}), "`enough` must be at least 1; got 0"),
        ((0.5, {"clients": 4, "enough": 5}), "`enough` must be 1 to 4, the clients; got 5"),
        ((0.5, {"coins": "fair"}), "`coins` must be"),
        ((0.5, {"budget": 3}), "`budget` needs a table"),
        ((0.5, {"quorum": 5, "clients": 4}), "`quorum` must be 1 to 4"),
        ((0.5, {"level": 1}), "there is no parameter 'level'. Did you mean 'levels'?"),
        ((0.5, {"ledger": "x.db"}), "`ledger` needs money: give `pricing`"),
        ((0.5, {"pricing": None, "weights": {}}), "`weights` cannot be combined with `pricing`"),
        ((), "`pricing` also needs `run`"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(arguments: tuple[Any, ...], line: str) -> None:
    *values, settings = arguments if arguments and isinstance(arguments[-1], dict) and (
        len(arguments) == 2
    ) else (*arguments, {})  # fmt: skip
    if not arguments:
        settings = {"pricing": PostedPrice(budget=1), "ledger": "x.db"}
    with pytest.raises(InputError) as refused:
        Participation(*values, **settings)
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"levels": {1000: 1, 77: 0.5}}, "`levels` names '77', but no node that is online has"),
        ({"levels": {"clinic": 1, "fax": 1}, "by": "kind"}, "`levels` names 'fax', but no node sa"),
        ({"levels": {"clinic": 1}, "by": "colour"}, "no node told its 'colour'"),
        ({"enough": 9}, "`enough` must be 1 to 4, the clients; got 9"),
        ({"clients": 9, "quorum": 8}, "only 4 of 8 clients are online"),
        ({"clients": 9}, "only 4 of 9 clients are online"),
    ],
)
def test_what_no_node_is_is_refused_before_training(settings: dict[str, Any], line: str) -> None:
    grid = InProcessGrid(app(tells=True), 4)
    with pytest.raises(InputError) as refused:
        Participation(**settings, limits=QUICK).start(grid, initial(), num_rounds=1)
    assert str(refused.value).startswith(line)
    assert not [kind for kind, _ in grid.sent if kind == "train"]


def test_an_app_that_tells_nothing_is_told_what_to_add() -> None:
    with pytest.raises(InputError, match="needs a query that returns its node_config"):
        run(Participation({"clinic": 1}, by="kind", limits=QUICK))


def test_with_prices_and_a_ledger_it_is_a_market() -> None:
    ours = Participation(
        ledger="sqlite://", run="first", key=simulation_key("server"), pricing=PostedPrice(budget=1)
    )
    assert type(ours) is PricedParticipation


def test_it_loads_neither_a_ledger_nor_a_database(tmp_path: Path) -> None:
    """Flower itself imports cryptography."""
    code = (
        "import sys; from fedprice.flower import Participation, InProcessGrid, Limits; "
        "Participation({'a': 1}); print([m for m in sys.modules if m.split('.')[0] in "
        "('sqlalchemy', 'alembic') or m.startswith(('fedprice.market.ledger', 'numba'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def slow(delays: dict[int, int]) -> InProcessGrid:
    return InProcessGrid(app(), len(TARGETS), delays=delays)


def test_late_updates_count_in_the_round_in_which_they_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid, models = slow({2: 3, 3: 5}), []
    strategy = Participation(
        enough=2, aggregator=HorvitzThompson(), seed=0, limits=QUICK, evaluate_clients=False
    )
    with caplog.at_level(logging.INFO, "flwr"):
        strategy.start(
            grid,
            initial(),
            num_rounds=300,
            train_config=ConfigRecord({"lr": 0.05}),
            evaluate_fn=lambda _, arrays: models.append(arrays["w"].numpy()),
        )
    assert "not waited for any longer: 1002, 1003" in caplog.text
    assert "1003 answers the call of round" in caplog.text
    assert strategy.delivered["1000"] == 300
    assert 30 < strategy.delivered["1003"] < strategy.delivered["1002"] < 120
    assert np.abs(np.mean(models[-200:], axis=0) - target(SAMPLES)).max() < 0.5


def test_evaluation_does_not_wait_for_slow_clients_either() -> None:
    grid, strategy = slow({3: 10**9}), Participation(enough=3, seed=0, limits=QUICK)
    result = strategy.start(grid, initial(), num_rounds=3)
    assert strategy.delivered == {"1000": 3, "1001": 3, "1002": 3, "1003": 0}
    assert result.evaluate_metrics_clientapp[3]["who"] == pytest.approx(8 / 6)


def test_where_all_clients_are_busy_a_round_waits_for_one() -> None:
    grid = slow({0: 5, 1: 5, 2: 9, 3: 9})
    strategy = Participation(
        seed=0, limits=Limits(wait=0.2, round_timeout=0.05), evaluate_clients=False
    )
    strategy.start(grid, initial(), num_rounds=6)
    assert sum(strategy.delivered.values()) >= 2


def test_a_round_does_not_wait_for_a_node_that_went_away_and_meets_new_ones() -> None:
    grid = slow({})
    grid.gone = {3}

    def change(server_round: int, arrays: ArrayRecord) -> None:
        grid.gone = {3} if server_round < 2 else {1} if server_round < 5 else set()

    strategy = Participation(seed=0, evaluate_clients=False)
    strategy.start(grid, initial(), num_rounds=8, evaluate_fn=change)
    assert strategy.drawn == {"1000": 8, "1001": 8, "1002": 8, "1003": 6}
    assert strategy.delivered == {"1000": 8, "1001": 5, "1002": 8, "1003": 6}


def test_a_run_whose_clients_have_all_left_waits_and_then_says_so() -> None:
    grid = slow({})

    def leave(server_round: int, arrays: ArrayRecord) -> None:
        grid.gone = {0, 1, 2, 3} if server_round == 2 else set()

    with pytest.raises(UndeliveredError, match="no client is online any more"):
        Participation(seed=0, limits=QUICK, evaluate_clients=False).start(
            grid, initial(), num_rounds=4, evaluate_fn=leave
        )


def test_a_client_that_is_never_drawn_is_named(caplog: pytest.LogCaptureFixture) -> None:
    levels = {1000: 1.0, 1001: 1.0, 1002: 1e-6}
    with caplog.at_level(logging.WARNING, "flwr"):
        run(Participation(levels, seed=0, limits=QUICK), 2, app(fails={1}))
    assert "may never be drawn in 2 rounds: 1002 (level 1e-06)" in caplog.text
    assert "never drawn, so not in the model: 1002" in caplog.text
    assert "drawn, but delivered nothing: 1001" in caplog.text
    assert "`levels` does not name them, so they are never called: 1003" in caplog.text


def test_a_run_in_which_nobody_delivers_is_stopped_with_a_reason() -> None:
    with pytest.raises(UndeliveredError, match=r"nobody has delivered .* its program failed"):
        run(Participation(seed=0), 9, app(fails=range(4)))


def test_a_client_that_has_nothing_to_change_is_no_failure() -> None:
    strategy = Participation({1000: 1.0}, seed=0, limits=QUICK)
    run(strategy, 2, train_config=ConfigRecord({"lr": 0.0}))
    assert strategy.delivered == {"1000": 2}


def test_a_model_that_is_not_a_number_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TARGETS", TARGETS * [[1], [1], [1], [math.nan]])
    model, *_ = run(Participation(seed=0, evaluate_clients=False))
    assert np.isfinite(model).all()


@pytest.mark.parametrize(
    "inner",
    [flower.FedAdam(eta=0.1, tau=1e-2), flower.FedProx(proximal_mu=0.1), flower.FedMedian()],
)
def test_strategies_run_inside(inner: flower.Strategy) -> None:
    strategy = Participation({1000: 1, 1001: 1, 1002: 1, 1003: 0.5}, strategy=inner, seed=0)
    model, result, _ = run(strategy, 5)
    assert np.isfinite(model).all()
    assert np.abs(model).sum() > 0
    assert set(result.evaluate_metrics_clientapp) == {1, 2, 3, 4, 5}


def test_late_updates_reach_a_strategy_as_if_they_had_started_from_the_model() -> None:
    strategy = Participation(
        strategy=flower.FedMedian(), enough=2, seed=0, limits=QUICK, evaluate_clients=False
    )
    result = strategy.start(slow({3: 3}), initial(), num_rounds=8)
    assert strategy.delivered["1003"] < 8
    assert np.isfinite(result.arrays["w"].numpy()).all()


# Faithful to the app


class Halving(FedAvg):
    """Halves the rate at a round, as an example of Flower does."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round == 2:
            config["lr"] = config["lr"] * 0.5  # type: ignore[operator]
        self.rates = {**getattr(self, "rates", {}), server_round: config["lr"]}
        return super().configure_train(server_round, arrays, config, grid)


@pytest.mark.parametrize("level", [1.0, 0.3])
def test_what_a_strategy_changes_in_the_settings_persists_whoever_joins(level: float) -> None:
    inner = Halving()
    grid, rates = InProcessGrid(app(), 4), list[Any]()
    push = grid.push_messages

    def note(messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        rates.extend(
            (own.content["config"]["server-round"], own.content["config"]["lr"])
            for own in messages
            if own.metadata.message_type == "train"
        )
        return push(messages)

    grid.push_messages = note  # type: ignore[method-assign]
    Participation(level, strategy=inner, seed=5, coins="independent").start(
        grid, initial(), num_rounds=6, train_config=ConfigRecord({"lr": 0.4})
    )
    assert inner.rates == {1: 0.4, 2: 0.2, 3: 0.2, 4: 0.2, 5: 0.2, 6: 0.2}
    assert dict(rates) == {number: inner.rates[number] for number in dict(rates)}
    assert level == 1 or len(dict(rates)) < 6  # in some rounds nobody drew heads


@pytest.mark.parametrize(("fraction", "asked"), [(1.0, 4), (0.75, 3), (0.1, 2), (0.0, 0)])
def test_the_fraction_of_clients_that_evaluate_is_the_strategys(
    fraction: float, asked: int
) -> None:
    _, _, grid = run(Participation(strategy=FedAvg(fraction_evaluate=fraction)), 1)
    assert sum(kind == "evaluate" for kind, _ in grid.sent) == asked


def test_evaluation_that_is_switched_off_and_on_is_refused() -> None:
    with pytest.raises(InputError, match="`evaluate_clients` contradicts fraction_evaluate=0"):
        Participation(strategy=FedAvg(fraction_evaluate=0.0), evaluate_clients=True)


class Saving(FedAvg):
    """A strategy with a `start` of its own, which saves what each round gave."""

    def __init__(self, file: Path, *, sends: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.file, self.sends = file, sends

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Any = None,
    ) -> Result:
        result, arrays, saved = Result(), initial_arrays, []
        assert train_config is not None
        assert evaluate_config is not None
        if self.sends:
            grid.send_and_receive([Message(RecordDict(), 1000, "query")])
        for server_round in range(1, num_rounds + 1):
            sent = self.configure_train(server_round, arrays, train_config, grid)
            replies = grid.send_and_receive(sent, timeout=timeout)
            new, metrics = self.aggregate_train(server_round, replies)
            arrays = new or arrays
            sent = self.configure_evaluate(server_round, arrays, evaluate_config, grid)
            judged = self.aggregate_evaluate(server_round, grid.send_and_receive(sent))
            found = evaluate_fn(server_round, arrays)
            saved.append([server_round, dict(metrics or {}), dict(judged or {}), dict(found or {})])
            self.file.write_text(json.dumps(saved))
        result.arrays = arrays
        return result


def loss(_: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"loss": float(np.abs(arrays["w"].numpy() - target(SAMPLES)).sum())})


@pytest.mark.parametrize("level", [1.0, 0.5])
def test_a_strategy_with_a_start_of_its_own_keeps_it(tmp_path: Path, level: float) -> None:
    file = tmp_path / "results.json"
    plain, *_ = run(Participation(level, strategy=FedAvg(), seed=1), 5, evaluate_fn=loss)
    ours, *_ = run(Participation(level, strategy=Saving(file), seed=1), 5, evaluate_fn=loss)
    np.testing.assert_array_equal(ours, plain)
    saved = json.loads(file.read_text())
    assert [own[0] for own in saved] == [1, 2, 3, 4, 5]
    assert all(own[3]["loss"] for own in saved)
    assert [own[1]["joined"] for own in saved] == [own[1]["called"] for own in saved]
    assert all("who" in own[2] for own in saved)


def test_a_start_that_sends_messages_of_its_own_is_refused_before_training(tmp_path: Path) -> None:
    grid = InProcessGrid(app(), 4)
    inner = Saving(tmp_path / "results.json", sends=True)
    with pytest.raises(InputError, match="the `start` of Saving sends messages of its own"):
        Participation(strategy=inner).start(grid, initial(), evaluate_fn=loss)
    assert grid.sent == []


# The same in a market


def market(ledger: Ledger, inner: flower.Strategy) -> PricedParticipation:
    return apps.strategy(
        ledger, strategy=inner, aggregator=None, server_step=None, learning_rate=None,
        local_steps=None,
    )  # fmt: skip


def test_a_stopped_run_goes_on_with_its_own_start_and_the_settings_of_then(tmp_path: Path) -> None:
    class Both(Saving, Halving):
        pass

    def started(ledger: Ledger, file: Path, stop: int | None = None) -> tuple[np.ndarray, Both]:
        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
            if server_round == stop:
                raise KeyboardInterrupt
            return MetricRecord({"loss": float(np.abs(arrays["weights"].numpy()).sum()) + 1.0})

        inner = Both(file)
        result = market(ledger, inner).start(
            InProcessGrid(apps.client_app(), 4),
            apps.initial(),
            num_rounds=5,
            train_config=ConfigRecord({"lr": 0.4}),
            evaluate_fn=evaluate,
        )
        assert result.arrays is not None
        return result.arrays["weights"].numpy(), inner

    whole, inner = started(new_ledger(), tmp_path / "whole.json")
    assert inner.rates == {1: 0.4, 2: 0.2, 3: 0.2, 4: 0.2, 5: 0.2}
    ledger = new_ledger()
    with pytest.raises(KeyboardInterrupt):
        started(ledger, tmp_path / "first.json", stop=3)
    model, inner = started(ledger, tmp_path / "rest.json")
    np.testing.assert_array_equal(model, whole)
    assert inner.rates == {
        1: 0.4,
        2: 0.2,
        3: 0.2,
        4: 0.2,
        5: 0.2,
    }  # the first ones are from its state
    saved = json.loads((tmp_path / "rest.json").read_text())
    assert [own[0] for own in saved if own[1]] == [4, 5]
    assert ledger.is_settled("run")


def test_declared_norms_are_called_caps_before_training(caplog: pytest.LogCaptureFixture) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING, "flwr"), pytest.raises(KeyboardInterrupt):
        apps.strategy(new_ledger()).start(
            InProcessGrid(apps.client_app(), 4), apps.initial(), evaluate_fn=stop
        )
    assert "norms that clients declared are caps" in caplog.text
    assert "Client(grad_norm=None)" in caplog.text


SERVER = """
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from fedprice.flower import Participation
import numpy as np

app = ServerApp()


@app.main()
def main(grid, context):
    result = Participation(0.5, seed=0).start(grid, ArrayRecord([np.zeros(2)]), num_rounds=2)
    print("the model:", result.arrays["0"].numpy())
"""
CLIENT = """
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    arrays, metrics = message.content["arrays"], MetricRecord({"num-examples": 5})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
"""


def test_an_app_without_a_market_runs_with_the_command(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Participation, "started", Counter())  # whatever ran before
    monkeypatch.setattr("tests.flower.plain.SERVER", SERVER)
    monkeypatch.setattr("tests.flower.plain.CLIENT", CLIENT)
    folder = plain_app(tmp_path / "app", federation=True)
    code, out, err = run("flower", "simulate", folder, "--ledger", f"{tmp_path}/market.db")
    assert code == 0, err
    assert "the model: [0. 0.]" in out
    assert not (tmp_path / "market.db").exists()


ON_RAY = """
@app.query()
def node(message, context):
    return Message(RecordDict({"node": ConfigRecord(dict(context.node_config))}), reply_to=message)
"""


@pytest.mark.slow
def test_on_ray_rounds_do_not_wait_for_a_slow_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SERVER.replace(
        "Participation(0.5, seed=0)",
        "Participation({0: 1, 1: 1, 2: 1}, by='partition-id', enough=2, evaluate_clients=False)",
    ).replace("num_rounds=2", "num_rounds=60")
    monkeypatch.setattr("tests.flower.plain.SERVER", server)
    client = CLIENT.replace("MetricRecord, ", "ConfigRecord, MetricRecord, ") + ON_RAY
    waits = '    time.sleep(2.0 if context.node_config["partition-id"] == 2 else 0.1)\n    arrays,'
    client = "import time\n" + client.replace("    arrays,", waits, 1)
    monkeypatch.setattr("tests.flower.plain.CLIENT", client)
    folder = plain_app(tmp_path / "app", federation=True)
    run_on_ray(FlowerApp.read(folder, clients=3), tmp_path / "run.log", timeout=600)
    log = (tmp_path / "run.log").read_text()
    assert "the model: [0. 0.]" in log
    assert "not waited for any longer: 2" in log
    assert "2 answers the call of round 1" in log
