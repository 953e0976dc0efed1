"""Offers and commitments: binding, and refused with a reason when anything is off."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import InputError
from fedprice.market.bargain import Bargain
from fedprice.market.canonical import canonical_bytes, parsed
from fedprice.market.coins import own_secret, secret_hash
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.messages import ModelSchema, RefusedError, Signed
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import (
    Commitment,
    Offer,
    Proposal,
    check_commitment,
    make_offers,
)
from fedprice.market.simulation import simulation_key
from fedprice.market.tariffs import Tariff
from fedprice.verify import LARGEST
from trials.markets import (
    SCHEMA,
    agreed,
    at_price,
    commit,
    conditions,
    offered,
    paying,
    reveal,
)

SERVER, ALICE, BOB = (simulation_key(name) for name in ("server", "client alice", "client bob"))
CONDITIONS = conditions(Ledger("sqlite://", identity="ab" * 32))
OFFER = Offer(
    conditions=CONDITIONS.hash, client="alice", tariff=((LEVEL_ONE // 2, -3_000_000),), menu=False,
    level_floor=5, norm_cap="", impact="0.5", coin_hash=secret_hash(bytes(32)),
)  # fmt: skip
OFFERS = {"alice": SERVER.sign(OFFER), "bob": SERVER.sign(replace(OFFER, client="bob"))}


def answer(offer: str = "alice", level: int = 7) -> Commitment:
    return Commitment(OFFERS[offer].hash, ALICE.public.hex(), level, "ab" * 32, 100, "1.5")


def accept(signed: Signed) -> Commitment:
    return check_commitment(OFFERS["alice"], signed, ALICE.public)


def test_a_commitment_binds() -> None:
    assert accept(ALICE.sign(answer())).level == 7


@pytest.mark.parametrize(
    ("signed", "reason"),
    [
        (BOB.sign(answer()), "another key than the one registered"),
        (ALICE.sign(answer("bob")), "answers another offer"),
        (ALICE.sign(answer(level=LEVEL_ONE)), "above the cap"),
        (ALICE.sign(answer(level=4)), "below the least one"),
        (ALICE.sign(replace(answer(), key=BOB.public.hex())), "names another key"),
        (ALICE.sign(OFFER), "is no commitment"),
    ],
)
def test_refused_with_a_reason(signed: Signed, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        accept(signed)


TWO = {"alice": at_price(10, LEVEL_ONE), "bob": at_price(20, LEVEL_ONE)}


def test_no_second_commitment_and_none_after_the_others_are_recorded(ledger: Ledger) -> None:
    bargain = offered(ledger, TWO)
    commit(bargain, "alice", TWO["alice"])
    with pytest.raises(RefusedError, match="has committed before"):
        commit(bargain, "alice", TWO["alice"])
    bargain.close()
    with pytest.raises(RefusedError, match="late: all commitments are recorded"):
        commit(bargain, "bob", TWO["bob"])
    assert bargain.dropped == {"bob": "it did not answer"}


def test_one_key_per_name_and_ledger(ledger: Ledger) -> None:
    ledger.deposit("treasury", 100, "start")
    agreed(ledger, 50, TWO)
    ledger.settle("run")
    bargain = offered(ledger, TWO, run="other")
    stranger = simulation_key("stranger")
    own = Commitment(
        bargain.offers["bob"].hash, stranger.public.hex(), LEVEL_ONE, "ab" * 32, 1, "1"
    )
    with pytest.raises(RefusedError, match="'bob' has another key in this ledger"):
        bargain.commit("bob", stranger.sign(own), stranger.public)
    with pytest.raises(LedgerError, match="'bob' has another key in this ledger"):
        ledger.record_commitments("other", 1, {"bob": stranger.sign(own)}, {"alice": "x"})
    alice = simulation_key("client alice")
    own = replace(own, key=alice.public.hex())
    with pytest.raises(LedgerError, match="'bob' has another key in this ledger"):
        ledger.record_commitments("other", 1, {"bob": alice.sign(own)}, {"alice": "x"})


def test_who_keeps_its_secret_costs_a_set_of_offers_not_a_choice_of_coins(ledger: Ledger) -> None:
    ledger.deposit("treasury", 100, "start")
    bargain = offered(ledger, TWO)
    for name, terms in TWO.items():
        commit(bargain, name, terms)
    bargain.close()
    with pytest.raises(RefusedError, match="is not the one that it committed to"):
        bargain.reveal("alice", bytes(32))
    bargain.reveal("alice", own_secret(ALICE.private, bargain.offers["alice"].hash))
    assert bargain.silent == ["bob"]
    with pytest.raises(LedgerError, match="not every client that committed has revealed"):
        bargain.open(50)
    bargain.offer(
        conditions(ledger, seed=1),
        {"alice": Proposal(Tariff.flat(10, LEVEL_ONE), 1)},
        "bob is silent",
    )
    commit(bargain, "alice", TWO["alice"])
    bargain.close()
    reveal(bargain)
    assert list(bargain.open(50).deals) == ["alice"]
    assert ledger.verify().runs["run"].attempts == 2


def test_a_server_that_dies_takes_up_its_bargain(url: str) -> None:
    """After the offers, after the commitments: the same offers, and nobody has to sign again."""
    ledger = Ledger(url)
    ledger.deposit("treasury", 100, "start")
    offers = offered(ledger, TWO).offers
    ledger.close()
    ledger = Ledger(url, key=SERVER)
    bargain = Bargain(ledger, SERVER, "run")
    assert bargain.offers == offers
    assert bargain.wants == ["alice", "bob"]
    for name, terms in TWO.items():
        commit(bargain, name, terms)
    bargain.close()
    ledger.close()
    ledger = Ledger(url, key=SERVER)
    bargain = Bargain(ledger, SERVER, "run")
    assert bargain.wants == []
    reveal(bargain)
    assert list(bargain.open(50).deals) == ["alice", "bob"]
    ledger.verify()
    ledger.close()


def test_offers_of_one_set_may_be_made_in_turn(url: str) -> None:
    """Each is recorded before anybody sees it, and what is not in turn is refused."""
    ledger = Ledger(url)
    ledger.deposit("treasury", 100, "start")
    bargain = offered(ledger, {"bob": TWO["bob"]})
    bargain.offer(conditions(ledger, rounds=7), {"bob": Proposal(TWO["bob"].tariff, 1)}, "again")
    commit(bargain, "bob", TWO["bob"])

    def record(turn: int, *, run: str = "run", dropped: str = "", **other: object) -> None:
        all_ = conditions(ledger, rounds=7, **other)  # type: ignore[arg-type]
        made = make_offers(SERVER, all_, {"alice": Proposal(TWO["alice"].tariff, 1)})
        ledger.record_offers(
            run, 2, all_.text, [*made.values()], {dropped: "x"} if dropped else {}, turn
        )

    with pytest.raises(LedgerError, match="turn must be 2; found 3"):
        record(3)
    with pytest.raises(LedgerError, match="its conditions are not those of the first turn"):
        record(2, seed=1)
    with pytest.raises(LedgerError, match="only the first turn drops earlier offers"):
        record(2, dropped="bob")
    with pytest.raises(LedgerError, match="there are no such offers"):
        record(2, run="other")
    same = conditions(ledger, rounds=7)
    made = make_offers(SERVER, same, {"bob": Proposal(TWO["bob"].tariff, 1)})
    with pytest.raises(LedgerError, match="what the offer to 'bob' replaces must be"):
        ledger.record_offers("run", 2, same.text, [*made.values()], {}, 2)
    with pytest.raises(LedgerError, match="'bob' has two offers"):
        bargain.offer_next({"bob": Proposal(TWO["bob"].tariff, 1)})
    bargain = Bargain(ledger, SERVER, "run")  # as a server that was stopped takes it up
    bargain.offer_next({"alice": Proposal(TWO["alice"].tariff, 1)})
    assert list(bargain.offers) == list(Bargain(ledger, SERVER, "run").offers) == ["bob", "alice"]
    commit(bargain, "bob", TWO["bob"])
    commit(bargain, "alice", TWO["alice"])
    bargain.close()
    with pytest.raises(LedgerError, match="commitments to these offers are already recorded"):
        record(3)
    reveal(bargain)
    assert list(bargain.open(50).deals) == ["bob", "alice"]
    run = ledger.verify().runs["run"]
    assert (list(run.clients), run.attempts) == (["bob", "alice"], 2)
    taken_up = Bargain(Ledger("sqlite://"), SERVER, "run")
    with pytest.raises(InputError, match="no set of offers was begun"):
        taken_up.offer_next({"alice": Proposal(TWO["alice"].tariff, 1)})
    ledger.close()


def test_offers_that_come_to_nothing_leave_a_trace_and_end(ledger: Ledger) -> None:
    ledger.deposit("treasury", 100, "start")
    bargain = offered(ledger, TWO)
    for _ in range(4):
        proposals = {"alice": Proposal(Tariff.flat(10, LEVEL_ONE), 1)}
        bargain.offer(conditions(ledger, seed=bargain.attempt), proposals, "bob did not pay")
    with pytest.raises(LedgerError, match="a run takes at most 5 sets of offers"):
        bargain.offer(conditions(ledger, seed=9), proposals, "once more")
    offers = [entry for entry in ledger.entries() if entry.content["kind"] == "offer"]
    assert [entry.content["of"][1] for entry in offers] == [1, 2, 3, 4, 5]
    ledger.settle("run")
    with pytest.raises(LedgerError, match="the run was already opened or ended"):
        offered(ledger, TWO)
    ledger.verify()


def test_unwilling_payers_are_known(ledger: Ledger) -> None:
    payers = {"alice": paying(-50, LEVEL_ONE), "bob": paying(-20, LEVEL_ONE), "carol": paying(70)}
    bargain = offered(ledger, payers)
    for name in ("alice", "carol"):
        commit(bargain, name, payers[name])
    assert bargain.unwilling_payers() == ["bob"]


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_altered_byte_is_accepted(spot: int, change: int) -> None:
    signed = ALICE.sign(answer())
    whole = bytearray(signed.content + signed.signature)
    whole[spot % len(whole)] ^= change
    cut = len(signed.content)
    with pytest.raises(RefusedError):
        accept(Signed(bytes(whole[:cut]), bytes(whole[cut:]), signed.key))


@given(
    st.binary(max_size=300), st.binary(max_size=80), st.sampled_from([ALICE.public, b"", bytes(32)])
)
def test_noise_is_refused(content: bytes, signature: bytes, key: bytes) -> None:
    with pytest.raises(RefusedError):
        accept(Signed(content, signature, key))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_signed_by_the_right_key_but_of_no_form(value: object) -> None:
    """Whatever a client signs is refused or is a commitment; nothing else comes out."""
    try:
        content = canonical_bytes(value)
    except UnicodeEncodeError:
        return  # half a surrogate pair is no text
    assert parsed(content) == value
    signature = ALICE._private.sign(content)
    with pytest.raises(RefusedError):
        accept(Signed(content, signature, ALICE.public))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": "a\nb"}, "`client` must be 1 to 200 printable"),
        ({"client": "a\u202eb"}, "`client` must be 1 to 200 printable"),
        ({"client": "\ud800"}, "`client` must be 1 to 200 printable"),
        ({"client": ""}, "`client` must be 1 to 200 printable"),
        ({"client": " alice"}, "without spaces around"),
        ({"client": "e\u0301"}, "`client` must be 1 to 200 printable"),
        ({"tariff": ((LEVEL_ONE, 1.5),)}, "each block of `tariff` must be"),
        ({"tariff": ((LEVEL_ONE, True),)}, "each block of `tariff` must be"),
        ({"tariff": ((LEVEL_ONE + 1, 1),)}, "each block of `tariff` must be"),
        ({"tariff": ((0, 1),)}, "each block of `tariff` must be"),
        ({"tariff": ((9, 1), (9, 2))}, "each block of `tariff` must be"),
        ({"tariff": ((9, LARGEST + 1),)}, "each block of `tariff` must be"),
        ({"tariff": ((9, 1, 2),)}, "each block of `tariff` must be"),
        ({"tariff": (9, 1)}, "each block of `tariff` must be"),
        ({"tariff": ()}, "`tariff` must have 1 to 256 blocks"),
        ({"tariff": "91"}, "`tariff` must have 1 to 256 blocks"),
        ({"tariff": tuple((n, 1) for n in range(5, 262))}, "`tariff` must have 1 to 256 blocks"),
        ({"menu": 1}, "`menu` must be true or false"),
        ({"level_floor": 0}, "`level_floor` must be a whole number from 1"),
        ({"level_floor": LEVEL_ONE}, "`level_floor` must be a whole number from 1"),
        ({"norm_cap": "nan"}, "`norm_cap` must be a decimal number"),
        ({"replaces": "xyz"}, "`replaces` must be 64 hexadecimal"),
    ],
)
def test_bad_offers(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(OFFER, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run": "r" * 201}, "`run` must be 1 to 200 printable"),
        ({"unit": "=EUR"}, "`unit` must be 1 to 12 capital letters"),
        ({"task": "xyz"}, "`task` must be 64 hexadecimal"),
        ({"nonce": ""}, "`nonce` must be 64 hexadecimal"),
        ({"expires": -1}, "`expires` must be a whole number"),
        ({"longest_gap": 0}, "`longest_gap` must be a whole number"),
        ({"max_weight": "inf"}, "`max_weight` must be a decimal number"),
        ({"schema": "xyz"}, "`schema` is not a schema"),
        ({"schema": SCHEMA.content() | {"hash": "0" * 64}}, "`schema` is not a schema"),
        ({"schema": SCHEMA.content() | {"shapes": [[10.0, 61]]}}, "`schema` is not a schema"),
    ],
)
def test_bad_conditions(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(CONDITIONS, **change)  # type: ignore[arg-type]


def test_canonical_is_one_text() -> None:
    assert canonical_bytes({"b": 1, "a": 2}) == canonical_bytes({"a": 2, "b": 1})
    for other in (b'{"a": 2}', b'{"b":1,"a":2}', b"[1.0]", b"[1e2]", b"", b"nul", b'{"a":1,"a":1}'):
        with pytest.raises(InputError):
            parsed(other)
    with pytest.raises(InputError, match="whole numbers only"):
        canonical_bytes([0.5])


def test_schemas_differ() -> None:
    other = ModelSchema.of([np.zeros((10, 61), np.float64)])
    assert other.hash != SCHEMA.hash


def test_bad_commitments() -> None:
    for change, message in (
        ({"grad_norm": "nan"}, "`grad_norm` must be a decimal number"),
        ({"grad_norm": 1.5}, "`grad_norm` must be a decimal number"),
        ({"samples": -1}, "`samples` must be a whole number"),
        ({"level": True}, "`level` must be a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            replace(answer(), **change)


def test_every_offer_has_its_own_coins() -> None:
    """Whoever has seen the secret of one offer knows nothing of the next: of other terms, another
    ledger, or the same ones offered again under a fresh nonce."""
    other = conditions(Ledger("sqlite://", identity="cd" * 32))
    again = conditions(Ledger("sqlite://", identity="ab" * 32), seed=1)
    found = [
        make_offers(SERVER, all_, {"alice": Proposal(Tariff.flat(price, LEVEL_ONE), 1)})["alice"]
        .open(Offer, SERVER.public)
        .coin_hash
        for all_, price in ((CONDITIONS, 1), (CONDITIONS, 2), (other, 1), (again, 1))
    ]
    assert len(set(found)) == 4
    same = make_offers(SERVER, CONDITIONS, {"alice": Proposal(Tariff.flat(1, LEVEL_ONE), 1)})[
        "alice"
    ]
    assert same.open(Offer, SERVER.public).coin_hash == found[0]
