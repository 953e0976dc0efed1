"""The command `fedprice`."""

from fedprice.cli.app import main

__all__ = ["main"]
