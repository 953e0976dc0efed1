"""Updates: what may touch the model, and what is refused with which reason."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array

from fedprice.market.messages import ModelSchema, RefusedError, SigningKey
from fedprice.market.updates import Update, UpdateDesk, arrays_hash, shown_grad_norm

ALICE, BOB = SigningKey(bytes([2]) * 32), SigningKey(bytes([3]) * 32)
GOOD = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(2, np.float32)]
SCHEMA = ModelSchema.of(GOOD)


def desk() -> UpdateDesk:
    return UpdateDesk("run", SCHEMA, {"alice": ALICE.public, "bob": BOB.public}, norm_cap=100.0)


def send(
    given: list[np.ndarray],
    key: SigningKey = ALICE,
    to: UpdateDesk | None = None,
    **changes: object,
) -> None:
    content = {"run": "run", "client": "alice", "round": 4, "arrays": arrays_hash(given)} | changes
    (to or desk()).accept("alice", 4, key.sign(Update(**content)), given)  # type: ignore[arg-type]


def test_a_good_update_is_accepted() -> None:
    send(GOOD)


@pytest.mark.parametrize(
    ("arrays", "changes", "reason"),
    [
        (GOOD, {"key": BOB}, "another key"),
        (GOOD, {"run": "other"}, "for another run"),
        (GOOD, {"client": "bob"}, "another client's"),
        (GOOD, {"round": 3}, "for round 4, not 5"),
        (GOOD, {"arrays": "0" * 64}, "not the ones that were signed"),
        (GOOD[:1], {}, "it has 1 arrays, not 2"),
        (
            [GOOD[0].T, GOOD[1]],
            {},
            r"array0 is <f4 of shape \(3, 2\), not <f4",
        ),
        ([GOOD[0], GOOD[1].astype(np.float64)], {}, "array1 is <f8"),
        ([GOOD[0] * np.float32(np.nan), GOOD[1]], {}, "not finite"),
        ([GOOD[0], GOOD[1] * np.float32(np.inf)], {}, "not finite"),
        ([GOOD[0] * np.float32(1e30), GOOD[1]], {}, "norm .* is above the cap of 100"),
    ],
)
def test_refused_with_a_reason(
    arrays: list[np.ndarray], changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(RefusedError, match=reason):
        send(arrays, **changes)  # type: ignore[arg-type]


def test_a_copy_of_an_earlier_update_is_refused() -> None:
    book = desk()
    send(GOOD, to=book)
    with pytest.raises(RefusedError, match="same as an earlier"):
        send(GOOD, to=book)
    signed = BOB.sign(Update("run", "bob", 5, arrays_hash(GOOD)))
    with pytest.raises(RefusedError, match="same as an earlier"):
        book.accept("bob", 5, signed, GOOD)


@given(
    st.lists(
        any_array(
            st.sampled_from(["<f4", "<f8", "<i4", "|u1"]),
            st.tuples(st.integers(0, 3), st.integers(0, 3)),
        ),
        max_size=3,
    )
)
def test_whatever_is_accepted_is_finite_and_fits(arrays: list[np.ndarray]) -> None:
    try:
        send(arrays)
    except RefusedError:
        return
    assert ModelSchema.of(arrays) == SCHEMA
    assert all(np.isfinite(array).all() for array in arrays)


def test_what_an_update_shows() -> None:
    assert shown_grad_norm(2.0, 0.1 * 20) == pytest.approx(1.0)
