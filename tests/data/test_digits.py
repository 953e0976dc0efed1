"""Digits, and the ways to deal them that have names."""

from __future__ import annotations

import numpy as np
import pytest

from fedprice.data.digits import digits
from fedprice.data.partition import split

pytest.importorskip("sklearn", reason="needs the extra `digits`")


def test_digits_are_dealt_whole_and_the_same_every_time() -> None:
    one, again = digits(num_clients=12), digits(num_clients=12)
    assert one.fingerprint == again.fingerprint
    assert one.fingerprint != digits(num_clients=12, seed=1).fingerprint
    assert one.samples.sum() == 1797 - 359
    assert one.samples.min() >= 5
    assert 0 <= one.features.min() < one.features.max() <= 1


@pytest.mark.parametrize("how", ["iid", "dirichlet:0.3", "dirichlet:100", "shards:2"])
def test_every_sample_goes_to_one_client(how: str) -> None:
    labels = np.random.default_rng(0).integers(0, 10, 2000).astype(np.int32)
    dealt = split(labels, 15, how, np.random.default_rng(1))
    assert sorted(np.concatenate(dealt).tolist()) == list(range(2000))
    classes = [np.unique(labels[rows]).size for rows in dealt]
    if how == "shards:2":
        assert max(classes) <= 4  # a shard may reach over the end of a class
    # How far clients' classes are from those of all, in total variation.
    of_all = np.bincount(labels, minlength=10) / labels.size
    far = [
        np.abs(np.bincount(labels[rows], minlength=10) / rows.size - of_all).sum() / 2
        for rows in dealt
    ]
    uneven = how in ("dirichlet:0.3", "shards:2")
    assert (np.mean(far) > 0.35) == uneven
