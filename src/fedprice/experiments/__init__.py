"""The paper's experiments."""

from fedprice.experiments.setups import SETUPS, Setup, setup_of

__all__ = ["SETUPS", "Setup", "setup_of"]
