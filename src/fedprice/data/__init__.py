"""Data sets split over clients: one per file, each returning a `Federation`.

A data set is imported from the module of its name: `from fedprice.data.synthetic import synthetic`.
"""

from fedprice.data.federation import Federation
from fedprice.data.files import read_federation
from fedprice.data.sources import UnavailableError

__all__ = ["Federation", "UnavailableError", "read_federation"]
