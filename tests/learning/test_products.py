"""The products in vector registers are those of numpy, however the classes are split."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

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


SAME = """
import hashlib
import numpy as np
from fedprice.learning import products
products.REGISTERS = getattr(products, "{name}")
from fedprice.learning import kernels
from fedprice.learning.prepared import LANES, aligned
rng = np.random.default_rng(5)
x, w, z = aligned(30, 5 * LANES), aligned(26, 5 * LANES), aligned(26, 32)
x[:], w[:] = rng.normal(size=x.shape), rng.normal(size=w.shape)
rows, g = rng.integers(0, 30, 24), rng.normal(size=(24, 26)).astype(np.float32)
kernels.forward(x, rows, w, z, (0,) * 13)
length = kernels.backward(x, rows, rows, g, w, np.float32(0.1), (0,) * 13)
print(length, hashlib.sha256(z.tobytes() + w.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_wide_and_narrow_registers_give_the_same_bits(tmp_path: Path) -> None:
    """Processors with registers of 16 and of 8 floats; each runs the other's code here, too."""
    found = {
        subprocess.run(
            [sys.executable, "-c", SAME.format(name=name)],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / name)},
            check=True, capture_output=True, text=True, timeout=300,
        ).stdout
        for name in ("WIDE", "NARROW")
    }  # fmt: skip
    assert len(found) == 1


def test_compiled_kernels_are_kept_by_the_sources_that_they_call() -> None:
    """A change of the products alone was not noticed: numba looks at one file."""
    digest = hashlib.sha256(
        b"\0".join(
            (Path(kernels.__file__).parent / f"{name}.py").read_bytes()
            for name in ("kernels", "prepared", "products")
        )
    ).hexdigest()
    assert f"kernels-{digest[:16]}" in str(kernels.update_clients.stats.cache_path)
    assert "kernels-" not in str(kernels._config.CACHE_DIR)
