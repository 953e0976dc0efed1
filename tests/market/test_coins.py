"""Coins: both sides compute the same, neither can choose them, and they are fair."""

import hmac

import numpy as np
import pytest

from fedprice import InputError
from fedprice.market.coins import Coins, coin_key, is_opening, own_secret, secret_hash
from fedprice.market.money import LEVEL_ONE, level_units


def draws(key: bytes, run: str, rounds: range) -> list[int]:
    coins = Coins(key, run, 0)
    return [coins.draw(r) for r in rounds]


def heads(key: bytes, run: str, rounds: range, level: int) -> list[bool]:
    coins = Coins(key, run, level)
    return [coins.heads(r) for r in rounds]


def test_a_stream_is_hmac() -> None:
    key = coin_key(bytes(range(32)), bytes(32))
    for round_, number in zip(range(5), draws(key, "run", range(5)), strict=True):
        whole = hmac.digest(key, b"run\0" + round_.to_bytes(8), "sha256")
        assert number == int.from_bytes(whole[:8])


def test_every_part_matters() -> None:
    server, client = bytes(range(32)), bytes(range(32, 64))
    usual = draws(coin_key(server, client), "run", range(4))
    assert usual == draws(coin_key(server, client), "run", range(4))
    for other in (
        draws(coin_key(client, server), "run", range(4)),
        draws(coin_key(bytes(32), client), "run", range(4)),
        draws(coin_key(server, bytes(32)), "run", range(4)),
        draws(coin_key(server, client), "run2", range(4)),
        draws(coin_key(server, client), "run", range(1, 5)),
    ):
        assert not set(other[:1]) & set(usual[:1])


def test_coins_are_fair_and_independent() -> None:
    """100,000 coins: five standard errors, for the share of heads and for pairs that agree."""
    for level in (0.03, 0.5, 0.9):
        shown = np.array(
            heads(coin_key(bytes(32), bytes(32)), "run", range(100_000), level_units(level))
        )
        assert shown.mean() == pytest.approx(level, abs=5 * np.sqrt(level * (1 - level) / 1e5))
        both = (shown[1:] & shown[:-1]).mean()
        assert both == pytest.approx(level**2, abs=5 * level / np.sqrt(1e5))
    assert all(heads(bytes(32), "run", range(1000), LEVEL_ONE))
    assert not any(heads(bytes(32), "run", range(1000), 0))


def test_a_higher_level_only_adds_heads() -> None:
    low, high = (heads(bytes(32), "run", range(2000), level_units(q)) for q in (0.2, 0.3))
    assert all(b or not a for a, b in zip(low, high, strict=True))


def test_the_server_is_bound_to_its_secret() -> None:
    secret = own_secret(bytes(32), "run-1")
    assert is_opening(secret, secret_hash(secret))
    for other in (own_secret(bytes(32), "run-2"), own_secret(bytes(31) + b"1", "run-1")):
        assert not is_opening(other, secret_hash(secret))
    with pytest.raises(InputError, match="32 bytes; got 31"):
        coin_key(bytes(31), bytes(32))
