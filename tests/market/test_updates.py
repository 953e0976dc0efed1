"""Updates: what may touch the model, and what is refused with which reason."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array

from fedprice.market.messages import ModelSchema, RefusedError, SigningKey
from fedprice.market.updates import (
    PIECE,
    SLACK,
    WIDTH,
    Accepted,
    NormRefusedError,
    Update,
    UpdateDesk,
    _signs,
    arrays_hash,
    norm_cap,
    shown_grad_norm,
    sketch_of,
)

ALICE, BOB = SigningKey(bytes([2]) * 32), SigningKey(bytes([3]) * 32)
GOOD = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(2, np.float32)]
SCHEMA = ModelSchema.of(GOOD)


BASE = "b" * 64


def desk(**caps: float) -> UpdateDesk:
    keys = {"alice": ALICE.public, "bob": BOB.public}
    return UpdateDesk("run", SCHEMA, keys, caps={"alice": 100.0, "bob": 100.0} | caps)


def send(
    given: list[np.ndarray],
    key: SigningKey = ALICE,
    to: UpdateDesk | None = None,
    **changes: object,
) -> Accepted:
    content: dict[str, object] = {"run": "run", "client": "alice", "round": 4}
    content |= {"arrays": arrays_hash(given, update=True), "base": BASE} | changes
    signed = key.sign(Update(**content))  # type: ignore[arg-type]
    return (to or desk()).accept("alice", 4, signed, given, base=BASE)


def test_zero_updates_are_refused_whatever_the_signs_of_their_zeros() -> None:
    """600 of 600 were accepted: each has another digest."""
    book, rng = desk(), np.random.default_rng(0)
    for _ in range(600):
        signs = rng.choice([-1, 1], 8).astype(np.float32)
        zeros = [signs[:6].reshape(2, 3) * np.float32(0), signs[6:] * np.float32(0)]
        with pytest.raises(RefusedError, match="it changes nothing"):
            send(zeros, to=book)


def test_copies_with_one_changed_bit_are_refused() -> None:
    """Any of the lowest bits of any number, of an update of this or an earlier run."""
    model = np.random.default_rng(1).normal(size=(300, 7)).astype(np.float32)
    book = UpdateDesk("run", ModelSchema.of([model]), {"alice": ALICE.public})
    send([model], to=book)
    rng = np.random.default_rng(2)
    for _ in range(200):
        copy = model.copy()
        bits = copy.reshape(-1).view(np.uint32)
        bits[rng.integers(bits.size)] ^= np.uint32(1 << rng.integers(8))
        with pytest.raises(RefusedError, match="nearly the same as an earlier"):
            send([copy], to=book)


def test_copies_are_found_after_a_restart() -> None:
    before, after = desk(), desk()
    found = send(GOOD, to=before)
    after.remember(arrays_hash(GOOD, update=True), found.sketch)
    copy = [GOOD[0].copy(), GOOD[1]]
    copy[0][1, 1] = np.nextafter(copy[0][1, 1], np.float32(9))
    for again, reason in ((GOOD, "the same as"), (copy, "nearly the same as")):
        with pytest.raises(RefusedError, match=f"it is {reason} an earlier update"):
            send(again, to=after)


@pytest.mark.parametrize("size", [4, 100, 70_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_a_copy_and_what_is_not(size: int, dtype: type) -> None:
    """Noise of 1e-7 of the norm is found, of 1e-4 not: more cannot be told from training."""
    rng = np.random.default_rng(3)
    update: np.ndarray = rng.normal(size=size).astype(dtype)
    noise = rng.normal(size=size)
    noise *= np.linalg.norm(update) / np.linalg.norm(noise)
    book = UpdateDesk("run", ModelSchema.of([update]), {"alice": ALICE.public})
    send([update], to=book)
    with pytest.raises(RefusedError, match="the same as an earlier"):
        send([(update + 1e-7 * noise).astype(dtype)], to=book)
    with pytest.raises(RefusedError, match="the same as an earlier"):
        send([(update * (1 + 3e-7)).astype(dtype)], to=book)
    send([(update + 1e-4 * noise).astype(dtype)], to=book)
    send([(update * (1 + 1e-4)).astype(dtype)], to=book)
    send([-update], to=book)
    send([update[::-1].copy()], to=book)


@pytest.mark.parametrize(
    "sizes", [[610], [1 << 16], [(1 << 16) + 1, 3], [(1 << 19) + 70_000, 1 << 16], [2_400_000], []]
)
def test_a_sketch_is_that_of_its_definition(sizes: list[int]) -> None:
    """Signs by place, modulo 4,096, times signs by piece of 65,536 numbers, one at a time."""
    rng = np.random.default_rng(6)
    arrays = [rng.normal(size=size).astype(np.float32) for size in sizes]
    pieces = [array[at : at + PIECE] for array in arrays for at in range(0, array.size, PIECE)]
    places, by_piece = _signs("places", WIDTH), _signs("pieces", len(pieces))
    numbers = np.concatenate([*pieces, np.zeros(0)]).astype(np.float64)
    signs = []
    for row, own in zip(places, by_piece, strict=True):
        signed = [s * np.resize(row, p.size) for s, p in zip(own, pieces, strict=True)]
        signs.append(np.concatenate([*signed, np.zeros(0)]))
    norm = float(np.sqrt(numbers @ numbers))
    expected = [norm, *(float(own @ numbers) / (norm or 1.0) for own in signs)]
    found = [float(part) for part in sketch_of(arrays).sketch.split(",")]
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.slow
def test_honest_updates_are_not_taken_for_copies() -> None:
    """20,000 updates of one norm, of a softmax layer whose columns or rows add up to 0."""
    rng = np.random.default_rng(4)
    for shape, axis in (((10, 64), 0), ((64, 10), 1), ((10, 61), 0)):
        first = np.zeros(shape, np.float32)
        book = UpdateDesk("run", ModelSchema.of([first]), {"alice": ALICE.public})
        for _ in range(20_000):
            update = rng.normal(size=shape)
            update -= update.mean(axis=axis, keepdims=True)
            found = sketch_of([(update / np.linalg.norm(update)).astype(np.float32)])
            assert not book._is_copy(found.sketch)
            book.remember("", found.sketch)


def test_full_batches_that_hardly_change_are_not_taken_for_copies() -> None:
    """Gradient descent with a step of 1e-4: the gradient changes by as much each round."""
    rng = np.random.default_rng(5)
    features, targets = rng.normal(size=(50, 20)), rng.normal(size=50)
    model = np.zeros(20)
    book = UpdateDesk("run", ModelSchema.of([model]), {"alice": ALICE.public})
    for _ in range(300):
        update = -1e-4 * features.T @ (features @ model - targets)
        send([update], to=book)
        model = model + update


@pytest.mark.parametrize("size", [1e154, 1e200, 1.7e308])
@pytest.mark.parametrize("cap", [100.0, float("inf")])
def test_an_update_whose_norm_overflows_is_refused(size: float, cap: float) -> None:
    """Its norm was recorded as inf, which the ledger's own verifier refused for good."""
    update = [np.full((2, 3), size), np.ones(2)]
    book = UpdateDesk("run", ModelSchema.of(update), {"alice": ALICE.public}, {"alice": cap})
    with pytest.raises(RefusedError, match=r"its norm .*is above") as refused:
        send(update, to=book)
    assert "inf" not in str(refused.value)
    if isinstance(refused.value, NormRefusedError):
        assert refused.value.norm == cap == 100


