"""What ships passes the checks for those who add to it, and what breaks a rule is told which."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fedprice as fp
from fedprice.data.synthetic import synthetic
from fedprice.pricing import SCHEMES
from fedprice.rounds.aggregation import AGGREGATORS
from fedprice.rounds.availability import Availability, Presence
from fedprice.testing import check_aggregator, check_availability, check_scheme, check_task
from tests.tasks import small_task

# The published ones take levels that clients with a value would not choose.
SOUND = [name for name in SCHEMES if not name.startswith("reference") and "published" not in name]


@pytest.mark.parametrize("name", SOUND)
def test_schemes_keep_their_rules(name: str) -> None:
    check_scheme(name)


@pytest.mark.parametrize("aggregator", AGGREGATORS.values(), ids=list(AGGREGATORS))
def test_aggregators_keep_their_rules(aggregator: Any) -> None:
    check_aggregator(aggregator)


def test_tasks_keep_their_rules() -> None:
    check_task(small_task())
    federation = synthetic(num_clients=4, samples=200)
    check_task(fp.LogisticRegression(federation, fp.Training(local_steps=3)))


def test_a_task_with_a_memory_is_told() -> None:
    losses = iter(range(9))
    task = small_task()
    forgetful = fp.Task.of(
        initial=task.initial,
        samples=task.samples,
        update=lambda model, client, round_, seed: [np.ones((2, 2)), np.ones(1)],
        evaluate=lambda model: {"loss": float(next(losses))},
    )
    with pytest.raises(AssertionError, match="`evaluate` must return the same again"):
        check_task(forgetful)


def test_a_scheme_over_its_budget_is_told() -> None:
    def lavish(game: fp.Game) -> fp.Outcome:
        return replace(
            fp.Outcome.from_prices(game, 1e4, scheme="lavish"), status=fp.Status.FEASIBLE
        )

    with pytest.raises(AssertionError, match="within the budget of 5"):
        check_scheme(lavish)


class Batched:
    """Adds each part at once, in single precision."""

    name = "batched"

    def start(self, num_clients: int, size: int) -> Any:
        return {}

    def begin(self, state: Any, arrivals: Any) -> Any:
        return Batch(arrivals)


class Batch:
    def __init__(self, arrivals: Any) -> None:
        self.factors = (arrivals.weight / arrivals.probability).astype(np.float32)
        self.total = np.zeros(arrivals.size, np.float32)

    def add(self, clients: Any, updates: Any) -> None:
        self.total += self.factors[clients] @ updates

    def finish(self) -> Any:
        return self.total

    def state(self) -> Any:
        return {}


def test_an_aggregator_that_depends_on_batches_is_told() -> None:
    with pytest.raises(AssertionError, match="in parts must be the same"):
        check_aggregator(Batched())


@dataclass(frozen=True)
class Boastful(Availability):
    """States a larger share than it has."""

    def begin(self, task: fp.Task, rounds: int, seed: int) -> Presence:
        share = np.full(task.num_clients, 0.5)
        return Presence(share, lambda round_: np.full(task.num_clients, round_ % 4 == 0))


def test_an_availability_that_boasts_is_told() -> None:
    with pytest.raises(AssertionError, match=r"differs by 0\.25"):
        check_availability(Boastful(), small_task(), rounds=100)
