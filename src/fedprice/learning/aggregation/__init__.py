"""Aggregators: how the updates of those who joined become one step of the model."""

from fedprice.learning.aggregation.base import Aggregator, State
from fedprice.learning.aggregation.difference import Difference
from fedprice.learning.aggregation.fedavg import FedAvg
from fedprice.learning.aggregation.horvitz_thompson import HorvitzThompson

__all__ = ["Aggregator", "Difference", "FedAvg", "HorvitzThompson", "State"]
