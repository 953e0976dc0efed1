"""EMNIST's lower-case letters over clients: the paper's Setup 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.data.images import split_images
from fedprice.data.sources import load_images

if TYPE_CHECKING:
    from pathlib import Path

    from fedprice.data.federation import Federation

__all__ = ["emnist"]


def emnist(
    *,
    num_clients: int = 40,
    samples: int = 35_155,
    most_classes: int = 10,
    seed: int = 2,
    data: str | Path | None = None,
) -> Federation:
    """Split EMNIST: 35,155 lower-case letters over 40 clients, power-law sizes, 1–10 letters each.

    Parameters
    ----------
    num_clients, samples, most_classes
        How to split the samples.
    seed
        The same seed gives the same bits. With seed 2 the largest client has a ninth of the data.
    data
        See `load_images`.
    """
    return split_images(
        "EMNIST lower case",
        load_images("emnist", data),
        num_classes=26,
        num_clients=num_clients,
        samples=samples,
        most_classes=most_classes,
        seed=seed,
    )
