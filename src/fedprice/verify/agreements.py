"""Rules of agreements: offers, commitments to them, and the opening of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .coins import REDRAWN, Coins, coin_key, coin_mix, coin_phase, roster_hash, secret_hash
from .forms import (
    LARGEST,
    LATEST,
    MOST_SAMPLES,
    VerificationError,
    digest,
    fail,
    require_digest,
    require_name,
    require_number,
    require_tariff,
    whole,
)
from .messages import message_in, require_reasons
from .pay import cost
from .runs import Client, Offered, Run, is_later, period_before, weigh

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .books import Books, Effect

__all__ = ["MOST_ATTEMPTS", "check_answer", "commit", "offer", "open_run"]

MOST_ATTEMPTS = 5  # sets of offers that a run may take: each draws its coins anew


def offer(books: Books, content: dict[str, Any], name: str, attempt: int, *turn: int) -> Effect:
    """Enter a set of offers to the clients of a run, or more offers of the same set."""
    require_name("run", name)
    if turn:
        return _offer_in_turn(books, content, _made(books, name, attempt), *turn)
    before = books.offered.get(name)
    if name in books.runs:
        raise VerificationError("the run was already opened or ended; choose another name.")
    if not books.server:
        raise VerificationError("this ledger has no server key.")
    if whole(attempt) != (before.attempt if before else 0) + 1 or attempt > MOST_ATTEMPTS:
        raise VerificationError(f"a run takes at most {MOST_ATTEMPTS} sets of offers.")
    conditions = message_in(content["conditions"], "Conditions")
    follows = period_before(name)
    if follows and (follows not in books.runs or not books.runs[follows].settled):
        raise VerificationError("the period before it is not settled.")
    for what, expected in (
        ("ledger", books.ledger),
        ("server", books.server),
        ("run", name),
        ("unit", books.unit),
        ("follows", follows),
    ):
        if conditions[what] != expected:
            fail(what, expected, conditions[what])
    if follows:
        last = books.runs[follows]
        if conditions["model"] != last.model:
            fail("model", last.model, conditions["model"])
        if conditions["run_rounds"] != last.run_rounds:
            fail("rounds of the whole run", last.run_rounds, conditions["run_rounds"])
    sheet, replaced = digest(content["conditions"]), before.hashes if before else {}
    offers, hashes = _signed_offers(books, content["offers"], conditions, sheet, replaced)
    if set(require_reasons(content["dropped"])) != set(before.offers if before else ()):
        raise VerificationError("not every earlier offer is recorded as dropped.")
    made = Offered(attempt, conditions, sheet, offers, hashes, replaced)

    def apply() -> None:
        books.offered[name] = made

    return [], apply


def _offer_in_turn(books: Books, content: dict[str, Any], made: Offered, turn: int) -> Effect:
    """Apply more offers of a set, made after others were answered."""
    if made.commitments is not None:
        raise VerificationError("commitments to these offers are already recorded.")
    if whole(turn) != made.turns + 1:
        fail("turn", made.turns + 1, turn)
    if digest(content["conditions"]) != made.sheet:
        raise VerificationError("its conditions are not those of the first turn.")
    if content["dropped"] != {}:
        raise VerificationError("only the first turn drops earlier offers.")
    offers, hashes = _signed_offers(
        books, content["offers"], made.conditions, made.sheet, made.replaced
    )
    if twice := [client for client in offers if client in made.offers]:
        raise VerificationError(f"{twice[0]!r} has two offers.")

    def apply() -> None:
        made.turns = turn
        made.offers |= offers
        made.hashes |= hashes

    return [], apply


def _signed_offers(
    books: Books, given: Any, conditions: dict[str, Any], sheet: str, replaced: dict[str, str]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the offers of an entry and their hashes, by client.

    They are signed by the server that their conditions name: clients take no other.
    """
    offers: dict[str, dict[str, Any]] = {}
    hashes: dict[str, str] = {}
    anew = conditions["coins"] == REDRAWN
    for text, signature in given:
        offer = message_in(text, "Offer")
        client = offer["client"]
        if client in offers:
            raise VerificationError(f"{client!r} has two offers.")
        position = None if anew else books.position_after(conditions["follows"], client)
        if offer["position"] != position:
            fail(f"position of the coin of {client!r}", position, offer["position"])
        if offer["conditions"] != sheet:
            fail(f"conditions of the offer to {client!r}", sheet, offer["conditions"])
        old = replaced.get(client, "")
        if offer["replaces"] != old:
            fail(f"what the offer to {client!r} replaces", old, offer["replaces"])
        books.check(conditions["server"], signature, text, f"the offer to {client!r}")
        offers[client], hashes[client] = offer, digest(text)
    if not offers:
        raise VerificationError("it has no offers.")
    return offers, hashes


