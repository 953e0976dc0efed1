"""Data sets split over clients: one a file, each returning a `Federation`."""

from fedprice.data.emnist import emnist
from fedprice.data.federation import Federation
from fedprice.data.files import read_federation
from fedprice.data.mnist import mnist
from fedprice.data.sources import UnavailableError
from fedprice.data.synthetic import synthetic

__all__ = ["Federation", "UnavailableError", "emnist", "mnist", "read_federation", "synthetic"]
