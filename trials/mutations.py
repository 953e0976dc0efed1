"""A dishonest server, played many thousand times: what can it write that verifies?

An export of an honest market is changed by operators that each stand for one lie. The forger owns
the server's keys: it chains and signs everything anew, and it may go on to repair whatever follows
from its lie (postings, weights, missed rounds, later entries). It does not own the clients' keys.

Every forgery that verifies is compared with the honest export: which of the statements in `UNSEEN`
(the same as in docs/verification.md) explain the difference, whom does it harm, and do the messages
that clients kept uncover it?
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from fedprice.verify import Books, VerificationError, check_entries, check_keys
from trials.forger import ODD, Forger, InapplicableError
from trials.honest import KNOWN, Entries, Market, Message, honest_market, simulated_market
from trials.judge import UNSEEN, Judge
from trials.lies import OPERATORS

__all__ = ["OPERATORS", "UNSEEN", "accepted", "mutants", "uncovered"]


def accepted(entries: Iterable[Message], **checks: Any) -> Books | None:
    """Return the books of an export that `fedprice verify` lets pass; None if it does not."""
    try:
        books = check_entries(entries, valid=KNOWN.valid, **checks)
    except VerificationError as error:
        text = str(error)
        if not text.isprintable() or len(text) > 1000:
            raise AssertionError(f"not one line: {text!r:.500}") from error
        return None
    return None if books.unsigned else books


def uncovered(market: Market, entries: Entries, kind: str) -> bool:
    """Return whether the messages of a kind that clients kept show that an export is forged."""
    if kind != "key":
        return accepted(entries, receipts=market.kept[kind]) is None
    books = accepted(entries)
    try:
        assert books is not None
        for client, keys in market.clients.items():
            if f"client:{client}" in books.keys:
                check_keys(books, client, keys[-1], None)
                check_keys(books, client, keys[0], None)
    except VerificationError:
        return True
    return False


def mutants(count: int, seed: int = 0, markets: list[Market] | None = None) -> dict[str, Any]:
    """Forge exports; return what came of it.

    Parameters
    ----------
    count, seed
        How many, and of which random numbers.
    markets
        The honest exports.

    Returns
    -------
    dict
        `made`, `refused`, `accepted`, `harmful`; `unlisted`: what was accepted and is not on the
        list, or harms a client in a way that is not; `covered up`: what the messages that clients
        kept should have uncovered and did not; `by operator`, `by item`.
    """
    rng = random.Random(seed)
    markets = markets or [*(honest_market(s) for s in range(4)), simulated_market(4)]
    by_operator: dict[str, Counter[str]] = {name: Counter() for name in OPERATORS}
    by_item: Counter[str] = Counter()
    unlisted: list[str] = []
    covered: list[str] = []
    names = list(OPERATORS)
    made = turn = 0
    while made < count:
        name = names[turn % len(names)]
        turn += 1
        market = rng.choice(markets)
        forger = Forger(market, rng)
        try:
            for _ in range(1 if rng.random() < 0.8 else 2):  # now and then two lies
                OPERATORS[name](forger)
        except InapplicableError:
            continue
        except ODD:  # the second lie finds what the first left behind
            if len(forger.entries) < 2:
                continue
        way = rng.choice(["as it is", "posted again", "repaired"])
        if way != "as it is":
            forger.repair(thorough=way == "repaired")
        original = [(e["content"], e["postings"]) for e in market.entries]
        if [(e["content"], e["postings"]) for e in forger.entries] == original:
            continue  # no lie was left
        made += 1
        books = accepted(forger.written())
        by_operator[name]["refused" if books is None else "accepted"] += 1
        if books is None:
            continue
        judge = Judge(market, forger.entries, books)
        items, harms = judge.explained(), judge.harms()
        by_operator[name]["harmful"] += bool(harms)
        by_item.update(items | harms)
        odd = sorted((items | harms) - UNSEEN.keys())
        if odd:
            unlisted.append(f"{name}, {way}: {', '.join(odd)}")
        covered += [
            f"{name}, {way}: {item}"
            for item in sorted(harms & UNSEEN.keys())
            if UNSEEN[item] and not uncovered(market, forger.entries, UNSEEN[item])
        ]
    total = sum(by_operator.values(), Counter[str]())
    return {
        "made": made,
        "operators": len(OPERATORS),
        "refused": total["refused"],
        "accepted": total["accepted"],
        "harmful": total["harmful"],
        "unlisted": unlisted,
        "covered up": covered,
        "by operator": {name: dict(own) for name, own in by_operator.items()},
        "by item": dict(by_item),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(mutants(int(sys.argv[1])), indent=1) + "\n")
