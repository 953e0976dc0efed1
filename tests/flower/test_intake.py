"""New − old, as the server subtracts it."""

import numpy as np
import pytest

from fedprice.arrays import LARGE
from fedprice.flower.intake import _subtract


@pytest.mark.parametrize("size", [3, LARGE])
def test_what_overflows_becomes_infinite_without_a_warning(size: int) -> None:
    largest, out = np.full(size, 3e38, np.float32), np.empty(size, np.float32)
    _subtract(largest, -largest, out)
    assert np.isposinf(out).all()


def test_unsigned_numbers_do_not_wrap() -> None:
    out = np.empty(2)
    _subtract(np.array([1, 255], np.uint8), np.array([2, 0], np.uint8), out)
    assert out.tolist() == [-1.0, 255.0]
