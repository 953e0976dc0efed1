"""The round loop: coins → call → arrive → admit → aggregate → server step → record.

`Rounds` is a run between its rounds, `Round` the current one. They are driven by the code that
carries the messages: `fedprice.rounds.simulation` in one process, `fedprice.flower` over a
network::

    while rounds.done < rounds.total:
        round_ = rounds.begin()                    # coins
        round_.expect(clients)                     # call: the clients whose updates will come
        for some, updates in arriving(round_):
            round_.arrive(some, updates)           # arrive → admit → aggregate
        model = round_.propose()                   # server step, to inspect it before it is taken
        round_.close()                             # record

Who takes part, what is admitted and what is stored are three small parameters of the loop:
a `Participation`, an `Admission` and a `Keeper`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedprice._plumbing.arrays import in_parts
from fedprice.errors import DivergedError
from fedprice.learning.layout import Layout
from fedprice.rounds.aggregation.base import Arrivals
from fedprice.rounds.aggregation.filed import in_file
from fedprice.rounds.aggregation.memory import Memory
from fedprice.trackers import RoundRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from fedprice._plumbing.arrays import Arrays, BoolArray, FloatArray, IntArray, State
    from fedprice.learning.task import Updates
    from fedprice.rounds.aggregation.base import Aggregator, Collector
    from fedprice.rounds.participation import Participation
    from fedprice.rounds.server_step import ServerStep

    # (round, clients, their updates) → which of them may touch the model.
    Admission = Callable[[int, IntArray, Updates], BoolArray]

ALARM, EXPLODED = 10.0, 100.0  # multiples of its start at which a loss is called so

__all__ = ["Keeper", "Round", "Rounds", "group"]


class Keeper(Protocol):
    """Stores what a run needs to resume after a round.

    Attributes
    ----------
    file
        The name of a file for large vectors that `Memory` remembers, which are then neither kept in
        memory nor part of what is stored; None if there is no place for one.
    """

    file: Path | None

    def restore(self) -> State | None:
        """Return what was stored after the last round, if anything."""

    def keep(self, round_: int, model: Arrays, state: Callable[[], State]) -> None:
        """Store a round that is over.

        Parameters
        ----------
        round_
            The round, counted from 0.
        model
            The model after it, as clients get it.
        state
            Returns what the run needs to resume from here.
        """


class Rounds:
    """A run between its rounds.

    Parameters
    ----------
    initial
        The model to start from.
    layout
        How its arrays become flat vectors, and which of them are buffers; inferred by default.
    ids, weight
        The clients' names and their shares of the data, a_n.
    total
        How many rounds the run has.
    participation
        Who takes part.
    aggregator, server_step
        How updates become an estimate, and the estimate a change of the model.
    admit
        Which updates may touch the model; by default all.
    keeper
        What stores each round; by default nothing is stored.

    Attributes
    ----------
    done
        Rounds done.
    vector, buffers, model
        The model as the server stores it, in flat vectors of 64 bits for parameters and buffers;
        and as clients get it.
    notes
        What the driver of the loop wants stored with its state, by name.
    record
        What was observed: updates and the largest weight of each round; sums of squared norms and
        counts of each client.
    """

    def __init__(
        self,
        initial: Arrays,
        *,
        layout: Layout | None = None,
        ids: Sequence[str],
        weight: FloatArray,
        total: int,
        participation: Participation,
        aggregator: Aggregator,
        server_step: ServerStep,
        admit: Admission | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.layout = layout or Layout.of(initial)
        self.layout = self.layout.sized(sum(a.size for a in self.layout.parameters(initial)))
        self.ids, self.weight, self.total = ids, weight, total
        self.participation, self.aggregator = participation, aggregator
        self.server_step, self.admit, self.keeper = server_step, admit, keeper
        self.done, self.vector = 0, self.layout.flat(initial)
        self.buffers = self.layout.flat_buffers(initial)
        self.model = self.layout.arrays(self.vector, self.buffers)
        self._aggregated = aggregator.start(weight.size, self.layout.size)
        self._stepped = server_step.start(self.layout.size)
        self.notes: State = {}
        self.record: State = {
            "joined": np.zeros(total, np.int64),
            "largest_weight": np.zeros(total),
            "squares": np.zeros(weight.size),
            "squares_max": np.zeros(weight.size),
            "gradients_seen": np.zeros(weight.size, np.int64),
            "update_squares": np.zeros(weight.size),
            "updates_seen": np.zeros(weight.size, np.int64),
        }
        kept = None if keeper is None else keeper.restore()
        if kept is not None:
            self.restore(kept)
        is_memory = isinstance(
            aggregator, Memory
        )  # the rows of others are in the state as they are
        if is_memory and keeper is not None and keeper.file is not None:
            self._aggregated = in_file(self._aggregated, keeper.file)

    def state(self) -> State:
        """Return all that the run needs to resume from here."""
        groups = {
            "record": self.record,
            "notes": self.notes,
            "aggregator": self._aggregated,
            "step": self._stepped,
        }
        state = {"model": self.vector, "done": np.array([self.done]), "how": self._how}
        state |= {"buffers": self.buffers} if self.buffers.size else {}
        for group, arrays in groups.items():
            state |= {f"{group}.{name}": array for name, array in arrays.items()}
        if "stored" in self._aggregated:
            state["ids"] = np.array(list(self.ids))  # whose updates are remembered
        return state

    @property
    def _how(self) -> npt.NDArray[Any]:
        return np.array([self.aggregator.name, self.server_step.name])

    def restore(self, state: State) -> None:
        """Resume from what `state` returned; another aggregator or server step starts afresh."""
        self.record, self.notes = group(state, "record"), group(state, "notes")
        self.done = int(state["done"][0])
        if state["how"][0] == self._how[0]:
            self._aggregated = group(state, "aggregator")
        self._continue(state)

    def follow(self, state: State) -> None:
        """Continue from the model of an earlier period, its server step and what it remembered.

        A server step or a memory of another kind starts afresh, as all else does.
        """
        self._continue(state)
        if isinstance(self.aggregator, Memory) and state["how"][0] == self._how[0]:
            before = {name: place for place, name in enumerate(state["ids"].tolist())}
            places = np.array([before.get(name, -1) for name in self.ids])
            self.aggregator.carry(group(state, "aggregator"), self._aggregated, places)

    def _continue(self, state: State) -> None:
        """Go on from a model, and from a server step of the same kind."""
        self.vector, self.buffers = state["model"], state.get("buffers", np.zeros(0))
        self.layout = self.layout.sized(self.vector.size)
        self.model = self.layout.arrays(self.vector, self.buffers)
        if state["how"][1] == self._how[1]:
            self._stepped = group(state, "step")

    def begin(self) -> Round:
        """Draw the coins of the next round."""
        return Round(self)


class Round:
    """The current round.

    Attributes
    ----------
    number
        The number of the round, counted from 0.
    heads
        The clients whose coins show heads, in rising order.
    model
        The model that they receive.
    probability
        The probability q ρ that each client's update arrives.
    length
        The length of the model's step, once it is proposed.
    """

    def __init__(self, rounds: Rounds) -> None:
        self._rounds, self.number, self.model = rounds, rounds.done, rounds.model
        self.heads = rounds.participation.heads(self.number)
        self.probability = rounds.participation.arrival()
        self._joined, self._largest, self._heaviest = 0, 0.0, -1
        self._weights = 0.0
        self._seen: list[tuple[Any, ...]] = []
        self.length = 0.0
        self._expected = self.heads
        self._collector: Collector | None = None
        self._buffers, self._buffer_weight = np.zeros(rounds.layout.buffer_size), 0.0
        self._proposed: tuple[FloatArray, FloatArray, State, Arrays] | None = None

    def expect(self, clients: IntArray) -> None:
        """Set the clients whose updates will come, in rising order; by default all with heads."""
        self._expected = clients

    def _collecting(self) -> Collector:
        """Return the collector of the updates, created when the first of them arrives."""
        if self._collector is None:
            rounds = self._rounds
            arrivals = Arrivals(self._expected, rounds.weight, self.probability, rounds.layout.size)
            self._collector = rounds.aggregator.begin(rounds._aggregated, arrivals)
        return self._collector

    def arrive(self, clients: IntArray, updates: Updates) -> BoolArray:
        """Take the updates of some clients, in rising order; return which of them were admitted."""
        rounds, values, buffers = self._rounds, updates.values, updates.buffers
        squares, largest, norms = updates.squares, updates.largest, updates.norms
        admitted = np.ones(clients.size, np.bool_)
        if rounds.admit is not None:
            admitted = rounds.admit(self.number, clients, updates)
            if not admitted.all():
                clients, values = clients[admitted], values[admitted]
                squares = None if squares is None else squares[admitted]
                largest = None if largest is None else largest[admitted]
                buffers = None if buffers is None else buffers[admitted]
                norms = None if norms is None else norms[admitted]
        if not clients.size:
            return admitted
        own = self._squares(clients, values) if norms is None else norms**2
        self._collecting().add(clients, values)
        weights = rounds.weight[clients] / self.probability[clients]
        if buffers is not None:
            for weight, own_buffers in zip(weights.tolist(), buffers, strict=True):
                self._buffers += (
                    weight * own_buffers
                )  # in order: bit-identical however updates are batched
                self._buffer_weight += weight
        at = int(weights.argmax())
        if weights[at] > self._largest:
            self._largest, self._heaviest = float(weights[at]), int(clients[at])
        self._joined += clients.size
        self._weights += float(weights.sum())
        self._seen.append((clients, own, squares, largest, updates.gradients))
        return admitted

    def _squares(self, clients: IntArray, values: npt.NDArray[Any]) -> FloatArray:
        """Return the squared norms of updates; refuse updates that are not finite."""
        squares: FloatArray = np.einsum("ij,ij->i", values, values).astype(np.float64)
        if not math.isfinite(squares.sum()):  # checks the sum instead of every number
            broken = ~np.isfinite(values).all(axis=1)
            if broken.any():
                client = self._rounds.ids[int(clients[np.argmax(broken)])]
                raise DivergedError(
                    f"round {self.number + 1}: the update of client {client!r} is not finite. "
                    "Lower the learning rate, or look at the scale of its features."
                )
            squares = np.einsum("ij,ij->i", values, values, dtype=np.float64)
        return squares

    def propose(self) -> Arrays:
        """Return the model after the server's step, which `close` takes; nothing is changed yet.

        Raises
        ------
        DivergedError
            If the model would no longer be finite.
        """
        return (self._proposed or self._propose())[3]

    def _propose(self) -> tuple[FloatArray, FloatArray, State, Arrays]:
        rounds, estimate = self._rounds, self._collecting().finish()
        change, stepped = rounds.server_step.change(rounds._stepped, estimate)
        vector = np.empty_like(rounds.vector)
        in_parts(
            vector.size, lambda part: np.add(rounds.vector[part], change[part], out=vector[part])
        )
        # Unbiased weights do not add up to 1, and running statistics are not steps: a variance
        # would become negative. Buffers are averaged over the clients that joined.
        buffers = self._buffers / self._buffer_weight if self._buffer_weight else rounds.buffers
        if not rounds.layout.holds(vector, buffers):
            raise DivergedError(self.blame("the model is no longer finite"))
        squares = in_parts(change.size, lambda part: np.einsum("i,i->", change[part], change[part]))
        self.length = math.sqrt(sum(squares))
        self._proposed = vector, buffers, stepped, rounds.layout.arrays(vector, buffers)
        return self._proposed

    def take(self, model: Arrays) -> None:
        """Propose a model that was made elsewhere from the updates that were admitted.

        Raises
        ------
        DivergedError
            If it is not finite.
        """
        rounds = self._rounds
        layout = rounds.layout.sized(sum(array.size for array in rounds.layout.parameters(model)))
        vector, buffers = layout.flat(model), layout.flat_buffers(model)
        if not layout.holds(vector, buffers):
            raise DivergedError(self.blame("the model is no longer finite"))
        self._proposed = vector, buffers, rounds._stepped, layout.arrays(vector, buffers)

    def judge(self, start: float, loss: float, after: int, *, stops: bool = True) -> str | None:
        """Return a line that blames this round if the loss rose far above its start.

        Parameters
        ----------
        start, loss, after
            The loss before the first round and now, after so many rounds.
        stops
            Whether a loss that exploded raises an error, too, not only one that is not finite.

        Raises
        ------
        DivergedError
            If it exploded: the round should not be accepted.
        """
        finite = math.isfinite(loss)
        rise = loss / start if finite and start > 0 else 0.0  # other losses have no known scale
        if finite and rise <= ALARM:
            return None
        what = f"the loss is {loss:.4g} after round {after} (it began at {start:.4g})"
        if after > self.number + 1:
            what = f"the longest step since the last evaluation; {what}"
        if not finite or (stops and rise > EXPLODED):
            raise DivergedError(self.blame(what))
        return self.blame(what)

    def close(self) -> None:
        """Take the step, and record the round."""
        rounds = self._rounds
        proposed = self._proposed or self._propose()
        rounds.vector, rounds.buffers, rounds._stepped, rounds.model = proposed
        rounds.layout = rounds.layout.sized(rounds.vector.size)
        rounds._aggregated = self._collecting().state()
        self._record()
        rounds.done = self.number + 1
        if rounds.keeper is not None:
            rounds.keeper.keep(self.number, rounds.model, rounds.state)

    def report(self, metrics: Mapping[str, Any], spend: float | None = None) -> RoundRecord:
        """Return what the round did, for trackers."""
        joined = [self._rounds.ids[n] for clients, *_ in self._seen for n in clients.tolist()]
        return RoundRecord(
            round=self.number + 1,
            joined=tuple(joined),
            metrics=metrics,
            largest_weight=self._largest,
            total_weight=self._weights,
            spend=spend,
            coefficient=getattr(self._collector, "coefficient", None),
        )

    def _record(self) -> None:
        record = self._rounds.record
        record["joined"][self.number] = self._joined
        record["largest_weight"][self.number] = self._largest
        for clients, own, squares, largest, gradients in self._seen:
            record["update_squares"][clients] += own
            record["updates_seen"][clients] += 1
            if squares is not None:
                record["squares"][clients] += squares
                record["squares_max"][clients] = np.maximum(record["squares_max"][clients], largest)
                record["gradients_seen"][clients] += gradients

    def blame(self, what: str) -> str:
        """Return a line that names this round, its largest weight, and the remedy."""
        where = f"round {self.number + 1}: {what}"
        if self._heaviest < 0:
            return f"{where}. Lower the learning rate."
        return (
            f"{where}; its largest weight a/q was {self._largest:.3g}, of client "
            f"{self._rounds.ids[self._heaviest]!r}, whose updates arrive with probability "
            f"{self.probability[self._heaviest]:.3g}. Set a largest weight in pricing (it raises "
            "low levels), lower the learning rate, or bound the server's steps."
        )


def group(state: State, name: str) -> State:
    """Return what a state has under a name."""
    start = f"{name}."
    return {k[len(start) :]: array for k, array in state.items() if k.startswith(start)}
