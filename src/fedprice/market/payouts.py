"""What an owner signs about its account: a withdrawal, a reversal, a new key."""

from __future__ import annotations

from dataclasses import dataclass

from fedprice import verify
from fedprice.market.messages import Message, refusing

__all__ = ["Reversal", "Rotation", "Withdrawal", "require_account"]


def require_account(given: object) -> None:
    """Refuse what is neither the treasury nor the account of a client."""
    with refusing():
        verify.require_account("account", given)


@dataclass(frozen=True)
class Withdrawal(Message):
    """States that an amount in micro-units is paid out of an account, once per reference."""

    ledger: str
    account: str
    amount: int
    reference: str


@dataclass(frozen=True)
class Reversal(Message):
    """States that a deposit, by its entry's number, is reversed: it leaves its account again."""

    ledger: str
    entry: int
    amount: int
    reason: str


@dataclass(frozen=True)
class Rotation(Message):
    """States that the owner of an account signs with a new key from now on; both keys sign this."""

    ledger: str
    account: str
    old: str
    new: str
