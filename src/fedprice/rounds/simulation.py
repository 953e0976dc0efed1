"""`simulate`: federated training in one process. `rounds.oracle` is the version to read.

Only joiners cost time. An update is a function of seed, round and client alone, and updates are
summed in the order of the clients, so any number of threads gives the same bits.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import DivergedError, InputError
from fedprice.learning.evaluation import Spare, thread_pool
from fedprice.learning.logistic import LogisticRegression
from fedprice.learning.task import Task
from fedprice.rounds.aggregation import aggregator_of
from fedprice.rounds.availability import check_met, presence_of
from fedprice.rounds.checkpoint import Checkpoint
from fedprice.rounds.coins import coins_of
from fedprice.rounds.history import History
from fedprice.rounds.loop import Rounds
from fedprice.rounds.participation import Drawn, deliveries
from fedprice.rounds.server_step import Plain
from fedprice.trackers import RoundRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from fedprice._plumbing.arrays import Arrays, FloatArray, IntArray, State
    from fedprice.learning.clock import Clock
    from fedprice.rounds.aggregation import Aggregator
    from fedprice.rounds.availability import Availability
    from fedprice.rounds.loop import Round
    from fedprice.rounds.server_step import ServerStep
    from fedprice.trackers import Tracker

__all__ = [
    "Driver",
    "probabilities",
    "run_fingerprint",
    "simulate",
    "simulate_runs",
    "training_fingerprint",
]

PART = 64  # updates held at a time


def simulate(
    task: Task,
    levels: npt.ArrayLike,
    *,
    rounds: int = 1000,
    seed: int = 0,
    aggregator: Aggregator | str | None = None,
    server_step: ServerStep | None = None,
    delivery: npt.ArrayLike = 1.0,
    coins: str = "independent",
    availability: Availability | None = None,
    clock: Clock | None = None,
    evaluate_every: int = 10,
    threads: int | Spare | None = None,
    checkpoint: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
    tracker: Tracker | None = None,
    stop_on_explosion: bool = True,
) -> History:
    """Train a model with the clients that join.

    Parameters
    ----------
    task
        What is learned, and from whom.
    levels
        The probability that each client joins a round, shape (num_clients,) or a scalar.
    rounds, seed
        The number of rounds, and the seed of the coins and of all randomness in training.
    aggregator
        How updates become an estimate, or its name; by default `Memory`. "unbiased-memory" and
        "horvitz-thompson" are unbiased to the letter (docs/stability.md).
    server_step
        How the estimate changes the model; `Plain` by default.
    delivery
        The probability that a client that joined also delivers, shape (num_clients,) or a scalar.
    coins
        "independent"; or, at the same levels but evenly spaced (docs/learning.md), "spaced",
        "blocks" or "shared". Levels are those of the whole run: `fedprice.rounds.coins` says what
        a level that changes would need.
    availability
        When clients can be reached, such as `fedprice.rounds.availability.Markov(0.5, 20)`: one
        that draws heads while it is away does not join. By default all are always there.
    clock
        Simulated time; one second per round by default.
    evaluate_every
        Rounds between evaluations; the first and the last model are always evaluated.
    threads
        The number of threads, by default one per core, or the `Spare` ones of several runs; the
        result does not depend on it.
    checkpoint
        A file that the run is saved to at evaluations, and resumed from if it exists.
    progress
        Called with the number of rounds done, after each.
    tracker
        Told after each round what it did (`fedprice.trackers`).
    stop_on_explosion
        Whether to stop when the loss is more than 100 times that of the start. Otherwise only a
        model that is no longer finite stops the run, and `history.alarms` names the rounds.

    Raises
    ------
    DivergedError
        If the model stops being finite or its loss explodes; the message names the round.

    Examples
    --------
    >>> from fedprice.data.synthetic import synthetic
    >>> from fedprice.learning import LogisticRegression, Training
    >>> federation = synthetic(num_clients=4, samples=400)
    >>> task = LogisticRegression(federation, Training(local_steps=5))
    >>> history = simulate(task, 0.5, rounds=20)
    >>> history.rounds, int(history.joined.sum())
    (array([ 0, 10, 20]), 34)
    """
    driver = Driver(
        task, rounds, seed, evaluate_every, clock, threads, progress,
        tracker=tracker, stop_on_explosion=stop_on_explosion,
    )  # fmt: skip
    aggregator, server_step = aggregator_of(aggregator), server_step or Plain()
    q = probabilities("levels", levels, task.num_clients)
    rho = probabilities("delivery", delivery, task.num_clients)
    presence = presence_of(availability, task, rounds, seed)
    drawn = coins_of(coins, q, seed, task)
    if presence is not None and coins in ("spaced", "shared"):
        check_met(drawn, presence, rounds, task.ids)
    saved = None
    if checkpoint is not None:
        what = training_fingerprint(
            task, q, rounds=rounds, seed=seed, delivery=rho, coins=coins,
            availability=availability, clock=clock, evaluate_every=evaluate_every,
        )  # fmt: skip
        saved = Checkpoint(Path(checkpoint), what)
    loop = Rounds(
        task.initial,
        layout=task.layout,
        ids=task.ids,
        weight=task.weight,
        total=rounds,
        participation=Drawn(drawn, rho, presence),
        aggregator=aggregator,
        server_step=server_step,
    )
    return driver.run(loop, rho, saved)


def simulate_runs(
    task: Task,
    runs: Sequence[tuple[npt.ArrayLike, int]],
    *,
    threads: int | None = None,
    checkpoints: Sequence[str | Path] | None = None,
    progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> list[History]:
    """Train many models, one for each pair of levels and seed, in parallel over the runs.

    Parameters
    ----------
    task
        What is learned, and from whom.
    runs
        Levels and seed of each run.
    threads
        How many runs at the same time, by default one per core; one after the other if the task's
        functions must not run in parallel.
    checkpoints
        The checkpoint of each run, as for `simulate`.
    progress
        Called with the number of rounds done, of any run, after each.
    **settings
        As for `simulate`.
    """
    if "checkpoint" in settings:
        raise InputError("`checkpoint` belongs to one run; give `checkpoints`, one per run.")
    files = [None] * len(runs) if checkpoints is None else list(checkpoints)
    if len(files) != len(runs):
        raise InputError(
            f"`checkpoints` must be one file for each of the {len(runs)} runs; got {len(files)}."
        )
    each = [
        {"levels": levels, "seed": seed, "checkpoint": file, **settings}
        for (levels, seed), file in zip(runs, files, strict=True)
    ]
    if not task.parallel:
        _require_one_thread(threads)
        return [simulate(task, progress=progress, **one) for one in each]
    if isinstance(task, LogisticRegression):
        task.prepare()  # once, before the threads
    stopping = threading.Event()

    def tell(done: int) -> None:
        if stopping.is_set():
            raise _StoppedError
        if progress is not None:
            progress(done)

    with thread_pool(threads) as pool, thread_pool(threads) as helpers:
        spare = Spare(helpers, len(each), threads or os.cpu_count() or 1)

        def run(one: dict[str, Any]) -> History:
            try:
                return simulate(task, threads=spare, progress=tell, **one)
            except BaseException:
                stopping.set()  # at once: this thread may be called long before the waiting one
                raise
            finally:
                spare.release()

        try:
            started = [pool.submit(run, one) for one in each]
            for error in [own.exception() for own in started]:
                if error is not None and not isinstance(error, _StoppedError):
                    raise error
            return [run.result() for run in started]
        finally:
            stopping.set()


class _StoppedError(Exception):
    """Ends a run whose results are no longer needed."""


def run_fingerprint(
    task: Task,
    levels: npt.ArrayLike,
    *,
    aggregator: Aggregator,
    server_step: ServerStep | None = None,
    **settings: Any,
) -> str:
    """Return a hash of what determines a run's history, apart from the code.

    The settings are those of `training_fingerprint`.
    """
    what = training_fingerprint(task, levels, **settings)
    text = f"{what}\0{aggregator.name}\0{(server_step or Plain()).name}"
    return hashlib.sha256(text.encode()).hexdigest()


def training_fingerprint(
    task: Task,
    levels: npt.ArrayLike,
    *,
    rounds: int,
    seed: int,
    delivery: npt.ArrayLike = 1.0,
    coins: str = "independent",
    availability: Availability | None = None,
    clock: Clock | None = None,
    evaluate_every: int = 10,
) -> str:
    """Return a hash of what determines a run, apart from how its updates are combined."""
    count = task.num_clients
    arrays = [probabilities("levels", levels, count), probabilities("delivery", delivery, count)]
    parts = [task.fingerprint, rounds, seed, evaluate_every]
    if clock is not None:
        parts += [clock.shared, clock.idle]
        arrays += [clock.compute, clock.transfer]
    if coins != "independent":
        parts.append(f"{coins} coins")
    if availability is not None:
        parts.append(availability.fingerprint)
    digest = hashlib.sha256("\0".join(map(str, parts)).encode())
    for array in arrays:
        digest.update(f"\0{array.size}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@dataclass
class Driver:
    """Carries the messages of a run within one process: clients train when they are called.

    The attributes are those of `simulate`; `before`, how many rounds of earlier periods the model
    was trained for, so that learning rates and random numbers continue; and `measured`, which is
    called at every evaluation with the rounds done, those before included, and the metrics.
    """

    task: Task
    rounds: int
    seed: int
    evaluate_every: int = 10
    clock: Clock | None = None
    threads: int | Spare | None = None
    progress: Callable[[int], None] | None = None
    before: int = 0
    measured: Callable[[int, dict[str, float]], None] | None = None
    tracker: Tracker | None = None
    stop_on_explosion: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):
            raise InputError(
                f"`task` must be a Task; got {type(self.task).__name__}. Make one with "
                "fp.Task.of(…), or fp.LogisticRegression(federation)."
            )
        for name in ("rounds", "evaluate_every"):
            value = getattr(self, name)
            if not (isinstance(value, int | np.integer) and value >= 1):
                raise InputError(f"`{name}` must be a whole number, at least 1; got {value!r}.")
        if not (isinstance(self.seed, int | np.integer) and 0 <= self.seed < 2**63):
            raise InputError(
                f"`seed` must be a whole number from 0 to 2^63 − 1; got {self.seed!r}."
            )
        if self.clock is not None and self.clock.compute.size != self.task.num_clients:
            raise InputError(
                f"`clock` must have {self.task.num_clients} clients; got {self.clock.compute.size}."
            )
        if isinstance(self.threads, int) and self.threads < 1:
            raise InputError(f"`threads` must be at least 1; got {self.threads}.")
        if not self.task.parallel:
            _require_one_thread(self.threads)

    def run(
        self, loop: Rounds, delivery: FloatArray, checkpoint: Checkpoint | None = None
    ) -> History:
        """Run the rounds that are left, and return what was recorded.

        Parameters
        ----------
        delivery
            The probability that a client that drew heads delivers, shape (num_clients,).
        checkpoint
            Where to resume from, and what to write to at evaluations.
        """
        if checkpoint is not None:
            checkpoint.restore(loop)
        with self._helpers() as pool:
            try:
                self._train(loop, delivery, checkpoint, pool)
            except DivergedError:
                if checkpoint is not None:
                    checkpoint.mark_diverged()
                raise
        return self._history(loop)

    @contextmanager
    def _helpers(self) -> Iterator[Callable[[], Executor | None]]:
        """Yield a function that returns the threads of the moment."""
        if isinstance(self.threads, Spare):
            yield self.threads.pool
            return
        count = (self.threads or os.cpu_count() or 1) if self.task.parallel else 1
        with nullcontext(None) if count == 1 else thread_pool(count) as pool:
            yield lambda: pool

    def _train(
        self,
        loop: Rounds,
        delivery: FloatArray,
        checkpoint: Checkpoint | None,
        helpers: Callable[[], Executor | None],
    ) -> None:
        notes = loop.notes
        if not notes:
            notes |= {"evaluations": np.zeros((0, 0)), "time": np.zeros(1)}
            notes["metrics"] = notes["alarms"] = np.zeros(0, "U1")
            start = self._evaluate(notes, 0, loop.model, None, helpers())
            if self.tracker is not None and not self.before:
                self.tracker.on_round(RoundRecord(0, metrics=start))
        longest: Round | None = None  # since the last evaluation
        while loop.done < loop.total:
            round_ = loop.begin()
            due = (loop.done + 1) % self.evaluate_every == 0 or loop.done + 1 == loop.total
            self._receive(round_, delivery, helpers())
            try:
                model = round_.propose()
            except DivergedError:
                if checkpoint is not None:
                    checkpoint.write(loop.state())  # the model of the previous round is finite
                raise
            if longest is None or round_.length > longest.length:
                longest = round_
            spent = 1.0 if self.clock is None else self.clock.round_time(round_.heads)
            notes["time"] = notes["time"] + spent
            found: dict[str, float] = {}
            if due:
                found = self._evaluate(notes, loop.done + 1, model, longest, helpers())
            round_.close()
            if self.tracker is not None:
                record = round_.report(found)
                self.tracker.on_round(replace(record, round=self.before + record.round))
            if due:
                longest = None
                if checkpoint is not None:
                    checkpoint.write(loop.state())
            if self.progress is not None:
                self.progress(loop.done)

    def _receive(self, round_: Round, delivery: FloatArray, pool: Executor | None) -> None:
        """Let the clients whose updates arrive train, some at a time."""
        number = self.before + round_.number
        arriving = deliveries(self.seed, number, round_.heads, delivery)
        round_.expect(arriving)
        for first in range(0, arriving.size, PART):
            some = arriving[first : first + PART]
            updates = self.task.updates(round_.model, some, number, self.seed, pool)
            round_.arrive(some, updates)

    def _evaluate(
        self, notes: State, done: int, model: Arrays, longest: Round | None, pool: Executor | None
    ) -> dict[str, float]:
        """Record a model's metrics; if they explode, blame the longest step since the last."""
        known = notes["evaluations"]
        found = self.task.evaluate(model, pool)
        if not len(known):
            notes["metrics"] = np.array(list(found))
            known = np.zeros((0, 2 + len(found)))
        names = notes["metrics"].tolist()
        if list(found) != names:
            raise InputError(
                f"`evaluate` must always return the same metrics; got {', '.join(found)} after "
                f"{', '.join(names)}."
            )
        if longest is None and not math.isfinite(found["loss"]):
            raise InputError(
                f"the loss of the initial model must be finite; `evaluate` gave {found['loss']}."
            )
        for taken in {"round", "time"} & found.keys():
            raise InputError(f"a metric must not be called {taken!r}; rename it in `evaluate`.")
        if longest is not None:
            start = float(known[0, 2 + names.index("loss")])
            alarm = longest.judge(start, found["loss"], done, stops=self.stop_on_explosion)
            if alarm is not None:
                notes["alarms"] = np.append(notes["alarms"], alarm)
        row = [done, notes["time"][0], *found.values()]
        notes["evaluations"] = np.vstack([known, row])
        if self.measured is not None:
            self.measured(self.before + done, found)
        return found

    def _history(self, loop: Rounds) -> History:
        at, record = loop.notes["evaluations"], loop.record
        names = loop.notes["metrics"].tolist()
        return History(
            rounds=at[:, 0].astype(np.int64),
            time=at[:, 1],
            metrics={name: at[:, 2 + i] for i, name in enumerate(names)},
            joined=record["joined"],
            largest_weight=record["largest_weight"],
            update_norm=_root_mean(record["update_squares"], record["updates_seen"]),
            grad_norm=_root_mean(record["squares"], record["gradients_seen"]),
            grad_norm_max=np.sqrt(
                np.where(record["gradients_seen"] > 0, record["squares_max"], np.nan)
            ),
            model=loop.model,
            alarms=tuple(loop.notes["alarms"].tolist()),
        )


def _root_mean(squares: FloatArray, seen: IntArray) -> FloatArray:
    mean = np.divide(squares, seen, out=np.full(seen.size, np.nan), where=seen > 0)
    root: FloatArray = np.sqrt(mean)
    return root


def _require_one_thread(threads: int | Spare | None) -> None:
    if threads not in (None, 1):
        raise InputError(
            f"`threads` must be 1 for a task made from functions, which may not run in parallel; "
            f"got {threads}."
        )


def probabilities(name: str, given: npt.ArrayLike, count: int) -> FloatArray:
    """Return one probability per client, from one per client or one for all."""
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`{name}` must be numbers; got {given!r}.") from None
    if array.shape not in ((), (count,)):
        raise InputError(f"`{name}` must have shape ({count},); got {array.shape}.")
    if not ((array >= 0) & (array <= 1)).all():
        raise InputError(f"`{name}` must lie between 0 and 1.")
    return np.array(np.broadcast_to(array, (count,)))