def commit(books: Books, content: dict[str, Any], name: str, attempt: int) -> Effect:
    """Enter what clients answered to a set of offers: from then on no answer can be added."""
    made = _made(books, name, attempt)
    if made.commitments is not None:
        raise VerificationError("commitments to these offers are already recorded.")
    given, dropped = content["commitments"], require_reasons(content["dropped"])
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
        what = f"the commitment of {client!r}"
        own = message_in(text, "Commitment", client)
        try:
            check_answer(made.offers[client], made.hashes[client], own)
        except VerificationError as error:
            raise VerificationError(f"{what}: {error}") from None
        account, key = f"client:{client}", own["key"]
        books.check_key(client, key)
        if keys.setdefault(key, account) != account:
            raise VerificationError(f"{client!r} has the key of somebody else.")
        books.check(key, signature, text, what)
        commitments[client] = own
    roster = roster_hash(
        {c: (digest(given[c][0]), own["secret_hash"]) for c, own in commitments.items()}
    )

    def apply() -> None:
        made.commitments, made.roster, made.dropped = commitments, roster, dropped
        books.rosters[name, attempt] = roster
        books.commitments |= {digest(text) for text, _ in given.values()}
        for key, account in keys.items():
            books.owners[key] = account
            books.keys.setdefault(account, [key])

    return [], apply


def check_answer(offer: Mapping[str, Any], offer_hash: str, commitment: Mapping[str, Any]) -> None:
    """Refuse a commitment to another offer than this one, or to a level that it does not pay."""
    level, ends = commitment["level"], [end for end, _ in offer["tariff"]]
    if commitment["offer"] != offer_hash:
        raise VerificationError("it answers another offer.")
    if level > ends[-1]:
        raise VerificationError("its level is above the cap of the offer.")
    if level < offer["level_floor"]:
        raise VerificationError("its level is below the least one of the offer.")
    if offer["menu"] and level not in ends:
        raise VerificationError("its level is not one of the offer's menu.")


def _made(books: Books, name: str, attempt: int) -> Offered:
    made = books.offered.get(require_name("run", name))
    if made is None or made.attempt != whole(attempt):
        raise VerificationError("there are no such offers.")
    return made


def open_run(books: Books, content: dict[str, Any], name: str) -> Effect:
    """Enter the opening of a run, as both sides signed it or as nobody did."""
    require_name("run", name)
    if name in books.runs:
        raise VerificationError("the run was already opened or ended; choose another name.")
    budget = require_number("budget", content["budget"], -LARGEST, LARGEST)
    run = _opened(books, content, name) if "attempt" in content else _bare(books, content, name)
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
        books.runs[name] = run
        books.offered.pop(name, None)
        if not run.signed:
            books.unsigned.append(f"run {name!r}")

    return lines, apply


def _bare(books: Books, content: dict[str, Any], name: str) -> Run:
    """Return a run that nobody signed: it may pay, but takes no client's money."""
    run = Run(require_number("rounds", content["rounds"], 1, LATEST), 0, {})
    if is_later(name) or name in books.offered:
        raise VerificationError("a run that nobody signed cannot have this name.")
    for client, tariff, level, samples in content["terms"]:
        if require_name("client", client) in run.clients:
            raise VerificationError(f"it names {client!r} twice.")
        own = Client(
            tariff,
            require_number("level", level, 0, require_tariff(tariff)),
            require_number("samples", samples, 0, MOST_SAMPLES),
        )
        if not 0 <= own.payment <= LARGEST:
            raise VerificationError(
                f"the payment of {client!r} must lie between 0 and {LARGEST}; got {own.payment}."
            )
        run.clients[client] = own
    weigh(run)
    return run


def _opened(books: Books, content: dict[str, Any], name: str) -> Run:
    """Return a run as both sides signed it, with the keys of its coins."""
    made = _made(books, name, content["attempt"])
    given, committed = content["secrets"], made.commitments or {}
    # Whoever could leave somebody out now would choose among coins.
    if set(given) != set(committed) or not given:
        raise VerificationError("not every client that committed has revealed its secret.")
    conditions, beacon = made.conditions, content["beacon"]
    if (conditions["beacon"] == "") != (beacon == ""):
        raise VerificationError("it lacks its public value, or has one that was not offered.")
    if beacon != "":
        require_name("beacon", beacon)
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
        updates=books.runs[follows].updates if follows else set(),
    )
    secrets: dict[str, tuple[bytes, bytes]] = {}
    for client, own in committed.items():
        offer = made.offers[client]
        server, other = (bytes.fromhex(require_digest("secret", own)) for own in given[client])
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
    weigh(run)
    return run
