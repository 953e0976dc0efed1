"""`Judge`: what a forgery that verifies changes, and whom it harms."""

from collections import Counter
from typing import Any

from fedprice.verify import Books
from trials.honest import Entries, Facts, Market, facts_of

# What no export can show, and which kept message uncovers it. docs/verification.md says the same.
UNSEEN = {
    "unrecorded": "head",
    "left out": "commitment",
    "coins": "roster",
    "beacon": "head",
    "sent": "receipt",
    "asked": "",
    "reasons": "head",
    "measurements": "head",
    "models": "head",
    "invented": "roster",
    "names": "key",
    "deposits": "head",
    "payouts": "head",
    "treasury": "head",
    "unanswered offers": "head",
    "declarations": "",
    "order": "head",
}


def signed_reversals(facts: Facts) -> Counter[tuple[str, int, str]]:
    """Return what owners signed when deposits were reversed: account, amount and reason."""
    return Counter(
        (fact[2], facts[fact[1:]], reason)
        for fact, reason in facts.items()
        if fact[:2] == ("reverse", "deposit")
    )


class Judge:
    """Compares a forgery that verifies with the honest export.

    Parameters
    ----------
    market, forged, books
        The honest export, the entries of the forgery, and what they add up to.
    """

    def __init__(self, market: Market, forged: Entries, books: Books) -> None:
        self.market, self.books = market, books
        self.honest, self.forged = market.facts, facts_of(forged)

    def owns(self, client: str) -> bool:
        """Return whether a client of the forgery has the key of a real client."""
        known = self.market.clients.get(client, [])
        own = self.books.keys.get(f"client:{client}", [])
        return bool(own) and set(own) <= set(known)

    def other(self, client: str) -> str:
        """Return what to call a client of the forgery that is no real one."""
        return "names" if client in self.market.clients else "invented"

    def redrawn(self, run: str) -> set[str]:
        """Return why the coins of a run are others, if they are."""
        if run not in self.books.runs or run not in self.market.books.runs:
            return {"unrecorded"}
        before, after = self.market.books, self.books
        attempt = before.runs[run].attempts
        if before.rosters.get((run, attempt)) != after.rosters.get((run, after.runs[run].attempts)):
            return {"coins"}
        found = set()
        if before.runs[run].beacon != after.runs[run].beacon:
            found.add("beacon")
        return found

    def explained(self) -> set[str]:
        """Return the items of `UNSEEN` that explain the difference; others begin with "!"."""
        found: set[str] = set()
        for fact in self.honest.keys() | self.forged.keys():
            before, after = self.honest.get(fact), self.forged.get(fact)
            if fact[0] in ("measured", "why") and None in (before, after):
                continue  # another fact says what became of the update
            if before != after:
                found |= getattr(self, f"_{fact[0]}")(fact, before, after) or {f"!{fact[0]}"}
        return found or {"order"}

    def _begin(self, fact: Any, before: Any, after: Any) -> set[str]:
        if fact[1] == "server":
            return {"treasury"}  # the first key is the server's own choice
        return set() if any(f[0] == "commit" for f in self.forged) else {"unrecorded"}

    def _deposit(self, fact: Any, before: Any, after: Any) -> set[str]:
        return {"treasury" if fact[1] == "treasury" else "deposits"}

    def _withdraw(self, fact: Any, before: Any, after: Any) -> set[str]:
        if fact[1] == "treasury":
            return {"treasury"}
        return {"unrecorded"} if after is None else set()

    def _reverse(self, fact: Any, before: Any, after: Any) -> set[str]:
        if fact[2] == "treasury":
            return {"treasury"}
        if fact[1] == "withdraw":
            return {"payouts"}
        if signed_reversals(self.honest) == signed_reversals(self.forged):
            return {"deposits"}  # the deposit has another reference
        return {"unrecorded"} if after is None else set()

    def _rotate(self, fact: Any, before: Any, after: Any) -> set[str]:
        if fact[1] == "treasury":
            return {"treasury"}
        return {"unrecorded"} if after is None else set()

    def _conditions(self, fact: Any, before: Any, after: Any) -> set[str]:
        _, run, attempt = fact
        bound = any(f[:3] == ("commit", run, attempt) and self.owns(f[3]) for f in self.forged)
        return set() if bound else {"unanswered offers"}

    def _offer(self, fact: Any, before: Any, after: Any) -> set[str]:
        _, run, attempt, client = fact
        if ("commit", run, attempt, client) in self.forged:
            return set() if self.owns(client) else {self.other(client)}
        answered = ("commit", run, attempt, client) in self.honest
        return {"left out"} if answered else {"unanswered offers"}

    def _commit(self, fact: Any, before: Any, after: Any) -> set[str]:
        if after is None:
            return {"left out"}
        return set() if self.owns(fact[3]) else {self.other(fact[3])}

    def _dropped(self, fact: Any, before: Any, after: Any) -> set[str]:
        stage = fact[1]
        if before is not None and after is not None:
            return {"reasons"}
        if after is None:
            return {"unrecorded"}
        return {"unanswered offers"} if stage == "offer" else {"left out"}

    def _secret(self, fact: Any, before: Any, after: Any) -> set[str]:
        _, run, client = fact
        if after is not None:
            return set() if self.owns(client) else {self.other(client)}
        return {"left out"} if self.books.runs.get(run) else {"unrecorded"}

    def _budget(self, fact: Any, before: Any, after: Any) -> set[str]:
        return {"unrecorded"} if after is None else {"treasury"}

    def _attempt(self, fact: Any, before: Any, after: Any) -> set[str]:
        return self._budget(fact, before, after) & {"unrecorded"}

    def _beacon(self, fact: Any, before: Any, after: Any) -> set[str]:
        return {"unrecorded"} if after is None else {"beacon"}

    def _model(self, fact: Any, before: Any, after: Any) -> set[str]:
        return {"unrecorded"} if None in (before, after) else {"models"}

    _state = _model

    def _settle(self, fact: Any, before: Any, after: Any) -> set[str]:
        return {"unrecorded"}

    def _seen(self, fact: Any) -> str:
        """Return what became of a client in a round of the forgery."""
        for kind in ("joined", "missed", "refused"):
            if (kind, *fact[1:]) in self.forged:
                return kind
        return "tails" if ("model", *fact[1:3]) in self.forged else "no round"

    def _joined(self, fact: Any, before: Any, after: Any) -> set[str]:
        _, run, _, client = fact
        if after is not None:
            if not self.owns(client):
                return {self.other(client)}
            refused = self.honest.get(("refused", *fact[1:]))
            return {"measurements"} if refused == after else set()
        return {"missed": {"sent"}, "refused": {"sent"}, "no round": {"unrecorded"}}.get(
            self._seen(fact), self.redrawn(run) - {"unrecorded"}
        )

    def _refused(self, fact: Any, before: Any, after: Any) -> set[str]:
        client = fact[3]
        if after:
            if not self.owns(client):
                return {self.other(client)}
            return {"sent"} if self.honest.get(("joined", *fact[1:])) == after else set()
        return self._absent(fact, before is not None)

    def _missed(self, fact: Any, before: Any, after: Any) -> set[str]:
        return self._absent(fact, before is not None)

    def _absent(self, fact: Any, was: bool) -> set[str]:
        """Explain that nothing of a client's is recorded in a round, or no more."""
        _, run, _, client = fact
        if not self.owns(client) and client in getattr(self.books.runs.get(run), "clients", ()):
            return {self.other(client)}
        if ("model", *fact[1:3]) not in self.honest:
            return {"asked"}
        heads = any((kind, *fact[1:]) in self.honest for kind in ("joined", "missed", "refused"))
        if self._seen(fact) == "no round":
            return {"unrecorded"}
        if self._seen(fact) == "tails" or not heads:
            return self.redrawn(run) - {"unrecorded"}
        return {"sent", "measurements"} if was else {"sent"}

    def _measured(self, fact: Any, before: Any, after: Any) -> set[str]:
        return {"measurements"}

    def _why(self, fact: Any, before: Any, after: Any) -> set[str]:
        return {"reasons"}

    def harms(self) -> set[str]:
        """Return what harms a real client: items of `UNSEEN`, others begin with "!"."""
        found: set[str] = set()
        for client in self.market.clients:
            paid = 0
            for name, run in self.market.books.runs.items():
                if client in run.clients:
                    found |= self._harms_in(name, client)
                    after = self.books.runs.get(name)
                    if after and client in after.clients:
                        paid += after.clients[client].paid
            found |= self._harms_to_balance(client)
        for fact, text in self.honest.items():
            if fact[0] == "commit" and self.forged.get(fact) != text:
                found.add("left out")
        return found

    def _harms_in(self, name: str, client: str) -> set[str]:
        run, other = self.market.books.runs[name], self.books.runs.get(name)
        before = run.clients[client]
        if other is None:
            return {"unrecorded"}
        if client not in other.clients:
            return {"left out"}
        after = other.clients[client]
        terms = ("tariff", "menu", "level", "samples", "key", "grad_norm", "norm_cap")
        if (
            any(getattr(before, t) != getattr(after, t) for t in terms)
            or run.rounds != other.rounds
        ):
            return {"!terms"} if self.owns(client) else {"names", "left out"}
        assert before.coins is not None
        assert after.coins is not None
        same = before.coins.phase == after.coins.phase
        found = set() if same else self.redrawn(name) or {"!coins"}
        if other.done < run.done or (run.settled and not other.settled):
            found.add("unrecorded")
        if other.done > run.done:
            found.add("asked")
        done = range(min(run.done, other.done))
        for r in done:
            was, now = (
                next(
                    (k for k in ("joined", "missed", "refused") if (k, name, r, client) in facts),
                    "tails",
                )
                for facts in (self.honest, self.forged)
            )
            if same and (was == "tails") != (now == "tails"):
                found.add("!heads")
            if was == "joined" and now in ("missed", "refused"):
                found.add("sent")
        if after.paid < before.paid and not found:
            found.add("!payment")
        return found

    def _harms_to_balance(self, client: str) -> set[str]:
        account, found = f"client:{client}", set()
        total = sum(r.clients[client].paid for r in self.books.runs.values() if client in r.clients)
        net = [0, 0]
        for place, facts in enumerate((self.honest, self.forged)):
            for fact, amount in facts.items():
                if fact[0] in ("deposit", "withdraw") and fact[1] == account:
                    undone = ("reverse", *fact) in facts
                    sign = 1 if fact[0] == "deposit" else -1
                    net[place] += 0 if undone else sign * amount
        if self.books.balances.get(account, 0) != total + net[1]:
            found.add("!balance")
        if any(f[:2] == ("withdraw", account) for f in self.forged.keys() - self.honest.keys()):
            found.add("!withdraw")
        invented = signed_reversals(self.forged) - signed_reversals(self.honest)
        if any(own[0] == account for own in invented):
            found.add("!reverse")
        if net[1] < net[0]:
            lost = {f for f in self.honest.keys() - self.forged.keys() if account in f[1:3]}
            deposits = {f for f in self.honest if f[:2] == ("deposit", account)}
            if any(self.honest[f] != self.forged.get(f) for f in deposits):
                found.add("deposits")
            if any(f[:2] == ("reverse", "withdraw") for f in lost):
                found.add("payouts")
            found |= set() if found else {"!money"}
        return found
