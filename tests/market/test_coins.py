"""Coins: all sides compute the same, nobody can choose them, and they are evenly spaced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import InputError
from fedprice.market.coins import (
    Coins,
    coin_key,
    coin_mix,
    coin_phase,
    is_opening,
    own_secret,
    roster_hash,
    secret_hash,
)
from fedprice.market.money import LEVEL_ONE, level_units
from fedprice.rounds.coins import SpacedCoins
from fedprice.verify import most_heads

ROSTER = roster_hash({"alice": ("ab" * 32, "ba" * 32), "bob": ("cd" * 32, "dc" * 32)})
SERVER, ALICE, BOB = (bytes([n]) * 32 for n in (1, 2, 3))


def key(
    server: bytes = SERVER,
    own: bytes = ALICE,
    others: bytes = BOB,
    roster: str = ROSTER,
    beacon: str = "",
) -> bytes:
    return coin_key(server, own, coin_mix(roster, {"alice": own, "bob": others}, beacon))


def heads(phase: int, rounds: int, level: int) -> np.ndarray:
    coins = Coins(phase, level)
    return np.array([coins.heads(r) for r in range(rounds)])


def test_every_part_matters() -> None:
    """Of whoever wants to choose a coin, one honest other party is enough to spoil it."""
    usual = coin_phase(key(), LEVEL_ONE // 2)
    assert usual == coin_phase(key(), LEVEL_ONE // 3) == int.from_bytes(key()[:4])
    for other in (
        key(server=BOB),
        key(own=BOB),
        key(others=SERVER),
        key(roster=roster_hash({"alice": ("ab" * 32, "ba" * 32)})),
        key(beacon="a public value"),
    ):
        assert coin_phase(other, LEVEL_ONE // 2) != usual


@given(st.integers(0, LEVEL_ONE - 1), st.integers(0, LEVEL_ONE), st.integers(1, 300))
def test_heads_in_every_window_are_those_of_the_level(phase: int, level: int, window: int) -> None:
    shown = np.concatenate([[0], np.cumsum(heads(phase, window + 40, level))])
    counts = set((shown[window:] - shown[:-window]).tolist())
    assert counts <= {level * window // LEVEL_ONE, most_heads(level, window)}


@given(
    st.integers(0, LEVEL_ONE - 1),
    st.lists(st.tuples(st.integers(1, LEVEL_ONE), st.integers(0, 9)), min_size=2, max_size=9),
)
def test_levels_that_change_accumulate(phase: int, periods: list[tuple[int, int]]) -> None:
    """Heads in any number of whole periods are ⌊Σ q⌋ or ⌈Σ q⌉, as if it were one level."""
    total = shown = 0
    position: int | None = None
    for level, rounds in periods:
        coins = Coins(phase if position is None else coin_phase(b"", level, position), level)
        shown += sum(coins.heads(r) for r in range(rounds))
        total += level * rounds
        position = coins.position(rounds)
        assert shown in (total // LEVEL_ONE, -(-total // LEVEL_ONE))


def test_every_round_is_as_likely() -> None:
    """20,000 phases, five standard errors; the same as the simulation draws."""
    level = level_units(0.3)
    phases = np.random.default_rng(1).integers(0, LEVEL_ONE, 20_000)
    spaced = SpacedCoins(np.full(20_000, level), phases, step=level)
    for round_ in (0, 1, 17):
        shown = spaced.heads(round_)
        assert shown.size / 20_000 == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 20_000))
        ours = [n for n in range(200) if Coins(int(phases[n]), level).heads(round_)]
        assert ours == shown[shown < 200].tolist()
    assert heads(7, 1000, LEVEL_ONE).all()
    assert not heads(7, 1000, 0).any()


def test_everybody_is_bound_to_its_secret() -> None:
    secret = own_secret(bytes(32), "run-1")
    assert is_opening(secret, secret_hash(secret))
    for other in (own_secret(bytes(32), "run-2"), own_secret(bytes(31) + b"1", "run-1"), b"short"):
        assert not is_opening(other, secret_hash(secret))
    with pytest.raises(InputError, match="32 bytes; got 31"):
        own_secret(bytes(31), "run")