def test_each_client_has_its_own_cap() -> None:
    book = desk(alice=7.0)  # the norm is √57
    with pytest.raises(NormRefusedError, match=r"its norm 7\.55 is above the cap of 7") as refused:
        send(GOOD, to=book)
    assert refused.value.norm == 7.0
    signed = BOB.sign(Update("run", "bob", 4, arrays_hash(GOOD, update=True), BASE))
    assert book.accept("bob", 4, signed, GOOD, base=BASE).norm == pytest.approx(57**0.5)


positive = st.floats(1e-6, 1e6)


@given(st.none() | positive, st.none() | positive, st.none() | positive, positive)
def test_caps(
    declared: float | None, reach: float | None, measured: float | None, most: float
) -> None:
    """Slack times what is known; never below what the declared norm allows."""
    cap = norm_cap(declared, reach, measured, most)
    if declared is not None and reach is not None:
        assert cap >= declared * reach
        assert cap <= max(SLACK * declared * reach, declared * reach)
    elif measured is not None:
        assert cap == min(SLACK * measured, most)
    else:
        assert cap == most


def test_a_good_update_is_accepted() -> None:
    send(GOOD)


@pytest.mark.parametrize(
    ("arrays", "changes", "reason"),
    [
        (GOOD, {"key": BOB}, "another key"),
        (GOOD, {"run": "other"}, "for another run"),
        (GOOD, {"client": "bob"}, "another client's"),
        (GOOD, {"round": 3}, "for round 4, not 5"),
        (GOOD, {"base": "c" * 64}, "it started from another model"),
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
    signed = BOB.sign(Update("run", "bob", 5, arrays_hash(GOOD, update=True), BASE))
    with pytest.raises(RefusedError, match="same as an earlier"):
        book.accept("bob", 5, signed, GOOD, base=BASE)


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
