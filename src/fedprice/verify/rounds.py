"""Rules of rounds: who joins, which updates are accepted, what they are paid, and the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .forms import (
    HASH,
    INFINITY,
    NUMBER,
    VerificationError,
    canonical,
    fail,
    require_decimal,
    require_digest,
    whole,
)
from .messages import require_reasons
from .runs import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .books import Books, Effect, Posting
    from .runs import Client

__all__ = ["MOST_COINS", "check_signature_of", "check_updates", "enter_round", "settle"]

MOST_COINS = 1 << 30  # clients × rounds: what is checked in minutes, not days
LONGEST_SKETCH = 120
_DECIMALS = re.compile(rf"{NUMBER},", re.ASCII)
_DECIMALS_OR_NOTHING = re.compile(rf"(?:{NUMBER})?,", re.ASCII)
_HEXADECIMAL, _SKETCH = b"0123456789abcdef", b"-+.,0123456789e"  # what these are written in


def enter_round(books: Books, content: dict[str, Any], name: str, number: int) -> Effect:
    """Enter a round: who drew heads, whose update was accepted, and what it is paid."""
    run = books.run(name)
    if run.settled:
        raise VerificationError("the run is settled.")
    if whole(number) != run.done or number >= run.rounds:
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
    if books.coins + len(run.clients) > MOST_COINS:
        raise VerificationError(f"there are more than {MOST_COINS:,} coins to check.")
    if run.signed and not books.trusting:
        for client, own in run.clients.items():
            if own.coins is not None and own.coins.heads(number) != (client in drew):
                said, shown = ("heads", "tails") if client in drew else ("tails", "heads")
                raise VerificationError(
                    f"the coin of {client!r} shows {shown}, not {said} as recorded."
                )
    updates = check_updates(books, run, name, number, joined)
    for client, (reason, update, norm, signature) in refused.items():
        require_reasons({client: reason})
        if norm != "":
            require_decimal("norm", norm)
        if update != "":
            require_digest("update", update)
            check_signature_of(books, run, name, number, client, update, signature)
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
        if books.wanted:
            for client in drew:
                _note(books, name, number, client, joined.get(client), refused.get(client))
        run.updates |= updates
        books.coins += len(run.clients)

    return [(f"escrow:{name}", -spent), *pay] if pay else [], apply


def check_updates(
    books: Books, run: Run, name: str, number: int, joined: dict[str, list[str]]
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
        fail(f"weight of {client!r}", right, wrong)
    if not run.signed:
        return new  # nobody signed a cap, either
    for client, (update, _, norm, _, _, signature) in joined.items():
        cap = clients[client].norm_cap
        if float(norm) > cap * (1 + 1e-5):
            raise VerificationError(f"the update of {client!r} is above its cap of {cap:.6g}.")
        if update in run.updates or update in new:
            raise VerificationError(f"the update of {client!r} is a copy of an earlier one.")
        new.add(update)
        check_signature_of(books, run, name, number, client, update, signature)
    return new


def check_signature_of(
    books: Books, run: Run, name: str, number: int, client: str, update: str, signature: str
) -> None:
    """Refuse an update, accepted or not, that its client did not sign for this round and model."""
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
    books.check(run.clients[client].key, signature, text, f"the update of {client!r}")


def _note(books: Books, name: str, number: int, client: str, joined: Any, refused: Any) -> None:
    """Keep what is recorded of an update, if its client has a receipt for it."""
    if (name, number, client) in books.wanted:
        said = (joined[0], "") if joined else (refused[1], refused[0]) if refused else ("", "")
        paid = max(books.runs[name].clients[client].paid, 0)
        books.recorded[name, number, client] = *said, paid


def settle(books: Books, content: dict[str, Any], name: str) -> Effect:
    """Enter the end of a run, or of offers that came to nothing: what is left goes back."""
    made = books.offered.get(name)
    if made is not None:  # offers that came to nothing
        if whole(content["rounds"]) != 0:
            fail("rounds", 0, content["rounds"])

        def withdraw() -> None:
            del books.offered[name]
            over = Run(made.conditions["rounds"], 0, {}, signed=True, settled=True)
            over.attempts, over.dropped = made.attempt, dict.fromkeys(made.offers, "not opened")
            books.runs[name] = over

        return [], withdraw
    run = books.run(name)
    if run.settled:
        raise VerificationError("the run is already settled.")
    if whole(content["rounds"]) != run.done:
        fail("rounds", run.done, content["rounds"])
    back: list[Posting] = []
    for client, own in run.clients.items():
        # Rounded down, so that what is left suffices whatever the rounds paid.
        refund = -own.payment * (run.rounds - run.done) // run.rounds
        if refund > 0:
            back.append((f"client:{client}", refund))
    left = books.balances.get(f"escrow:{name}", 0)
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
