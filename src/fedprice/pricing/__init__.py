"""Schemes that price a game: one a file, each a function Game → Outcome."""

from fedprice.pricing.equilibrium import equilibrium
from fedprice.pricing.frontier import frontier
from fedprice.pricing.outcome import Certificate, Outcome, Status
from fedprice.pricing.published import uniform_published, weighted_published
from fedprice.pricing.reference import convex, msearch, random_starts
from fedprice.pricing.schemes import SCHEMES, scheme, solve
from fedprice.pricing.subset import subset
from fedprice.pricing.uniform import uniform
from fedprice.pricing.weighted import weighted

__all__ = [
    "SCHEMES",
    "Certificate",
    "Outcome",
    "Status",
    "convex",
    "equilibrium",
    "frontier",
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
