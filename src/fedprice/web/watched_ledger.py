"""The ledger that is served: followed once for all browsers, and verified in the background."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress

from nicegui import app

from fedprice.errors import FedpriceError
from fedprice.market.following import Following
from fedprice.market.verification import Checked, Verification

__all__ = ["Watched", "read_ahead", "watched"]


AFTER = 2.0  # seconds, so that the first page is drawn before the verification begins


class Watched:
    """A ledger with what has been read from it, and how far it has been verified.

    Parameters
    ----------
    url
        Where it is, or will be.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.following = Following(url)
        self._verification: Verification | None = None
        self._lock, self._begin = threading.Lock(), time.monotonic() + AFTER

    def checked(self, run: str = "") -> Checked:
        """Return how far the ledger is verified, and what that says about a run's clients."""
        with self._lock:
            if self._verification is None:
                if time.monotonic() < self._begin:
                    return Checked()
                self._verification = Verification(self.url)
        return self._verification.checked(run)

    def rest(self) -> None:
        """Let the verification pause while a page is being opened."""
        with self._lock:
            if self._verification is not None:
                self._verification.rest()

    def close(self) -> None:
        """End the verification, and close the database."""
        with self._lock:
            self._begin = math.inf
            if self._verification is not None:
                self._verification.close()
        self.following.close()


_LOCK = threading.Lock()
_WATCHED: dict[str, Watched] = {}  # for all browsers: each would read and verify the same again


def watched(url: str) -> Watched:
    """Return the ledger at a URL; it is closed when the server shuts down."""
    with _LOCK:
        if url not in _WATCHED:
            _WATCHED[url] = Watched(url)
            app.on_shutdown(_WATCHED[url].close)
        return _WATCHED[url]


def read_ahead(url: str) -> None:
    """Read the newest run before anybody opens its page; what is wrong with it, the page says."""
    with suppress(FedpriceError):
        following = watched(url).following
        for newest in following.runs()[-1:]:
            following.run(newest.name)
