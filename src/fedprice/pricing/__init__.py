"""Schemes that price a game: one per file, each a function Game → Outcome.

A function with the name of its module is imported from that module, because here it would hide it:
`from fedprice.pricing.equilibrium import equilibrium`.
"""

from fedprice.pricing import equilibrium, subset, uniform, weighted  # registers their schemes
from fedprice.pricing.outcome import Certificate, Outcome, Status
from fedprice.pricing.published import uniform_published, weighted_published
from fedprice.pricing.reference import convex, msearch, random_starts
from fedprice.pricing.rivals import RIVALS
from fedprice.pricing.schemes import SCHEMES, Scheme, find_scheme, find_schemes, scheme, solve

__all__ = [
    "RIVALS",
    "SCHEMES",
    "Certificate",
    "Outcome",
    "Scheme",
    "Status",
    "convex",
    "equilibrium",
    "find_scheme",
    "find_schemes",
    "msearch",
    "random_starts",
    "scheme",
    "solve",
    "subset",
    "uniform",
    "uniform_published",
    "weighted",
    "weighted_published",
]
