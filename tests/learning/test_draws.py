"""Coins and batches: compiled as written, uniform, and the same whoever asks."""

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from fedprice.learning import draws, kernels


def compiled_joiners(seed: int, round_: int, levels: np.ndarray) -> list[int]:
    buffer = np.empty(levels.size, np.int64)
    count = kernels.draw_joiners(seed, round_, draws.highest_levels(levels), buffer)
    joined: list[int] = buffer[:count].tolist()
    return joined


@pytest.mark.parametrize("count", [1, 2, 3, 40, 1000])
def test_compiled_coins_are_those_of_the_tree(count: int) -> None:
    levels = np.random.default_rng(count).random(count) ** 3
    for r in range(20):
        expected = draws.joiners(7, r, levels).tolist()
        assert compiled_joiners(7, r, levels) == expected


def test_certain_levels() -> None:
    assert compiled_joiners(0, 0, np.ones(5)) == [0, 1, 2, 3, 4]
    assert compiled_joiners(0, 0, np.zeros(5)) == []


def test_coins_are_uniform_and_independent() -> None:
    """Kolmogorov–Smirnov at a fixed seed; a fair generator fails once in a million seeds."""
    u = np.array([draws.coin_uniforms(5, r, 37) for r in range(2000)])
    assert kstest(u.ravel(), "uniform").pvalue > 1e-6
    # Neighbours in the tree share their parent's draw, and must not share luck.
    for a, b in ((0, 1), (0, 2), (3, 36), (16, 32)):
        table = np.histogram2d(u[:, a], u[:, b], bins=4, range=[[0, 1]] * 2)[0]
        assert chisquare(table.ravel()).pvalue > 1e-6


def test_higher_levels_only_add_joiners() -> None:
    low = np.full(100, 0.2)
    for r in range(20):
        assert set(compiled_joiners(1, r, low)) <= set(compiled_joiners(1, r, low + 0.3))


def test_batches_are_uniform() -> None:
    rows = draws.batch_rows(seed=3, round_=1, client=2, steps=500, batch=24, samples=11)
    assert rows.shape == (500, 24)
    assert chisquare(np.bincount(rows.ravel(), minlength=11)).pvalue > 1e-6
