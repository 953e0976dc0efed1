"""A market in the round loop: its coins decide who takes part, its ledger keeps every round."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError
from fedprice.learning.layout import Layout
from fedprice.market.updates import arrays_hash
from fedprice.rounds.loop import Rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.arrays import Arrays, FloatArray, IntArray, State
    from fedprice.market.ledger import Ledger
    from fedprice.market.run import MarketRun
    from fedprice.rounds import Aggregator, ServerStep
    from fedprice.rounds.loop import Admission

__all__ = ["LedgerKeeper", "SharedCoins", "market_rounds", "state_after", "unpacked"]


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
        """Return q ρ of each client, as its weight in this round has it."""
        return np.array([self._market.arrival(name) for name in self._numbers])


class LedgerKeeper:
    """Records every round in the ledger, with what a stopped run needs to go on."""

    def __init__(self, market: MarketRun) -> None:
        self._market = market

    def restore(self) -> State | None:
        """Return what the ledger kept with the last round."""
        kept = self._market.state
        if kept is None:
            return None
        state = unpacked(kept)
        schema = self._market.agreement.schema
        layout = Layout(tuple(map(tuple, schema.shapes)), tuple(map(np.dtype, schema.dtypes)))
        self._market.require_model(layout.arrays(state["model"]))
        return state

    def keep(self, round_: int, model: Arrays, state: Callable[[], State]) -> None:
        """Record the round."""
        kept = io.BytesIO()
        named: dict[str, Any] = dict(state())
        np.savez(kept, **named)
        self._market.close_round(arrays_hash(model), kept.getvalue())


def market_rounds(
    market: MarketRun,
    initial: Arrays,
    *,
    aggregator: Aggregator,
    server_step: ServerStep,
    admit: Admission,
    before: State | None,
) -> Rounds:
    """Return the rounds of a market, taken up where its ledger ends.

    Parameters
    ----------
    initial, aggregator, server_step, admit
        As for `Rounds`.
    before
        What the period before left behind, if this is not the first one.
    """
    samples = np.array([terms.samples for terms in market.agreement.terms.values()])
    loop = Rounds(
        initial,
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
        raise InputError(f"run {market.agreement.run!r} kept no state to go on from.")
    if before is not None and not loop.done:
        loop.follow(before)
    return loop


def state_after(ledger: Ledger, period: str, layout: Layout) -> State:
    """Return the state that a finished period left behind, to go on from in the next one."""
    _, kept = ledger.progress(period)
    if kept is None:
        raise InputError(f"period {period!r} kept no model to go on from.")
    state = unpacked(kept)
    if state["model"].size != layout.size:
        raise InputError(f"period {period!r} trained another model.")
    return state


def unpacked(kept: bytes) -> State:
    """Return the state that a ledger kept."""
    with np.load(io.BytesIO(kept), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
