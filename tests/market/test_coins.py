"""Coins: all sides compute the same, nobody can choose them, and they are fair."""

import hashlib

import numpy as np
import pytest

from fedprice import InputError
from fedprice.market.coins import (
    Coins,
    coin_key,
    coin_mix,
    is_opening,
    own_secret,
    roster_hash,
    secret_hash,
)
from fedprice.market.money import LEVEL_ONE, level_units

ROSTER = roster_hash({"alice": "ab" * 32, "bob": "cd" * 32})
SERVER, ALICE, BOB = (bytes([n]) * 32 for n in (1, 2, 3))


def key(
    server: bytes = SERVER,
    own: bytes = ALICE,
    others: bytes = BOB,
    roster: str = ROSTER,
    beacon: str = "",
) -> bytes:
    return coin_key(server, own, coin_mix(roster, {"alice": own, "bob": others}, beacon))


def draws(key: bytes, rounds: range) -> list[int]:
    coins = Coins(key, 0)
    return [coins.draw(r) for r in rounds]


def heads(key: bytes, rounds: range, level: int) -> list[bool]:
    coins = Coins(key, level)
    return [coins.heads(r) for r in rounds]


def test_a_stream_is_blake2b() -> None:
    """Written out: the readable oracle of the stream."""
    for round_, number in enumerate(draws(key(), range(20))):
        whole = hashlib.blake2b((round_ // 8).to_bytes(8), key=key()).digest()
        assert number == int.from_bytes(whole[8 * (round_ % 8) :][:8])
    assert draws(key(), range(19, -1, -1)) == draws(key(), range(20))[::-1]  # in any order


def test_every_part_matters() -> None:
    """Of whoever wants to choose a coin, one honest other party is enough to spoil it."""
    usual = draws(key(), range(4))
    assert usual == draws(key(), range(4))
    for other in (
        draws(key(server=BOB), range(4)),
        draws(key(own=BOB), range(4)),
        draws(key(others=SERVER), range(4)),
        draws(key(roster=roster_hash({"alice": "ab" * 32})), range(4)),
        draws(key(beacon="a public value"), range(4)),
        draws(key(), range(1, 5)),
    ):
        assert other[0] != usual[0]


def test_coins_are_fair_and_independent() -> None:
    """100,000 coins: five standard errors, for the share of heads and for pairs that agree."""
    for level in (0.03, 0.5, 0.9):
        shown = np.array(heads(key(), range(100_000), level_units(level)))
        assert shown.mean() == pytest.approx(level, abs=5 * np.sqrt(level * (1 - level) / 1e5))
        both = (shown[1:] & shown[:-1]).mean()
        assert both == pytest.approx(level**2, abs=5 * level / np.sqrt(1e5))
    assert all(heads(bytes(32), range(1000), LEVEL_ONE))
    assert not any(heads(bytes(32), range(1000), 0))


def test_a_higher_level_only_adds_heads() -> None:
    low, high = (heads(bytes(32), range(2000), level_units(q)) for q in (0.2, 0.3))
    assert all(b or not a for a, b in zip(low, high, strict=True))


def test_everybody_is_bound_to_its_secret() -> None:
    secret = own_secret(bytes(32), "run-1")
    assert is_opening(secret, secret_hash(secret))
    for other in (own_secret(bytes(32), "run-2"), own_secret(bytes(31) + b"1", "run-1"), b"short"):
        assert not is_opening(other, secret_hash(secret))
    with pytest.raises(InputError, match="32 bytes; got 31"):
        own_secret(bytes(31), "run")
