"""The market over Flower: a server's strategy, a clients' mod, a grid without a network."""

from fedprice.errors import require

require("flwr.app", "flower")

from fedprice.flower.client import Client, ParticipationMod
from fedprice.flower.exchange import Limits
from fedprice.flower.grid import InProcessGrid
from fedprice.flower.identity import client_here
from fedprice.flower.posted_tariffs import PostedTariffs
from fedprice.flower.pricing import FullInformation, PostedPrice
from fedprice.flower.strategy import PricedParticipation
from fedprice.market.keys import read_key, read_public_key, read_public_keys, write_keys
from fedprice.market.periods import Periods

__all__ = [
    "Client",
    "FullInformation",
    "InProcessGrid",
    "Limits",
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
