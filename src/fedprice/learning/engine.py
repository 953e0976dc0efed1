"""`simulate`: federated training in one process, fast. `oracle` is the version to read.

Only joiners cost anything. Their updates are computed by compiled code that releases the
interpreter lock, spread over threads; each update is a function of seed, round and client alone and
they are summed in the order of the clients, so any number of threads gives the same bits.
"""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import FedpriceError, InputError, require
from fedprice.learning.aggregation import HorvitzThompson
from fedprice.learning.checkpoint import load_checkpoint, save_checkpoint
from fedprice.learning.evaluation import evaluate_model, run_all
from fedprice.learning.history import History
from fedprice.learning.layout import Prepared, aligned, prepared
from fedprice.learning.participation import Drawn
from fedprice.learning.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from fedprice.arrays import FloatArray
    from fedprice.data.federation import Federation
    from fedprice.learning.aggregation import Aggregator, State
    from fedprice.learning.clock import Clock
    from fedprice.learning.participation import Participation


__all__ = ["DivergedError", "local_update", "run_fingerprint", "simulate", "simulate_runs"]


PART = 64  # updates held at a time


class DivergedError(FedpriceError):
    """The model stopped being finite; the message says where and what to do."""


def simulate(
    federation: Federation,
    levels: npt.ArrayLike,
    *,
    training: Training | None = None,
    aggregator: Aggregator | None = None,
    delivery: npt.ArrayLike | None = None,
    clock: Clock | None = None,
    seed: int = 0,
    threads: int | None = None,
    checkpoint: str | Path | None = None,
    participation: Participation | None = None,
    progress: Callable[[int], None] | None = None,
) -> History:
    """Train a model from whoever shows up.

    Parameters
    ----------
    federation
        The clients' data.
    levels
        The probability that each client joins a round, shape (num_clients,) or a scalar.
    training
        Rounds, local steps, batch, learning rate; the paper's by default.
    aggregator
        How updates become a step; `HorvitzThompson`, unbiased, by default.
    delivery
        The probability that a client that joined also delivers, shape (num_clients,) or a scalar;
        by default all do.
    clock
        Simulated time; by default a round takes a second.
    seed
        Determines coins and batches.
    threads
        How many to use, by default one a core; the result does not depend on it.
    checkpoint
        A file that the run saves itself to at evaluations, and goes on from if it exists.
    participation
        Who takes part, and what is kept of each round; by default coins drawn from the seed.
    progress
        Called with the number of rounds done, after each.

    Examples
    --------
    >>> from fedprice.data.synthetic import synthetic
    >>> federation = synthetic(num_clients=4, samples=400)
    >>> history = simulate(federation, 0.5, training=Training(rounds=20, local_steps=5))
    >>> history.rounds, int(history.joined.sum())
    (array([ 0, 10, 20]), 34)
    """
    training = training or Training()
    aggregator = aggregator or HorvitzThompson()
    if clock is not None and clock.compute.size != federation.num_clients:
        raise InputError(
            f"`clock` must have {federation.num_clients} clients; got {clock.compute.size}."
        )
    if threads is not None and threads < 1:
        raise InputError(f"`threads` must be at least 1; got {threads}.")
    if not 0 <= seed < 2**63:
        raise InputError(f"`seed` must be a whole number from 0 to 2^63 − 1; got {seed}.")
    q = _probabilities("levels", levels, federation.num_clients)
    rho = _probabilities("delivery", 1.0 if delivery is None else delivery, federation.num_clients)
    run = _Run(federation, q, rho, training, aggregator, clock, seed, participation)
    count = threads or os.cpu_count() or 1
    if count == 1:
        return run.train(None, 1, checkpoint, progress)
    with ThreadPoolExecutor(count) as pool:
        return run.train(pool, count, checkpoint, progress)


