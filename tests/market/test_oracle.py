"""The rules of a ledger, told a second time: coins, weights, pay and refunds of whole markets.

Written from docs/market.md with fractions and plain loops, without any code of the package: what
the ledger recorded must be what a patient reader computes from what was signed.
"""

import hashlib
import json
from fractions import Fraction
from typing import Any

import pytest

from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulate_market
from trials.markets import small_market, small_outcome, small_task

ONE = 2**32


def text(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def phase_of(server: bytes, own: bytes, mixed: bytes) -> Fraction:
    key = hashlib.blake2b(b"fedprice coins\0" + own + mixed, key=server, digest_size=32).digest()
    return Fraction(int.from_bytes(key[:4], "big"), ONE)


def half_even(amount: Fraction) -> int:
    down = amount.numerator // amount.denominator
    rest = amount - down
    return down + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1))


def exact_payment(tariff: list[list[int]], level: Fraction) -> Fraction:
    """Return what the blocks of a tariff pay together, before it is rounded."""
    total, start = Fraction(0), Fraction(0)
    for block, price in tariff:
        end = Fraction(block, ONE)
        if level > start:
            total += price * (min(level, end) - start)
        start = end
    return total


def check(entries: list[Any]) -> int:
    """Compute a run of one set of offers again; return how many rounds were compared."""
    by_kind = {e.content["kind"]: e for e in entries if e.content["kind"] != "round"}
    rounds = [e for e in entries if e.content["kind"] == "round"]
    offers = {json.loads(t)["client"]: json.loads(t) for t, _ in by_kind["offer"].content["offers"]}
    conditions = json.loads(by_kind["offer"].content["conditions"])
    signed = by_kind["commit"].content["commitments"]
    commitments = {name: json.loads(t) for name, (t, _) in signed.items()}
    secrets = by_kind["open"].content["secrets"]
    named = {n: [sha(t.encode()), commitments[n]["secret_hash"]] for n, (t, _) in signed.items()}
    roster = sha(text(named).encode())
    together = b"".join(bytes.fromhex(secrets[name][1]) for name in sorted(secrets))
    mixed = hashlib.sha256(b"fedprice coin mix\0" + bytes.fromhex(roster) + together + b"\0")
    total = sum(own["samples"] for own in commitments.values())
    payment = {
        name: half_even(exact_payment(offers[name]["tariff"], Fraction(own["level"], ONE)))
        for name, own in commitments.items()
    }
    heads = dict.fromkeys(commitments, 0)
    delivered, missing, paid = dict(heads), dict(heads), dict(heads)
    all_rounds, escrow = conditions["rounds"], 0
    for r, entry in enumerate(rounds):
        content, moved = entry.content, dict(entry.postings)
        for name, own in commitments.items():
            level = Fraction(own["level"], ONE)
            ours, theirs = (bytes.fromhex(part) for part in secrets[name])
            drew = (phase_of(ours, theirs, mixed.digest()) + r * level) % 1 < level
            came = name in content["joined"]
            assert drew == (came or name in content["missed"] or name in content["refused"])
            heads[name] += drew
            delivered[name] += came
            missing[name] += drew
            if came:
                weight = Fraction(own["samples"], total) / Fraction(own["level"], ONE)
                weight = min(weight, Fraction(conditions["max_weight"]))
                weight *= min(missing[name], conditions["longest_gap"])
                assert float(content["joined"][name][1]) == pytest.approx(float(weight), rel=1e-12)
                missing[name] = 0
            assert heads[name] in (int((r + 1) * level), -int(-(r + 1) * level // 1))
            earned = int(max(payment[name], 0) * delivered[name] / (level * all_rounds))
            new = earned - paid[name]
            assert moved.get(f"client:{name}", 0) == new
            paid[name] += new
        assert sum(moved.values()) == 0
    escrow = max(by_kind["open"].content["budget"], 0) - sum(p for p in payment.values() if p < 0)
    back = dict(by_kind["settle"].postings)
    for name, amount in payment.items():
        if amount < 0:
            refund = -amount * (all_rounds - len(rounds)) // all_rounds
            assert back.get(f"client:{name}", 0) == refund
            escrow -= refund
    assert back.get("treasury", 0) == escrow - sum(paid.values())
    return len(rounds)


@pytest.mark.parametrize("delivery", [1.0, 0.7, 0.2])
@pytest.mark.parametrize("seed", [3, 4])
def test_a_market_is_what_a_patient_reader_computes(delivery: float, seed: int) -> None:
    ledger = Ledger("sqlite://")
    small_market(ledger, delivery=delivery, seed=seed)
    assert check(list(ledger.entries("run"))) == 12


def test_also_if_it_ends_early() -> None:
    """Payers get back what no round used."""
    ledger, task = Ledger("sqlite://"), small_task()

    def stop(done: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate_market(
            task, small_outcome(task.federation), ledger=ledger, run="run", delivery=0.8,
            progress=stop, threads=1,
        )  # fmt: skip
    ledger.settle("run")
    assert check(list(ledger.entries("run"))) == 5
