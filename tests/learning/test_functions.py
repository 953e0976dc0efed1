"""Tasks made of functions: what they may not do, and that stopped runs end in the same bits."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprice import Bound, Clients, Game, InputError, Outcome, solve
from fedprice._plumbing.arrays import Arrays
from fedprice.learning import FunctionTask, Task
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulate_market
from fedprice.rounds import (
    AGGREGATORS,
    Adam,
    Aggregator,
    Bounded,
    DivergedError,
    History,
    Momentum,
    Plain,
    ServerStep,
    simulate,
)
from tests.tasks import pulls, small_task

STEPS = {
    "plain": Plain(),
    "momentum": Momentum(rate=0.3),
    "adam": Adam(rate=0.05),
    "bounded": Bounded(factor=1.2, window=3, inner=Momentum(beta=0.5)),
}
EVERY_AGGREGATOR = pytest.mark.parametrize(
    "aggregator", AGGREGATORS.values(), ids=list(AGGREGATORS)
)
EVERY_STEP = pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
GOOD: dict[str, Any] = {
    "initial": [np.zeros(3), np.zeros((2, 1))],
    "samples": [10, 20, 30],
    "update": lambda model, client, round_, seed: [np.ones(3), np.ones((2, 1))],
    "evaluate": lambda model: {"loss": 1.0},
}


def fails(**change: Any) -> str:
    """Return the one line with which a task is refused, at once or in its first round."""
    with pytest.raises(InputError) as error:
        simulate(Task.of(**(GOOD | change)), 1.0, rounds=2)
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert not line.endswith("..")
    return line


def random_update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
    return [np.random.default_rng().normal(size=3), np.ones((2, 1))]


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error

    return function


class Unreadable:
    """What numpy cannot make an array of."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("can't convert cuda:0 device type tensor to numpy.\n  Use cpu() first.")


def returning(*arrays: Any) -> dict[str, Any]:
    return {"update": lambda model, client, round_, seed: list(arrays)}


WHERE = "for client '1' in round 1"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            returning(np.ones(3), np.ones((1, 2))),
            f"`update` must return arrays of the model's shapes; {WHERE}, array 2 has shape (1, "
            "2), not (2, 1).",
        ),
        (
            returning(np.ones(3)),
            f"`update` must return a list of 2 arrays, new − old; {WHERE}, got 1 arrays.",
        ),
        (
            {"update": lambda *_: None},
            f"`update` must return a list of 2 arrays, new − old; {WHERE}, got nothing.",
        ),
        (
            {"update": lambda *_: np.zeros((3, 2))},
            f"`update` must return a list of 2 arrays, new − old; {WHERE}, got ndarray array([[0., "
            "0.], [0., 0.], [0., 0.]]).",
        ),
        (
            returning(np.ones(3, int), np.ones((2, 1))),
            f"`update` must return new − old in floating point; {WHERE}, array 1 is of type int64.",
        ),
        (
            returning(np.ones(3), np.ones((2, 1), complex)),
            f"`update` must return new − old in floating point; {WHERE}, array 2 is of type "
            "complex128.",
        ),
        (
            returning(["a", "b", "c"], np.ones((2, 1))),
            f"`update` must return new − old in floating point; {WHERE}, array 1 is of type <U1.",
        ),
        (
            returning(Unreadable(), np.ones((2, 1))),
            f"`update` must return arrays; {WHERE}, array 1 cannot be read as one: RuntimeError: "
            "can't convert cuda:0 device type tensor to numpy. Use cpu() first.",
        ),
        (
            {"update": raising(RuntimeError("shapes (3,) and (4,)\n  do not fit."))},
            f"`update` failed {WHERE}: RuntimeError: shapes (3,) and (4,) do not fit.",
        ),
        ({"update": raising(KeyError())}, f"`update` failed {WHERE}: KeyError."),
        (
            {"update": random_update},
            f"`update` must be a function of its arguments; {WHERE}, the same call twice gave "
            "different updates. Seed all its randomness from `seed`, `round_` and `client`.",
        ),
        ({"update": "train"}, "`update` must be a function; got 'train'."),
        ({"evaluate": None}, "`evaluate` must be a function; got None."),
        (
            {"evaluate": lambda model: {"accuracy": 1.0}},
            "`evaluate` must return a dictionary with \"loss\"; got dict {'accuracy': 1.0}.",
        ),
        (
            {"evaluate": lambda model: 0.3},
            '`evaluate` must return a dictionary with "loss"; got float 0.3.',
        ),
        (
            {"evaluate": lambda model: None},
            '`evaluate` must return a dictionary with "loss"; got nothing.',
        ),
        (
            {"evaluate": lambda model: {"loss": 1.0, "accuracy": "high"}},
            "`evaluate` must return numbers; got str 'high' for 'accuracy'.",
        ),
        (
            {"evaluate": lambda model: {"loss": np.ones(3)}},
            "`evaluate` must return numbers; got ndarray array([1., 1., 1.]) for 'loss'.",
        ),
        (
            {"evaluate": raising(ZeroDivisionError("division by zero"))},
            "`evaluate` failed: ZeroDivisionError: division by zero.",
        ),
        (
            {"samples": [10, 0, 30]},
            "`samples` must be whole numbers from 1 to 2^53; got 0 for client 2.",
        ),
        (
            {"samples": [10, 20, 2.5]},
            "`samples` must be whole numbers from 1 to 2^53; got 2.5 for client 3.",
        ),
        (
            {"samples": [10, np.nan, 3]},
            "`samples` must be whole numbers from 1 to 2^53; got nan for client 2.",
        ),
        ({"samples": []}, "`samples` must be a list with one number per client; got list []."),
        ({"samples": 3}, "`samples` must be a list with one number per client; got int 3."),
        (
            {"samples": ["ten"]},
            "`samples` must be a list with one number per client; got list ['ten'].",
        ),
        ({"ids": ["a", "b", "a"]}, "`ids` must be distinct; got 'a' more than once."),
        ({"ids": ["a", "b", ""]}, "`ids` must not be empty; name 3 is."),
        ({"ids": ["a", "b"]}, "`ids` must name each of the 3 clients; got 2 names."),
        (
            {"initial": np.zeros(3)},
            "`initial` must be a list of arrays; got ndarray. Wrap a single array in [ ].",
        ),
        ({"initial": []}, "`initial` must hold at least one number; got an empty model."),
        (
            {"initial": [np.zeros(0)]},
            "`initial` must hold at least one number; got an empty model.",
        ),
        ({"initial": [np.array([np.nan])]}, "`initial` must be finite; it holds NaN or infinity."),
        ({"initial": [np.array(["a"])]}, "array 1 of the model must hold real numbers; got <U1."),
    ],
)  # fmt: skip
def test_bad_tasks_get_one_clear_line(change: dict[str, Any], line: str) -> None:
    assert fails(**change) == line


