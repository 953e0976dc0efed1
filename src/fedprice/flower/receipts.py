"""`Receipts`: the signed receipts that the server gives its clients during a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedprice.flower.wire import signed_fields
from fedprice.market.messages import Signed
from fedprice.market.offers import Receipt
from fedprice.verify import head_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedprice.market.agreement import Agreement
    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import SigningKey

__all__ = ["Receipts"]


class Receipts:
    """The receipt for the last update of each client of a run, and the ledger's signed head.

    Parameters
    ----------
    ledger, key
        Where the run is recorded, and the server's key.
    agreement
        What was agreed. Receipts for rounds that are already recorded are made again.
    """

    def __init__(self, ledger: Ledger, key: SigningKey, agreement: Agreement) -> None:
        self._ledger, self._key, self._agreement = ledger, key, agreement
        self._conditions, self._opening = agreement.conditions.text, agreement.opening(key)
        self.last: dict[str, Signed] = {}
        known: dict[str, Receipt] = {}
        for number, content in enumerate(ledger.rounds(agreement.run)):
            for client, (update, *_) in content["joined"].items():
                known[client] = Receipt(ledger.identity, agreement.run, number, client, update)
            for client, (reason, update, *_) in content["refused"].items():
                if update:
                    accepted = Receipt(ledger.identity, agreement.run, number, client, update)
                    known[client] = replace(accepted, refused=reason)
        self.add(known)

    def add(self, receipts: Mapping[str, Receipt]) -> None:
        """Sign receipts for updates that are recorded."""
        self.last |= {client: self._key.sign(receipt) for client, receipt in receipts.items()}

    def head(self) -> Signed:
        """Return the last entry of the ledger, as the server signed it."""
        head = self._ledger.head()
        text = head_text(self._ledger.identity, head.number, head.hash)
        return Signed(text.encode(), bytes.fromhex(head.signature), self._key.public)

    def fields(self, client: str, head: Signed) -> dict[str, Any]:
        """Return what a client is sent: what it agreed to, what its coins depend on, and proofs."""
        deal, receipt = self._agreement.deals[client], self.last.get(client)
        return {
            "conditions": self._conditions,
            "secret": deal.secret,
            **signed_fields("opening", self._opening),
            **signed_fields("offer", deal.offer),
            **signed_fields("commitment", deal.commitment),
            **signed_fields("head", head),
            **(signed_fields("receipt", receipt) if receipt else {}),
        }
