"""Arrays from strangers: whatever their bytes say, they are read as Flower does, or refused."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedprice.flower.wire import arrays_of, hash_of_record
from fedprice.market.messages import RefusedError


def record(descr: str, shape: str, data: bytes) -> ArrayRecord:
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    packed = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data
    return ArrayRecord({"w": Array("float32", (3,), "numpy.ndarray", packed)})


@pytest.mark.parametrize("shape", ["(-1,)", "(-1, 3)", "(-3,)", "(4294967296, 4294967296)", "(4,)"])
def test_shapes_that_flower_does_not_read_are_refused(shape: str) -> None:
    """A size of −1 was read as 3, and Flower's own strategies then ended the run."""
    assert arrays_of(record("<f4", "(3,)", bytes(12)))[0].shape == (3,)
    with pytest.raises(RefusedError, match="cannot be read"):
        arrays_of(record("<f4", shape, bytes(12)))


@pytest.mark.parametrize("descr", ["<f16", ">f16", ">f4", "<f2", "|b1", ">u8"])
@pytest.mark.parametrize("shape", ["(3,)", "()", "(0, 3)"])
def test_whatever_can_be_read_can_be_hashed(descr: str, shape: str) -> None:
    """Bytes of '>f16' raised a ValueError, which ended the run."""
    size = np.dtype(descr).itemsize
    assert len(hash_of_record(record(descr, shape, bytes(3 * size)))) == 64
