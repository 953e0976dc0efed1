"""Schemes that price a game: one per file, each a function Game → Outcome.

A function with the name of its module is imported from that module, because here it would hide it:
`from fedprice.pricing.equilibrium import equilibrium`.
"""

from fedprice.pricing import (  # registers their schemes
    at_cost,
    equilibrium,
    full,
    subset,
    uniform,
    weighted,
)
from fedprice.pricing.along import scale_to_budget
from fedprice.pricing.outcome import Certificate, Outcome, Status
from fedprice.pricing.published import uniform_published, weighted_published
from fedprice.pricing.schemes import SCHEMES, Scheme, find_scheme, find_schemes, scheme, solve

__all__ = [
    "SCHEMES",
    "Certificate",
    "Outcome",
    "Scheme",
    "Status",
    "at_cost",
    "equilibrium",
    "find_scheme",
    "find_schemes",
    "full",
    "scale_to_budget",
    "scheme",
    "solve",
    "subset",
    "uniform",
    "uniform_published",
    "weighted",
    "weighted_published",
]
