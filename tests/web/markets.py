"""Files that a client of a small market has: its ledger, an export of it, and what it kept."""

import datetime
from pathlib import Path
from typing import Any

from fedprice.market.canonical import canonical_bytes
from fedprice.market.export import export
from fedprice.market.ledger import Ledger
from fedprice.market.messages import Signed
from fedprice.market.offers import Conditions, Offer, Proposal, make_offers
from fedprice.market.simulation import simulation_key
from fedprice.market.tariffs import Tariff
from trials.markets import conditions

SERVER, ALICE = simulation_key("server"), simulation_key("client alice")


def offer_of(
    tariff: Tariff, *, floor: int = 1, impact: float = 0.0, **changes: Any
) -> tuple[Offer, Conditions, bytes]:
    """An offer to alice, its conditions, and the file in which she keeps both."""
    all_ = conditions(Ledger("sqlite://", identity="ab" * 32, unit="EUR"), "first", **changes)
    signed = make_offers(SERVER, all_, {"alice": Proposal(tariff, floor, impact)})["alice"]
    kept = Signed(all_.text.encode(), ALICE.sign_text(all_.text), ALICE.public)
    return signed.open(Offer, SERVER.public), all_, b"".join(map(_line, (kept, signed)))


def _line(signed: Signed) -> bytes:
    parts = {"content": signed.content.decode(), "signature": signed.signature.hex()}
    return canonical_bytes(parts | {"key": signed.key.hex()}) + b"\n"


def exported(ledger: Ledger, path: Path) -> bytes:
    """What `fedprice ledger export` writes."""
    export(ledger, path, date=datetime.date(2026, 1, 2))
    return path.read_bytes()
