"""New − old, as the server subtracts it."""

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict

from fedprice._plumbing.arrays import LARGE
from fedprice.flower.compat import name_server
from fedprice.flower.intake import _require_reply, _subtract
from fedprice.market.messages import RefusedError


@pytest.mark.parametrize("size", [3, LARGE])
def test_what_overflows_becomes_infinite_without_a_warning(size: int) -> None:
    largest, out = np.full(size, 3e38, np.float32), np.empty(size, np.float32)
    _subtract(largest, -largest, out)
    assert np.isposinf(out).all()


def test_unsigned_numbers_do_not_wrap() -> None:
    out = np.empty(2)
    _subtract(np.array([1, 255], np.uint8), np.array([2, 0], np.uint8), out)
    assert out.tolist() == [-1.0, 255.0]


@pytest.mark.parametrize(
    ("code", "said"), [(2, "its program failed"), (5, "it is unavailable"), (8, "its program")]
)
def test_a_node_that_has_gone_is_not_a_program_that_failed(code: int, said: str) -> None:
    name_server()
    reply = Message(Error(code, "…"), reply_to=Message(RecordDict(), 7, "train"))
    with pytest.raises(RefusedError, match=f"{said}.*Flower's code {code}"):
        _require_reply(reply, "7")
