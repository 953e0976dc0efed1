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
from fedprice.market.periods import require_period
from fedprice.market.updates import Update, UpdateDesk, arrays_hash, shown_grad_norm

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fedprice.market.agreement import Agreement
    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import Signed

__all__ = ["MarketRun", "fund_run"]


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
    refused
        What was refused in this round so far, with the reasons.
    state
        What the run kept when it was taken up, to go on from; None if it is new.
    """

    def __init__(
        self, ledger: Ledger, agreement: Agreement, budget: int, *, norm_cap: float = math.inf
    ) -> None:
        self.ledger, self.agreement = ledger, agreement
        ledger.open_run(
            agreement.run, budget, agreement.terms, rounds=agreement.rounds, agreement=agreement
        )
        rounds, self.state = ledger.progress(agreement.run)
        self.round = 0
        self._total = sum(terms.samples for terms in agreement.terms.values())
        self._drawn = dict.fromkeys(agreement.deals, 0)
        self._delivered = dict.fromkeys(agreement.deals, 0)
        self._desk = UpdateDesk(agreement.run, agreement.schema, agreement.keys, norm_cap)
        self._model = ""
        self._drew: dict[str, None] | None = None
        self._joined: dict[str, Delivered] = {}
        self.refused: dict[str, str] = {}
        period = agreement.follows
        while period:  # a copy of an earlier period's update is one, too
            for content in ledger.progress(period)[0]:
                self._desk.seen.update(update for update, *_ in content["joined"].values())
            period = str((ledger.opening(period) or {}).get("follows", ""))
        for content in rounds:
            self._count(content["joined"], [*content["missed"], *content["refused"]])
            self._desk.seen.update(update for update, *_ in content["joined"].values())
            self._model = content["model"]

    def require_model(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Refuse to go on from a model that is not the one after the last recorded round."""
        if arrays_hash(arrays) != self._model:
            raise LedgerError(f"the state of run {self.agreement.run!r} has another model.")

    def require_round(self, round_: int) -> None:
        """Refuse to go on in a round that is not the one that comes next."""
        if round_ != self.round:
            raise LedgerError(
                f"training is in round {round_ + 1}, the market in round {self.round + 1}."
            )

    def heads(self) -> list[str]:
        """Return the clients that drew heads for this round, in the agreement's order."""
        if self._drew is None:
            coins = self.agreement.coins.items()
            self._drew = {name: None for name, own in coins if own.heads(self.round)}
        return list(self._drew)

    def _is_asked(self, client: str) -> bool:
        self.heads()
        return client in (self._drew or {})

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
        reach: float | None = None,
    ) -> bool:
        """Take an update that a client sent for this round; return whether it may be used.

        Parameters
        ----------
        client, signed, arrays
            Who sent it, and what.
        reach
            η E of the round, learning rate times local steps, where they are known: an update then
            shows a norm of the client's gradients.
        """
        if client in self._joined or not self._is_asked(client):
            return False
        try:
            norm = self._desk.accept(client, self.round, signed, arrays)
        except RefusedError as error:
            self.refuse(client, str(error))
            return False
        self.refused.pop(client, None)  # what came before may have been somebody else's
        shown = "" if reach is None else f"{shown_grad_norm(norm, reach):.6g}"
        update: Update = signed.open(Update, signed.key)
        self._joined[client] = Delivered(
            update.arrays,
            repr(self.weight(client)),
            f"{norm:.6g}",
            shown,
            signed.signature.hex(),
        )
        return True

    def refuse(self, client: str, reason: str) -> None:
        """Note why what a client sent for this round is not used.

        An accepted update stays, and who was not asked cannot be refused.
        """
        if client not in self._joined and self._is_asked(client):
            self.refused[client] = reason

    def close_round(self, model: str, state: bytes | None = None) -> None:
        """Record the round with the hash of the model after it; who sent nothing has missed it."""
        missed = [n for n in self.heads() if n not in self._joined and n not in self.refused]
        self.ledger.record_round(
            self.agreement.run,
            self.round,
            model=model,
            joined=self._joined,
            missed=missed,
            refused=self.refused,
            state=state,
        )
        self._count(self._joined, [*missed, *self.refused])
        self._joined, self.refused = {}, {}

    def settle(self) -> None:
        """Close the run: payers get back what no round used, the treasury gets the rest."""
        self.ledger.settle(self.agreement.run)

    def _count(self, joined: Any, failed: list[str]) -> None:
        for client in joined:
            self._delivered[client] += 1
        for client in (*joined, *failed):
            self._drawn[client] += 1
        self.round += 1
        self._drew = None


def fund_run(ledger: Ledger, agreement: Agreement, budget: int) -> None:
    """Bring in what a new run needs, for simulations: the budget, and what payers owe."""
    if ledger.opening(agreement.run) is not None:
        return
    require_period(agreement.run, agreement.follows)
    if agreement.follows and not ledger.is_settled(agreement.follows):
        return  # it cannot be opened yet
    if sum(terms.payment for terms in agreement.terms.values()) > budget:
        return  # it cannot be opened
    if budget > 0:
        ledger.deposit("treasury", budget, agreement.run)
    for name, terms in agreement.terms.items():
        if terms.payment < 0:
            ledger.deposit(f"client:{name}", -terms.payment, agreement.run)
