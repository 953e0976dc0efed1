"""What an owner signs about its account: a withdrawal, a reversal, a new key."""

from __future__ import annotations

from dataclasses import dataclass

from fedprice.errors import InputError
from fedprice.market.messages import require_hash, require_name, require_number, require_text
from fedprice.verify import LARGEST

__all__ = ["Reversal", "Rotation", "Withdrawal", "require_account"]


def require_account(given: object) -> None:
    """Refuse what is neither the treasury nor the account of a client."""
    if given != "treasury":
        if not (isinstance(given, str) and given.startswith("client:")):
            raise InputError(f"an account must be treasury or client:NAME; got {given!r:.80}.")
        require_name("client", given.removeprefix("client:"))


@dataclass(frozen=True)
class Withdrawal:
    """States that an amount in micro-units is paid out of an account, once per reference."""

    ledger: str
    account: str
    amount: int
    reference: str

    def __post_init__(self) -> None:
        require_hash(self, "ledger")
        require_account(self.account)
        require_text(self, "reference")
        require_number(self, "amount", 1, LARGEST)


@dataclass(frozen=True)
class Reversal:
    """States that a deposit, by its entry's number, is reversed: it leaves its account again."""

    ledger: str
    entry: int
    amount: int
    reason: str

    def __post_init__(self) -> None:
        require_hash(self, "ledger")
        require_text(self, "reason")
        require_number(self, "entry", 1, 1 << 62)
        require_number(self, "amount", 1, LARGEST)


@dataclass(frozen=True)
class Rotation:
    """States that the owner of an account signs with a new key from now on; both keys sign this."""

    ledger: str
    account: str
    old: str
    new: str

    def __post_init__(self) -> None:
        require_hash(self, "ledger", "new", *(["old"] if self.old else []))
        require_account(self.account)