def simulate_runs(
    federation: Federation,
    runs: Sequence[tuple[npt.ArrayLike, int]],
    *,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> list[History]:
    """Train many models, one a (levels, seed) pair, in parallel over the runs.

    Parameters
    ----------
    federation
        The clients' data.
    runs
        Levels and seed of each run.
    threads
        How many runs at a time, by default one a core.
    progress
        Called with the number of rounds done, of any run, after each.
    **settings
        As for `simulate`.
    """
    if "checkpoint" in settings:
        raise InputError("`checkpoint` belongs to one run; give it to `simulate`.")
    prepared(federation, (settings.get("training") or Training()).seen)  # once, before the threads
    stopping = threading.Event()

    def tell(done: int) -> None:
        if stopping.is_set():
            raise _StoppedError
        if progress is not None:
            progress(done)

    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        try:
            started = [
                pool.submit(
                    simulate, federation, levels, seed=seed, threads=1, progress=tell, **settings
                )
                for levels, seed in runs
            ]
            wait(started, return_when=FIRST_EXCEPTION)
            return [run.result() for run in started]
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)


def local_update(
    federation: Federation,
    client: int,
    model: npt.NDArray[np.float32],
    *,
    training: Training,
    round_: int,
    seed: int = 0,
) -> npt.NDArray[np.float32]:
    """Return what one client would send in one round: w_n − w, the bits that `simulate` computes.

    Parameters
    ----------
    federation, client
        The data, and whose part of it, counted from 0.
    model
        w, shape (classes, features + 1), the bias last.
    training, round_, seed
        As for `simulate`; the round is counted from 0.
    """
    levels = np.ones(federation.num_clients)
    run = _Run(federation, levels, levels, training, HorvitzThompson(), None, seed)
    data = prepared(federation, training.seen)
    wide = np.zeros(data.model_shape, np.float32)
    run.cut(wide)[...] = model
    updates, _ = run.updates(data, np.array([client]), wide, round_, None, 1)
    return np.array(run.cut(updates.reshape(1, *wide.shape))[0])


class _StoppedError(Exception):
    """Ends a run whose results nobody waits for any more."""


def run_fingerprint(
    federation: Federation,
    levels: npt.ArrayLike,
    *,
    training: Training,
    aggregator: Aggregator,
    clock: Clock | None,
    seed: int,
) -> str:
    """Return a hash of what determines a run's history, apart from the engine's code."""
    q = _probabilities("levels", levels, federation.num_clients)
    return _Run(federation, q, np.ones_like(q), training, aggregator, clock, seed).fingerprint


