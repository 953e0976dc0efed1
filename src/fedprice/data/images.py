"""What MNIST and EMNIST have in common: a subsample, few classes per client, power-law sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.data.federation import Federation
from fedprice.data.partition import few_classes, power_law_sizes

if TYPE_CHECKING:
    from fedprice.data.sources import Images

__all__ = ["split_images"]


def split_images(
    name: str,
    images: Images,
    *,
    num_classes: int,
    num_clients: int,
    samples: int,
    most_classes: int,
    seed: int,
) -> Federation:
    """Split a subsample of the training images over clients; pixels become numbers in [0, 1]."""
    rng = np.random.default_rng(seed)
    sizes = power_law_sizes(num_clients, samples, rng)
    labels = images.y_train.astype(np.int32)
    x = images.x_train.reshape(len(labels), -1)
    owned = few_classes(labels, sizes, most_classes, rng)
    test = images.x_test.reshape(len(images.y_test), -1)
    return Federation.of(
        f"{name} ({images.origin}), {num_clients} clients, seed {seed}",
        [(x[rows] / np.float32(255), labels[rows]) for rows in owned],
        (test / np.float32(255), images.y_test),
        num_classes=num_classes,
    )
