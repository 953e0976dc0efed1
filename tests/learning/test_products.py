"""The products in vector registers are those of numpy, however the classes are split."""

import numpy as np
import pytest

from fedprice.learning import kernels
from fedprice.learning.prepared import LANES, aligned


@pytest.mark.parametrize("size", [4, 7, 13])
def test_logits_of_any_block(size: int) -> None:
    """Blocks of one part, and of parts of equal and of unequal size."""
    rng = np.random.default_rng(size)
    x, w, z = aligned(30, 3 * LANES), aligned(2 * size, 3 * LANES), aligned(2 * size, 12)
    x[:], w[:] = rng.normal(size=x.shape), rng.normal(size=w.shape)
    rows = rng.integers(0, 30, 12)
    kernels.forward(x, rows, w, z, (0,) * size)
    assert np.allclose(z, w.astype(float) @ x[rows].T, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 32, 33])
def test_gradients_of_logits(batch: int) -> None:
    """Scaled softmax less one-hot; what pads a batch keeps gradient 0."""
    rng = np.random.default_rng(batch)
    logits = rng.normal(0, 30, (6, 64)).astype(np.float32)
    y, rows = rng.integers(0, 5, 99).astype(np.int32), rng.integers(0, 99, batch)
    g = np.zeros((batch + 3, 6), np.float32)
    kernels.logit_gradients(logits.copy(), y, rows, batch, 5, np.float32(0.5), g)
    powers = np.exp(logits[:5].astype(float) - logits[:5].max(axis=0))
    expected = np.zeros((batch + 3, 6))
    expected[:batch, :5] = 0.5 * (powers / powers.sum(axis=0)).T[:batch]
    expected[np.arange(batch), y[rows]] -= 0.5
    assert np.allclose(g, expected, atol=1e-6)
