"""MNIST over clients: the paper's Setup 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.data.images import split_images
from fedprice.data.sources import load_images

if TYPE_CHECKING:
    from pathlib import Path

    from fedprice.data.federation import Federation

__all__ = ["mnist"]


def mnist(
    *,
    num_clients: int = 40,
    samples: int = 14_463,
    most_classes: int = 6,
    seed: int = 2,
    data: str | Path | None = None,
) -> Federation:
    """Split MNIST: 14,463 samples over 40 clients, power-law sizes, 1–6 digits each.

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
        "MNIST",
        load_images("mnist", data),
        num_classes=10,
        num_clients=num_clients,
        samples=samples,
        most_classes=most_classes,
        seed=seed,
    )
