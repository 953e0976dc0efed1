"""Coins: how heads follow from secrets that all parties committed to before any was revealed."""

from __future__ import annotations

import hashlib

from .forms import LEVEL_ONE, canonical, digest

__all__ = [
    "COINS",
    "REDRAWN",
    "SPACED",
    "Coins",
    "coin_key",
    "coin_mix",
    "coin_phase",
    "most_heads",
    "roster_hash",
    "secret_hash",
]

# How a period's coins follow from its secrets. They are evenly spaced; "spaced" ones go on from
# where the period before left them, "redrawn" ones begin anew, so that a client that chooses its
# level does not know where its coin is.
SPACED, REDRAWN = COINS = "spaced", "redrawn"


class Coins:
    """A client's coins in a run: heads are evenly spaced, so that it knows how many to expect.

    Of round r, the coin shows heads if (phase + r · level) mod 2³² is below the level. For a phase
    that is uniform, each shows heads with a probability of exactly q; any L rounds in a row have
    ⌊L q⌋ or ⌈L q⌉ heads. A level that changes from one period to the next goes on from where the
    coin is (`position`), so that ⌊Σ q⌋ or ⌈Σ q⌉ holds across periods.

    Parameters
    ----------
    phase
        From `coin_phase`, in multiples of 2⁻³².
    level
        In multiples of 2⁻³².

    Examples
    --------
    >>> coins = Coins(phase=1 << 30, level=LEVEL_ONE // 3)
    >>> [coins.heads(r) for r in range(7)]
    [True, False, False, True, False, False, True]
    """

    def __init__(self, phase: int, level: int) -> None:
        self.phase, self.level = phase, level

    def heads(self, round_: int) -> bool:
        """Return whether the client joins in a round, counted from 0."""
        return (self.phase + round_ * self.level) % LEVEL_ONE < self.level

    def position(self, done: int) -> int:
        """Return where the coin is after some rounds, in multiples of 2⁻³²."""
        return (self.phase + (done - 1) * self.level) % LEVEL_ONE


def coin_phase(key: bytes, level: int, position: int | None = None) -> int:
    """Return the phase of a client's coins in a run.

    Parameters
    ----------
    key
        From `coin_key`.
    level
        In multiples of 2⁻³².
    position
        Where the previous period left the coin; None if the client was not in it, so that the
        first 32 bits of the key are the phase.

    Examples
    --------
    >>> coin_phase(bytes([128] + 31 * [0]), level=7) == LEVEL_ONE // 2
    True
    """
    if position is None:
        return int.from_bytes(key[:4], "big")
    return (position + level) % LEVEL_ONE


def most_heads(level: int, rounds: int) -> int:
    """Return ⌈q · rounds⌉: the most heads that evenly spaced coins show.

    >>> most_heads(LEVEL_ONE // 2, 5)
    3
    """
    return -(-level * rounds // LEVEL_ONE)


def secret_hash(secret: bytes) -> str:
    """Return what is published of a secret before it is revealed."""
    return hashlib.sha256(b"fedprice coin secret\0" + secret).hexdigest()


def roster_hash(commitments: dict[str, tuple[str, str]]) -> str:
    """Return the hash of all commitments to a set of offers.

    Parameters
    ----------
    commitments
        By client, the hash of its commitment and that of the secret it committed to: who knows the
        secrets can tell that they are the ones that the hash was made of.
    """
    return digest(canonical(commitments))


def coin_mix(roster: str, secrets: dict[str, bytes], beacon: str) -> bytes:
    """Return what all clients, by their names, and a public value add to every coin of a run."""
    mixed = hashlib.sha256(b"fedprice coin mix\0" + bytes.fromhex(roster))
    for client in sorted(secrets):  # in whatever order they were offered something
        mixed.update(secrets[client])
    mixed.update(b"\0" + beacon.encode())
    return mixed.digest()


def coin_key(server_secret: bytes, client_secret: bytes, mixed: bytes) -> bytes:
    """Return the key of a client's coins."""
    return hashlib.blake2b(
        b"fedprice coins\0" + client_secret + mixed, key=server_secret, digest_size=32
    ).digest()
