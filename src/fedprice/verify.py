"""Check an exported ledger without trusting whoever wrote it: `python verify.py EXPORT`.

This file stands alone. It imports nothing of the package, and derives again, from what server and
clients signed, who had to join each round, the weight of each update, every payment, every balance
and the chain of hashes. A ledger applies the same rules to every entry before it is written, so
that it holds nothing that would not verify.

An export is a text file with one entry per line, as canonical JSON: `number`, `content`, `postings`
(account and micro-units), `hash` = SHA-256(previous hash, number, digest of content and postings),
and the server's `signature` of number and hash. Signatures need the library `cryptography`. A
partial export shows one client's entries; of all others it has `number`, `hash`, `signature` and
`client`, for whom they are hidden.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import unicodedata
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    Blocks = Sequence[Sequence[int]]  # of a tariff: the level at which each ends, and its price

__all__ = [
    "Books",
    "Coins",
    "UncheckedError",
    "VerificationError",
    "check_entries",
    "check_export",
    "check_next",
    "check_signed",
    "cost",
    "delivery_correction",
    "describe",
    "describe_kept",
    "due",
    "entry_digest",
    "entry_title",
    "main",
    "read_receipts",
    "signed_messages",
    "tariff_payment",
]

FORMAT = 4
COINS = "spaced"  # how a run's coins follow from its secrets: the only way there is
GENESIS = "0" * 64
INFINITY = float("inf")
LEVEL_ONE = 1 << 32
LARGEST = 1 << 62
LONGEST_GAP = 10  # heads that one update stands for, unless an agreement says otherwise
LONGEST_NAME = 200
LONGEST_LINE = 1 << 27  # bytes: the offers to 200,000 clients
MOST_VALUES = 1 << 22  # commas and brackets of a line: what it takes in memory
MOST_ENTRIES = 1 << 24  # of an export: a pipe need not end
MOST_ATTEMPTS = 5  # sets of offers that a run may take: each draws its coins anew
MOST_BLOCKS = 256  # of a tariff
MOST_COINS = 1 << 30  # clients × rounds: what is checked in minutes, not days

CONTENT = {
    "begin": ("format", "ledger", "server", "unit"),
    "deposit": ("amount",),
    "withdraw": ("amount", "message", "signature"),
    "reverse": ("reason", "message", "signature"),
    "rotate": ("message", "signature", "proof"),
    "offer": ("conditions", "offers", "dropped"),
    "commit": ("commitments", "dropped"),
    "open": ("attempt", "budget", "secrets", "beacon"),
    "round": ("model", "joined", "missed", "refused", "state"),
    "settle": ("rounds",),
}
UNSIGNED = ("rounds", "budget", "terms")  # of the opening of a run that nobody signed
MESSAGE = {
    "Conditions": (
        "ledger", "server", "run", "follows", "rounds", "run_rounds", "unit", "schema", "task",
        "model", "max_weight", "longest_gap", "nonce", "expires", "coins", "beacon",
    ),
    "Offer": (
        "conditions", "client", "tariff", "menu", "level_floor", "norm_cap", "impact", "coin_hash",
        "position", "replaces",
    ),
    "Commitment": ("offer", "key", "level", "secret_hash", "samples", "grad_norm"),
}  # fmt: skip
SHOWN = {"number", "content", "postings", "hash", "signature"}  # the fields of an entry
HIDDEN = {"number", "client", "hash", "signature"}  # of one that a partial export does not show
# What the messages before a commitment refer to.
REFERS = {"Conditions": "ledger", "Offer": "conditions", "Commitment": "offer"}
KEPT = {
    "Commitment": MESSAGE["Commitment"],
    "Call": ("ledger", "run", "round", "client", "model", "number"),
    "Ending": ("ledger", "run"),
    "Head": ("ledger", "number", "hash"),
    "Roster": ("ledger", "run", "attempt", "commitments", "commitment"),
    "Opening": ("ledger", "run", "attempt", "mixed"),
    "Receipt": ("ledger", "run", "round", "client", "update", "refused", "paid"),
}
# Fields that are whole numbers; all others are text.
WHOLE = {"level", "samples", "number", "attempt", "round", "paid"}
HASH = re.compile(r"[0-9a-f]{64}\Z")
_SIGNATURE = re.compile(r"[0-9a-f]{128}\Z")
_NUMBER = r"[0-9]{1,25}(?:\.[0-9]{1,25})?(?:e[+-]?[0-9]{1,3})?"
DECIMAL = re.compile(rf"{_NUMBER}\Z", re.ASCII)
_DECIMALS = re.compile(rf"{_NUMBER},", re.ASCII)
_DECIMALS_OR_NOTHING = re.compile(rf"(?:{_NUMBER})?,", re.ASCII)
_HEXADECIMAL, _SKETCH = b"0123456789abcdef", b"-+.,0123456789e"  # what these are written in
LONGEST_SKETCH = 120
UNIT = re.compile(r"[A-Z][A-Z0-9]{0,11}\Z", re.ASCII)
_ESCAPED = re.compile(rb"\\u(?!00)")  # may stand for a character beyond ASCII
_CONTINUED = bytes(range(0x80, 0xC0))  # the later bytes of a character
_LATER = re.compile(r"(.+)#([0-9]+)\Z", re.DOTALL | re.ASCII)
# Of Ed25519: the prime of its field, and the y of the eight points whose order divides eight.
_PRIME = 2**255 - 19
_Y_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER = {0, 1, _PRIME - 1, _Y_OF_ORDER_8, _PRIME - _Y_OF_ORDER_8}
Posting = tuple[str, int]


class VerificationError(Exception):
    """The ledger is not what an honest market would have written; the text says where."""


class UncheckedError(Exception):
    """Nothing can be concluded: signatures cannot be checked here, or the client is unknown."""


def is_of_small_order(key: bytes) -> bool:
    """Return whether a point of Ed25519 is nobody's key: its order divides eight.

    Signatures that are valid for it can be made without a private key, some of them for any text.
    """
    # The highest bit is the sign of x; y may be written with the prime added to it.
    return int.from_bytes(key, "little") % 2**255 % _PRIME in _SMALL_ORDER


def check_signed(key: str, signature: str, text: str) -> bool:
    """Return whether an Ed25519 key signed a text; key and signature are hexadecimal.

    Keys of low order have signed nothing.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError:
        raise UncheckedError(
            "signatures cannot be checked without the library cryptography; run: "
            "pip install cryptography"
        ) from None
    if not (HASH.match(key) and _SIGNATURE.match(signature)):
        return False
    try:
        if is_of_small_order(bytes.fromhex(key)):
            return False
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def tariff_payment(tariff: Blocks, level: int) -> int:
    """Return what a tariff pays for a level in micro-units, halves to even.

    Σ price · (min(level, end) − start)⁺ over its blocks. The sum is rounded, not its parts, so that
    a block that is cut in two pays the same.

    Parameters
    ----------
    tariff
        For each block, the level at which it ends, in multiples of 2⁻³², and its price in
        micro-units per unit of level, of either sign; the next block starts where it ends.
    level
        In multiples of 2⁻³².

    Examples
    --------
    >>> tariff_payment([[LEVEL_ONE, 12_500_000]], LEVEL_ONE * 2 // 5)
    5000000
    >>> tariff_payment([[LEVEL_ONE // 2, 8_000_000], [LEVEL_ONE, 2_000_000]], LEVEL_ONE * 3 // 4)
    4500000
    """
    paid = start = 0
    for end, price in tariff:
        if level <= start:
            break
        paid += price * (min(level, end) - start)
        start = end
    return round(Fraction(paid, LEVEL_ONE))


def due(payment: int, level: int, rounds: int, delivered: int) -> int:
    """Return what a client has earned with its updates: each earns what it was agreed to earn.

    ⌊payment · delivered / (q · rounds)⌋, where q · rounds is how many updates its level has. What
    an update earns is fixed when the client commits: neither coins, nor the end of the run, nor
    other updates change it (docs/incentives.md). At most ⌈q · rounds⌉ updates are paid.

    Parameters
    ----------
    payment
        What the level is paid for all rounds, at least 0.
    level, rounds
        The level, in multiples of 2⁻³², and the rounds of the agreement.
    delivered
        How many of the client's updates were accepted.

    Examples
    --------
    >>> due(1000, LEVEL_ONE // 2, rounds=10, delivered=5)
    1000
    >>> due(1000, LEVEL_ONE // 2, rounds=10, delivered=3)
    600
    """
    if not delivered:
        return 0
    return payment * min(delivered, most_heads(level, rounds)) * LEVEL_ONE // (level * rounds)


def cost(payment: int, level: int, rounds: int) -> int:
    """Return the most that a client can be paid for a level; negative if it pays.

    >>> cost(1000, LEVEL_ONE // 2, rounds=5), cost(-1000, LEVEL_ONE // 2, rounds=5)
    (1200, -1000)
    """
    if payment <= 0 or not level:
        return payment
    return due(payment, level, rounds, most_heads(level, rounds))