@dataclass(eq=False)
class _Run:
    """One training run, between its rounds."""

    federation: Federation
    levels: FloatArray
    delivery: FloatArray
    training: Training
    aggregator: Aggregator
    clock: Clock | None
    seed: int
    participation: Participation | None = None
    room: npt.NDArray[np.float32] = field(default_factory=lambda: aligned(0, 0, 0), init=False)

    @cached_property
    def fingerprint(self) -> str:
        """What determines the run."""
        digest = hashlib.sha256(self.federation.fingerprint.encode())
        training = self.training
        plain = (training.rounds, training.local_steps, training.batch, training.l2)
        digest.update(f"{plain}{training.evaluate_every}{self.aggregator.name}{self.seed}".encode())
        rates = np.array([training.rate(r) for r in range(training.rounds)])
        for array in (rates, self.levels, self.delivery):
            digest.update(np.ascontiguousarray(array).data)
        if self.clock is not None:
            digest.update(f"{self.clock.shared}{self.clock.idle}".encode())
            digest.update(np.ascontiguousarray(self.clock.compute).data)
            digest.update(np.ascontiguousarray(self.clock.transfer).data)
        return digest.hexdigest()

    def train(
        self,
        pool: Executor | None,
        threads: int,
        checkpoint: str | Path | None,
        progress: Callable[[int], None] | None,
    ) -> History:
        federation, training = self.federation, self.training
        data = prepared(federation, training.seen)
        clients, rounds = federation.num_clients, training.rounds
        model = np.zeros(data.model_shape)
        state = self.aggregator.start(clients, model.size)
        record: dict[str, npt.NDArray[Any]] = {
            "done": np.zeros(1, np.int64),
            "evaluations": np.zeros((0, 4)),
            "joined": np.zeros(rounds, np.int64),
            "largest_weight": np.zeros(rounds),
            "time": np.zeros(1),
            "squares": np.zeros(clients),
            "squares_max": np.zeros(clients),
            "updates_seen": np.zeros(clients, np.int64),
        }
        by = self.participation or Drawn(self.levels, self.delivery, self.seed)
        stored = by.restore()
        if checkpoint is not None and Path(checkpoint).exists():
            stored = load_checkpoint(checkpoint, self.fingerprint)
        if stored is not None:
            model = stored.pop("model")
            state |= {k[6:]: stored.pop(k) for k in list(stored) if k.startswith("state.")}
            record = stored
        weight = federation.weight
        for r in range(int(record["done"][0]), rounds + 1):
            small = model.astype(np.float32)
            if r % training.evaluate_every == 0 or r == rounds:
                loss, accuracy = self.evaluate(data, small, pool)
                row = [r, record["time"][0], loss, accuracy]
                if not len(record["evaluations"]) or record["evaluations"][-1, 0] < r:
                    record["evaluations"] = np.vstack([record["evaluations"], row])
                if checkpoint is not None:
                    save_checkpoint(checkpoint, self.fingerprint, _kept(record, state, model, r))
            if r == rounds:
                break
            heads = by.heads(r)
            joined, arrival = by.delivering(r, heads), by.arrival()
            for first in range(0, max(joined.size, 1), PART):
                some = joined[first : first + PART]
                updates, norms = self.updates(data, some, small, r, pool, threads)
                admitted = by.admit(r, some, self.cut(updates.reshape(-1, *model.shape)))
                if not admitted.all():
                    some, updates, norms = some[admitted], updates[admitted], norms[admitted]
                step = self.aggregator.step(state, some, updates, weight, arrival, joined)
                model += step.reshape(model.shape)
                self.require_finite(model, some, updates, r)
                record["squares"][some] += norms[:, 0]
                record["squares_max"][some] = np.maximum(record["squares_max"][some], norms[:, 1])
                record["updates_seen"][some] += 1
                record["joined"][r] += some.size
                largest = (weight[some] / arrival[some]).max(initial=record["largest_weight"][r])
                record["largest_weight"][r] = largest
            record["time"] += 1.0 if self.clock is None else self.clock.round_time(heads)
            published = self.cut(model).astype(np.float32)
            by.close(r, published, _kept(record, state, model, r + 1))
            if progress is not None:
                progress(r + 1)
        return self.history(record, model)

    def cut(self, padded: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return models without what the kernels' layout adds."""
        features = self.federation.features.shape[1] + 1
        return padded[..., : self.federation.num_classes, :features]

    def updates(
        self,
        data: Prepared,
        joined: npt.NDArray[np.int64],
        model: npt.NDArray[np.float32],
        r: int,
        pool: Executor | None,
        threads: int,
    ) -> tuple[npt.NDArray[np.float32], FloatArray]:
        """Return the updates of the joiners and their squared gradient norms (sum, maximum)."""
        kernels = require("fedprice.learning.kernels", "learn")
        training = self.training
        if len(self.room) < joined.size:
            self.room = aligned(min(joined.size + 4, PART), *model.shape)
        updates = self.room[: joined.size]
        norms = np.empty((joined.size, 2))

        def work(slots: npt.NDArray[np.int64]) -> None:
            kernels.update_clients(
                data.x, data.y, self.federation.offsets, data.gram, data.gram_at, joined, slots,
                model, self.federation.num_classes, self.seed, r, training.local_steps,
                training.batch, training.rate(r), training.l2, updates, norms, data.block,
            )  # fmt: skip

        shares = _shares(data.work[joined], threads)
        run_all(work, shares, pool)
        return updates.reshape(joined.size, model.size), norms

    def evaluate(
        self, data: Prepared, model: npt.NDArray[np.float32], pool: Executor | None
    ) -> tuple[float, float]:
        """Return the global loss over all training samples and the accuracy on the test set."""
        classes = self.federation.num_classes
        loss, _ = evaluate_model(data.x, data.y, model, classes, pool)
        if self.training.l2:
            loss += self.training.l2 / 2 * float((model.astype(np.float64) ** 2).sum())
        labels = self.federation.test_labels
        return loss, evaluate_model(data.test_x, labels, model, classes, pool)[1]

    def require_finite(
        self,
        model: FloatArray,
        joined: npt.NDArray[np.int64],
        updates: npt.NDArray[np.float32],
        r: int,
    ) -> None:
        """Stop with a clear error if the model is no longer finite, or about to be."""
        if np.isfinite(model).all() and np.abs(model).max() < np.finfo(np.float32).max:
            return
        where = f"the model is no longer finite after round {r + 1}"
        broken = ~np.isfinite(updates).all(axis=1)
        if broken.any():
            client = int(joined[np.argmax(broken)])
            raise DivergedError(
                f"{where}: the update of client {client} is not. Lower the learning rate, or look "
                "at the scale of its features."
            )
        weights = self.federation.weight[joined] / (self.levels * self.delivery)[joined]
        largest = int(np.argmax(weights))
        raise DivergedError(
            f"{where}; the largest weight a/q of that round was {weights[largest]:.3g}, of client "
            f"{joined[largest]} at level {self.levels[joined[largest]]:.3g}. Raise its level (a "
            "floor of a / w_max bounds weights), or lower the learning rate."
        )

    def history(self, record: dict[str, npt.NDArray[Any]], model: FloatArray) -> History:
        """Return what was recorded."""
        at = record["evaluations"]
        seen = record["updates_seen"] * self.training.local_steps
        mean = np.divide(record["squares"], seen, out=np.full(seen.size, np.nan), where=seen > 0)
        largest = np.where(seen > 0, record["squares_max"], np.nan)
        return History(
            rounds=at[:, 0].astype(np.int64),
            time=at[:, 1],
            loss=at[:, 2],
            accuracy=at[:, 3],
            joined=record["joined"],
            largest_weight=record["largest_weight"],
            grad_norm=np.sqrt(mean),
            grad_norm_max=np.sqrt(largest),
            model=self.cut(model).astype(np.float32),
        )


def _kept(record: State, state: State, model: FloatArray, done: int) -> State:
    """Return what a run needs to go on after so many rounds."""
    named = {f"state.{name}": array for name, array in state.items()}
    return record | named | {"model": model, "done": np.array([done])}


def _shares(work: FloatArray, threads: int) -> list[npt.NDArray[np.int64]]:
    """Split tasks among threads, the largest first to whoever has the least."""
    if threads == 1 or work.size < 2:
        return [np.arange(work.size)]
    loads, shares = np.zeros(threads), [[] for _ in range(threads)]  # type: ignore[var-annotated]
    for task in np.argsort(-work, kind="stable"):
        least = int(np.argmin(loads))
        shares[least].append(task)
        loads[least] += work[task]
    return [np.array(share, np.int64) for share in shares if share]


def _probabilities(name: str, given: npt.ArrayLike, count: int) -> FloatArray:
    array = np.asarray(given, np.float64)
    if array.shape not in ((), (count,)):
        raise InputError(f"`{name}` must have shape ({count},); got {array.shape}.")
    if not ((array >= 0) & (array <= 1)).all():
        raise InputError(f"`{name}` must lie between 0 and 1.")
    return np.array(np.broadcast_to(array, (count,)))
