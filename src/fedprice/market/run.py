"""`MarketRun`: the server's side of one run, independent of how messages are carried.

It knows who drew heads, checks what they send, gives each update its weight, and closes a round
with one entry of the ledger. It starts where the ledger ends: after a crash, the same call resumes
the run.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedprice.market.ledger import Delivered, LedgerError, Refused
from fedprice.market.messages import RefusedError, plain_reason
from fedprice.market.offers import Receipt
from fedprice.market.updates import Update, UpdateDesk, arrays_hash, shown_grad_norm

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fedprice._plumbing.arrays import State
    from fedprice.market.agreement import Agreement
    from fedprice.market.bargain import Bargain
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
        What server and clients signed; the run is open.

    Attributes
    ----------
    refused
        What was refused in this round so far, with the reasons.
    state
        The state that the run resumed from; None if it is new.
    """

    def __init__(self, ledger: Ledger, agreement: Agreement) -> None:
        self.ledger, self.agreement = ledger, agreement
        opened = ledger.run(agreement.run)
        # The state when it was opened: another process may run the same, and be ahead.
        self._run = replace(
            opened,
            clients={name: own.fresh() for name, own in opened.clients.items()},
            done=0,
            model=agreement.conditions.model,
        )
        rounds, self.state = ledger.progress(agreement.run)
        for content in rounds:
            self._run.advance(content)
        self._desk = UpdateDesk(agreement.run, agreement.schema, agreement.keys, agreement.caps)
        self._drew: dict[str, None] | None = None
        self._joined: dict[str, Delivered] = {}
        self.refused: dict[str, Refused] = {}
        period = agreement.follows
        while period:  # copies of updates of earlier periods count, too
            rounds = ledger.progress(period)[0] + rounds
            period = ledger.run(period).follows
        for content in rounds:
            for update, _, _, _, sketch, _ in content["joined"].values():
                self._desk.remember(update, sketch)

    @property
    def round(self) -> int:
        """The round that comes next, counted from 0."""
        return self._run.done

    def require_model(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Refuse to continue from a model that is not the one after the last recorded round."""
        if arrays_hash(arrays) != self._run.model:
            raise LedgerError(f"the state of run {self.agreement.run!r} has another model.")

    def require_round(self, round_: int) -> None:
        """Refuse to continue in a round other than the next one."""
        if round_ != self.round:
            raise LedgerError(
                f"training is in round {round_ + 1}, the market in round {self.round + 1}."
            )

    def heads(self) -> list[str]:
        """Return the clients that drew heads for this round, in the agreement's order."""
        if self._drew is None:
            own = self._run.clients.items()
            self._drew = {
                name: None
                for name, client in own
                if client.coins and client.coins.heads(self.round)
            }
        return list(self._drew)

    def _is_asked(self, client: str) -> bool:
        self.heads()
        return client in (self._drew or {})

    def weight(self, client: str) -> float:
        """Return the weight of a client's update in this round."""
        return self._run.weight(client)

    def arrival(self, client: str) -> float:
        """Return q ρ, the probability that a client's update is accepted in this round."""
        return self._run.arrival(client)

    @property
    def model(self) -> str:
        """The hash of the model that this round starts from."""
        return self._run.model

    def accept(
        self,
        client: str,
        signed: Signed,
        arrays: Sequence[npt.NDArray[Any]],
        *,
        reach: float | None = None,
        digest: str | None = None,
        change: Sequence[npt.NDArray[Any]] | None = None,
    ) -> float:
        """Accept or refuse a client's update for this round; return its norm, 0 if it is refused.

        Parameters
        ----------
        client, signed, arrays
            Who sent it, and what.
        reach
            η E of the round, learning rate times local steps, where they are known: an update then
            shows a norm of the client's gradients.
        digest, change
            As for `UpdateDesk.accept`.
        """
        if client in self._joined or not self._is_asked(client):
            return 0.0
        try:
            norm, sketch = self._desk.accept(
                client, self.round, signed, arrays, base=self.model, digest=digest, change=change
            )
        except RefusedError as error:
            self.refuse(client, str(error), signed, getattr(error, "norm", None))
            return 0.0
        self.refused.pop(client, None)  # an earlier one may have come from somebody else
        gradient = math.inf if reach is None else shown_grad_norm(norm, reach)
        shown = f"{gradient:.6g}" if gradient < math.inf else ""
        update: Update = signed.open(Update, signed.key)
        self._joined[client] = Delivered(
            update.arrays,
            repr(self.weight(client)),
            f"{norm:.6g}",
            shown,
            sketch,
            signed.signature.hex(),
        )
        return norm

    def refuse(
        self, client: str, reason: str, signed: Signed | None = None, norm: float | None = None
    ) -> None:
        """Note why what a client sent for this round is not used, with what it signed of it.

        An accepted update stays, and a client that was not called cannot be refused.
        """
        if client in self._joined or not self._is_asked(client):
            return
        reason = plain_reason(reason)  # so that the receipt and the ledger agree
        known = "" if norm is None else f"{norm:.6g}"
        self.refused[client] = Refused(reason, update_norm=known if signed is None else "")
        if signed is None:
            return
        try:
            update: Update = signed.open(Update, self.agreement.keys[client])
        except RefusedError:
            return
        if update == Update(self.agreement.run, client, self.round, update.arrays, self.model):
            signature = signed.signature.hex()
            self.refused[client] = Refused(reason, update.arrays, known, signature)

    def close_round(self, model: str, state: State | None = None) -> None:
        """Record the round, with the model's hash after it; clients that sent nothing missed it."""
        missed = [n for n in self.heads() if n not in self._joined and n not in self.refused]
        joined, refused = self._joined, self.refused
        self.ledger.record_round(
            self.agreement.run,
            self.round,
            model=model,
            joined=joined,
            missed=missed,
            refused=refused,
            state=state,
        )
        self._run.advance(
            {"joined": joined, "missed": missed, "refused": refused, "model": model, "state": True}
        )
        self._joined, self.refused, self._drew = {}, {}, None

    def receipts(self) -> dict[str, Receipt]:
        """Return the server's receipts for this round's updates, before it is closed."""

        def receipt(client: str, update: str, refused: str = "") -> Receipt:
            run, own = self.agreement.run, self._run.clients[client]
            paid = own.earned(self._run.rounds, own.joined + (not refused))
            return Receipt(self.ledger.identity, run, self.round, client, update, refused, paid)

        accepted = {client: receipt(client, own.update) for client, own in self._joined.items()}
        return accepted | {
            client: receipt(client, own.update, own.reason)
            for client, own in self.refused.items()
            if own.update
        }

    def settle(self) -> None:
        """Close the run: payers get back what no round used, the treasury gets the rest."""
        self.ledger.settle(self.agreement.run)


def fund_run(bargain: Bargain, budget: int) -> None:
    """Deposit what a new run needs, for simulations: the budget, and what payers owe."""
    ledger, terms = bargain.ledger, bargain.terms
    if bargain.is_over or bargain.cost > budget:
        return  # it is already open, or cannot be opened
    # Other terms may need another amount, and deposits for earlier ones are still there.
    sets = range(2, bargain.attempt + 1)
    *earlier, reference = [bargain.run, *(f"{bargain.run}, offers {n}" for n in sets)]
    deposits = [ledger.find("deposit", "treasury", own) for own in earlier]
    missing = budget - sum(own["amount"] for own in deposits if own)
    if missing > 0:
        ledger.deposit("treasury", missing, reference)
    for name, own in terms.items():
        if own.payment < 0:
            ledger.deposit(f"client:{name}", -own.payment, reference)
