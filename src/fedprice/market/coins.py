"""Coins that neither side can bend: Blum's coin flipping, once a run, then a keyed stream.

The server commits to a secret for each client (its hash is in the offer), the client answers with
its own secret (in the commitment), the server reveals. From both secrets follows a key, and from
the key every coin of the run. Both sides, and any auditor, compute the same coins; neither could
have chosen them.
"""

from __future__ import annotations

import hashlib
import hmac

from fedprice.errors import InputError

__all__ = ["Coins", "coin_key", "is_opening", "own_secret", "secret_hash"]

SECRET_BYTES = 32
_INNER = bytes(b ^ 0x36 for b in range(256))
_OUTER = bytes(b ^ 0x5C for b in range(256))


def own_secret(private: bytes, subject: str) -> bytes:
    """Return a party's secret for a subject: known to the holder of this private key alone.

    It need not be stored: after a crash the same key gives the same secret again.
    """
    return hmac.digest(_checked(private), b"fedprice secret\0" + subject.encode(), "sha256")


def secret_hash(secret: bytes) -> str:
    """Return what the server publishes of its secret before it sees the client's."""
    return hashlib.sha256(b"fedprice coin secret\0" + _checked(secret)).hexdigest()


def is_opening(secret: bytes, published: str) -> bool:
    """Return whether a revealed secret is the one that was committed to."""
    return hmac.compare_digest(secret_hash(secret), published)


def coin_key(server_secret: bytes, client_secret: bytes) -> bytes:
    """Return the key of a client's coins, from both secrets."""
    return hmac.digest(
        _checked(server_secret), b"fedprice coins\0" + _checked(client_secret), "sha256"
    )


class Coins:
    """A client's coins in a run: HMAC-SHA256(key, run ‖ round) below level · 2⁶⁴.

    Parameters
    ----------
    key, run
        From `coin_key`; the run's name.
    level
        The committed level in multiples of 2⁻³²; a coin shows heads with exactly this probability.

    Examples
    --------
    >>> coins = Coins(bytes(32), "run-1", level=1 << 30)
    >>> [hex(coins.draw(r))[:8] for r in range(2)], [coins.heads(r) for r in range(2)]
    (['0x3805bf', '0x72469c'], [True, False])
    """

    def __init__(self, key: bytes, run: str, level: int) -> None:
        self._below = level << 32
        # HMAC with its two keyed states computed once: four times as fast as a call each.
        block = key.ljust(64, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER) + run.encode() + b"\0")
        self._outer = hashlib.sha256(block.translate(_OUTER))

    def draw(self, round_: int) -> int:
        """Return the 64-bit number of a round, counted from 0."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(round_.to_bytes(8))
        outer.update(inner.digest())
        return int.from_bytes(outer.digest()[:8])

    def heads(self, round_: int) -> bool:
        """Return whether the client joins in a round."""
        return self.draw(round_) < self._below


def _checked(secret: bytes) -> bytes:
    if len(secret) != SECRET_BYTES:
        raise InputError(f"a coin secret has {SECRET_BYTES} bytes; got {len(secret)}.")
    return secret
