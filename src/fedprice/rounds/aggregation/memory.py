"""Participation with memory: only what remembered updates did not predict is scaled up."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice.errors import InputError
from fedprice.rounds.aggregation.filed import stored_of
from fedprice.rounds.aggregation.stored import Stored, add_weighted, bytes_needed

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray, State
    from fedprice.rounds.aggregation.base import Arrivals

__all__ = ["Memory", "Storage"]

AGES = 8  # bins of ages, in rounds: 1, 2–3, 4–7, …, 128 and more
NEVER = 1 << (AGES - 1)  # the age of what was never stored, one beyond those that are told apart
BIN = np.append(np.frexp(np.arange(1, NEVER + 1))[1] - 1, AGES)  # of each age, counted from 1
DECAY = 0.9  # per round, of what was learned about predictions
DOUBT = 2.0  # c is divided by this (1 − ρ²) a t, where that is above 1
LEAST = 1e-200  # what decays below is forgotten, before its ratios lose their digits
SEEN = 512  # numbers that updates are compared by, to find clients that are alike

NAMES = {
    (None, 0.3, 0.5): "memory",
    (None, math.inf, 0.0): "unbiased-memory",
    (1.0, math.inf, 0.0): "fedvarp",
    (0.5, math.inf, 0.0): "fedstale",
    (1.0, 0.0, 0.0): "mifa",
}


class Storage(NamedTuple):
    """What is remembered, and in what form.

    Attributes
    ----------
    rows
        How many vectors are remembered: one per client, or one per group; 0 if none fits.
    bits
        Those of a number: 32, or 8 with a scale for every 64 numbers.
    num_bytes
        The memory that they need.
    clients
        How many clients there are.
    """

    rows: int
    bits: int
    num_bytes: int
    clients: int

    def __str__(self) -> str:
        room = f"{self.num_bytes / 2**20:,.0f} MiB"
        if not self.rows:
            return "training without memory: its limit is too small even for √N groups of clients"
        if self.rows < self.clients:
            return f"memory of {self.rows:,} groups of clients, {room}"
        return f"memory of one update per client, in {self.bits} bits, {room}"


@dataclass(frozen=True)
class Memory:
    """w ← w + Σ a_n c_n h_n + Σ_joined ω_n (Δ_n − c_n h_n) / (1 − λ + λ W), W = Σ_joined a_n / p_n.

    h_n is the last update of client n, and c_n h_n what it predicts of the next one; p_n is the
    probability that an update arrives. Only what was not predicted depends on who joins, with the
    weight ω_n = a_n / p_n, or `cap` where that is larger, though at least a_n.

    The coefficient c_n is learned for each age t_n of h_n, in rounds: the one with which the step
    would have varied least in earlier rounds, so that it is fixed before the coins are drawn. With
    ρ² the share of updates of that age that was predicted, it is divided by 2 (1 − ρ²) a_n t_n
    where that is above 1: a doubtful update of a large client is not repeated until the model is
    astray.

    Parameters
    ----------
    coefficient
        c, between 0 and 1, the same for all; by default it is learned.
    cap
        The largest ω_n, unless a_n is larger.
    share
        λ, between 0 and 1, as for `TrotterTukey`.
    groups
        The group of each client, counted from 0, shape (num_clients,). One update is remembered per
        group, the mean of its members; by default one per client as long as that fits, and then
        one for each of about √num_clients groups of clients whose first updates are similar.
    limit
        The most bytes that may be remembered: 32-bit numbers while they fit, and 8-bit ones beyond.

    Notes
    -----
    With `cap=inf, share=0` it is unbiased whatever is remembered (Lemma 1 holds given the past),
    and with the best coefficient it never varies more than Horvitz–Thompson, its case c = 0. Other
    cases are FedVARP, the difference estimator (c = 1); FedStale (c = ½); and, with `cap=0`, so
    that ω_n = a_n, MIFA, which needs no probabilities.

    Warnings
    --------
    An unbounded ω_n takes back in one step, of length a_n / p_n, what a rare client's remembered
    update added in 1 / p_n rounds: a large client that joins rarely can derail training. With the
    default settings the step is biased by at most the residuals: for λ = 0 it is
    Σ a_n (p_n ω_n / a_n − 1)(Δ_n − c_n h_n).

    References
    ----------
    Särndal, Swensson, Wretman, "Model assisted survey sampling", 1992 (the regression estimator).
    Gu et al., "Fast federated learning in the presence of arbitrary device unavailability", 2021
    (MIFA). Jhunjhunwala et al., "FedVARP", 2022. Rodio and Neglia, "FedStale", 2024.

    Examples
    --------
    Two clients with half of the data each, at level ½. Whoever joins first is scaled up, to at most
    `cap`; afterwards, whatever the coins show, the step is nearly that of both:

    >>> import numpy as np
    >>> from fedprice.rounds.aggregation import Arrivals
    >>> both, half, memory = np.arange(2), np.full(2, 0.5), Memory(coefficient=1)
    >>> updates = np.array([[1.0], [3.0]])
    >>> state = memory.start(2, size=1)
    >>> for joined in (both, both[:1], both[:0]):
    ...     round_ = memory.begin(state, Arrivals(joined, half, half, size=1))
    ...     round_.add(joined, updates[joined])
    ...     print(round_.finish().round(3).tolist())
    ...     state = round_.state()
    [1.333]
    [2.0]
    [2.0]
    """

    coefficient: float | None = None
    cap: float = 0.3
    share: float = 0.5
    groups: npt.ArrayLike | None = None
    limit: int = 1 << 30

    def __post_init__(self) -> None:
        for name, most in (("coefficient", 1.0), ("cap", math.inf), ("share", 1.0)):
            value = getattr(self, name)
            if value is None and name == "coefficient":
                continue
            if not (isinstance(value, int | float) and 0 <= value <= most):
                between = "at least 0" if most == math.inf else "between 0 and 1"
                raise InputError(f"`{name}` of a memory must be {between}; got {value!r}.")
        if not (isinstance(self.limit, int) and self.limit >= 0):
            raise InputError(f"`limit` must be a whole number of bytes; got {self.limit!r}.")

    @property
    def name(self) -> str:
        """A name for results and checkpoints, with the settings unless they have a name."""
        c = "learned" if self.coefficient is None else f"{self.coefficient:g}"
        name = NAMES.get((self.coefficient, self.cap, self.share))
        name = name or f"memory-{c}-{self.cap:g}-{self.share:g}"
        return name if self.groups is None else f"{name}, of groups"

    def storage(self, num_clients: int, size: int) -> Storage:
        """Return what is remembered of so many clients, whose updates have so many numbers."""
        if self.groups is not None:
            rows = 1 + int(self._given_groups(num_clients).max(initial=-1))
            forms = [(rows, 32), (rows, 8)]
        else:
            forms = [(num_clients, 32), (num_clients, 8), (math.isqrt(num_clients), 32)]
        for rows, bits in forms:
            needed = bytes_needed(rows, size, bits)
            if needed <= self.limit:
                return Storage(rows, bits, needed, num_clients)
        return Storage(0, 32, 0, num_clients)

    def _given_groups(self, num_clients: int) -> IntArray:
        groups = np.asarray(self.groups)
        if groups.shape != (num_clients,) or groups.dtype.kind not in "iu" or (groups < 0).any():
            raise InputError(
                f"`groups` must be {num_clients} whole numbers, one per client, counted from 0; "
                f"got shape {groups.shape} of type {groups.dtype}."
            )
        return groups.astype(np.int64)

    def start(self, num_clients: int, size: int) -> State:
        """Remember nothing yet."""
        storage = self.storage(num_clients, size)
        rows, bits, needed, _ = storage
        if rows < (num_clients if self.groups is None else 1):
            warnings.warn(str(storage), stacklevel=2)
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > machine:
            raise InputError(
                f"remembering one update per client takes {needed:,} bytes, but this machine has "
                f"{machine:,}. Lower `limit` (now {self.limit:,}): fewer bits or groups follow."
            )
        state = Stored.empty(rows, size, bits).arrays | {
            "stored": np.full(rows, -1),
            "squares": np.zeros(rows),
            "round": np.zeros(1, np.int64),
            "learned": np.zeros((3, AGES)),
        }
        if self.groups is not None and rows:
            state["group"] = self._given_groups(num_clients)
        elif rows < num_clients:
            state["group"] = np.full(num_clients, -1)
        return state

    def carry(self, before: State, state: State, places: IntArray) -> None:
        """Fill the state of a new period with what was remembered in the one before.

        Parameters
        ----------
        before, state
            The states of the earlier period and of the new one, which is changed.
        places
            The number that each client had before, −1 for newcomers.
        """
        grouped, known = "group" in state, np.flatnonzero(places >= 0)
        if before["rows"].shape[1:] != state["rows"].shape[1:] or ("group" in before) != grouped:
            return  # another model, or another form
        if grouped and before["stored"].size != state["stored"].size:
            return
        rows, theirs = known, places[known]
        if grouped:
            rows = theirs = np.arange(state["stored"].size)
            if self.groups is None:
                state["group"][known] = before["group"][places[known]]
        there = before["stored"][theirs] >= 0
        rows, theirs = rows[there], theirs[there]
        stored_of(state).copy(rows, stored_of(before), theirs)
        for name in ("stored", "squares"):
            state[name][rows] = before[name][theirs]
        state["round"][:], state["learned"][:] = before["round"], before["learned"]

    def begin(self, state: State, arrivals: Arrivals) -> _Residuals:
        """Begin a round."""
        return _Residuals(self, state, arrivals)


class _Residuals:
    """The updates of a round beside what was remembered before it."""

    def __init__(self, memory: Memory, state: State, arrivals: Arrivals) -> None:
        self._memory, self._state, self._arrivals = memory, state, arrivals
        self._rows = stored_of(state, arrivals.size)
        self._clients: list[IntArray] = []
        self._updates: list[npt.NDArray[Any]] = []
        self._bins_of_round: IntArray | None = None
        self.coefficient = 0.0  # the mean over the rows, once it is known

    def add(self, clients: IntArray, updates: npt.NDArray[Any]) -> None:
        """Keep some updates until the round is over."""
        grouped = "group" in self._state
        held = [(clients, np.array(updates))] if grouped else self._rows.hold(clients, updates)
        for some, own in held:
            self._clients.append(some)
            self._updates.append(own)

    def _joined(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return who joined, with a_n and a_n / p_n."""
        clients = np.concatenate(self._clients) if self._clients else np.zeros(0, np.int64)
        weight = self._arrivals.weight[clients]
        return clients, weight, weight / self._arrivals.probability[clients]

    def _rows_of(self, clients: IntArray) -> IntArray:
        """Return the row of each client, −1 for those that have none yet."""
        rows: IntArray = self._state["group"][clients] if "group" in self._state else clients
        return rows

    def _row_weights(self) -> FloatArray:
        """Return a_n, summed over the clients of each row."""
        weight = self._arrivals.weight
        if "group" in self._state:
            rows, count = self._state["group"] + 1, self._state["stored"].size + 1
            return np.asarray(np.bincount(rows, weight, count)[1:], np.float64)
        return weight[: self._state["stored"].size]

    def _bins(self) -> IntArray:
        """Return the bin of the age of each row, and last that of those without: `AGES`."""
        if self._bins_of_round is None:
            stored = self._state["stored"]
            bins = np.full(stored.size + 1, AGES)
            age = np.minimum(self._state["round"] - stored, NEVER)
            bins[:-1] = np.where(stored < 0, AGES, BIN[age - 1])
            self._bins_of_round = bins
        return self._bins_of_round

    def _coefficients(self, weight: FloatArray) -> FloatArray:
        """Return c_n of each row and its weight a_n, and last that of those without: 0."""
        learned, bins = self._learned(), self._bins()
        c: FloatArray = learned[0, bins]
        if self._memory.coefficient is None:
            age = self._state["round"] - self._state["stored"]
            c[:-1] /= np.maximum(weight * age * learned[1, bins[:-1]], 1)
        return c

    def _learned(self) -> FloatArray:
        """Return c and the doubt in it by the bin of the age, 0 for what is not there."""
        learned, unknown, least, most = np.zeros((2, AGES + 1)), 0, 1.0, 0.0
        if self._memory.coefficient is not None:
            learned[0, :AGES] = self._memory.coefficient
            return learned
        # An older update predicts no better than a younger one; a bin without data takes what the
        # next older one has, which spaced coins need: nobody is younger than the space.
        for at, (product, square, own) in enumerate(self._state["learned"].T.tolist()):
            if square > LEAST:
                least = min(max(product / square, 0.0), least)
                explained = max(product, 0.0) ** 2 / (square * own) if own > LEAST else 0.0
                most = max(DOUBT * (1 - explained), most)
                learned[:, unknown : at + 1], unknown = [[least], [most]], at + 1
        return learned

    def finish(self) -> FloatArray:
        """Return the step."""
        clients, weight, scaled = self._joined()
        everyone = self._row_weights()
        c = self._coefficients(everyone)
        self.coefficient = float(c[:-1].mean()) if c.size > 1 else 0.0
        factors = c[:-1] * everyone
        total = np.zeros(self._arrivals.size)
        if clients.size:
            share = self._memory.share
            own = np.maximum(weight, np.minimum(scaled, self._memory.cap))
            total_weight = sum(scaled.tolist())  # in order, however they were added
            own /= (1 - share + share * total_weight) or 1.0
            add_weighted(total, own, self._updates)
            rows = self._rows_of(clients)
            own *= c[rows]
            np.subtract.at(factors, rows[own > 0], own[own > 0])
        if factors.any():
            self._rows.add_to(total, factors)
        return total

    def state(self) -> State:
        """Return what is remembered after the round."""
        clients, weight, scaled = self._joined()
        state = self._state
        if self._memory.coefficient is None:
            state["learned"] *= DECAY
        if clients.size and state["stored"].size:
            if self._memory.coefficient is None:
                self._learn(clients, scaled * (scaled - weight))
            if "group" in state:
                self._store_groups(clients, scaled)
            else:
                for own, updates in zip(self._clients, self._updates, strict=True):
                    self._store(own, updates)
        state["round"] += 1
        self._clients, self._updates = [], []
        return state

    def _learn(self, clients: IntArray, variance: FloatArray) -> None:
        """Add to what coefficients are learned from; `variance` is a_n² (1 − p_n) / p_n²."""
        rows, squares = self._rows_of(clients), self._state["squares"]
        bins, first = self._bins()[rows], 0
        for updates in self._updates:
            some = slice(first, first := first + len(updates))
            known = np.flatnonzero(bins[some] < AGES)
            if known.size:
                own, of, by = rows[some][known], bins[some][known], variance[some][known]
                whole = known.size == len(updates)  # then a copy is spared
                found, length = self._rows.times(own, updates if whole else updates[known])
                sums = by * np.array([found, squares[own], length])
                np.add.at(self._state["learned"].T, of, sums.T)

    def _store(self, rows: IntArray, vectors: npt.NDArray[Any]) -> None:
        self._state["squares"][rows] = self._rows.write(rows, vectors)
        self._state["stored"][rows] = self._state["round"]

    def _store_groups(self, clients: IntArray, scaled: FloatArray) -> None:
        """Move each group's update towards the mean of its members that joined."""
        state, updates = self._state, np.concatenate(self._updates)
        self._group(clients, updates)
        everyone = self._row_weights()
        rows = self._rows_of(clients)
        for row in np.unique(rows).tolist():
            members = np.flatnonzero(rows == row)
            weight = float(scaled[members].sum())
            if not weight:
                continue  # clients without samples change nothing
            pace = 1.0 if state["stored"][row] < 0 else min(1.0, weight / everyone[row])
            place = np.array([row])
            vector = (1 - pace) * self._rows.read(place)[0].astype(np.float64)
            add_weighted(vector, pace / weight * scaled[members], [updates[members]])
            self._store(place, vector[None])

    def _group(self, clients: IntArray, updates: npt.NDArray[Any]) -> None:
        """Let newcomers found groups while there are rows, and then join the most similar one."""
        group, count = self._state["group"], self._state["stored"].size
        new = np.flatnonzero(group[clients] < 0)
        free = count - 1 - int(group.max())
        founders, others = new[:free], new[free:]
        founded = count - free + np.arange(founders.size)
        group[clients[founders]] = founded
        if others.size:
            seen = slice(0, None, -(-self._arrivals.size // SEEN))
            leaders = self._rows.read(np.arange(count))[:, seen].astype(np.float64)
            leaders[self._state["stored"] < 0] = 0
            leaders[founded] = updates[founders, seen]
            leaders /= np.maximum(np.linalg.norm(leaders, axis=1, keepdims=True), 1e-300)
            for i in others.tolist():
                group[clients[i]] = np.einsum("ij,j->i", leaders, updates[i, seen]).argmax()
