"""What fields of a message are refused: keys that are nobody's, and numbers in other digits."""

import pytest

from fedprice.errors import InputError
from fedprice.market.messages import (
    ModelSchema,
    RefusedError,
    Signed,
    SigningKey,
    require_public_key,
    valid_signature,
)
from fedprice.market.offers import Offer
from fedprice.market.periods import require_period

PRIME = 2**255 - 19
D = -121665 * pow(121666, -1, PRIME) % PRIME
Point = tuple[int, int]


def add(p: Point, q: Point) -> Point:
    """The sum of two points of Ed25519's curve, -x² + y² = 1 + D x² y²."""
    (a, b), (c, d) = p, q
    product = D * a * b * c * d % PRIME
    x = (a * d + b * c) * pow(1 + product, -1, PRIME) % PRIME
    y = (b * d + a * c) * pow(1 - product, -1, PRIME) % PRIME
    return x, y


def root(square: int) -> int | None:
    found = pow(square, (PRIME + 3) // 8, PRIME)
    for candidate in (found, found * pow(2, (PRIME - 1) // 4, PRIME) % PRIME):
        if candidate * candidate % PRIME == square % PRIME:
            return candidate
    return None


def torsion() -> set[Point]:
    """The eight points whose order divides eight: what the large factor of the order leaves."""
    order = 2**252 + 27742317777372353535851937790883648493
    found: set[Point] = set()
    for y in range(2, 200):
        x = root((y * y - 1) * pow(D * y * y + 1, -1, PRIME))
        if x is None:
            continue
        point, total, left = (x, y), (0, 1), order
        while left:
            total = add(total, point) if left & 1 else total
            point, left = add(point, point), left >> 1
        found.add(total)
    return found


def test_low_order_keys_are_refused_in_all_encodings() -> None:
    points = torsion()
    assert len(points) == 8
    encodings = {
        (y + more | sign << 255).to_bytes(32, "little")
        for _, y in points
        for more in (0, PRIME)
        for sign in (0, 1)
        if y + more < 2**255
    }
    assert len(encodings) == 14
    for key in encodings:
        with pytest.raises(InputError, match="point of small order"):
            require_public_key("key", key)
        signed = Signed(b"{}", bytes([1, *bytes(63)]), key)
        with pytest.raises(RefusedError, match="signature is not valid"):
            signed.open(ModelSchema, key)


@pytest.mark.parametrize("key", ["ab" * 16, bytes(31), bytes(33), None])
def test_what_is_no_key_is_refused(key: object) -> None:
    with pytest.raises(InputError, match="public key of 32 bytes"):
        require_public_key("key", key)


def test_real_keys_are_taken() -> None:
    for n in range(200):
        require_public_key("key", SigningKey(bytes([n]) * 32).public)


def offer(impact: object) -> Offer:
    return Offer("0" * 64, "alice", ((1 << 32, 1),), False, 1, "", impact, "0" * 64)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["١٢", "1_000", " 5", "5 ", "+5", "-0", "nan", "1e999", "", 5, "２"]
)
def test_numbers_in_other_digits_are_refused(text: object) -> None:
    with pytest.raises(InputError, match="must be a decimal number"):
        offer(text)


@pytest.mark.parametrize("text", ["0", "12", "0.5", "1e-05", "1.5e+20", repr(1 / 3)])
def test_decimal_numbers_are_taken(text: str) -> None:
    assert offer(text).impact == text


@pytest.mark.parametrize("name", ["demo#2", "demo#02", "demo#٢", "demo#２", "demo#1٢", "demo#²"])
def test_a_run_is_not_called_like_a_period_in_other_digits(name: str) -> None:
    with pytest.raises(InputError, match="must not end with # and a number"):
        require_period(name, "")
    with pytest.raises(InputError, match="must be called 'other#2'"):
        require_period(name, "other")


def test_only_what_was_signed_is_known_to_be_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process trusts its own signatures, and nothing that looks like them."""
    monkeypatch.setattr("fedprice.market.messages.MOST_VALID", 2)
    known: dict[tuple[str, str, str], None] = {}
    monkeypatch.setattr("fedprice.market.messages._valid", known)
    key, other = SigningKey(bytes([1]) * 32), SigningKey(bytes([2]) * 32)
    signature = key.sign_text("ten").hex()
    assert valid_signature(key.public.hex(), signature, "ten")
    assert not valid_signature(key.public.hex(), signature, "tem")
    assert not valid_signature(other.public.hex(), signature, "ten")
    assert not valid_signature(key.public.hex(), other.sign_text("ten").hex(), "ten")
    for text in ("a", "b", "c"):
        key.sign_text(text)
    assert [text for _, _, text in known] == ["b", "c"]
    assert valid_signature(key.public.hex(), signature, "ten")  # forgotten, and checked again
