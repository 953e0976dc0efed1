"""Mechanisms and methods of others: importable, found by name, in no default list.

Importing the package registers their schemes; `find_scheme` imports it for unknown names.
"""

from fedprice.contrib import reference  # registers the reference methods
from fedprice.contrib.rivals import RIVALS

__all__ = ["RIVALS", "reference"]
