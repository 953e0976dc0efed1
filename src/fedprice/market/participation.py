"""A market in the round loop: its coins decide who joins, and its ledger records every round."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError
from fedprice.learning.layout import Layout
from fedprice.market.agreement import Agreement
from fedprice.market.ledger import DamagedError, LedgerError
from fedprice.market.messages import ANY
from fedprice.market.updates import arrays_hash
from fedprice.rounds.aggregation.filed import MappedRows, reopened
from fedprice.rounds.loop import Rounds, group
from fedprice.verify import next_period, run_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedprice._plumbing.arrays import Arrays, FloatArray, IntArray, State
    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import ModelSchema
    from fedprice.market.run import MarketRun
    from fedprice.rounds import Aggregator, ServerStep
    from fedprice.rounds.loop import Admission

__all__ = [
    "LedgerKeeper",
    "SharedCoins",
    "last_trained",
    "layout_of",
    "market_rounds",
    "model_of",
    "state_after",
]


class SharedCoins:
    """Participation by the coins that server and clients agreed on; clients count from 0."""

    def __init__(self, market: MarketRun) -> None:
        self._market = market
        self._numbers = {name: n for n, name in enumerate(market.agreement.deals)}

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose shared coin shows heads."""
        self._market.require_round(round_)
        return np.array([self._numbers[name] for name in self._market.heads()], np.int64)

    def arrival(self) -> FloatArray:
        """Return q ρ of each client, as in its weight in this round."""
        return np.array([self._market.arrival(name) for name in self._numbers])


class LedgerKeeper:
    """Records every round in the ledger, with the state that a stopped run resumes from."""

    def __init__(self, market: MarketRun) -> None:
        self._market = market
        self.file = _rows_file(market.ledger, market.agreement.run)
        before = market.agreement.follows
        self._file_before = _rows_file(market.ledger, before) if before else None

    def restore(self) -> State | None:
        """Return the state that the ledger stored with the last round."""
        state, agreement = self._market.state, self._market.agreement
        if state is not None:
            self._market.require_model(_arrays_of(agreement.run, agreement.schema, state))
            state = _with_rows(self._market.ledger, agreement.run, state)
        return state

    def keep(self, round_: int, model: Arrays, state: Callable[[], State]) -> None:
        """Record the round."""
        arrays = state().items()
        kept = {name: array for name, array in arrays if not isinstance(array, MappedRows)}
        self._market.close_round(arrays_hash(model), kept)
        if self._file_before is not None:
            self._file_before.unlink(missing_ok=True)  # this period has its own now


def market_rounds(
    market: MarketRun,
    initial: Arrays,
    *,
    aggregator: Aggregator,
    server_step: ServerStep,
    admit: Admission | None,
    before: State | None,
) -> Rounds:
    """Return the rounds of a market, resumed where its ledger ends.

    Parameters
    ----------
    initial, aggregator, server_step
        As for `Rounds`.
    admit
        As for `Rounds`; None where updates are checked before they arrive.
    before
        The state that the previous period left, if this is not the first one.
    """
    samples = np.array([terms.samples for terms in market.agreement.terms.values()])
    loop = Rounds(
        initial,
        layout=layout_of(market.agreement.schema),
        ids=list(market.agreement.deals),
        weight=samples / samples.sum(),
        total=market.agreement.rounds,
        participation=SharedCoins(market),
        aggregator=aggregator,
        server_step=server_step,
        admit=admit,
        keeper=LedgerKeeper(market),
    )
    if loop.done != market.round:
        raise InputError(f"run {market.agreement.run!r} kept no state to resume from.")
    if before is not None and not loop.done:
        loop.follow(_with_rows(market.ledger, market.agreement.follows, before))
    return loop


def layout_of(schema: ModelSchema) -> Layout:
    """Return the layout of a model that a schema describes."""
    shapes = tuple((0,) if shape == ANY else tuple(shape) for shape in schema.shapes)
    return Layout(shapes, tuple(map(np.dtype, schema.dtypes)), tuple(schema.buffers))


def state_after(ledger: Ledger, period: str, layout: Layout) -> State:
    """Return the state that a finished period left, from which the next one continues."""
    _, state = ledger.progress(period)
    if state is None:
        raise InputError(f"period {period!r} kept no model to continue from.")
    try:
        layout.sized(state["model"].size)
    except InputError as error:
        raise InputError(f"period {period!r} trained another model.") from error
    return state


def last_trained(ledger: Ledger, run: str) -> str:
    """Return the last period of a run with a recorded round; a later period is returned as is."""
    runs, period = ledger.books.runs, run
    if run != run_of(run):
        return run
    while (following := next_period(period)) in runs and runs[following].done:
        period = following
    return period


def model_of(ledger: Ledger, period: str) -> State:
    """Return the model after the last round of a period, as clients get it: its arrays by name.

    Raises
    ------
    LedgerError
        If there is no such period, if it has no model yet, or if the model is not the one whose
        hash the ledger recorded.
    """
    rounds, state = ([], None) if period in ledger.books.offered else ledger.progress(period)
    if not rounds:
        raise LedgerError(f"run {period!r} has no model yet: none of its rounds is recorded.")
    if state is None or "attempt" not in (ledger.opening(period) or {}):
        raise LedgerError(f"run {period!r} kept no model: its rounds were recorded without one.")
    schema = Agreement.load(ledger, period).schema
    arrays = _arrays_of(period, schema, state)
    if arrays_hash(arrays) != rounds[-1]["model"]:
        raise DamagedError(f"the state of run {period!r} has another model.")
    return dict(zip(schema.names, arrays, strict=True))


def _rows_file(ledger: Ledger, period: str) -> Path | None:
    """Return the name of a period's file beside the ledger; None if it is in none."""
    if ledger.file is None:
        return None
    digest = hashlib.sha256(f"{ledger.identity} {period}".encode()).hexdigest()
    return ledger.file.with_name(f"{ledger.file.name}-rows-{digest[:16]}")


def _with_rows(ledger: Ledger, period: str, state: State) -> State:
    """Return a state with the vectors that are in a file beside the ledger."""
    aggregated = group(state, "aggregator")
    if "place" not in aggregated:
        return state
    rows = reopened(aggregated, _rows_file(ledger, period))
    rest = {name: array for name, array in state.items() if not name.startswith("aggregator.")}
    return rest | {f"aggregator.{name}": array for name, array in rows.items()}


def _arrays_of(period: str, schema: ModelSchema, state: State) -> Arrays:
    """Return the model in the state of a period, as clients get it."""
    buffers = state.get("buffers", np.zeros(0))
    try:
        layout = layout_of(schema).sized(state["model"].size)
        if buffers.size != layout.buffer_size:
            raise InputError("its buffers are of another size.")
    except (KeyError, InputError) as error:
        raise DamagedError(f"the state of run {period!r} has another model.") from error
    return layout.arrays(state["model"].reshape(-1), buffers)
