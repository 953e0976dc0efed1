"""A dishonest server: nothing that it can write harms a client, except what the docs list."""

import random
import re
from pathlib import Path

import pytest

from fedprice.verify import Books, VerificationError, check_entries, describe
from trials.forger import Forger
from trials.honest import KNOWN, Market, honest_market, simulated_market, text_of
from trials.judge import UNSEEN, Judge
from trials.lies import OPERATORS, new_server
from trials.mutations import accepted, mutants, uncovered

DOCS = Path(__file__).parents[2] / "docs" / "verification.md"


@pytest.fixture(scope="module")
def markets() -> list[Market]:
    return [honest_market(0), honest_market(1), simulated_market(2)]


@pytest.mark.first_case
@pytest.mark.parametrize("times", [2, 6])
def test_accepted_mutants_are_on_the_documented_list(markets: list[Market], times: int) -> None:
    found = mutants(times * len(OPERATORS), seed=5, markets=markets)
    assert found["operators"] >= 40
    assert found["unlisted"] == []
    assert found["covered up"] == []
    assert found["refused"] > found["made"] / 2
    assert found["harmful"] > 0  # otherwise the judge would be blind


def test_the_documented_list_is_the_one_that_is_tested() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \| .+ \| (.+) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    words = {"–": "", "`--key`": "key"}
    listed = {item: words.get(proof) or proof.split()[-1].strip("–") for item, proof in rows}
    assert listed == UNSEEN
    assert f"{len(OPERATORS)} kinds of lies" in DOCS.read_text("utf-8")


def test_honest_markets_verify_with_everything_that_was_kept(markets: list[Market]) -> None:
    for market in markets:
        everything = [message for kept in market.kept.values() for message in kept]
        assert accepted(market.entries, receipts=everything) is not None
        assert not uncovered(market, market.entries, "key")


@pytest.mark.parametrize(
    ("lie", "kept"),
    [
        ("cut_the_end", "head"),
        ("settle_early", "head"),
        ("drop_a_run", "commitment"),
        ("drop_a_commitment", "commitment"),
        ("drop_a_commitment", "roster"),
        ("invent_a_client", "roster"),
        ("say_that_an_update_was_missed", "receipt"),
        ("say_that_an_update_was_refused", "receipt"),
        ("drop_the_evidence_of_a_refusal", "receipt"),
        ("drop_a_secret", "head"),
        ("invent_a_client_with_a_known_name", "roster"),
    ],
)
def test_kept_messages_uncover(lie: str, kept: str, markets: list[Market]) -> None:
    """What verifies by itself does not verify with what clients kept."""
    passed = 0
    for seed in range(8):
        forger = Forger(markets[seed % 2], random.Random(seed))
        OPERATORS[lie](forger)
        forger.repair(thorough=True)
        if accepted(forger.written()) is not None:
            passed += 1
            assert uncovered(forger.market, forger.entries, kept)
    assert passed


def test_the_judge_sees_stolen_money(markets: list[Market]) -> None:
    """An oracle that never speaks proves nothing: with forged signatures it must."""
    market = markets[0]
    forger = Forger(market, random.Random(1))
    wish = {"account": "client:carol", "amount": 1000, "reference": "stolen"}
    text = text_of(wish | {"kind": "Withdrawal", "ledger": market.books.ledger})
    signature = "ab" * 64
    KNOWN._made.add((market.clients["carol"][-1], signature, text))  # as if carol had signed
    content = {"amount": 1000, "message": text, "signature": signature}
    forger.add(len(forger.entries), "withdraw", ["client:carol", "stolen"], **content)
    forger.repair(thorough=False)
    books = accepted(forger.written())
    assert books is not None
    judge = Judge(market, forger.entries, books)
    assert "!withdraw" in judge.explained()
    assert "!withdraw" in judge.harms()


@pytest.mark.first_case
@pytest.mark.parametrize("lax", ["signatures", "owners", "commitments"])
def test_a_verifier_that_is_too_lax_is_found(
    lax: str, markets: list[Market], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one of its checks, forgeries pass that are not on the list."""
    if lax == "signatures":
        monkeypatch.setattr(Books, "check", lambda *_: None)
    elif lax == "owners":
        monkeypatch.setattr(Books, "_owned", lambda *_: False)
    else:
        monkeypatch.setattr(Books, "key_of", lambda b, a: b.server if a == "treasury" else "")
    count = len(OPERATORS) * (6 if lax == "commitments" else 1)
    assert mutants(count, seed=4, markets=markets[:1])["unlisted"]


def test_a_signed_reversal_cannot_undo_another_deposit(markets: list[Market]) -> None:
    """An entry in front of it moved the reversal of 2 units to the deposit of 30 units."""
    for lie in ("exchange_deposits_below_a_reversal", "grow_a_deposit_below_a_reversal"):
        forger = Forger(markets[0], random.Random(3))
        OPERATORS[lie](forger)
        forger.repair(thorough=False)
        assert accepted(forger.written()) is None, lie


def test_a_reversed_deposit_under_another_reference_is_on_the_documented_list(
    markets: list[Market],
) -> None:
    """A reversal is signed for an entry and an amount: no export shows the deposit's reference."""
    market = markets[0]
    forger = Forger(market, random.Random(1))
    reversed_ = forger.pick("reverse", which=lambda c: bool(c["message"]))["of"][0]
    forger.entries[reversed_ - 1]["content"]["of"][1] = "another transfer"
    books = accepted(forger.written())
    assert books is not None
    judge = Judge(market, forger.entries, books)
    assert (judge.explained(), judge.harms()) == ({"deposits"}, set())
    assert uncovered(market, forger.entries, "head")


def test_an_offer_in_turn_is_signed_by_the_server_that_its_conditions_name(
    markets: list[Market],
) -> None:
    """Its client would not have taken it under another key, even if that is the server's now."""
    for seed in range(4):
        forger = Forger(markets[1], random.Random(seed))
        OPERATORS["sign_an_offer_in_turn_with_another_key"](forger)
        with pytest.raises(VerificationError, match="the signature of the offer to"):
            check_entries(forger.written(), valid=KNOWN.valid)
    forger = Forger(markets[1], random.Random(1))
    later = forger.pick("offer", which=lambda c: len(c["of"]) > 2)
    new_server(forger, forger.place(later))  # and the offer as it was
    assert accepted(forger.written()) is not None


def test_runs_that_were_never_opened_are_told(markets: list[Market]) -> None:
    """A server that draws coins until it likes them leaves a trace of every attempt."""
    market = markets[0]
    forger = Forger(market, random.Random(1))
    run = market.entries[-2]["content"]["of"][0]
    opened = forger.pick("open", which=lambda c: c["of"] == [run])
    del forger.entries[forger.place(opened) :]
    forger.add(len(forger.entries), "settle", [run], rounds=0)
    books = accepted(forger.written())
    assert books is not None
    said = f"run {run!r}: offered to 5 clients in 1 set of offers, never opened"
    assert said in list(describe(books))
