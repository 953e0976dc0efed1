"""`Books`: what the entries of a ledger add up to, and what the next one must post."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import agreements, rounds
from .forms import (
    LARGEST,
    SIGNATURE,
    VerificationError,
    canonical,
    check_signed,
    fail,
    require_digest,
    require_name,
    require_number,
    require_unit,
    whole,
)
from .messages import require_account

if TYPE_CHECKING:
    from collections.abc import Callable

    from .runs import Offered, Run

__all__ = ["FORMAT", "Books", "Effect", "Posting"]

FORMAT = 5
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
Posting = tuple[str, int]
Effect = tuple[list[Posting], "Callable[[], None]"]  # what an entry posts, and what enters it


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

    def expect(self, content: dict[str, Any]) -> Effect:
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
        lines, apply = _RULES[kind](self, content, *of)
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

    def position_after(self, period: str, client: str) -> int | None:
        """Return where a client's coin is after a period: where the last one it was in left it.

        A client that stays away keeps its coin: with a fresh one, it would have more heads.
        """
        while period:
            run = self.runs[period]
            if client in run.clients:
                coins = run.clients[client].coins
                return coins.position(run.done) if coins else None
            period = run.follows
        return None

    def sees(self, account: str) -> bool:
        """Return whether an account's entries are shown, so that balance and keys are known."""
        return not self.only or account.startswith("escrow:") or account == f"client:{self.only}"

    def key_of(self, account: str) -> str:
        """Return the key that an account's owner signs with; empty if it has none."""
        if account == "treasury":
            return self.server
        return self.keys.get(account, [""])[-1]

    def check_key(self, client: str, key: str) -> None:
        """Refuse a key that is not the client's, or that is somebody else's as well."""
        account = f"client:{client}"
        if self.sees(account) and self.key_of(account) not in ("", key):
            raise VerificationError(f"{client!r} has another key in this ledger.")
        if self.owners.get(key, account) != account:
            raise VerificationError(f"{client!r} has the key of somebody else.")

    def check(self, key: str, signature: Any, text: str, what: str) -> None:
        """Refuse a text that the key did not sign."""
        if not (isinstance(signature, str) and SIGNATURE.match(signature)):
            raise VerificationError(f"the signature of {what} is not valid.")
        if not self.trusting and not self.valid(key, signature, text):
            raise VerificationError(f"the signature of {what} is not valid.")
        self.signatures += 1

    def _begin(self, content: dict[str, Any]) -> Effect:
        if type(content["format"]) is not int or content["format"] != FORMAT:
            raise VerificationError(
                f"it is of format {content['format']!r:.20}; this verifier knows {FORMAT}. Coins "
                "and pay had other rules before: verify it with the release that wrote it."
            )
        unit, server = require_unit(content["unit"]), content["server"]
        ledger = require_digest("ledger", content["ledger"])
        if server != "":
            require_digest("server", server)

        def apply() -> None:
            self.unit, self.ledger, self.server = unit, ledger, server
            self.keys["treasury"] = [server] if server else []
            self.owners |= dict.fromkeys(self.keys["treasury"], "treasury")

        return [], apply

    def _deposit(self, content: dict[str, Any], account: str, reference: str) -> Effect:
        amount = self._moved("deposit", content, account, reference)
        return [("world", -amount), (account, amount)], self._move(
            "deposit", account, reference, amount
        )

    def _withdraw(self, content: dict[str, Any], account: str, reference: str) -> Effect:
        amount = self._moved("withdraw", content, account, reference)
        message = {"account": account, "amount": amount, "reference": reference}
        unsigned = self._owned(account, "Withdrawal", message, content)
        entered = self._move("withdraw", account, reference, amount)

        def apply() -> None:
            entered()
            self.unsigned += [f"a withdrawal of {account}"] * unsigned

        return [(account, -amount), ("world", amount)], apply

    def _reverse(self, content: dict[str, Any], number: int) -> Effect:
        if whole(number) not in self.moves:
            raise VerificationError(
                "there is no such deposit or withdrawal, or it was already reversed."
            )
        kind, account, amount = self.moves[number]
        require_name("reason", content["reason"])
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
        require_account("account", account)
        require_name("reference", reference)
        if (kind, account, reference) in self.references:
            raise VerificationError("it was already recorded.")
        return require_number("amount", content["amount"], 1, LARGEST)

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

    def _rotate(self, content: dict[str, Any], account: str, number: int) -> Effect:
        keys = self.keys.get(account, [])
        old = keys[-1] if keys else ""
        if not keys and account != "treasury":
            raise VerificationError("its account has no key yet.")
        if whole(number) != len(keys) + 1:
            fail("number", len(keys) + 1, number)
        message = json.loads(content["message"])
        new = require_digest("new", message["new"])
        text = canonical(
            {"account": account, "kind": "Rotation", "ledger": self.ledger, "new": new, "old": old}
        )
        if content["message"] != text:
            fail("message", text, content["message"])
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


_RULES: dict[str, Callable[..., Effect]] = {
    "begin": Books._begin,
    "deposit": Books._deposit,
    "withdraw": Books._withdraw,
    "reverse": Books._reverse,
    "rotate": Books._rotate,
    "offer": agreements.offer,
    "commit": agreements.commit,
    "open": agreements.open_run,
    "round": rounds.enter_round,
    "settle": rounds.settle,
}
