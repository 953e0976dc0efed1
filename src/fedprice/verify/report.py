"""What was found in a ledger that verifies, in lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .forms import LEVEL_ONE, VerificationError, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .books import Books
    from .runs import Client

__all__ = ["check_keys", "describe", "require_signed"]


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
            raise VerificationError(f"{plain(whose)} {said}.")


def describe(books: Books, client: str | None = None) -> Iterator[str]:
    """Yield lines that say what was found, of all clients or of one."""
    unit = books.unit

    def money(units: int) -> str:
        return f"{units // 10**6:,}.{units % 10**6:06d} {unit}"

    for name, made in books.offered.items():
        if client in (None, *made.offers):
            yield f"run {plain(name)!r}: offered to {len(made.offers)} clients, not opened"
    for name, run in books.runs.items():
        clients = {n: c for n, c in run.clients.items() if client in (None, n)}
        reason = run.dropped.get(client or "")
        if reason is not None:
            yield f"run {plain(name)!r}, {client!r}: offered, and dropped: {plain(reason)}"
        if client is None and not clients and run.dropped:
            sets = f"{run.attempts} set{'s' * (run.attempts > 1)} of offers"
            yield (
                f"run {plain(name)!r}: offered to {len(run.dropped)} clients in {sets}, never "
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
            yield f"run {plain(name)!r}: OPENED AND NOT PLAYED; its coins were seen, and not used"
        whose = f"{len(own)} client{'s' * (len(own) > 1)}" if client is None else f"{client!r}"
        yield f"run {plain(name)!r}, {whose}: {run.done} of {run.rounds} rounds, {counts}"
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
            yield f"  its coins use the public value {plain(run.beacon)!r}: look it up"
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
            f"  a partial export, for client {plain(books.only)!r}. It does not show what hidden "
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


def require_signed(books: Books, unsigned: bool) -> None:
    """Refuse a ledger in which money moved without its owner's signature, unless that is meant."""
    if books.unsigned and not unsigned:
        more = f", and {len(books.unsigned) - 1} more" if len(books.unsigned) > 1 else ""
        raise VerificationError(
            f"money moved without its owner's signature: {plain(books.unsigned[0])}{more}. "
            "Pass --unsigned if this is intended."
        )
