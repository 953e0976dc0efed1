"""Other proposals as schemes: one rule per file, with its reference and the differences from it.

docs/rivals.md compares them.
"""

from fedprice.contrib.rivals import (  # registers their schemes
    contracts,
    multidimensional_auction,
    proportional_share,
    reputation_auction,
    sampling,
    shapley,
)

__all__ = [
    "RIVALS",
    "contracts",
    "multidimensional_auction",
    "proportional_share",
    "reputation_auction",
    "sampling",
    "shapley",
]

RIVALS = (
    "proportional-share",
    "reputation-auction",
    "multidimensional-auction",
    "shapley-payments",
    "shapley-prices",
    "optimal-sampling",
    "uniform-sampling",
    "sampling-by-samples",
    "contracts",
)