def test_what_is_ragged_is_no_array() -> None:
    line = fails(**returning([[1.0], [2.0, 3.0]], np.ones((2, 1))))
    assert line.startswith(f"`update` must return arrays; {WHERE}, array 1 cannot be read as one")


def test_later_clients_and_rounds_are_named() -> None:
    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        if (client, round_) == (2, 4):
            raise ValueError("no data")
        return [np.zeros(3), np.zeros((2, 1))]

    task = Task.of(**(GOOD | {"update": update, "ids": ["a", "b", "c"]}))
    with pytest.raises(InputError, match="`update` failed for client 'c' in round 5: ValueError"):
        simulate(task, 1.0, rounds=9)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_updates_that_are_not_finite_diverge(odd: float) -> None:
    """The round and the client are named, counted from 1."""

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        bad = odd if (client, round_) == (1, 3) else 0.0
        return [np.array([0.0, bad, 0.0]), np.zeros((2, 1))]

    task = Task.of(**(GOOD | {"update": update, "ids": ["a", "b", "c"]}))
    with pytest.raises(DivergedError, match=r"^round 4: the update of client 'b' is not finite"):
        simulate(task, 1.0, rounds=9)


def test_metrics_must_stay_the_same() -> None:
    def evaluate(model: Arrays) -> dict[str, float]:
        return {"loss": 1.0} | ({"accuracy": 0.5} if model[0].any() else {})

    with pytest.raises(InputError, match="must always return the same metrics; got loss, accuracy"):
        simulate(Task.of(**(GOOD | {"evaluate": evaluate})), 1.0, rounds=2)


def test_functions_run_one_at_a_time() -> None:
    with pytest.raises(InputError, match="`threads` must be 1 for a task made from functions"):
        simulate(Task.of(**GOOD), 1.0, rounds=2, threads=2)


def test_the_fingerprint_knows_what_can_be_known() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"samples": [10, 20, 31]},
        {"initial": [np.zeros(3), np.ones((2, 1))]},
        {"initial": [np.zeros(3), np.zeros((2, 1), np.float32)]},
        {"ids": ["a", "b", "c"]},
        {"name": "other"},
        {"version": "2"},
        {"name": "a", "version": "sk"},
        {"name": "as", "version": "k"},
    ]
    prints = {Task.of(**(GOOD | change)).fingerprint for change in changes}
    assert len(prints) == len(changes)
    assert Task.of(**GOOD).fingerprint == Task.of(**GOOD).fingerprint


def same(one: History, other: History) -> bool:
    """Compare two histories bit for bit."""
    names = ("rounds", "time", "joined", "largest_weight", "update_norm", "grad_norm")
    return (
        all(np.array_equal(getattr(one, n), getattr(other, n), equal_nan=True) for n in names)
        and list(one.metrics) == list(other.metrics)
        and all(np.array_equal(one.metrics[n], other.metrics[n]) for n in one.metrics)
        and all(map(np.array_equal, one.model, other.model))
        and one.alarms == other.alarms
    )


