"""Coins that nobody can bias, evenly spaced: all parties commit first, then reveal.

The server commits to a secret for each client (its hash is in the offer), and every client to its
own secret (its hash is in the commitment). When all commitments are recorded, the clients reveal,
and the server opens the run. The key of a client's coins mixes both secrets with the hash of all
commitments, all other clients' secrets, and a public value if one was named: to choose a
coin, a party would need the help of all others.

How keys and coins follow from the secrets is defined once, in `fedprice.verify`.
"""

from __future__ import annotations

import hmac

from fedprice.errors import InputError
from fedprice.verify import Coins, coin_key, coin_mix, coin_phase, roster_hash, secret_hash

__all__ = [
    "Coins",
    "coin_key",
    "coin_mix",
    "coin_phase",
    "is_opening",
    "own_secret",
    "roster_hash",
    "secret_hash",
]

SECRET_BYTES = 32


def own_secret(private: bytes, subject: str) -> bytes:
    """Return a party's secret for a subject, known only to the holder of this private key.

    It need not be stored: after a crash the same key gives the same secret again.
    """
    if len(private) != SECRET_BYTES:
        raise InputError(f"a private key has {SECRET_BYTES} bytes; got {len(private)}.")
    return hmac.digest(private, b"fedprice secret\0" + subject.encode(), "sha256")


def is_opening(secret: bytes, published: str) -> bool:
    """Return whether a revealed secret is the one that was committed to."""
    return len(secret) == SECRET_BYTES and hmac.compare_digest(secret_hash(secret), published)
