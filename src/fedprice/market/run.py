"""`MarketRun`: the server's side of one run, whatever carries its messages.

It knows who drew heads, checks what they send, gives each update its weight, and closes a round
with one entry of the ledger. It starts where the ledger ends: after a crash, the same call goes on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fedprice.market.audit import delivery_estimate
from fedprice.market.ledger import Delivered, LedgerError
from fedprice.market.messages import RefusedError
from fedprice.market.money import LEVEL_ONE
from fedprice.market.updates import UpdateDesk, arrays_hash, arrays_norm, shown_grad_norm

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fedprice.market.agreement import Agreement
    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import Signed

__all__ = ["MarketRun"]


class MarketRun:
    """A run between its rounds, as the server sees it.

    Parameters
    ----------
    ledger
        Where everything is recorded.
    agreement
        What server and clients signed.
    budget
        The most that the run may cost, in micro-units; it comes from the treasury.
    norm_cap
        The largest norm of an update that is accepted.

    Attributes
    ----------
    round
        The round that comes next, counted from 0.
    """

    def __init__(
        self, ledger: Ledger, agreement: Agreement, budget: int, *, norm_cap: float = math.inf
    ) -> None:
        self.ledger, self.agreement = ledger, agreement
        ledger.open_run(
            agreement.run, budget, agreement.terms, rounds=agreement.rounds, agreement=agreement
        )
        self.round = 0
        self._total = sum(terms.samples for terms in agreement.terms.values())
        self._drawn = dict.fromkeys(agreement.deals, 0)
        self._delivered = dict.fromkeys(agreement.deals, 0)
        self._desk = UpdateDesk(agreement.run, agreement.schema, agreement.keys, norm_cap)
        self._model = ""
        self._joined: dict[str, Delivered] = {}
        self._refused: dict[str, str] = {}
        for entry in ledger.entries(agreement.run):
            if entry.content["kind"] == "round":
                content = entry.content
                self._count(content["joined"], [*content["missed"], *content["refused"]])
                self._desk.seen.update(update for update, *_ in content["joined"].values())
                self._model = content["model"]

    def require_model(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Refuse to go on from a model that is not the one after the last recorded round."""
        if arrays_hash(arrays) != self._model:
            raise LedgerError(f"the state of run {self.agreement.run!r} has another model.")

    def heads(self) -> list[str]:
        """Return the clients that drew heads for this round, in the agreement's order."""
        return [name for name, coins in self.agreement.coins.items() if coins.heads(self.round)]

    def delivery(self, client: str) -> float:
        """Return ρ, how likely a client's update is accepted after heads, from what was seen."""
        return float(delivery_estimate(self._drawn[client], self._delivered[client]))

    def arrival(self, client: str) -> float:
        """Return q ρ, how likely a client's update is accepted in this round."""
        return self.agreement.terms[client].level / LEVEL_ONE * self.delivery(client)

    def weight(self, client: str) -> float:
        """Return the weight a / (q ρ) of a client's update in this round."""
        return self.agreement.terms[client].samples / self._total / self.arrival(client)

    def accept(
        self,
        client: str,
        signed: Signed,
        arrays: Sequence[npt.NDArray[Any]],
        *,
        learning_rate: float,
        local_steps: int,
    ) -> bool:
        """Take an update that a client sent for this round; return whether it may be used.

        Parameters
        ----------
        client, signed, arrays
            Who sent it, and what.
        learning_rate, local_steps
            η and E of the round: what the update shows of the client's gradients.
        """
        try:
            self._desk.accept(client, self.round, signed, arrays)
        except RefusedError as error:
            self.refuse(client, str(error))
            return False
        shown = shown_grad_norm(arrays_norm(arrays), learning_rate, local_steps)
        self._joined[client] = Delivered(
            arrays_hash(arrays), repr(self.weight(client)), f"{shown:.6g}"
        )
        return True

    def refuse(self, client: str, reason: str) -> None:
        """Note why what a client sent for this round is not used; an accepted update stays."""
        if client not in self._joined:
            self._refused[client] = reason

    def close_round(self, model: str, state: bytes | None = None) -> None:
        """Record the round with the hash of the model after it; who sent nothing has missed it."""
        missed = [n for n in self.heads() if n not in self._joined and n not in self._refused]
        self.ledger.record_round(
            self.agreement.run,
            self.round,
            model=model,
            joined=self._joined,
            missed=missed,
            refused=self._refused,
            state=state,
        )
        self._count(self._joined, [*missed, *self._refused])
        self._joined, self._refused = {}, {}

    def settle(self) -> None:
        """Close the run: payers get back what no round used, the treasury gets the rest."""
        self.ledger.settle(self.agreement.run)

    def _count(self, joined: Any, failed: list[str]) -> None:
        for client in joined:
            self._delivered[client] += 1
        for client in (*joined, *failed):
            self._drawn[client] += 1
        self.round += 1
