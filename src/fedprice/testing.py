"""Checks for those who add a task, a scheme, an aggregator or an availability.

Modelled on scikit-learn's `check_estimator`: each function returns None, or raises an
`AssertionError` that says which rule does not hold. The tests of fedprice use them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.bound import Bound
from fedprice.game import Game, best_response
from fedprice.pricing.outcome import Status
from fedprice.pricing.schemes import Scheme, find_scheme
from fedprice.random_clients import population
from fedprice.rounds.aggregation.base import Arrivals

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice._plumbing.arrays import IntArray
    from fedprice.learning.task import Task
    from fedprice.pricing.outcome import Outcome
    from fedprice.rounds.aggregation.base import Aggregator
    from fedprice.rounds.availability import Availability

__all__ = ["check_aggregator", "check_availability", "check_scheme", "check_task"]

CLIENTS, SIZE = 10, 64  # of the rounds in which an aggregator is tried


def check_task(task: Task) -> None:
    """Check that updates and evaluations are functions of their arguments.

    Examples
    --------
    >>> import fedprice as fp
    >>> task = fp.Task.of(
    ...     initial=[np.zeros(1)], samples=[10, 20],
    ...     update=lambda model, client, round_, seed: [client - model[0]],
    ...     evaluate=lambda model: {"loss": float(abs(model[0][0] - 0.5))},
    ... )
    >>> check_task(task)
    """
    count = task.num_clients
    _require(len(set(task.ids)) == count == len(task.ids), "`ids` must name every client once")
    _require(bool((task.samples >= 0).all()), "`samples` must be at least 0")
    _require(all(np.isfinite(x).all() for x in task.initial), "`initial` must be finite")
    everyone = np.arange(count)
    model = [array.copy() for array in task.initial]
    first = task.updates(model, everyone, 3, 1)
    _require(len(first.values) == count, "`updates` must return one row per client")
    _require(bool(np.isfinite(first.values).all()), "updates must be finite")
    _require(_same(model, task.initial), "`updates` must not change the model that it is given")
    last = everyone[-1:]
    for what, clients in (("again", everyone), ("without the other clients", last)):
        task.updates(model, everyone, 4, 1)  # leaves nothing behind that the next call uses
        values = task.updates(model, clients, 3, 1).values
        same = np.array_equal(values, first.values[clients])
        _require(same, f"an update that is computed {what} must be the same to the last bit")
    scores = task.evaluate(model)
    _require(np.isfinite(scores.get("loss", np.nan)), "`evaluate` must return a finite 'loss'")
    _require(task.evaluate(model) == scores, "`evaluate` must return the same again")
    _require(_same(model, task.initial), "`evaluate` must not change the model that it is given")


def check_scheme(scheme: str | Scheme | Callable[[Game], Outcome]) -> None:
    """Check that a scheme prices games as it says: by name, as `Scheme` or as a function.

    Examples
    --------
    >>> check_scheme("uniform")
    """
    if isinstance(scheme, str):
        scheme = find_scheme(scheme)
    elif not isinstance(scheme, Scheme):
        scheme = Scheme(getattr(scheme, "__name__", "scheme"), scheme)
    bound = Bound(alpha=3.3, rounds=1000)
    for exponent in (1.5, 2.0):
        for budget in (5.0, 200.0, 1e6):
            game = Game(population(8), bound=bound, budget=budget, cost_exponent=exponent)
            _check_outcome(scheme, game)


def _check_outcome(scheme: Scheme, game: Game) -> None:
    outcome, again = scheme(game), scheme(game)
    for what in ("levels", "prices"):
        values = getattr(outcome, what)
        _require(values.shape == (len(game.clients),), f"`{what}` must have one row per client")
        _require(np.array_equal(values, getattr(again, what)), f"`{what}` must be the same again")
    within = (outcome.levels >= 0) & (outcome.levels <= game.clients.level_max)
    _require(bool(within.all()), "levels must lie between 0 and `level_max`")
    if scheme.posts_prices and outcome.bought is None:
        chosen = best_response(game, outcome.prices)
        own_choice = np.allclose(chosen, outcome.levels, rtol=1e-6, atol=1e-9)
        _require(own_choice, "levels must be the clients' best responses, as prices are posted")
    if outcome.status in (Status.OPTIMAL, Status.SLACK, Status.FEASIBLE):
        flow = game.budget + np.abs(outcome.payments).sum()
        _require(
            outcome.spend <= game.budget + 1e-9 * flow,
            f"the spend must be within the budget of {game.budget:g}, or the status say "
            f"that it is not; got {outcome.spend:g} and {outcome.status.value!r}",
        )


def check_aggregator(aggregator: Aggregator) -> None:
    """Check that a round depends on its updates only, not on how they arrive.

    Examples
    --------
    >>> from fedprice.rounds.aggregation import HorvitzThompson
    >>> check_aggregator(HorvitzThompson())
    """
    rng = np.random.default_rng(9)
    weight, levels = rng.dirichlet(np.ones(CLIENTS)), rng.uniform(0.1, 0.95, CLIENTS)
    updates = rng.normal(size=(CLIENTS, SIZE)).astype(np.float32)

    def taken(before: Any, joined: IntArray, *sizes: int) -> tuple[Any, Any]:
        state = {name: array.copy() for name, array in before.items()}
        collector = aggregator.begin(state, Arrivals(joined, weight, levels, SIZE))
        for part in np.split(joined, np.cumsum(sizes)) if joined.size else ():
            sent = updates[part]
            collector.add(part, sent)
            sent[:] = np.nan  # what was added may be overwritten
        return collector.finish(), collector.state()

    _require(bool(aggregator.name), "`name` must not be empty")
    state = aggregator.start(CLIENTS, SIZE)
    for joined in (np.array([1, 3]), np.array([0, 2, 3, 5, 8, 9]), np.array([], np.int64)):
        step, after = taken(state, joined)
        _require(np.shape(step) == (SIZE,), "a step must have one number per parameter")
        _require(bool(np.isfinite(step).all()), "a step must be finite, even if nobody joins")
        if joined.size:
            other, other_after = taken(state, joined, 1, *[1] * (joined.size - 2))
            same = np.array_equal(other, step) and _same(after.values(), other_after.values())
            _require(same, "a round in parts must be the same to the last bit: see `WeightedSum`")
        state = after


def check_availability(availability: Availability, task: Task, rounds: int = 20_000) -> None:
    """Check that presence is a function of seed and round, with the share that it states.

    Its mean over the rounds may differ from the share by 0.06.

    Examples
    --------
    >>> import fedprice as fp
    >>> from fedprice.rounds.availability import Cyclic
    >>> task = fp.Task.of(
    ...     initial=[np.zeros(1)], samples=[10, 20], evaluate=lambda model: {"loss": 1.0},
    ...     update=lambda model, client, round_, seed: [model[0]],
    ... )
    >>> check_availability(Cyclic(20, 0.3), task, rounds=2000)
    """
    presence = availability.begin(task, rounds, 1)
    there = np.array([presence.available(r) for r in range(rounds)])
    _require(there.shape == (rounds, task.num_clients), "a round must say who of all is there")
    again = availability.begin(task, rounds, 1)
    for r in (min(49, rounds - 1), 3, 17, 17, 0):
        same = np.array_equal(again.available(r), there[r])
        _require(same, f"round {r} must be the same in any order of the rounds")
    apart = float(np.abs(there.mean(axis=0) - presence.share).max())
    _require(apart <= 0.06, f"`share` must be that of the long run; it differs by {apart:.2g}")
    _require(availability.fingerprint == availability.fingerprint, "`fingerprint` must not change")


def _same(first: Any, second: Any) -> bool:
    """Return whether two lists of arrays are the same to the last bit."""
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(first, second, strict=True))


def _require(holds: bool, rule: str) -> None:
    """Raise an error that states the rule, unless it holds."""
    if not holds:
        raise AssertionError(f"{rule}.")
