"""`Forger`: a server that owns its keys and its ledger, but not the keys of its clients."""

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fedprice.market.messages import SigningKey
from fedprice.verify import (
    GENESIS,
    LEVEL_ONE,
    Books,
    VerificationError,
    chained_hash,
    entry_digest,
    head_text,
    secret_hash,
)
from fedprice.verify.rounds import check_signature_of, check_updates
from trials.honest import (
    KNOWN,
    MICRO,
    Entries,
    Market,
    Message,
    hash_of,
    key_for,
    server_after,
    text_of,
)


class InapplicableError(Exception):
    """The operator finds nothing to change in this export."""


class Forger:
    """A server that changes an export of its own."""

    def __init__(self, market: Market, rng: random.Random) -> None:
        self.market, self.rng = market, rng
        self.entries: Entries = copy.deepcopy(market.entries)
        self.servers = dict(market.servers)
        self.invented: dict[str, SigningKey] = {}

    def all(self, *kinds: str) -> Entries:
        return [e for e in self.entries if e["content"]["kind"] in kinds]

    def pick(self, *kinds: str, which: Callable[[Message], bool] = lambda c: True) -> Message:
        """Return the content of some entry of these kinds."""
        found: Message = self.choice(e["content"] for e in self.all(*kinds) if which(e["content"]))
        return found

    def entry(self, content: Message) -> Message:
        return next(e for e in self.entries if e["content"] is content)

    def choice(self, values: Iterable[Any]) -> Any:
        values = list(values)
        if not values:
            raise InapplicableError
        return self.rng.choice(values)

    def round(self, *parts: str) -> Message:
        """Return a round in which somebody joined, missed or was refused."""
        return self.pick("round", which=lambda c: all(c[part] for part in parts))

    def add(self, place: int, kind: str, of: list[Any], **content: Any) -> None:
        new = {"content": {"kind": kind, "of": of, **content}, "postings": [], "number": 0}
        self.entries.insert(place, new | {"hash": "", "signature": ""})

    def place(self, content: Message) -> int:
        return self.entries.index(self.entry(content))

    def partner(self, content: Message, kind: str) -> Message:
        """Return the entry of another kind for the same run and attempt."""
        run = content["of"][0]
        attempt = content["of"][1] if content["kind"] != "open" else content["attempt"]
        of = [run] if kind == "open" else [run, attempt]
        for entry in self.all(kind):
            found: Message = entry["content"]
            if found["of"] == of and found.get("attempt", attempt) == attempt:
                return found
        raise InapplicableError

    def server_of(self, offered: Message) -> SigningKey:
        key = json.loads(offered["conditions"])["server"]
        return self.servers.get(key) or next(iter(self.servers.values()))

    def edit_offers(self, offered: Message, edit: Callable[[Message], None]) -> None:
        """Edit offers, one after the other, and sign them again."""
        signer = self.server_of(offered)
        for own in offered["offers"]:
            message = json.loads(own[0])
            edit(message)
            if text_of(message) != own[0]:
                own[:] = [text_of(message), KNOWN.sign(signer, text_of(message))]

    def edit_offer(self, **values: Any) -> Message:
        """Change the offer to a client, and sign it again; return the entry's content."""
        offered = self.pick("offer")
        client = json.loads(self.choice(offered["offers"])[0])["client"]

        def edit(message: Message) -> None:
            if message["client"] == client:
                for name, value in values.items():
                    message[name] = value(message[name]) if callable(value) else value

        self.edit_offers(offered, edit)
        return offered

    def edit_conditions(self, **values: Any) -> None:
        offered = self.pick("offer")
        conditions = json.loads(offered["conditions"])
        for name, value in values.items():
            conditions[name] = value(conditions[name]) if callable(value) else value
        offered["conditions"] = text_of(conditions)
        sheet = hash_of(offered["conditions"])
        self.edit_offers(offered, lambda own: own.update(conditions=sheet))

    def edit_commitment(self, **values: Any) -> None:
        committed = self.pick("commit")
        own = committed["commitments"][self.choice(committed["commitments"])]
        message = json.loads(own[0])
        for name, value in values.items():
            message[name] = value(message[name]) if callable(value) else value
        own[0] = text_of(message)

    def invent(self, opened: Message, name: str) -> None:
        """Add a client to a run that the server made up, or that has another's name."""
        offered, committed = self.partner(opened, "offer"), self.partner(opened, "commit")
        key = self.invented.setdefault(name, key_for("invented", name, self.rng.random()))
        mine, others = self.rng.randbytes(32), self.rng.randbytes(32)
        offer = json.loads(offered["offers"][0][0])
        offer |= {"client": name, "menu": False, "replaces": "", "coin_hash": secret_hash(mine)}
        offer["tariff"] = [[LEVEL_ONE // 2, self.rng.randrange(3 * MICRO)]]
        text = text_of(offer)
        offered["offers"] = [o for o in offered["offers"] if json.loads(o[0])["client"] != name]
        where = self.rng.randrange(len(offered["offers"]) + 1)
        offered["offers"].insert(where, [text, KNOWN.sign(self.server_of(offered), text)])
        message = {
            "kind": "Commitment",
            "offer": hash_of(text),
            "key": key.public.hex(),
            "level": LEVEL_ONE // 2,
            "secret_hash": secret_hash(others),
            "samples": self.rng.randrange(1, 500),
            "grad_norm": "2",
        }
        signed = [text_of(message), KNOWN.sign(key, text_of(message))]
        committed["dropped"].pop(name, None)
        committed["commitments"][name] = signed
        opened["secrets"][name] = [mine.hex(), others.hex()]

    # What follows from a lie.

    def repair(self, *, thorough: bool) -> None:
        """Make the rest fit, as far as no client's signature is needed.

        Parameters
        ----------
        thorough
            Whether to change rounds and leave out entries as well, or to post again only.
        """
        books, fitting = Books(valid=KNOWN.valid), []
        for entry in self.entries:
            content = entry["content"]
            try:
                if thorough:
                    self._adapt(books, content)
                lines, enter = books.expect(content)
            except (VerificationError, *ODD):
                if not thorough:
                    return
                continue
            entry["postings"] = [list(line) for line in lines]
            enter()
            books.hashes.append("")
            fitting.append(entry)
        if thorough:
            self.entries = fitting

    def _adapt(self, books: Books, content: Message) -> None:
        kind = content["kind"]
        if kind == "settle" and content["of"][0] in books.runs:
            content["rounds"] = books.runs[content["of"][0]].done
        if kind != "round" or content["of"][0] not in books.runs:
            return
        name, run = content["of"][0], books.runs[content["of"][0]]
        content["of"][1] = number = run.done
        heads = [c for c, own in run.clients.items() if own.coins and own.coins.heads(number)]
        if not run.signed:
            heads = [
                *{*content["joined"], *content["missed"], *content["refused"]} & {*run.clients}
            ]
        for part in ("joined", "refused"):
            for client in [*content[part]]:
                own = content[part][client]
                if client in heads and part == "joined":
                    own[1] = repr(run.weight(client))
                try:
                    if client not in heads:
                        raise VerificationError("tails")
                    if part == "joined":
                        check_updates(books, run, name, number, {client: own})
                    elif own[1]:
                        check_signature_of(books, run, name, number, client, own[1], own[3])
                except (VerificationError, *ODD):
                    del content[part][client]
        sent = {*content["joined"], *content["refused"]}
        content["missed"] = sorted(c for c in heads if c not in sent)

    def written(self) -> Iterator[Message]:
        """Yield the entries as the server writes them: chained, and signed."""
        previous, server, ledger = GENESIS, "", ""
        for number, entry in enumerate(self.entries, start=1):
            content = entry["content"]
            server = server_after(server, content)
            if content.get("kind") == "begin":
                ledger = content.get("ledger", "")
            hash_ = chained_hash(
                previous, number, entry_digest(text_of(content), text_of(entry["postings"]))
            )
            signature = ""
            if server:
                signer = self.servers.get(server) or next(iter(self.servers.values()))
                signature = KNOWN.sign(signer, head_text(ledger, number, hash_))
            entry |= {"number": number, "hash": hash_, "signature": signature}
            yield entry
            previous = hash_


ODD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
