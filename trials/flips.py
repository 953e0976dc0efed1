"""Flip bits of a ledger's file: what changes what is in it must be found."""

import contextlib
import sqlite3
from pathlib import Path

import numpy as np

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Ledger
from trials.markets import small_market
from trials.operations import random_operations


def dump(path: Path) -> list[str] | None:
    """All that a database holds, definitions included; None if it cannot be read."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            return list(connection.iterdump())
        except (sqlite3.DatabaseError, UnicodeDecodeError, ValueError, TypeError):
            return None


def verifies(path: Path) -> bool:
    try:
        ledger = Ledger(str(path), create=False)
    except FedpriceError:
        return False
    try:
        ledger.verify()
    except FedpriceError:
        return False
    finally:
        ledger.close()
    return True


def flips(folder: Path, count: int, seed: int = 0) -> dict[str, int]:
    """Flip one bit at a time, and count what was found and what was not."""
    source, copy = folder / "source.db", folder / "copy.db"
    ledger = Ledger(str(source))
    small_market(ledger)
    random_operations(ledger, 300)
    ledger.close()
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("VACUUM")  # little room is left where a bit means nothing
    whole, before = source.read_bytes(), dump(source)
    assert before is not None
    rng = np.random.default_rng(seed)
    found = {"flips": count, "detected": 0, "without effect": 0, "undetected": 0}
    for spot in rng.integers(0, 8 * len(whole), count):
        flipped = bytearray(whole)
        flipped[spot // 8] ^= 1 << (spot % 8)
        copy.write_bytes(flipped)
        if not verifies(copy):
            found["detected"] += 1
        elif dump(copy) == before:
            found["without effect"] += 1
        else:
            found["undetected"] += 1
        for part in folder.glob("copy.db*"):
            part.unlink(missing_ok=True)
    return found
