"""The market over Flower: a server's strategy, a clients' mod, a grid without a network."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedprice.errors import require

require("flwr.app", "flower")

if TYPE_CHECKING:
    from fedprice.flower.client import Client, ParticipationMod
    from fedprice.flower.exchange import Limits
    from fedprice.flower.grid import InProcessGrid
    from fedprice.flower.identity import client_here
    from fedprice.flower.participation import Participation
    from fedprice.flower.posted_tariffs import PostedTariffs
    from fedprice.flower.pricing import FullInformation, PostedPrice
    from fedprice.flower.strategy import PricedParticipation
    from fedprice.market.keys import read_key, read_public_key, read_public_keys, write_keys
    from fedprice.market.periods import Periods

# Imported when first used: `Participation` needs no ledger.
_LATER = {
    "Client": "fedprice.flower.client",
    "FullInformation": "fedprice.flower.pricing",
    "InProcessGrid": "fedprice.flower.grid",
    "Limits": "fedprice.flower.exchange",
    "Participation": "fedprice.flower.participation",
    "ParticipationMod": "fedprice.flower.client",
    "Periods": "fedprice.market.periods",
    "PostedPrice": "fedprice.flower.pricing",
    "PostedTariffs": "fedprice.flower.posted_tariffs",
    "PricedParticipation": "fedprice.flower.strategy",
    "client_here": "fedprice.flower.identity",
    "read_key": "fedprice.market.keys",
    "read_public_key": "fedprice.market.keys",
    "read_public_keys": "fedprice.market.keys",
    "write_keys": "fedprice.market.keys",
}

__all__ = [
    "Client",
    "FullInformation",
    "InProcessGrid",
    "Limits",
    "Participation",
    "ParticipationMod",
    "Periods",
    "PostedPrice",
    "PostedTariffs",
    "PricedParticipation",
    "client_here",
    "read_key",
    "read_public_key",
    "read_public_keys",
    "write_keys",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
