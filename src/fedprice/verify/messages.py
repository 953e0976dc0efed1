"""The messages of a market: the fields of each kind, and what each field may hold.

All are canonical JSON with one more field, `kind`, and signed with Ed25519.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from .coins import COINS
from .forms import (
    LARGEST,
    LATEST,
    LEVEL_ONE,
    LONGEST_NAME,
    MOST_SAMPLES,
    VerificationError,
    canonical,
    require_decimal,
    require_digest,
    require_name,
    require_number,
    require_tariff,
    require_unit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[str, Any], object]  # of what a field is called, and what it holds

__all__ = [
    "KEPT",
    "MESSAGES",
    "check_fields",
    "head_text",
    "message_in",
    "require_account",
    "require_reasons",
]


def _optional(check: Check) -> Check:
    return lambda what, value: value == "" or check(what, value)


def _above_0(what: str, value: Any) -> None:
    if not require_decimal(what, value) > 0:
        raise VerificationError(f"`{what}` must be above 0; got {value!r:.40}.")


def _flag(what: str, value: Any) -> None:
    if type(value) is not bool:
        raise VerificationError(f"`{what}` must be true or false; got {value!r:.40}.")


def _schema(what: str, value: Any) -> None:
    """Refuse what holds no fields; only who makes and takes in models knows what they mean."""
    if type(value) is not dict:
        raise VerificationError(f"`{what}` is not a schema of a model; got {value!r:.40}.")


def _coins(what: str, value: Any) -> None:
    if value not in COINS:
        raise VerificationError(f"`{what}` must be one of {COINS}; got {value!r:.40}.")


def _position(what: str, value: Any) -> None:
    if value is not None:
        require_number(what, value, 0, LEVEL_ONE - 1)


def require_account(what: str, value: Any) -> None:
    """Refuse what is neither the treasury nor the account of a client."""
    if value != "treasury":
        if not (isinstance(value, str) and value.startswith("client:")):
            raise VerificationError(
                f"an {what} must be treasury or client:NAME; got {value!r:.80}."
            )
        require_name("client", value.removeprefix("client:"))


def _number(least: int, most: int) -> Check:
    return partial(require_number, least=least, most=most)


_name, _digest, _decimal = require_name, require_digest, require_decimal
_round, _attempt, _amount = _number(0, LATEST), _number(1, 1000), _number(1, LARGEST)

MESSAGES: dict[str, dict[str, Check]] = {
    "Conditions": {
        "ledger": _digest,
        "server": _digest,
        "run": _name,
        "follows": _optional(_name),
        "rounds": _number(1, LATEST),
        "run_rounds": _number(1, LATEST),
        "unit": lambda _, value: require_unit(value),
        "schema": _schema,
        "task": _digest,
        "model": _digest,
        "max_weight": _above_0,
        "longest_gap": _number(1, 1000),
        "nonce": _digest,
        "expires": _number(0, LATEST),
        "coins": _coins,
        "beacon": _optional(_name),
    },
    "Offer": {
        "conditions": _digest,
        "client": _name,
        "tariff": lambda _, value: require_tariff(value),
        "menu": _flag,
        "level_floor": _number(1, LEVEL_ONE),
        "norm_cap": _optional(_decimal),
        "impact": _decimal,
        "coin_hash": _digest,
        "position": _position,
        "replaces": _optional(_digest),
    },
    "Commitment": {
        "offer": _digest,
        "key": _digest,
        "level": _number(1, LEVEL_ONE),
        "secret_hash": _digest,
        "samples": _number(0, MOST_SAMPLES),
        "grad_norm": _optional(_decimal),
    },
    "Roster": {
        "ledger": _digest,
        "run": _name,
        "attempt": _attempt,
        "commitments": _digest,
        "commitment": _digest,
    },
    "Opening": {"ledger": _digest, "run": _name, "attempt": _attempt, "mixed": _digest},
    "Call": {
        "ledger": _digest,
        "run": _name,
        "round": _round,
        "client": _name,
        "model": _digest,
        "number": _number(1, LATEST),
    },
    "Update": {
        "run": _name,
        "client": _name,
        "round": _round,
        "arrays": _digest,
        "base": _digest,
    },
    "Receipt": {
        "ledger": _digest,
        "run": _name,
        "round": _round,
        "client": _name,
        "update": _optional(_digest),
        "refused": _optional(_name),
        "paid": _number(0, LARGEST),
    },
    "Head": {"ledger": _digest, "number": _number(1, LATEST), "hash": _digest},
    "Ending": {"ledger": _digest, "run": _name},
    "Withdrawal": {
        "ledger": _digest,
        "account": require_account,
        "amount": _amount,
        "reference": _name,
    },
    "Reversal": {"ledger": _digest, "entry": _amount, "amount": _amount, "reason": _name},
    "Rotation": {
        "ledger": _digest,
        "account": require_account,
        "old": _optional(_digest),
        "new": _digest,
    },
}
# What a client's file of receipts holds of which a ledger must say the same.
KEPT = {"Commitment", "Call", "Ending", "Head", "Roster", "Opening", "Receipt"}


def check_fields(kind: str, fields: Mapping[str, Any]) -> None:
    """Refuse fields that are not those of a kind of message, or do not hold what they may."""
    shape = MESSAGES[kind]
    if fields.keys() != shape.keys():
        raise VerificationError(f"its fields are not those of {kind.lower()}s.")
    for name, check in shape.items():
        check(name, fields[name])
    if kind == "Conditions":
        require_number("run_rounds", fields["run_rounds"], fields["rounds"], LATEST)
    elif kind == "Offer":
        require_number("level_floor", fields["level_floor"], 1, fields["tariff"][-1][0])


def message_in(text: str, kind: str, client: str = "") -> dict[str, Any]:
    """Return the message of a kind in a text, without its kind; refuse anything else.

    Errors name the client that is concerned, if it is given or the message has one.
    """
    message = json.loads(text)
    if canonical(message) != text or message.pop("kind", None) != kind:
        raise VerificationError(f"it does not contain a valid {kind.lower()}.")
    try:
        check_fields(kind, message)
    except VerificationError as error:
        whose = client or message.get("client", "")
        of = f" of {whose!r:.{LONGEST_NAME}}" if whose else ""
        raise VerificationError(f"{kind.lower()}{of}: {error}") from None
    return dict(message)


def head_text(ledger: str, number: int, hash_: str) -> str:
    """Return what the server signs of an entry."""
    return canonical({"hash": hash_, "kind": "Head", "ledger": ledger, "number": number})


def require_reasons(dropped: dict[str, str]) -> dict[str, str]:
    """Return why clients were left out, by client: each reason can be shown."""
    for client, reason in dropped.items():
        if not (isinstance(reason, str) and len(reason) <= LONGEST_NAME and reason.isprintable()):
            raise VerificationError(
                f"the reason for {client!r:.40} is not printable text, or too long."
            )
    return dropped