def most_heads(level: int, rounds: int) -> int:
    """Return ⌈q · rounds⌉: the most heads that evenly spaced coins show.

    >>> most_heads(LEVEL_ONE // 2, 5)
    3
    """
    return -(-level * rounds // LEVEL_ONE)


def delivery_correction(gap: int, longest: int = LONGEST_GAP) -> int:
    """Return the factor of an update's weight that makes up for the heads missed before it.

    An update also stands for the heads since the client's last accepted one. No delivery rate has
    to be estimated.

    Parameters
    ----------
    gap
        The number of the client's heads since its last accepted update, including this one: 1 for
        a client that has missed nothing since. Before the first accepted update, all its heads.
    longest
        The most heads that one update stands for, so that nobody returns from a long absence with a
        weight large enough to destabilise training.

    Notes
    -----
    Over any run, whatever a client does, the factors of its updates add up to at most the number of
    its heads: gaps do not overlap. For independent deliveries with probability ρ, the expectation
    of the factor times delivery at the h-th head is exactly 1 − (1 − ρ)^min(h, longest): the share
    of its due weight that the client has. Its second moment is at most (2 − ρ)/ρ, against 1/ρ
    for a known ρ.

    Examples
    --------
    >>> delivery_correction(1), delivery_correction(3), delivery_correction(500)
    (1, 3, 10)
    """
    return min(gap, longest)


class Coins:
    """A client's coins in a run: heads are evenly spaced, so that it knows how many to expect.

    Of round r, the coin shows heads if (phase + r · level) mod 2³² is below the level. For a phase
    that is uniform, each shows heads with a probability of exactly q; any L rounds in a row have
    ⌊L q⌋ or ⌈L q⌉ heads. A level that changes from one period to the next goes on from where the
    coin is (`position`), so that ⌊Σ q⌋ or ⌈Σ q⌉ holds across periods.

    Parameters
    ----------
    phase
        From `coin_phase`, in multiples of 2⁻³².
    level
        In multiples of 2⁻³².

    Examples
    --------
    >>> coins = Coins(phase=1 << 30, level=LEVEL_ONE // 3)
    >>> [coins.heads(r) for r in range(7)]
    [True, False, False, True, False, False, True]
    """

    def __init__(self, phase: int, level: int) -> None:
        self.phase, self.level = phase, level

    def heads(self, round_: int) -> bool:
        """Return whether the client joins in a round, counted from 0."""
        return (self.phase + round_ * self.level) % LEVEL_ONE < self.level

    def position(self, done: int) -> int:
        """Return where the coin is after some rounds, in multiples of 2⁻³²."""
        return (self.phase + (done - 1) * self.level) % LEVEL_ONE


def coin_phase(key: bytes, level: int, position: int | None = None) -> int:
    """Return the phase of a client's coins in a run.

    Parameters
    ----------
    key
        From `coin_key`.
    level
        In multiples of 2⁻³².
    position
        Where the previous period left the coin; None if the client was not in it, so that the
        first 32 bits of the key are the phase.

    Examples
    --------
    >>> coin_phase(bytes([128] + 31 * [0]), level=7) == LEVEL_ONE // 2
    True
    """
    if position is None:
        return int.from_bytes(key[:4], "big")
    return (position + level) % LEVEL_ONE


@dataclass
class Client:
    """A client of a run: its terms, its keys, and what happened to it."""

    tariff: Blocks
    level: int
    samples: int
    key: str = ""
    grad_norm: str = ""
    menu: bool = False
    norm_cap: float = INFINITY
    coins: Coins | None = None
    share: float = 0.0  # of all samples
    counted: float = 0.0  # its level, or a higher one with which its weight is the largest allowed
    heads: int = 0
    joined: int = 0
    missed: int = 0
    refused: int = 0
    gap: int = 0  # heads since its last accepted update
    paid: int = 0

    @cached_property
    def payment(self) -> int:
        """What its level is paid, in micro-units; negative if it pays."""
        return tariff_payment(self.tariff, self.level)

    def earned(self, rounds: int, delivered: int) -> int:
        """Return what a number of updates has earned it in a run of some rounds."""
        return due(self.payment, self.level, rounds, delivered) if self.payment > 0 else 0

    def fresh(self) -> Client:
        """Return the client as it was when its run was opened."""
        return replace(self, heads=0, joined=0, missed=0, refused=0, gap=0, paid=0)


@dataclass
class Run:
    """A run, or a period of one: its clients in the order of the model's sum, how far it got."""

    rounds: int
    budget: int
    clients: dict[str, Client]
    signed: bool = False
    follows: str = ""
    run_rounds: int = 0
    longest_gap: int = LONGEST_GAP
    max_weight: float = INFINITY
    beacon: str = ""
    mixed: str = ""
    attempts: int = 0
    dropped: dict[str, str] = field(default_factory=dict)
    done: int = 0
    settled: bool = False
    state: bool = False
    model: str = ""
    updates: set[str] = field(default_factory=set)

    @cached_property
    def payees(self) -> list[tuple[str, str, Client]]:
        """The clients that are paid, with names and accounts; every round goes through them."""
        return [
            (name, f"client:{name}", own) for name, own in self.clients.items() if own.payment > 0
        ]

    @cached_property
    def usual_weights(self) -> dict[str, str]:
        """The weights of updates after which nobody missed heads, as entries have them.

        Of the clients that can draw heads: their level is above 0.
        """
        return {n: repr(own.share / own.counted) for n, own in self.clients.items() if own.level}

    def advance(self, content: dict[str, Any]) -> None:
        """Apply a round: who drew heads, who delivered, and the model after it."""
        for client in content["joined"]:
            own = self.clients[client]
            own.heads += 1
            own.joined += 1
            own.gap = 0
        for client in (*content["missed"], *content["refused"]):
            own = self.clients[client]
            own.heads += 1
            own.gap += 1
            own.refused += client in content["refused"]
            own.missed += client not in content["refused"]
        self.done, self.model, self.state = self.done + 1, content["model"], content["state"]

    def arrival(self, client: str) -> float:
        """Return q ρ of a client that draws heads in the next round, as its weight has it.

        1 / ρ is the number of its heads since its last accepted update, this one included.
        """
        own = self.clients[client]
        return own.counted / delivery_correction(own.gap + 1, self.longest_gap)

    def weight(self, client: str) -> float:
        """Return the weight of a client's update in the next round, if it draws heads."""
        return self.clients[client].share / self.arrival(client)


@dataclass
class Offered:
    """The offers of a run that is not open yet, and the commitments to them."""

    attempt: int
    conditions: dict[str, Any]
    sheet: str
    offers: dict[str, dict[str, Any]]
    hashes: dict[str, str]
    replaced: dict[str, str]
    turns: int = 1
    commitments: dict[str, dict[str, Any]] | None = None
    roster: str = ""
    dropped: dict[str, str] = field(default_factory=dict)


@dataclass
class Books:
    """What the entries of a ledger add up to so far.

    `expect` says what the next entry must post, and `enter` enters it: nothing changes before.
    """

    unit: str = ""
    ledger: str = ""
    server: str = ""
    hashes: list[str] = field(default_factory=list)
    balances: dict[str, int] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)  # by account, the last one counts
    owners: dict[str, str] = field(default_factory=dict)  # by key: a key has one name
    runs: dict[str, Run] = field(default_factory=dict)
    offered: dict[str, Offered] = field(default_factory=dict)
    rosters: dict[tuple[str, int], str] = field(default_factory=dict)
    commitments: set[str] = field(default_factory=set)
    moves: dict[int, tuple[str, str, int]] = field(default_factory=dict)  # by entry's number
    references: set[tuple[str, str, str]] = field(default_factory=set)
    unsigned: list[str] = field(default_factory=list)
    signatures: int = 0
    coins: int = 0
    only: str = ""  # of a partial export: the client whose entries it shows
    hidden: int = 0  # entries that it has as hashes only
    trusting: bool = False  # of entries that were checked before they were written
    valid: Callable[[str, str, str], bool] = check_signed
    # What became of the updates for which a client has a receipt: hash, why it was refused, and
    # what the run had paid the client by then.
    wanted: set[tuple[str, int, str]] = field(default_factory=set)
    # How many rounds a run had when the ledger had a number of entries: clients were called then.
    called: dict[tuple[int, str], int] = field(default_factory=dict)
    recorded: dict[tuple[str, int, str], tuple[str, str, int]] = field(default_factory=dict)

    def expect(self, content: dict[str, Any]) -> tuple[list[Posting], Callable[[], None]]:
        """Return what the next entry must post, and what enters it into these books.

        Raises
        ------
        VerificationError
            With what is wrong about it.
        """
        kind, of = content["kind"], content["of"]
        if type(kind) is not str or kind not in CONTENT:
            raise VerificationError("its kind is unknown.")
        if type(of) is not list:
            raise VerificationError("its subject (`of`) is missing.")
        fields = set(content) - {"kind", "of"}
        if fields != set(CONTENT[kind]) and not (kind == "open" and fields == set(UNSIGNED)):
            raise VerificationError("its fields are not those of its kind.")
        if (kind == "begin") != (not self.hashes):
            raise VerificationError("it is in the wrong place.")
        lines, apply = getattr(self, f"_{kind}")(content, *of)
        after: dict[str, int] = {}
        for account, amount in lines:
            after[account] = after.get(account, self.balances.get(account, 0)) + amount
        for account, balance in after.items():
            odd = (balance < 0 and account != "world") or abs(balance) > LARGEST
            if odd and self.sees(account):
                left = self.balances.get(account, 0)
                raise VerificationError(
                    f"it overdraws {account}: {left} micro-units are there, {left - balance} "
                    "are needed."
                )

        def enter() -> None:
            apply()
            self.balances |= after

        return lines, enter

    def run(self, name: str) -> Run:
        """Return a run that was opened."""
        if name not in self.runs:
            raise VerificationError("the run was not opened.")
        return self.runs[name]

    def sees(self, account: str) -> bool:
        """Return whether an account's entries are shown, so that balance and keys are known."""
        return not self.only or account.startswith("escrow:") or account == f"client:{self.only}"

    def key_of(self, account: str) -> str:
        """Return the key that an account's owner signs with; empty if it has none."""
        if account == "treasury":
            return self.server
        return self.keys.get(account, [""])[-1]

    def check(self, key: str, signature: Any, text: str, what: str) -> None:
        """Refuse a text that the key did not sign."""
        if not (isinstance(signature, str) and _SIGNATURE.match(signature)):
            raise VerificationError(f"the signature of {what} is not valid.")
        if not self.trusting and not self.valid(key, signature, text):
            raise VerificationError(f"the signature of {what} is not valid.")
        self.signatures += 1

    def _begin(self, content: dict[str, Any]) -> tuple[list[Posting], Callable[[], None]]:
        if type(content["format"]) is not int or content["format"] != FORMAT:
            raise VerificationError(
                f"it is of format {content['format']!r:.20}; this verifier knows {FORMAT}. Coins "
                "and pay had other rules before: verify it with the release that wrote it."
            )
        unit, server = content["unit"], content["server"]
        if not (isinstance(unit, str) and UNIT.match(unit)):
            raise VerificationError("its unit is not 1 to 12 capital letters and digits.")
        ledger = _hash(content["ledger"])
        if server != "":
            _hash(server)

        def apply() -> None:
            self.unit, self.ledger, self.server = unit, ledger, server
            self.keys["treasury"] = [server] if server else []
            self.owners |= dict.fromkeys(self.keys["treasury"], "treasury")

        return [], apply

    def _deposit(
        self, content: dict[str, Any], account: str, reference: str
    ) -> tuple[list[Posting], Callable[[], None]]:
        amount = self._moved("deposit", content, account, reference)
        return [("world", -amount), (account, amount)], self._move(
            "deposit", account, reference, amount
        )

    def _withdraw(
        self, content: dict[str, Any], account: str, reference: str
    ) -> tuple[list[Posting], Callable[[], None]]:
        amount = self._moved("withdraw", content, account, reference)
        message = {"account": account, "amount": amount, "reference": reference}
        unsigned = self._owned(account, "Withdrawal", message, content)
        entered = self._move("withdraw", account, reference, amount)

        def apply() -> None:
            entered()
            self.unsigned += [f"a withdrawal of {account}"] * unsigned

        return [(account, -amount), ("world", amount)], apply

    def _reverse(
        self, content: dict[str, Any], number: int
    ) -> tuple[list[Posting], Callable[[], None]]:
        if _whole(number) not in self.moves:
            raise VerificationError(
                "there is no such deposit or withdrawal, or it was already reversed."
            )
        kind, account, amount = self.moves[number]
        _text(content["reason"])
        unsigned = False
        if kind == "deposit":  # money leaves the account again
            message = {"amount": amount, "entry": number, "reason": content["reason"]}
            unsigned = self._owned(account, "Reversal", message, content)
            lines = [(account, -amount), ("world", amount)]
        else:
            lines = [("world", -amount), (account, amount)]
            if (content["message"], content["signature"]) != ("", ""):
                raise VerificationError("it must not be signed.")

        def apply() -> None:
            del self.moves[number]
            self.unsigned += [f"a reversal for {account}"] * unsigned

        return lines, apply

    def _moved(self, kind: str, content: dict[str, Any], account: str, reference: str) -> int:
        if account != "treasury":
            _text(account.removeprefix("client:"))
        _text(reference)
        if account != "treasury" and not account.startswith("client:"):
            raise VerificationError("it is for neither the treasury nor a client.")
        if (kind, account, reference) in self.references:
            raise VerificationError("it was already recorded.")
        return _between(content["amount"], 1, LARGEST, "amount")

    def _move(self, kind: str, account: str, reference: str, amount: int) -> Callable[[], None]:
        def apply() -> None:
            self.references.add((kind, account, reference))
            self.moves[len(self.hashes) + 1] = kind, account, amount

        return apply

    def _owned(
        self, account: str, kind: str, message: dict[str, Any], content: dict[str, Any]
    ) -> bool:
        """Check that the owner of an account signed; return whether nobody could."""
        key = self.key_of(account)
        if account == "treasury" or not key:  # the server signs the entry itself
            if (content["message"], content["signature"]) != ("", ""):
                raise VerificationError(f"{account} has no key in this ledger to sign with.")
            return not key
        text = canonical(message | {"kind": kind, "ledger": self.ledger})
        if content["message"] == "":
            raise VerificationError(f"{account} has to sign it; see fedprice ledger request.")
        if content["message"] != text:
            raise VerificationError(
                f"{account} signed something else: another ledger, amount, entry or text."
            )
        self.check(key, content["signature"], text, f"the {kind.lower()} of {account}")
        return False

    def _rotate(
        self, content: dict[str, Any], account: str, number: int
    ) -> tuple[list[Posting], Callable[[], None]]:
        keys = self.keys.get(account, [])
        old = keys[-1] if keys else ""
        if not keys and account != "treasury":
            raise VerificationError("its account has no key yet.")
        if _whole(number) != len(keys) + 1:
            _fail("number", len(keys) + 1, number)
        message = json.loads(content["message"])
        new = _hash(message["new"])
        text = canonical(
            {"account": account, "kind": "Rotation", "ledger": self.ledger, "new": new, "old": old}
        )
        if content["message"] != text:
            _fail("message", text, content["message"])
        if new in self.owners:
            raise VerificationError("its new key already belongs to somebody.")
        if old:
            self.check(old, content["signature"], text, "the rotation, by the old key")
        elif content["signature"] != "":
            raise VerificationError("there is no old key.")
        self.check(new, content["proof"], text, "the rotation, by the new key")

        def apply() -> None:
            self.keys[account] = [*keys, new]
            self.owners[new] = account
            if account == "treasury":
                self.server = new

        return [], apply

    def _offer(
        self, content: dict[str, Any], name: str, attempt: int, *turn: int
    ) -> tuple[list[Posting], Callable[[], None]]:
        _text(name)
        if turn:
            return self._offer_in_turn(content, self._made(name, attempt), *turn)
        before = self.offered.get(name)
        if name in self.runs:
            raise VerificationError("the run was already opened or ended; choose another name.")
        if not self.server:
            raise VerificationError("this ledger has no server key.")
        if _whole(attempt) != (before.attempt if before else 0) + 1 or attempt > MOST_ATTEMPTS:
            raise VerificationError(f"a run takes at most {MOST_ATTEMPTS} sets of offers.")
        conditions = _message(content["conditions"], "Conditions")
        rounds = _between(conditions["rounds"], 1, 1 << 40, "rounds")
        for what, expected in (
            ("ledger", self.ledger),
            ("server", self.server),
            ("run", name),
            ("unit", self.unit),
            ("follows", self._follows(name)),
        ):
            if conditions[what] != expected:
                _fail(what, expected, conditions[what])
        _between(conditions["run_rounds"], rounds, 1 << 40, "run_rounds")
        _between(conditions["longest_gap"], 1, 1000, "longest_gap")
        _between(conditions["expires"], 0, 1 << 40, "expires")
        if conditions["coins"] != COINS:
            _fail("coins", COINS, conditions["coins"])
        if not _decimal(conditions["max_weight"], "max_weight") > 0:
            raise VerificationError("its largest weight is 0.")
        for what in ("task", "model", "nonce"):
            _hash(conditions[what])
        if conditions["beacon"] != "":
            _text(conditions["beacon"])
        if conditions["follows"]:
            last = self.runs[conditions["follows"]]
            if conditions["model"] != last.model:
                _fail("model", last.model, conditions["model"])
            if conditions["run_rounds"] != last.run_rounds:
                _fail("rounds of the whole run", last.run_rounds, conditions["run_rounds"])
        sheet, replaced = _sha(content["conditions"]), before.hashes if before else {}
        offers, hashes = self._signed_offers(content["offers"], conditions, sheet, replaced)
        if set(_reasons(content["dropped"])) != set(before.offers if before else ()):
            raise VerificationError("not every earlier offer is recorded as dropped.")
        made = Offered(attempt, conditions, sheet, offers, hashes, replaced)

        def apply() -> None:
            self.offered[name] = made

        return [], apply

    def _offer_in_turn(
        self, content: dict[str, Any], made: Offered, turn: int
    ) -> tuple[list[Posting], Callable[[], None]]:
        """Apply more offers of a set, made after others were answered."""
        if made.commitments is not None:
            raise VerificationError("commitments to these offers are already recorded.")
        if _whole(turn) != made.turns + 1:
            _fail("turn", made.turns + 1, turn)
        if _sha(content["conditions"]) != made.sheet:
            raise VerificationError("its conditions are not those of the first turn.")
        if content["dropped"] != {}:
            raise VerificationError("only the first turn drops earlier offers.")
        offers, hashes = self._signed_offers(
            content["offers"], made.conditions, made.sheet, made.replaced
        )
        if twice := [client for client in offers if client in made.offers]:
            raise VerificationError(f"{twice[0]!r} has two offers.")

        def apply() -> None:
            made.turns = turn
            made.offers |= offers
            made.hashes |= hashes

        return [], apply

    def _signed_offers(
        self, given: Any, conditions: dict[str, Any], sheet: str, replaced: dict[str, str]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return the offers of an entry and their hashes, by client.

        They are signed by the server that their conditions name: clients take no other.
        """
        offers: dict[str, dict[str, Any]] = {}
        hashes: dict[str, str] = {}
        for text, signature in given:
            offer = _message(text, "Offer")
            client = _text(offer["client"])
            if client in offers:
                raise VerificationError(f"{client!r} has two offers.")
            cap = _tariff(offer["tariff"])
            if type(offer["menu"]) is not bool:
                _fail(f"menu of the offer to {client!r}", "true or false", offer["menu"])
            _between(offer["level_floor"], 1, cap, "level_floor")
            _decimal(offer["norm_cap"] or "0", "norm_cap")
            _decimal(offer["impact"], "impact")
            _hash(offer["coin_hash"])
            position = self._position(conditions["follows"], client)
            if offer["position"] != position or type(offer["position"]) is not type(position):
                _fail(f"position of the coin of {client!r}", position, offer["position"])
            if offer["conditions"] != sheet:
                _fail(f"conditions of the offer to {client!r}", sheet, offer["conditions"])
            old = replaced.get(client, "")
            if offer["replaces"] != old:
                _fail(f"what the offer to {client!r} replaces", old, offer["replaces"])
            self.check(conditions["server"], signature, text, f"the offer to {client!r}")
            offers[client], hashes[client] = offer, _sha(text)
        if not offers:
            raise VerificationError("it has no offers.")
        return offers, hashes

    def _position(self, follows: str, client: str) -> int | None:
        """Return where the previous period left a client's coin, if the client was in it."""
        run = self.runs.get(follows)
        own = None if run is None else run.clients.get(client)
        return own.coins.position(run.done) if run and own and own.coins else None

    def _follows(self, name: str) -> str:
        """Return the period that one follows: x#3 follows x#2, which follows x, each settled."""
        found = _LATER.match(name)
        if found is None:
            return ""
        number = int(found[2]) if len(found[2]) < 10 else 0
        if number < 2 or str(number) != found[2]:
            raise VerificationError("there is no such period.")
        before = found[1] if number == 2 else f"{found[1]}#{number - 1}"
        if before not in self.runs or not self.runs[before].settled:
            raise VerificationError("the period before it is not settled.")
        return before

    def _commit(
        self, content: dict[str, Any], name: str, attempt: int
    ) -> tuple[list[Posting], Callable[[], None]]:
        made = self._made(name, attempt)
        if made.commitments is not None:
            raise VerificationError("commitments to these offers are already recorded.")
        given, dropped = content["commitments"], _reasons(content["dropped"])
        if {*given, *dropped} != set(made.offers) or len(given) + len(dropped) != len(made.offers):
            raise VerificationError("every offer must be either answered or dropped.")
        if not given:
            raise VerificationError("nobody has committed.")
        commitments: dict[str, dict[str, Any]] = {}
        keys: dict[str, str] = {}
        for client in made.offers:
            if client not in given:
                continue
            text, signature = given[client]
            own, offer = _message(text, "Commitment"), made.offers[client]
            if own["offer"] != made.hashes[client]:
                _fail(f"offer that {client!r} committed to", made.hashes[client], own["offer"])
            ends = [end for end, _ in offer["tariff"]]
            _between(own["level"], offer["level_floor"], ends[-1], "level")
            if offer["menu"] and own["level"] not in ends:
                raise VerificationError(
                    f"the level of {client!r} must be on its menu; found {own['level']}."
                )
            _between(own["samples"], 0, 1 << 53, "samples")
            _decimal(own["grad_norm"] or "0", "grad_norm")
            _hash(own["secret_hash"])
            key, account = _hash(own["key"]), f"client:{client}"
            known = self.key_of(account) or key
            other = key != known and self.sees(account)
            if other or self.owners.get(key, account) != account:
                raise VerificationError(f"{client!r} has another key in this ledger.")
            if keys.setdefault(key, account) != account:
                raise VerificationError(f"{client!r} has the key of another client.")
            self.check(key, signature, text, f"the commitment of {client!r}")
            commitments[client] = own
        roster = roster_hash(
            {c: (_sha(given[c][0]), own["secret_hash"]) for c, own in commitments.items()}
        )

        def apply() -> None:
            made.commitments, made.roster, made.dropped = commitments, roster, dropped
            self.rosters[name, attempt] = roster
            self.commitments |= {_sha(text) for text, _ in given.values()}
            for key, account in keys.items():
                self.owners[key] = account
                self.keys.setdefault(account, [key])

        return [], apply

    def _made(self, name: str, attempt: int) -> Offered:
        made = self.offered.get(_text(name))
        if made is None or made.attempt != _whole(attempt):
            raise VerificationError("there are no such offers.")
        return made

    def _open(self, content: dict[str, Any], name: str) -> tuple[list[Posting], Callable[[], None]]:
        _text(name)
        if name in self.runs:
            raise VerificationError("the run was already opened or ended; choose another name.")
        budget = _between(content["budget"], -LARGEST, LARGEST, "budget")
        run = self._opened(content, name) if "attempt" in content else self._bare(content, name)
        run.budget = budget
        needed = sum(cost(own.payment, own.level, run.rounds) for own in run.clients.values())
        if needed > budget:
            raise VerificationError(
                f"it can cost {needed} micro-units; its budget is {budget}. Raise the budget, or "
                "offer less."
            )
        escrow = f"escrow:{name}"
        lines = [("treasury", -budget), (escrow, budget)] if budget > 0 else []
        for client, own in run.clients.items():
            if own.payment < 0:
                own.paid = own.payment
                lines += [(f"client:{client}", own.payment), (escrow, -own.payment)]

        def apply() -> None:
            self.runs[name] = run
            self.offered.pop(name, None)
            if not run.signed:
                self.unsigned.append(f"run {name!r}")

        return lines, apply

    def _bare(self, content: dict[str, Any], name: str) -> Run:
        """Return a run that nobody signed: it may pay, but takes no client's money."""
        run = Run(_between(content["rounds"], 1, 1 << 40, "rounds"), 0, {})
        if _LATER.match(name) or name in self.offered:
            raise VerificationError("a run that nobody signed cannot have this name.")
        for client, tariff, level, samples in content["terms"]:
            if _text(client) in run.clients:
                raise VerificationError(f"it names {client!r} twice.")
            own = Client(
                tariff,
                _between(level, 0, _tariff(tariff), "level"),
                _between(samples, 0, 1 << 53, "samples"),
            )
            _between(own.payment, 0, LARGEST, f"the payment of {client!r}")
            run.clients[client] = own
        _weigh(run)
        return run

    def _opened(self, content: dict[str, Any], name: str) -> Run:
        """Return a run as both sides signed it, with the keys of its coins."""
        made = self._made(name, content["attempt"])
        given, committed = content["secrets"], made.commitments or {}
        # Whoever could leave somebody out now would choose among coins.
        if set(given) != set(committed) or not given:
            raise VerificationError("not every client that committed has revealed its secret.")
        conditions, beacon = made.conditions, content["beacon"]
        if (conditions["beacon"] == "") != (beacon == ""):
            raise VerificationError("it lacks its public value, or has one that was not offered.")
        if beacon != "":
            _text(beacon)
        follows = conditions["follows"]
        run = Run(
            rounds=conditions["rounds"],
            budget=0,
            clients={},
            signed=True,
            follows=follows,
            run_rounds=conditions["run_rounds"],
            longest_gap=conditions["longest_gap"],
            max_weight=float(conditions["max_weight"]),
            beacon=beacon,
            attempts=made.attempt,
            dropped=made.dropped,
            model=conditions["model"],
            # A copy of an earlier period's update is one, too.
            updates=self.runs[follows].updates if follows else set(),
        )
        secrets: dict[str, tuple[bytes, bytes]] = {}
        for client, own in committed.items():
            offer = made.offers[client]
            server, other = (bytes.fromhex(_hash(secret)) for secret in given[client])
            for whose, secret, published in (
                ("server's", server, offer["coin_hash"]),
                ("client's", other, own["secret_hash"]),
            ):
                if secret_hash(secret) != published:
                    raise VerificationError(
                        f"the {whose} secret for {client!r} does not match its hash."
                    )
            secrets[client] = server, other
            run.clients[client] = Client(
                offer["tariff"],
                own["level"],
                own["samples"],
                own["key"],
                own["grad_norm"],
                offer["menu"],
                float(offer["norm_cap"] or "inf"),
            )
        mixed = coin_mix(made.roster, {n: other for n, (_, other) in secrets.items()}, beacon)
        run.mixed = mixed.hex()
        for client, (server, other) in secrets.items():
            level, position = run.clients[client].level, made.offers[client]["position"]
            phase = coin_phase(coin_key(server, other, mixed), level, position)
            run.clients[client].coins = Coins(phase, level)
        _weigh(run)
        return run

    def _round(
        self, content: dict[str, Any], name: str, number: int
    ) -> tuple[list[Posting], Callable[[], None]]:
        run = self.run(_text(name))
        if run.settled:
            raise VerificationError("the run is settled.")
        if _whole(number) != run.done or number >= run.rounds:
            raise VerificationError(
                f"it does not follow: {run.done} of {run.rounds} rounds are recorded."
            )
        joined, missed, refused = content["joined"], content["missed"], content["refused"]
        drew = {*joined, *missed, *refused}
        if len(drew) != len(joined) + len(missed) + len(refused) or missed != sorted(missed):
            raise VerificationError("it names a client twice, or the clients out of order.")
        if not drew <= run.clients.keys():
            odd = min(drew - run.clients.keys())
            raise VerificationError(f"it names {odd!r:.40}, which is not in the run.")
        if not HASH.match(content["model"]) or type(content["state"]) is not bool:
            raise VerificationError("its model or state is malformed.")
        if self.coins + len(run.clients) > MOST_COINS:
            raise VerificationError(f"there are more than {MOST_COINS:,} coins to check.")
        if run.signed and not self.trusting:
            for client, own in run.clients.items():
                if own.coins is not None and own.coins.heads(number) != (client in drew):
                    said, shown = ("heads", "tails") if client in drew else ("tails", "heads")
                    raise VerificationError(
                        f"the coin of {client!r} shows {shown}, not {said} as recorded."
                    )
        updates = self._check_updates(run, name, number, joined)
        for client, (reason, update, norm, signature) in refused.items():
            _reasons({client: reason})
            if norm != "":
                _decimal(norm, "norm")
            if update != "":
                self._check_signature_of(run, name, number, client, _hash(update), signature)
            elif signature != "":
                raise VerificationError(
                    f"the refused update of {client!r} has a signature but no hash."
                )
        pay: list[Posting] = []
        payees: list[Client] = []
        for client, account, own in run.payees:
            if client not in joined:
                continue
            share = own.earned(run.rounds, own.joined + 1) - own.paid
            if share > 0:
                pay.append((account, share))
                payees.append(own)
        spent = sum(amount for _, amount in pay)

        def apply() -> None:
            run.advance(content)
            for own, (_, share) in zip(payees, pay, strict=True):
                own.paid += share
            if self.wanted:
                for client in drew:
                    self._note(name, number, client, joined.get(client), refused.get(client))
            run.updates |= updates
            self.coins += len(run.clients)

        return [(f"escrow:{name}", -spent), *pay] if pay else [], apply

    def _check_updates(
        self, run: Run, name: str, number: int, joined: dict[str, list[str]]
    ) -> set[str]:
        """Check accepted updates: weights, norms, signatures, that none is a copy; return them."""
        new: set[str] = set()
        clients, usual = run.clients, run.usual_weights
        if not joined.keys() <= usual.keys():
            odd = next(client for client in joined if client not in usual)
            raise VerificationError(f"{odd!r} has level 0, and draws no heads.")
        if not _are_updates(joined.values()):
            odd = next(client for client, own in joined.items() if not _are_updates([own]))
            raise VerificationError(f"the update of {odd!r} is malformed, or not finite.")
        found = [own[1] for own in joined.values()]
        expected = [
            repr(run.weight(client)) if clients[client].gap else usual[client] for client in joined
        ]
        if found != expected:
            client, right, wrong = next(
                own for own in zip(joined, expected, found, strict=True) if own[1] != own[2]
            )
            _fail(f"weight of {client!r}", right, wrong)
        if not run.signed:
            return new  # nobody signed a cap, either
        for client, (update, _, norm, _, _, signature) in joined.items():
            cap = clients[client].norm_cap
            if float(norm) > cap * (1 + 1e-5):
                raise VerificationError(f"the update of {client!r} is above its cap of {cap:.6g}.")
            if update in run.updates or update in new:
                raise VerificationError(f"the update of {client!r} is a copy of an earlier one.")
            new.add(update)
            self._check_signature_of(run, name, number, client, update, signature)
        return new

    def _check_signature_of(
        self, run: Run, name: str, number: int, client: str, update: str, signature: str
    ) -> None:
        if not run.signed:
            raise VerificationError("in a run that nobody signed, nobody signs updates.")
        text = canonical(
            {
                "arrays": update,
                "base": run.model,
                "client": client,
                "kind": "Update",
                "round": number,
                "run": name,
            }
        )
        self.check(run.clients[client].key, signature, text, f"the update of {client!r}")

    def _note(self, name: str, number: int, client: str, joined: Any, refused: Any) -> None:
        """Keep what is recorded of an update, if its client has a receipt for it."""
        if (name, number, client) in self.wanted:
            said = (joined[0], "") if joined else (refused[1], refused[0]) if refused else ("", "")
            paid = max(self.runs[name].clients[client].paid, 0)
            self.recorded[name, number, client] = *said, paid

    def _settle(
        self, content: dict[str, Any], name: str
    ) -> tuple[list[Posting], Callable[[], None]]:
        made = self.offered.get(_text(name))
        if made is not None:  # offers that came to nothing
            if _whole(content["rounds"]) != 0:
                _fail("rounds", 0, content["rounds"])

            def withdraw() -> None:
                del self.offered[name]
                over = Run(made.conditions["rounds"], 0, {}, signed=True, settled=True)
                over.attempts, over.dropped = made.attempt, dict.fromkeys(made.offers, "not opened")
                self.runs[name] = over

            return [], withdraw
        run = self.run(name)
        if run.settled:
            raise VerificationError("the run is already settled.")
        if _whole(content["rounds"]) != run.done:
            _fail("rounds", run.done, content["rounds"])
        back: list[Posting] = []
        for client, own in run.clients.items():
            # Rounded down, so that what is left suffices whatever the rounds paid.
            refund = -own.payment * (run.rounds - run.done) // run.rounds
            if refund > 0:
                back.append((f"client:{client}", refund))
        left = self.balances.get(f"escrow:{name}", 0)
        rest = left - sum(amount for _, amount in back)

        def apply() -> None:
            run.settled = True
            for account, refund in back:
                run.clients[account[7:]].paid += refund

        lines = [(f"escrow:{name}", -left), *back, ("treasury", rest)]
        return [(account, amount) for account, amount in lines if amount], apply


def _are_updates(records: Collection[list[str]]) -> bool:
    """Return whether what is recorded of accepted updates can be that: of all of them at once.

    A record holds hash, weight, norm, norm of gradients, sketch and signature. There may be many
    of them, and a look at each field of each would take most of the time of a round.
    """
    if not records:
        return True
    hashes, _, norms, gradients, sketches, signatures = zip(*records, strict=True)
    return (
        set(map(len, hashes)) <= {64}
        and set(map(len, signatures)) <= {0, 128}
        and max(map(len, sketches)) <= LONGEST_SKETCH
        and _is_written_in(_HEXADECIMAL, hashes)
        and _is_written_in(_HEXADECIMAL, signatures)
        and _is_written_in(_SKETCH, sketches)
        and _are_finite(_DECIMALS, norms)
        and _are_finite(_DECIMALS_OR_NOTHING, gradients)
    )


def _is_written_in(characters: bytes, texts: Sequence[str]) -> bool:
    return not "".join(texts).encode().translate(None, characters)


def _are_finite(form: re.Pattern[str], numbers: Sequence[str]) -> bool:
    """Return whether all numbers have a form, which ends with a comma, and none is infinite."""
    if form.subn("", ",".join(numbers) + ",") != ("", len(numbers)):
        return False
    # Without an exponent there are too few digits for that.
    return max((float(own) for own in numbers if "e" in own), default=0.0) < INFINITY


def _weigh(run: Run) -> None:
    """Give every client its share of the samples, and the level that its weight is made with."""
    total = sum(own.samples for own in run.clients.values())
    for own in run.clients.values():
        own.share = own.samples / total if total else 0.0
        own.counted = max(own.level / LEVEL_ONE, own.share / run.max_weight)


def secret_hash(secret: bytes) -> str:
    """Return what is published of a secret before it is revealed."""
    return hashlib.sha256(b"fedprice coin secret\0" + secret).hexdigest()


def roster_hash(commitments: dict[str, tuple[str, str]]) -> str:
    """Return the hash of all commitments to a set of offers.

    Parameters
    ----------
    commitments
        By client, the hash of its commitment and that of the secret it committed to: who knows the
        secrets can tell that they are the ones that the hash was made of.
    """
    return _sha(canonical(commitments))


def coin_mix(roster: str, secrets: dict[str, bytes], beacon: str) -> bytes:
    """Return what all clients, by their names, and a public value add to every coin of a run."""
    mixed = hashlib.sha256(b"fedprice coin mix\0" + bytes.fromhex(roster))
    for client in sorted(secrets):  # in whatever order they were offered something
        mixed.update(secrets[client])
    mixed.update(b"\0" + beacon.encode())
    return mixed.digest()


def coin_key(server_secret: bytes, client_secret: bytes, mixed: bytes) -> bytes:
    """Return the key of a client's coins."""
    return hashlib.blake2b(
        b"fedprice coins\0" + client_secret + mixed, key=server_secret, digest_size=32
    ).digest()


def head_text(ledger: str, number: int, hash_: str) -> str:
    """Return what the server signs of an entry."""
    return canonical({"hash": hash_, "kind": "Head", "ledger": ledger, "number": number})


def entry_digest(content: str, postings: str) -> str:
    """Return the digest of an entry, from the canonical texts of its content and postings."""
    hashed = hashlib.sha256(content.encode())
    hashed.update(f"\n{postings}".encode())  # without a copy of the content: it may be long
    return hashed.hexdigest()


def chained_hash(previous: str, number: int, digest: str) -> str:
    """Return the hash of an entry: a few digests show that one entry follows from another."""
    return _sha(f"{previous}\n{number}\n{digest}")


def check_export(path: str | Path, **checks: Any) -> Books:
    """Check an exported ledger; raises `VerificationError`, or OSError if it cannot be read.

    Parameters
    ----------
    checks
        As for `check_entries`.
    """
    with Path(path).open("rb") as file:
        return check_entries(entries_of(file), **checks)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines that are safe to parse: not too long, not too many.

    They come without their ends, and without a mark of UTF-8 at the start: programs that a file
    passes through change these, which says nothing about what is written.
    """
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise VerificationError(f"line {number} is longer than {LONGEST_LINE:,} bytes.")
        if number > MOST_ENTRIES:
            raise VerificationError(f"it has more than {MOST_ENTRIES:,} lines.")
        if not fits(line):
            raise VerificationError(
                f"line {number} has more than {MOST_VALUES:,} values, or more than "
                f"{LONGEST_LINE // 4:,} characters that are not all ASCII."
            )
        line = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).rstrip(b"\r\n")
        yield number, line


def fits(line: bytes) -> bool:
    """Return whether a line is short enough to be parsed in 1 GB of memory.

    One character beyond ASCII makes all characters of a text up to four times as large.
    """
    if not line.isascii() or _ESCAPED.search(line):
        characters = 4 * len(line.translate(None, _CONTINUED))
    else:
        characters = len(line)
    return characters <= LONGEST_LINE and sum(map(line.count, b",[{")) <= MOST_VALUES


def entries_of(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the entries of an export, line by line; reject anything else."""
    for number, line in _lines(file):
        if not line:
            continue
        try:
            entry = json.loads(line)
            sound = isinstance(entry, dict) and canonical(entry).encode() == line
        except (ValueError, RecursionError):
            sound = False
        if not sound and b"}\r{" in line:
            raise UncheckedError("the lines of the file end with carriage returns, not line feeds.")
        if not sound or set(entry) not in (SHOWN, HIDDEN):
            old = sound and number == 1 and "signature" not in entry
            why = f" It looks like a format before {FORMAT}." if old else ""
            raise VerificationError(f"line {number} is not an entry of an exported ledger.{why}")
        yield entry


def check_entries(
    entries: Iterable[dict[str, Any]],
    *,
    heads: Iterable[str] = (),
    receipts: Iterable[dict[str, Any]] = (),
    valid: Callable[[str, str, str], bool] = check_signed,
    partial: bool = False,
) -> Books:
    """Check the entries of a ledger, the first one first; return what they add up to.

    Parameters
    ----------
    heads
        Hashes of entries that must be there: what somebody kept as proof.
    receipts
        Messages that a client kept, from `read_receipts`.
    valid
        How signatures are checked; a caller that checks many ledgers may remember them.
    partial
        Whether entries may be hidden; `Books.only` then says which client's are shown.
    """
    books = Books(valid=valid)
    kept = list(receipts)
    books.wanted = {(m["run"], m["round"], m["client"]) for m in kept if m["kind"] == "Receipt"}
    calls: dict[int, list[str]] = {}
    for message in kept:
        if message["kind"] == "Call":
            calls.setdefault(message["number"], []).append(message["run"])
    for entry in entries:
        if entry.keys() == HIDDEN and not partial:
            raise UncheckedError("it is a partial export, and a whole one is needed.")
        check_next(books, entry)
        number = len(books.hashes)
        for name in calls.get(number, ()):
            run = books.runs.get(name)
            books.called[number, name] = -1 if run is None or run.settled else run.done
    if not books.hashes:
        raise VerificationError("there is no entry.")
    for head in heads:
        if head not in books.hashes:
            raise VerificationError(
                f"no entry has the hash {head}; the ledger was truncated or rewritten."
            )
    _check_kept(books, kept)
    return books


def check_next(books: Books, entry: dict[str, Any]) -> None:
    """Check the next entry of a ledger, and enter it; an error says which one it is."""
    number = len(books.hashes) + 1
    where = f"entry {number}"
    try:
        if entry.keys() == HIDDEN:
            where = f"{where} (hidden)"
            check_hidden(books, entry, number)
        else:
            where = f"{where} ({entry_title(entry['content']):.{LONGEST_NAME}})"
            check_entry(books, entry, number)
    except VerificationError as error:
        raise VerificationError(f"{where}: {_plain(str(error))}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise VerificationError(f"{where} does not have the form of an entry.") from None
    except RecursionError:
        raise VerificationError(f"{where} does not have the form of an entry.") from None


def check_entry(books: Books, entry: dict[str, Any], number: int) -> None:
    """Check one entry, and enter it."""
    content, lines = entry["content"], [_posting(line) for line in entry["postings"]]
    if _whole(entry["number"]) != number:
        _fail("number", number, entry["number"])
    previous = books.hashes[-1] if books.hashes else GENESIS
    digest = entry_digest(canonical(content), canonical(entry["postings"]))
    chained = chained_hash(previous, number, digest)
    if entry["hash"] != chained:
        _fail("hash", chained, entry["hash"])
    expected, enter = books.expect(content)
    if lines != expected:
        odd = next(
            (pair for pair in zip(expected, lines, strict=False) if pair[0] != pair[1]),
            (f"{len(expected)} postings", f"{len(lines)}"),
        )
        _fail("posting", *odd)
    enter()
    _check_head(books, entry["signature"], chained)


def check_hidden(books: Books, entry: dict[str, Any], number: int) -> None:
    """Check an entry of which there is only the hash: the next one that is shown is chained to it.

    Nobody can tell whom it concerns. Hidden entries of the client itself are found where others
    that are shown depend on them, or by what the client kept.
    """
    client = _text(entry["client"])
    if not books.hashes:
        raise VerificationError("the first entry must be shown.")
    if _whole(entry["number"]) != number:
        _fail("number", number, entry["number"])
    if books.only not in ("", client):
        _fail("client", books.only, client)
    books.only, books.hidden = client, books.hidden + 1
    _check_head(books, entry["signature"], _hash(entry["hash"]))


def _check_head(books: Books, signature: Any, hash_: str) -> None:
    """Apply the hash of the next entry, which the server signs if it has a key."""
    books.hashes.append(hash_)
    if books.server:
        text = head_text(books.ledger, len(books.hashes), hash_)
        books.check(books.server, signature, text, "the server")
    elif signature != "":
        raise VerificationError("it is signed, though the ledger has no server key.")


def signed_messages(file: BinaryIO, name: str) -> Iterator[dict[str, Any]]:
    """Yield the messages in a file of receipts, each with its text and the key that signed it.

    Each line is JSON with `content`, `signature` and `key`; whose key it is, is not checked here.
    """
    for number, line in _lines(file):
        try:
            stored = json.loads(line)
            text, signature, key = (stored[n] for n in ("content", "signature", "key"))
            if not fits(text.encode()):  # it may be escaped in its line, which hides its values
                raise ValueError
            message = json.loads(text)
            sound = canonical(message) == text and check_signed(key, signature, text)
            fields = KEPT.get(message["kind"])
            sound = sound and (fields is None or _is_kept(message, fields))
            of = REFERS.get(message["kind"])
            sound = sound and (of is None or type(message[of]) is str)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            sound = False
        if not sound:
            raise VerificationError(f"line {number} of {name} is not a signed message.")
        yield message | {"signed by": key, "text": text, "line": line.decode()}


def read_receipts(path: str | Path) -> list[dict[str, Any]]:
    """Return the messages that a client kept: its commitments, and what the server signed.

    Conditions and offers that were kept tell of which ledger a commitment is; messages of other
    kinds are left out.
    """
    kept = []
    ledgers: dict[str, str] = {}  # by the hash of conditions, and of offers
    with Path(path).open("rb") as file:
        for message in signed_messages(file, str(path)):
            kind, hash_ = message["kind"], _sha(message["text"])
            if kind == "Conditions":
                ledgers[hash_] = str(message["ledger"])
            elif kind in ("Offer", "Commitment"):
                ledgers[hash_] = ledgers.get(str(message[_UNDER[kind]]), "")
            if kind in KEPT:
                own = {"ledger": ledgers[hash_]} if kind == "Commitment" else {}
                kept.append(message | own)
    return kept


_UNDER = {"Offer": "conditions", "Commitment": "offer"}  # what each of these is an answer to


def describe_kept(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield what a client's messages prove by themselves, to somebody without the ledger.

    Of every run: what both signed, how often the client was asked, what it sent, and what the
    server says that it accepted and paid.

    Raises
    ------
    VerificationError
        If the server's messages contradict each other, or the pay of their own receipts.
    """
    by_hash: dict[str, dict[str, Any]] = {}
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for own in messages:
        kind = own["kind"]
        by_hash[_sha(own["text"])] = own
        if kind == "Commitment":
            offer = by_hash.get(own["offer"], {})
            all_ = by_hash.get(offer.get("conditions", ""))
            if all_ is None:
                continue
            if offer["signed by"] != all_["server"] or own["signed by"] != own["key"]:
                raise VerificationError(
                    f"the commitment to run {all_['run']!r:.200} is not its own."
                )
            run = {"commitment": own, "offer": offer, "conditions": all_}
            runs[all_["ledger"], all_["run"]] = run | {"Call": {}, "Update": {}, "Receipt": {}}
        elif kind in ("Call", "Receipt", "Head", "Opening", "Ending", "Roster"):
            place = [own[name] for name in _PLACE[kind]]
            if seen.setdefault((kind, own["signed by"], *place), own["text"]) != own["text"]:
                raise VerificationError(
                    f"the server {own['signed by']} signed two {kind.lower()}s that contradict "
                    f"each other: {_plain(str(place[1:])):.200}."
                )
        found = runs.get((own.get("ledger", ""), own.get("run", "")))
        if kind == "Update":  # it names no ledger: the run that it answers was committed to last
            found = next((r for (_, name), r in reversed(runs.items()) if name == own["run"]), None)
        if found is None or kind not in ("Call", "Update", "Receipt"):
            continue
        signer = "commitment" if kind == "Update" else "offer"
        if own["signed by"] == found[signer]["signed by"]:
            found[kind][own["round"]] = own
    if not runs:
        raise UncheckedError("it holds no commitment with its offer and conditions.")
    for (ledger, name), run in runs.items():
        yield from _told(ledger, name, run)


_PLACE = {
    "Call": ("ledger", "run", "round", "client"),
    "Receipt": ("ledger", "run", "round", "client"),
    "Head": ("ledger", "number"),
    "Opening": ("ledger", "run"),
    "Ending": ("ledger", "run"),
    "Roster": ("ledger", "run", "attempt"),
}


def _told(ledger: str, name: str, run: dict[str, Any]) -> Iterator[str]:
    """Yield what the messages about one run prove."""
    level, offer, all_ = run["commitment"]["level"], run["offer"], run["conditions"]
    payment, unit = tariff_payment(offer["tariff"], level), _plain(all_["unit"])
    calls, updates, receipts = run["Call"], run["Update"], run["Receipt"]
    accepted = paid = 0
    for round_ in sorted(receipts):
        receipt = receipts[round_]
        accepted, paid = accepted + (receipt["refused"] == ""), receipt["paid"]
        earned = due(max(payment, 0), level, all_["rounds"], accepted)
        if paid < earned:
            raise VerificationError(
                f"run {name!r:.200}: after {accepted} accepted updates the server had paid "
                f"{paid} micro-units, and {earned} were earned."
            )
    last = 0
    for number, round_ in sorted((own["number"], own["round"]) for own in calls.values()):
        if round_ < last:
            raise VerificationError(
                f"run {name!r:.200}: the server called round {round_ + 1} at entry {number}, after "
                f"round {last + 1}: out of order."
            )
        last = round_
    owed = sum(round_ not in receipts for round_ in updates)
    yield (
        f"run {_plain(name)!r} of ledger {ledger:.12}: {_plain(offer['client'])!r} committed to "
        f"level {level / LEVEL_ONE:.6f} for {payment / 10**6:,.6f} {unit} in "
        f"{all_['rounds']:,} rounds"
    )
    yield (
        f"  asked in {len(calls):,} rounds, sent {len(updates):,} updates: {accepted:,} accepted, "
        f"{len(receipts) - accepted:,} refused, {owed:,} without a receipt; paid "
        f"{paid / 10**6:,.6f} {unit} by the server's last receipt"
    )
    yield f"  signed by server {all_['server']} and client {run['commitment']['key']}"


def _is_kept(message: dict[str, Any], fields: tuple[str, ...]) -> bool:
    """Return whether a message has these fields, each of its type, and no number is too large."""
    return set(message) == {*fields, "kind"} and all(
        type(message[name]) is int and abs(message[name]) <= LARGEST
        if name in WHOLE
        else type(message[name]) is str
        for name in fields
    )


def _check_kept(books: Books, kept: list[dict[str, Any]]) -> None:
    """Check that a ledger says what a client has in writing."""
    ledgers = {message["ledger"] for message in kept} - {""}  # of some commitments it is not known
    if ledgers and books.ledger not in ledgers:
        raise VerificationError(
            f"it is the ledger {books.ledger}; what was kept is of {min(ledgers):.64}."
        )
    for message in kept:
        kind, key = message["kind"], message["signed by"]
        if message["ledger"] not in ("", books.ledger):
            continue
        if kind == "Commitment":
            if _sha(message["text"]) not in books.commitments:
                raise VerificationError(
                    f"a commitment signed by the key {key} is nowhere in the ledger: a client was "
                    "left out, its answer was lost, or its run is not recorded yet."
                )
            continue
        if key not in books.keys["treasury"]:
            raise VerificationError(f"a {kind.lower()} is signed by {key}, not by the server.")
        if kind == "Head":
            number = message["number"]
            if books.hashes[number - 1 : number] != [message["hash"]]:
                raise VerificationError(
                    f"the server signed entry {number} with the hash {message['hash']:.64}, which "
                    "is not in the ledger; it was truncated or rewritten."
                )
        elif kind == "Call":
            _check_call(books, message)
        elif kind == "Ending":
            run = books.runs.get(message["run"])
            if run is None or not run.settled or run.clients:
                raise VerificationError(
                    f"the server signed that the offers of run {message['run']!r:.200} came to "
                    "nothing; the ledger says otherwise."
                )
        elif kind == "Opening":
            run = books.runs.get(message["run"])
            if run is None or (run.mixed, run.attempts) != (message["mixed"], message["attempt"]):
                raise VerificationError(
                    f"the server signed that run {message['run']!r:.200} was opened, with other "
                    "coins than the ledger has, if it has any."
                )
        elif kind == "Roster":
            found = books.rosters.get((message["run"], message["attempt"]))
            if found != message["commitments"] or message["commitment"] not in books.commitments:
                raise VerificationError(
                    f"the server signed for other commitments to run {message['run']!r:.200} than "
                    "it recorded."
                )
        else:
            _check_receipt(books, message)


def _check_call(books: Books, call: dict[str, Any]) -> None:
    """Check that a client was called in the round that came next when it was called."""
    done = books.called.get((call["number"], call["run"]))
    if done != call["round"]:
        found = (
            f"{done:,} rounds were recorded"
            if (done or 0) >= 0 and done is not None
            else ("the run was not under way")
        )
        raise VerificationError(
            f"the server called {call['client']!r:.200} for round {call['round'] + 1} of run "
            f"{call['run']!r:.200} at entry {call['number']}, when {found}."
        )


def _check_receipt(books: Books, receipt: dict[str, Any]) -> None:
    """Compare what is recorded of an update with a receipt that its client kept."""
    run, round_, client = receipt["run"], receipt["round"], receipt["client"]
    found = books.recorded.get((run, round_, client))
    if found != (receipt["update"], receipt["refused"], receipt["paid"]):
        said = f"refused: {receipt['refused']:.200}" if receipt["refused"] else "accepted"
        recorded = "nothing" if found is None or found[:2] == ("", "") else "something else"
        raise VerificationError(
            f"{client!r:.200} has a receipt for round {round_ + 1} of run {run!r:.200}, update "
            f"{receipt['update']:.64}, {said}; the ledger has {recorded}."
        )


def entry_title(content: dict[str, Any]) -> str:
    """Return what an entry is about, for people: rounds count from 1, in the entry from 0.

    >>> entry_title({"kind": "round", "of": ["first", 0]})
    "round 1 of run 'first'"
    >>> entry_title({"kind": "open", "of": ["first"]})
    'open first'
    """
    kind, of = content["kind"], content["of"]
    if kind == "round":
        name, number = of
        return f"round {_whole(number) + 1} of run {name!r:.{LONGEST_NAME}}"
    return _plain(" ".join(f"{part!s:.{LONGEST_NAME}}" for part in [kind, *of[:3]]))


def _message(text: str, kind: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(text)
    if canonical(message) != text or message.get("kind") != kind:
        raise VerificationError(f"it does not contain a valid {kind.lower()}.")
    if set(message) != {*MESSAGE[kind], "kind"}:
        raise VerificationError(f"its {kind.lower()} has the wrong fields.")
    return message


def _posting(line: list[Any]) -> Posting:
    account, amount = line
    if type(account) is not str or type(amount) is not int or not -LARGEST <= amount <= LARGEST:
        raise ValueError(line)
    return account, amount


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _between(value: Any, least: int, most: int, what: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise VerificationError(f"{what} must lie between {least} and {most}; found {value!r:.40}.")
    return value


def _tariff(blocks: Any) -> int:
    """Check the blocks of a tariff; return the level at which the last one ends."""
    if type(blocks) is not list or not 1 <= len(blocks) <= MOST_BLOCKS:
        raise VerificationError(f"a tariff must be a list of 1 to {MOST_BLOCKS} blocks.")
    last = 0
    for end, price in blocks:
        last = _between(end, last + 1, LEVEL_ONE, "the end of a tariff's block")
        _between(price, -LARGEST, LARGEST, "the price of a tariff's block")
    return last


def _decimal(value: Any, what: str) -> float:
    if isinstance(value, str) and DECIMAL.match(value) and float(value) < INFINITY:
        return float(value)
    raise VerificationError(f"{what} must be a decimal number; found {value!r:.40}.")


def _hash(value: Any) -> str:
    if isinstance(value, str) and HASH.match(value):
        return value
    raise VerificationError(f"64 hexadecimal digits are required; found {value!r:.80}.")


def is_name(value: Any) -> bool:
    """Return whether something can be shown, compared and hashed as a name.

    It is 1 to 200 printable characters, without spaces around them, and has no second form that
    looks the same (NFC).
    """
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST_NAME
        and value.isprintable()
        and value == value.strip()
        and unicodedata.is_normalized("NFC", value)
    )


def _text(value: Any) -> str:
    if is_name(value):
        return str(value)
    raise VerificationError(
        f"a name must be 1 to {LONGEST_NAME} printable characters; found {value!r:.80}."
    )


def _reasons(dropped: dict[str, str]) -> dict[str, str]:
    for client, reason in dropped.items():
        if not (isinstance(reason, str) and len(reason) <= LONGEST_NAME and reason.isprintable()):
            raise VerificationError(
                f"the reason for {client!r:.40} is not printable text, or too long."
            )
    return dropped


def canonical(value: Any) -> str:
    """Return the one text that stands for some content: keys sorted, no spaces."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _fail(what: str, expected: object, found: object) -> NoReturn:
    raise VerificationError(f"{what} must be {expected!r:.200}; found {found!r:.100}.")


def check_keys(books: Books, client: str | None, key: str | None, server: str | None) -> None:
    """Check that what was signed was signed by the keys that somebody knows to be theirs."""
    for whose, account, known in (
        (f"the client {client!r}", f"client:{client}", key),
        ("the server", "treasury", server),
    ):
        found = books.keys.get(account, [])
        if known is not None and known not in found:
            said = f"signs with the key {found[-1]} in this ledger, not with {known}"
            said = said if found else "has not signed anything in this ledger"
            raise VerificationError(f"{_plain(whose)} {said}.")


def describe(books: Books, client: str | None = None) -> Iterator[str]:
    """Yield lines that say what was found, of all clients or of one."""
    unit = books.unit

    def money(units: int) -> str:
        return f"{units // 10**6:,}.{units % 10**6:06d} {unit}"

    for name, made in books.offered.items():
        if client in (None, *made.offers):
            yield f"run {_plain(name)!r}: offered to {len(made.offers)} clients, not opened"
    for name, run in books.runs.items():
        clients = {n: c for n, c in run.clients.items() if client in (None, n)}
        reason = run.dropped.get(client or "")
        if reason is not None:
            yield f"run {_plain(name)!r}, {client!r}: offered, and dropped: {_plain(reason)}"
        if client is None and not clients and run.dropped:
            sets = f"{run.attempts} set{'s' * (run.attempts > 1)} of offers"
            yield (
                f"run {_plain(name)!r}: offered to {len(run.dropped)} clients in {sets}, never "
                "opened"
            )
        if not clients:
            continue
        own = clients.values()
        counts = ", ".join(
            f"{sum(getattr(c, what) for c in own):,} {what}"
            for what in ("heads", "joined", "missed", "refused")
        )
        if run.settled and not run.done:
            yield f"run {_plain(name)!r}: OPENED AND NOT PLAYED; its coins were seen, and not used"
        whose = f"{len(own)} client{'s' * (len(own) > 1)}" if client is None else f"{client!r}"
        yield f"run {_plain(name)!r}, {whose}: {run.done} of {run.rounds} rounds, {counts}"
        if client is not None:
            (one,) = own
            side = "for" if one.payment >= 0 else "to be paid in:"
            yield (
                f"  agreed: level {one.level / LEVEL_ONE:.6f} {_by_which(one, unit)}, {side} "
                f"{money(abs(one.payment))} in {run.rounds} rounds"
            )
        paid = sum(c.paid for c in own if c.paid > 0)
        yield f"  paid out {money(paid)}, paid in {money(-sum(c.paid for c in own if c.paid < 0))}"
        if client is None and run.dropped:
            yield f"  {len(run.dropped)} offered and dropped, in {run.attempts} sets of offers"
        if not run.settled:
            yield "  not settled yet: what was not earned is still in escrow"
        if run.beacon:
            yield f"  its coins use the public value {_plain(run.beacon)!r}: look it up"
        if not run.signed:
            yield "  NOBODY SIGNED this run: no agreement, no shared coins"
        elif client is not None:
            yield f"  coins and weights are right for what client {clients[client].key} signed"
    if client is not None:
        yield f"balance of {client!r}: {money(books.balances.get(f'client:{client}', 0))}"
    signer = f"server {books.server}" if books.server else "NO SERVER SIGNED it"
    partly, hidden = (" IN PART", f" ({books.hidden:,} hidden)") if books.only else ("", "")
    yield (
        f"verified{partly}: ledger {books.ledger}, {len(books.hashes):,} entries{hidden}, "
        f"{books.signatures:,} signatures valid, {signer}, head {books.hashes[-1]}"
    )
    if books.only:
        yield (
            f"  a partial export, for client {_plain(books.only)!r}. It does not show what hidden "
            "entries say, that they follow the rules, that none of them concerns this client, what "
            "the treasury and other clients have, or that others signed with keys that are theirs."
        )


def _by_which(client: Client, unit: str) -> str:
    """Return by which price, tariff or menu a client is paid, in words."""
    if client.menu:
        return f"of a menu of {len(client.tariff)}"
    if len(client.tariff) > 1:
        return f"of a tariff of {len(client.tariff)} blocks"
    return f"at a price of {client.tariff[0][1] / 10**6:.6f} {unit}"


def is_hash(text: str) -> str:
    """Return a hash or key from the command line; reject anything else."""
    if not HASH.match(text):
        raise argparse.ArgumentTypeError(f"64 hexadecimal digits are wanted; got {text!r}")
    return text


def main(arguments: list[str] | None = None) -> int:
    """Check an export from the command line; 0 if it verifies, 4 if not, 2 if it cannot be told."""
    parser = argparse.ArgumentParser(prog="verify", description="Check an exported ledger.")
    add_arguments(parser)
    given = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        with Path(given.export).open("rb") as file:
            lines = verified(given, file)
        sys.stdout.write("".join(line + "\n" for line in lines))
        sys.stdout.flush()
    except VerificationError as error:
        sys.stderr.write(_plain(f"{given.export} does not verify: {error}") + "\n")
        return 4
    except UncheckedError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        name = error.filename or given.export
        sys.stderr.write(_plain(f"cannot read {name}: {error.strerror}") + "\n")
        return 2
    except MemoryError:
        sys.stderr.write(_plain(f"{given.export} is too large for this machine's memory") + "\n")
        return 2
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `main` takes."""
    add = parser.add_argument
    add("export", metavar="EXPORT", help="an export of a ledger, or a client's receipts")
    add("--client", metavar="NAME", help="show one client only")
    add("--key", metavar="HEX", type=is_hash, help="that client's public key")
    add("--server", metavar="HEX", type=is_hash, help="the server's public key")
    add("--head", metavar="HASH", type=is_hash, action="append", default=[], help="must be there")
    add(
        "--receipts",
        metavar="FILE",
        help="receipts that the client kept; the ledger must contain them",
    )
    add("--unsigned", action="store_true", help="accept transfers that nobody signed")


def verified(given: Any, file: BinaryIO) -> list[str]:
    """Return the findings about an export that verifies, by what `add_arguments` takes."""
    if given.key is not None and given.client is None:
        raise UncheckedError("--key is a client's; name the client with --client.")
    if file.peek(12)[:12] == b'{"content":"':  # type: ignore[attr-defined]
        if given.client or given.key or given.server or given.head or given.receipts:
            raise UncheckedError(
                f"{given.export} is a client's receipts, not an export: leave out the other "
                "options, and compare the keys that are shown."
            )
        return [*describe_kept(signed_messages(file, str(given.export)))]
    receipts = [] if given.receipts is None else read_receipts(given.receipts)
    books = check_entries(entries_of(file), heads=given.head, receipts=receipts, partial=True)
    if books.only and given.client not in {None, books.only}:
        raise UncheckedError(f"{given.export} shows only what concerns client {books.only!r}.")
    names = {name for run in books.runs.values() for name in (*run.clients, *run.dropped)}
    names |= {name for made in books.offered.values() for name in made.offers}
    names |= {account[7:] for account in books.balances if account.startswith("client:")}
    if given.client not in {None, *names}:
        raise UncheckedError(f"{given.export} has no client {given.client!r}.")
    check_keys(books, given.client, given.key, given.server)
    require_signed(books, given.unsigned)
    told = [] if given.receipts is None else [_found(books, receipts, given)]
    return [*describe(books, given.client or books.only or None), *told]


def _found(books: Books, kept: list[dict[str, Any]], given: Any) -> str:
    """Return how many of a client's messages were found; refuse a file that shows nothing."""
    own = books.keys.get(f"client:{given.client}", [])
    about = [m for m in kept if m["signed by"] in own or m.get("client") == given.client]
    if not kept or (given.client is not None and not about):
        whose = "" if given.client is None else f" of client {given.client!r}"
        raise UncheckedError(f"{given.receipts} holds no message{whose} to be found in a ledger.")
    kinds = ("Commitment", "Roster", "Opening", "Ending", "Call", "Receipt", "Head")
    counts = (f"{sum(m['kind'] == kind for m in kept)} {kind.lower()}s" for kind in kinds)
    return f"found as kept: {', '.join(counts)}"


def require_signed(books: Books, unsigned: bool) -> None:
    """Refuse a ledger in which money moved without its owner's signature, unless that is meant."""
    if books.unsigned and not unsigned:
        more = f", and {len(books.unsigned) - 1} more" if len(books.unsigned) > 1 else ""
        raise VerificationError(
            f"money moved without its owner's signature: {_plain(books.unsigned[0])}{more}. "
            "Pass --unsigned if this is intended."
        )


if __name__ == "__main__":
    sys.exit(main())
