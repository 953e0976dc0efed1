"""`Receipts`: the signed receipts that the server gives its clients during a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fedprice.flower.wire import signed_fields
from fedprice.market.messages import Signed
from fedprice.market.offers import Call, Receipt
from fedprice.verify import head_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedprice.market.agreement import Agreement
    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import SigningKey

__all__ = ["LINKS", "Receipts"]

LINKS = 10_000  # entries that a client may have missed, and still sees that the ledger goes on


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
        run, joined = ledger.run(agreement.run), dict.fromkeys(agreement.deals, 0)
        for number, content in enumerate(ledger.rounds(agreement.run)):
            updates = {client: (own[0], "") for client, own in content["joined"].items()}
            refused = content["refused"].items()
            updates |= {client: (update, why) for client, (why, update, *_) in refused if update}
            for client, (update, why) in updates.items():
                joined[client] += not why
                paid = run.clients[client].earned(run.rounds, joined[client])
                known[client] = Receipt(
                    ledger.identity, agreement.run, number, client, update, why, paid
                )
        self.add(known)
        self._mixed: set[str] = set()  # clients that were told what the coins are mixed from
        self._seen: dict[str, int] = {}  # the head that a client was sent last
        self._links: list[str] = []  # digests of entries since `_first`
        offered = ledger.number_of("offer", agreement.run, agreement.attempt)
        self._first = max(offered - LINKS, 0)  # who knows no newer head cannot link this run

    def add(self, receipts: Mapping[str, Receipt]) -> None:
        """Sign receipts for updates that are recorded."""
        self.last |= {client: self._key.sign(receipt) for client, receipt in receipts.items()}

    def head(self) -> Signed:
        """Return the last entry of the ledger, as the server signed it."""
        head = self._ledger.head()
        text = head_text(self._ledger.identity, head.number, head.hash)
        return Signed(text.encode(), bytes.fromhex(head.signature), self._key.public)

    def call(self, client: str, round_: int, model: str, head: Signed) -> dict[str, Any]:
        """Return what a client is sent with a call: `fields`, and the server's word that it asks.

        Parameters
        ----------
        client, round_, model
            Who is called, for which round, to start from which model.
        head
            The ledger's head.
        """
        number = json.loads(head.content)["number"]
        ledger, run = self._ledger.identity, self._agreement.run
        signed = self._key.sign(Call(ledger, run, round_, client, model, number))
        return self.fields(client, head) | {"round": round_, **signed_fields("call", signed)}

    def forget(self, client: str) -> None:
        """Send a client everything again: it did not answer as it should."""
        self._mixed.discard(client)
        self._seen.pop(client, None)

    def _since(self, client: str, number: int) -> tuple[int, str]:
        """Return the digests of entries since the last head that a client was sent."""
        if (known := self._first + len(self._links)) < number:  # not once more for each client
            self._links += self._ledger.digests(known, number)
        after = self._seen.get(client, self._first)
        self._seen[client] = number
        return after, "".join(self._links[after - self._first : number - self._first])

    def fields(self, client: str, head: Signed) -> dict[str, Any]:
        """Return what a client is sent: what it agreed to, what its coins depend on, and proofs."""
        deal, receipt = self._agreement.deals[client], self.last.get(client)
        after, links = self._since(client, json.loads(head.content)["number"])
        mix = {} if client in self._mixed else {"mix": self._agreement.mix.text}
        self._mixed.add(client)
        return {
            **mix,
            "links": links,
            "after": after,
            "conditions": self._conditions,
            "secret": deal.secret,
            **signed_fields("opening", self._opening),
            **signed_fields("offer", deal.offer),
            **signed_fields("commitment", deal.commitment),
            **signed_fields("head", head),
            **(signed_fields("receipt", receipt) if receipt else {}),
        }
