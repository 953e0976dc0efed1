"""Honest markets in which everything happens that can, and what their clients kept of them."""

import functools
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprice.market.bargain import Bargain
from fedprice.market.coins import own_secret
from fedprice.market.ledger import Ledger
from fedprice.market.messages import ModelSchema, Signed, SigningKey
from fedprice.market.offers import (
    FOREVER,
    Conditions,
    Offer,
    Proposal,
    Receipt,
    Roster,
    answer,
)
from fedprice.market.payouts import Reversal, Rotation, Withdrawal
from fedprice.market.run import MarketRun
from fedprice.market.simulation import simulate_market, simulation_key
from fedprice.market.tariffs import Tariff
from fedprice.market.updates import Update, arrays_hash
from fedprice.verify import (
    LEVEL_ONE,
    Books,
    check_entries,
    check_signed,
    head_text,
    roster_hash,
)
from trials.markets import ROUNDS as SMALL_ROUNDS
from trials.markets import small_outcome, small_task

Entries = list[dict[str, Any]]
Message = dict[str, Any]
Facts = dict[tuple[Any, ...], Any]

MICRO = 10**6
ROUNDS = 6
NAMES = ["alice", "bob", "carol", "dora"]
SCHEMA = ModelSchema(["w"], [[4]], ["<f4"], [False])
BLOCKS = Tariff(
    tuple(
        (LEVEL_ONE * end // 16, price * MICRO) for end, price in ((3, 6), (6, 4), (9, 5), (12, 2))
    )
)
MENU = Tariff(((LEVEL_ONE // 4, 9 * MICRO), (LEVEL_ONE, 5 * MICRO)), menu=True)


def text_of(message: Any) -> str:
    return json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def key_for(*parts: Any) -> SigningKey:
    return SigningKey(bytes.fromhex(hash_of(text_of(parts))))


@dataclass
class Market:
    """An honest export, the keys of its server, and what its clients kept."""

    entries: Entries
    servers: dict[str, SigningKey]
    kept: dict[str, list[Message]]
    clients: dict[str, list[str]]  # public keys by name
    books: Books = field(default_factory=Books)
    facts: Facts = field(default_factory=dict)


def honest_market(seed: int) -> Market:
    """Return a market in which everything happens that can: see the code, step by step."""
    rng = np.random.default_rng(seed)
    server, later = key_for("server", seed), key_for("server later", seed)
    keys = {name: key_for(name, seed) for name in [*NAMES, "erin", "frank"]}
    ledger = Ledger("sqlite://", key=server, unit="EUR", identity=f"{seed + 1:064x}")
    model = np.zeros(4, np.float32)
    kept: dict[str, list[Message]] = {what: [] for what in ("commitment", "roster", "receipt")}
    ledger.deposit("treasury", 90 * MICRO, "bank 1")
    ledger.deposit("client:dora", 30 * MICRO, "bank 2")
    ledger.deposit("client:dora", 2 * MICRO, "bank 3")

    def bargain(run: str, follows: str, signer: SigningKey, beacon: str, rounds: int) -> MarketRun:
        talk = Bargain(ledger, signer, run)
        conditions = Conditions(
            ledger=ledger.identity,
            server=signer.public.hex(),
            run=run,
            follows=follows,
            rounds=rounds,
            run_rounds=2 * ROUNDS,
            unit="EUR",
            schema=SCHEMA.content(),
            task="1" * 64,
            model=arrays_hash([model]),
            max_weight="4",
            longest_gap=3,
            nonce=key_for("nonce", seed, run).public.hex(),
            expires=FOREVER,
            beacon=beacon,
        )
        proposals = {
            "alice": Proposal(Tariff.flat(5 * MICRO, LEVEL_ONE // 2), 1 << 20, 0.1),
            "bob": Proposal(BLOCKS, 1 << 20, 0.2, 50.0),
            "carol": Proposal(MENU, 1 << 20, 0.3),
            "dora": Proposal(Tariff.flat(-8 * MICRO, LEVEL_ONE // 2), 1 << 20, 0.4),
            "erin": Proposal(Tariff.flat(3 * MICRO, LEVEL_ONE // 2), 1 << 20, 0.1),
            "frank": Proposal(Tariff.flat(3 * MICRO, LEVEL_ONE // 2), 1 << 20, 0.1),
        }
        attempts = (
            [["erin", *NAMES]]
            if follows or run == "5"
            else [["alice", "frank"], [*proposals], [n for n in proposals if n != "erin"]]
        )
        for number, asked in enumerate(attempts):
            why = ["", "the payer is missing", "erin did not reveal a secret"][number]
            at_once = 2 if (run, seed) == ("5", 1) else len(asked)  # the others in turn
            talk.offer(conditions, {n: proposals[n] for n in asked[:at_once]}, why)
            for name in asked[at_once:]:
                talk.offer_next({name: proposals[name]})
            for n, name in enumerate(asked):
                if name == "erin" and run != "run":
                    continue  # it does not answer
                own = keys[name]
                cap = talk.offers[name].open(Offer, signer.public).pays.cap
                level = cap if name != "bob" else cap // 2
                signed = answer(own, talk.offers[name], level, samples=50 + 10 * n, grad_norm=2.0)
                talk.commit(name, signed, own.public)
                kept["commitment"].append(_kept(signed))
            talk.close()
            for name, signed in talk.rosters().items():
                kept["roster"].append(_kept(signed))
                if number == len(attempts) - 1:
                    talk.reveal(name, own_secret(keys[name].private, talk.offers[name].hash))
        agreement = talk.open(30 * MICRO, "drand 7: 1f" if beacon else "")
        return MarketRun(ledger, agreement)

    def train(market: MarketRun, rounds: int, signer: SigningKey) -> None:
        nonlocal model
        name_of = market.agreement.run
        for _ in range(rounds):
            for name in market.heads():
                chance, arrays = rng.random(), [rng.normal(size=4).astype(np.float32)]
                if chance < 0.15:
                    continue
                if chance < 0.3:
                    arrays = [np.zeros(4, np.float32)]  # will be refused
                if chance > 0.95:
                    market.refuse(name, "nothing that could be read")
                    continue
                base = market.model
                content = Update(
                    name_of, name, market.round, arrays_hash(arrays, update=True), base
                )
                market.accept(name, keys[name].sign(content), arrays)
            kept["receipt"] += [_kept(signer.sign(own)) for own in market.receipts().values()]
            model = model + rng.normal(size=4).astype(np.float32)
            state = {"model": model} if market.round == 2 else None
            market.close_round(arrays_hash([model]), state)

    first = bargain("run", "", server, "", ROUNDS)
    train(first, ROUNDS, server)
    first.settle()
    _pay_out(ledger, keys)
    rotated = key_for("alice later", seed)
    wish = Rotation(
        ledger.identity, "client:alice", keys["alice"].public.hex(), rotated.public.hex()
    )
    ledger.rotate("client:alice", keys["alice"].sign(wish), rotated.sign(wish))
    keys["alice"] = rotated
    ledger.renew_key(later)
    second = bargain("run#2", "run", later, "drand 7", ROUNDS)
    train(second, ROUNDS, later)
    second.settle()
    third = bargain("5", "", later, "", ROUNDS)
    train(third, 3, later)
    if seed % 2:
        third.settle()
    ledger.withdraw("treasury", MICRO, "rent")
    return market_of(ledger, {k.public.hex(): k for k in (server, later)}, kept)


def simulated_market(seed: int) -> Market:
    """Return a market of two periods as `simulate_market` runs it, with real training."""
    task, ledger = small_task(), Ledger("sqlite://")
    for run, follows in (("run", ""), ("run#2", "run")):
        simulate_market(
            task,
            small_outcome(task.federation),
            ledger=ledger,
            run=run,
            rounds=SMALL_ROUNDS // 2,
            follows=follows,
            delivery=0.7,
            seed=seed,
            threads=1,
        )
    server = simulation_key("server")
    kept: dict[str, list[Message]] = {what: [] for what in ("commitment", "roster", "receipt")}
    paid: Counter[tuple[str, str]] = Counter()
    for entry in ledger.entries():
        content, of = entry.content, entry.content["of"]
        if content["kind"] == "commit":
            hashes = {c: hash_of(text) for c, (text, _) in content["commitments"].items()}
            named = {
                c: (hashes[c], json.loads(text)["secret_hash"])
                for c, (text, _) in content["commitments"].items()
            }
            for client, (text, signature) in content["commitments"].items():
                key = simulation_key(f"client {client}")
                kept["commitment"].append(
                    _kept(Signed(text.encode(), bytes.fromhex(signature), key.public))
                )
                roster = Roster(ledger.identity, of[0], of[1], roster_hash(named), hashes[client])
                kept["roster"].append(_kept(server.sign(roster)))
        if content["kind"] == "round":
            for account, amount in entry.postings:
                paid[of[0], account] += amount
            said = {client: (own[0], "") for client, own in content["joined"].items()}
            said |= {client: (own[1], own[0]) for client, own in content["refused"].items()}
            kept["receipt"] += [
                _kept(
                    server.sign(
                        Receipt(
                            ledger.identity,
                            of[0],
                            of[1],
                            client,
                            *what,
                            paid=paid[of[0], f"client:{client}"],
                        )
                    )
                )
                for client, what in said.items()
            ]
    return market_of(ledger, {server.public.hex(): server}, kept)


def _pay_out(ledger: Ledger, keys: dict[str, SigningKey]) -> None:
    """Withdraw and reverse, as bob and dora want it."""
    bob, dora = keys["bob"], keys["dora"]
    for reference, amount in (("to my bank", 500_000), ("to my bank 2", 70_000)):
        wish = Withdrawal(ledger.identity, "client:bob", amount, reference)
        if ledger.balance("client:bob") >= amount:
            ledger.withdraw("client:bob", amount, reference, bob.sign(wish))
            last = ledger.head().number
    ledger.reverse(last, "the bank sent it back")
    wish_ = Reversal(ledger.identity, 4, 2 * MICRO, "paid twice")
    ledger.reverse(4, "paid twice", dora.sign(wish_))


def _kept(signed: Signed) -> Message:
    """Return a message as `read_receipts` has it."""
    text = signed.content.decode()
    message: Message = {"ledger": "", **json.loads(text)}
    return message | {"signed by": signed.key.hex(), "text": text}


def market_of(
    ledger: Ledger, servers: dict[str, SigningKey], kept: dict[str, list[Message]]
) -> Market:
    """Return a ledger as an honest market, with the heads that the server signed."""
    entries = [json.loads(json.dumps(entry.line())) for entry in ledger.entries()]
    market = Market(entries, servers, kept, {})
    market.books = check_entries(entries, valid=KNOWN.valid)
    market.facts = facts_of(entries)
    kept["head"] = []
    pub = ""
    for entry in entries:
        content = entry["content"]
        pub = server_after(pub, content)
        if not pub:
            continue  # nobody signed it
        text = head_text(ledger.identity, entry["number"], entry["hash"])
        kept["head"].append(json.loads(text) | {"signed by": pub, "text": text})
    ledger.close()
    accounts = market.books.keys.items()
    market.clients = {a[7:]: own for a, own in accounts if a.startswith("client:")}
    return market


def server_after(before: str, content: Message) -> str:
    """Return the server's key after an entry, as far as it can be read."""
    try:
        if content["kind"] == "begin":
            return str(content["server"])
        if content["kind"] == "rotate" and content["of"][0] == "treasury":
            return str(json.loads(content["message"])["new"])
    except (ValueError, LookupError, TypeError):
        pass
    return before


class Known:
    """Signatures that are known to be valid, because the forger made them or they were checked."""

    def __init__(self) -> None:
        self._made: set[tuple[str, str, str]] = set()
        self._checked = functools.lru_cache(maxsize=1 << 17)(check_signed)

    def sign(self, key: SigningKey, text: str) -> str:
        signature = key.sign_text(text).hex()
        if len(self._made) > 1 << 18:
            self._made.clear()
        self._made.add((key.public.hex(), signature, text))
        return signature

    def valid(self, key: str, signature: str, text: str) -> bool:
        return (key, signature, text) in self._made or self._checked(key, signature, text)


KNOWN = Known()


def facts_of(entries: Entries) -> Facts:
    """Return everything that a ledger says, one statement at a time."""
    facts: Facts = {}
    moves: dict[int, tuple[str, str, str]] = {}
    for number, entry in enumerate(entries, start=1):
        content = entry["content"]
        kind, of = content["kind"], content["of"]
        if kind == "begin":
            facts |= {("begin", name): value for name, value in content.items()}
        elif kind in ("deposit", "withdraw"):
            moves[number] = kind, *of
            facts[kind, *of] = content["amount"]
        elif kind == "reverse":
            facts["reverse", *moves[of[0]]] = content["reason"]
        elif kind == "rotate":
            facts["rotate", *of] = json.loads(content["message"])["new"]
        elif kind == "offer":
            facts["conditions", *of[:2]] = content["conditions"]  # the same in each turn
            for text, _ in content["offers"]:
                facts["offer", *of[:2], json.loads(text)["client"]] = text
        elif kind == "commit":
            facts |= {("commit", *of, c): own[0] for c, own in content["commitments"].items()}
        elif kind == "open":
            for name in ("budget", "attempt", "beacon", "terms"):
                if name in content:
                    facts[name, *of] = content[name]
            facts |= {("secret", *of, c): own for c, own in content.get("secrets", {}).items()}
        elif kind == "round":
            facts["model", *of], facts["state", *of] = content["model"], content["state"]
            for client, own in content["joined"].items():
                facts["joined", *of, client] = own[0]
                facts["measured", *of, client] = own[2:5]
            for client in content["missed"]:
                facts["missed", *of, client] = True
            for client, own in content["refused"].items():
                facts["refused", *of, client] = own[1]
                facts["measured", *of, client] = own[2]
                facts["why", *of, client] = own[0]
        elif kind == "settle":
            facts["settle", *of] = content["rounds"]
        for client, reason in content.get("dropped", {}).items():
            facts["dropped", kind, of[0], of[1], client] = reason
    return facts
