"""Offers and commitments: binding, and refused with a reason when anything is off."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import InputError
from fedprice.market.canonical import canonical_bytes, parsed
from fedprice.market.coins import secret_hash
from fedprice.market.messages import ModelSchema, RefusedError, Signed, SigningKey
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import Commitment, Commitments, Offer, Terms, make_offers

SERVER, ALICE, BOB = (SigningKey(bytes([n]) * 32) for n in (1, 2, 3))
SCHEMA = ModelSchema.of([np.zeros((10, 61), np.float32)])
OFFER = Offer(
    run="run-1", client="alice", follows="", price=-3_000_000, level_cap=LEVEL_ONE // 2,
    rounds=100, run_rounds=100, deadline=0, unit="CREDIT", schema=SCHEMA.content(),
    task="0" * 64, impact="0.5",
    coin_hash=secret_hash(bytes(32)),
)  # fmt: skip
OFFERS = {
    "alice": SERVER.sign(OFFER),
    "bob": SERVER.sign(replace(OFFER, client="bob", price=5)),
}
KEYS = {"alice": ALICE.public, "bob": BOB.public}


def desk() -> Commitments:
    return Commitments(OFFERS, KEYS, SERVER.public)


def answer(offer: str = "alice", level: int = 7) -> Commitment:
    return Commitment(OFFERS[offer].hash, level, "ab" * 32, 100, "1.5")


def test_a_commitment_binds() -> None:
    book = desk()
    assert book.accept("alice", ALICE.sign(answer()), round_=0).level == 7
    assert book.accept("bob", BOB.sign(answer("bob", LEVEL_ONE // 2)), round_=0)
    assert set(book.accepted) == {"alice", "bob"}


@pytest.mark.parametrize(
    ("client", "signed", "round_", "reason"),
    [
        ("carol", ALICE.sign(answer()), 0, "has no registered key"),
        ("alice", BOB.sign(answer()), 0, "another key than the one registered"),
        ("alice", ALICE.sign(answer("bob")), 0, "answers the offer to another client"),
        ("alice", ALICE.sign(answer(level=LEVEL_ONE)), 0, "above the cap"),
        (
            "alice",
            ALICE.sign(answer()),
            1,
            "late: round 2 begins, the deadline was the start of round 1",
        ),
        ("alice", ALICE.sign(OFFER), 0, "is no commitment"),
        (
            "alice",
            ALICE.sign(Commitment("0" * 64, 1, "0" * 64, 1, "1")),
            0,
            "answers no offer of this run",
        ),
    ],
)
def test_refused_with_a_reason(client: str, signed: Signed, round_: int, reason: str) -> None:
    book = desk()
    with pytest.raises(RefusedError, match=reason):
        book.accept(client, signed, round_=round_)
    assert book.accepted == {}


def test_no_second_commitment() -> None:
    book = desk()
    book.accept("alice", ALICE.sign(answer()), round_=0)
    for again in (answer(), answer(level=8)):
        with pytest.raises(RefusedError, match="has committed before"):
            book.accept("alice", ALICE.sign(again), round_=0)
    assert book.accepted["alice"].level == 7


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_altered_byte_is_accepted(spot: int, change: int) -> None:
    signed = ALICE.sign(answer())
    whole = bytearray(signed.content + signed.signature)
    whole[spot % len(whole)] ^= change
    cut = len(signed.content)
    altered = Signed(bytes(whole[:cut]), bytes(whole[cut:]), signed.key)
    with pytest.raises(RefusedError):
        desk().accept("alice", altered, round_=0)


@given(
    st.binary(max_size=300), st.binary(max_size=80), st.sampled_from([ALICE.public, b"", bytes(32)])
)
def test_noise_is_refused(content: bytes, signature: bytes, key: bytes) -> None:
    with pytest.raises(RefusedError):
        desk().accept("alice", Signed(content, signature, key), round_=0)


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
        desk().accept("alice", Signed(content, signature, ALICE.public), round_=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": "a\nb"}, "`client` must be 1 to 200 printable"),
        ({"client": "a\u202eb"}, "`client` must be 1 to 200 printable"),
        ({"client": "\ud800"}, "`client` must be 1 to 200 printable"),
        ({"client": ""}, "`client` must be 1 to 200 printable"),
        ({"run": "r" * 201}, "`run` must be 1 to 200 printable"),
        ({"unit": "=EUR"}, "`unit` must be 1 to 12 capital letters"),
        ({"price": 1.5}, "`price` must be a whole number"),
        ({"level_cap": LEVEL_ONE + 1}, "`level_cap` must be a whole number"),
        ({"deadline": 101}, "`deadline` must be a whole number from 0 to 100"),
        ({"task": "xyz"}, "`task` must be 64 hexadecimal"),
        ({"schema": "xyz"}, "`schema` is no schema"),
        ({"schema": SCHEMA.content() | {"hash": "0" * 64}}, "`schema` is no schema"),
        ({"schema": SCHEMA.content() | {"shapes": [[10.0, 61]]}}, "`schema` is no schema"),
        ({"client": " alice"}, "without spaces around"),
        ({"client": "e\u0301"}, "`client` must be 1 to 200 printable"),
        ({"price": True}, "`price` must be a whole number"),
    ],
)
def test_bad_offers(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(OFFER, **change)  # type: ignore[arg-type]


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


def test_other_terms_have_other_coins() -> None:
    """Whoever has seen the secret of one offer knows nothing of the next."""
    make = partial(
        make_offers,
        SERVER,
        "run",
        rounds=5,
        unit="EUR",
        schema=SCHEMA,
        task="0" * 64,
        impacts={"alice": 0.5},
    )
    first, second, again = (
        make({"alice": Terms(price, LEVEL_ONE)})["alice"].open(Offer, SERVER.public)
        for price in (1, 2, 1)
    )
    assert first == again
    assert first.coin_hash != second.coin_hash