def test_functions_that_change_what_they_are_given_do_no_harm() -> None:
    """In place is how most people train: `model -= rate * gradient`."""
    plain = pulls(4)

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        found = plain(model, client, round_, seed)
        for array in model:
            array[...] = np.nan
        return found

    def evaluate(model: Arrays) -> dict[str, float]:
        found = good.evaluate(model)
        model[0][...] = np.inf
        return found

    good = small_task()
    bad = Task.of(initial=good.initial, samples=good.samples, update=update, evaluate=evaluate)
    assert same(*(simulate(task, 0.6, rounds=20, seed=2) for task in (good, bad)))
    assert np.array_equal(bad.initial[1], np.ones(1))


def test_the_callers_arrays_are_copied() -> None:
    start = np.zeros(3)
    task = Task.of(**(GOOD | {"initial": [start, np.zeros((2, 1))]}))
    start[0] = 5
    assert task.initial[0][0] == 0


class StoppedError(Exception):
    """Ends a run from its progress report."""


def stopping(after: int) -> Callable[[int], None]:
    def stop(done: int) -> None:
        if done == after:
            raise StoppedError

    return stop


@EVERY_AGGREGATOR
@EVERY_STEP
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_resumed_run_ends_in_the_same_bits(
    aggregator: Aggregator, step: ServerStep, dtype: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.npz"
    settings: dict[str, Any] = {
        "rounds": 23, "seed": 5, "aggregator": aggregator, "server_step": step,
        "evaluate_every": 4, "delivery": 0.8,
    }  # fmt: skip
    whole = simulate(small_task(dtype=dtype), 0.6, **settings)
    for after in (6, 17):
        with pytest.raises(StoppedError):
            simulate(
                small_task(dtype=dtype), 0.6, checkpoint=path, progress=stopping(after), **settings
            )
    seen: list[int] = []
    resumed = simulate(
        small_task(dtype=dtype), 0.6, checkpoint=path, progress=seen.append, **settings
    )
    assert seen == list(range(17, 24))
    assert same(whole, resumed)
    assert not np.array_equal(whole.model[0], np.zeros((2, 2)))


def small_outcome(task: FunctionTask, rounds: int = 12) -> Outcome:
    clients = Clients(
        samples=task.samples, grad_norm=2, cost=[3, 4, 5, 6], value=[0, 0, 1, 150], ids=task.ids
    )
    return solve(Game(clients, bound=Bound(alpha=3, rounds=rounds), budget=4.0))


@EVERY_AGGREGATOR
@EVERY_STEP
def test_a_stopped_market_of_functions_ends_in_the_same_bits(
    aggregator: Aggregator, step: ServerStep, tmp_path: Path
) -> None:
    """Stopped by an exception twice, gone on from SQLite by a new process's objects."""
    settings: dict[str, Any] = {
        "run": "run", "seed": 5, "aggregator": aggregator, "server_step": step,
        "evaluate_every": 5, "delivery": 0.8,
    }  # fmt: skip
    task = small_task()
    outcome = small_outcome(task)
    with closing(Ledger("sqlite://", identity="ab" * 32)) as ledger:
        whole = simulate_market(task, outcome, ledger=ledger, **settings)
        hashes = ledger.verify().hashes
    for after in (3, 10):
        path = str(tmp_path / "market.db")
        with (
            closing(Ledger(path, identity="ab" * 32)) as ledger,
            pytest.raises(StoppedError),
        ):
            simulate_market(
                small_task(), outcome, ledger=ledger, progress=stopping(after), **settings
            )
    with closing(Ledger(str(tmp_path / "market.db"))) as ledger:
        resumed = simulate_market(small_task(), outcome, ledger=ledger, **settings)
        assert ledger.verify().hashes == hashes
    assert same(whole, resumed)


def test_an_update_in_place_is_noticed() -> None:
    """The commonest mistake: the model is changed, and less itself it is zero."""

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        new = model[0]
        new -= 0.1
        return [new - model[0]]

    task = Task.of(
        initial=[np.ones(2)], samples=[1, 2], update=update, evaluate=lambda model: {"loss": 1.0}
    )
    with pytest.raises(InputError, match="it changed the arrays that it was given and returned"):
        simulate(task, 1.0, rounds=2)


def test_functions_that_exit_do_not_end_the_program() -> None:
    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        raise SystemExit(0)

    task = Task.of(
        initial=[np.ones(2)], samples=[1, 2], update=update, evaluate=lambda model: {"loss": 1.0}
    )
    with pytest.raises(InputError, match="`update` failed for client '1' in round 1: SystemExit"):
        simulate(task, 1.0, rounds=2)
