"""Remembered updates in a file: the same bits as in memory, found again whole or not at all."""

import resource
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedprice._plumbing.arrays import FloatArray, State
from fedprice.errors import InputError
from fedprice.rounds import Memory
from fedprice.rounds.aggregation import Arrivals, filed
from fedprice.rounds.aggregation.filed import MappedRows, in_file, reopened
from fedprice.rounds.aggregation.stored import TILE
from tests.remembered import COUNT, FORMS, SIZE

LEVELS, WEIGHT = np.full(COUNT, 0.4), np.full(COUNT, 1 / COUNT)
FORM_NAMES = [*FORMS, "64-bit updates"]


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filed, "LARGE", 1)


def memory_of(form: str) -> Memory:
    return FORMS[form][0] if form in FORMS else Memory()


def started(memory: Memory, size: int = SIZE) -> State:
    with warnings.catch_warnings(action="ignore"):  # less than one update per client
        return memory.start(COUNT, size)


def played(
    memory: Memory, state: State, rounds: range, *, form: str = "", size: int = SIZE, each: int = 1
) -> Iterator[tuple[FloatArray, State]]:
    """Yield the step of each round, and the state after it."""
    for r in rounds:
        rng = np.random.default_rng(r)
        joined = np.flatnonzero(rng.random(COUNT) < LEVELS)
        updates = 1 + rng.normal(size=(joined.size, size))
        round_ = memory.begin(state, Arrivals(joined, WEIGHT, LEVELS, size))
        for first in range(0, joined.size, each):
            some = slice(first, first + each)
            kind = np.float64 if form == "64-bit updates" else np.float32
            round_.add(joined[some], updates[some].astype(kind))
        step, state = round_.finish(), round_.state()
        yield step, state


def recorded(state: State) -> State:
    """Return a copy of what a ledger stores of a state, which is all but the rows."""
    return {name: own.copy() for name, own in state.items() if not isinstance(own, MappedRows)}


@pytest.mark.parametrize("form", FORM_NAMES)
def test_a_file_changes_no_bit_nor_does_resuming_from_it(form: str, tmp_path: Path) -> None:
    """Every round in a process of its own, as it were."""
    memory, path = memory_of(form), tmp_path / "rows"
    plain, state = started(memory), in_file(started(memory), path)
    assert "place" in state
    for r in range(8):
        [(step, plain)] = played(memory, plain, range(r, r + 1), form=form)
        [(own, state)] = played(memory, state, range(r, r + 1), form=form)
        assert np.array_equal(own, step)
        state = reopened(recorded(state), path)
        for name in ("stored", "squares", "learned", "round"):
            assert np.array_equal(state[name], plain[name]), name


def test_a_large_vector_changes_no_bit(tmp_path: Path) -> None:
    """In several tiles, the last of which is not whole; and however its updates are split."""
    path, size = tmp_path / "rows", TILE + 70
    for memory in (Memory(), Memory(limit=size * COUNT * 2)):
        steps = [own for own, _ in played(memory, started(memory, size), range(3), size=size)]
        for each in (1, 3):
            state = in_file(started(memory, size), path)
            for r in range(3):
                [(step, state)] = played(memory, state, range(r, r + 1), size=size, each=each)
                assert np.array_equal(step, steps[r])
                state = reopened(recorded(state), path)


@pytest.mark.parametrize("form", ["one per client", "8 bits"])
def test_a_round_that_is_not_recorded_leaves_the_last_one_in_the_file(
    form: str, tmp_path: Path
) -> None:
    memory, path = memory_of(form), tmp_path / "rows"
    for _, state in played(memory, in_file(started(memory), path), range(4)):
        before = recorded(state)
    step, _ = next(played(memory, state, range(4, 5)))
    again, _ = next(played(memory, reopened(before, path), range(4, 5)))
    assert np.array_equal(again, step)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "shorter": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "foreign": lambda path: path.write_bytes(b"x" * path.stat().st_size),
}


@pytest.mark.parametrize("form", FORM_NAMES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_lost_is_said_and_memory_begins_again(
    form: str, damage: str, tmp_path: Path
) -> None:
    memory, path = memory_of(form), tmp_path / "rows"
    *_, (_, state) = played(memory, in_file(started(memory), path), range(6))
    before = recorded(state)
    DAMAGES[damage](path)
    known = int((before["stored"] >= 0).sum())
    with pytest.warns(UserWarning, match=f"{known} of {known} remembered updates are missing"):
        state = in_file(reopened(recorded(before), path), path)
    assert state["stored"].max() == -1
    assert np.array_equal(state["learned"], before["learned"])
    # As if nobody had joined yet, but for what was learned.
    plain = started(memory)
    for name in before.keys() - {"place", "checksum", "form", "stored", "squares"}:
        plain[name] = before[name].copy()
    for (step, _), (own, _) in zip(
        played(memory, plain, range(6, 9)), played(memory, state, range(6, 9)), strict=True
    ):
        assert np.array_equal(own, step)


@pytest.mark.parametrize("form", ["one per client", "8 bits"])
def test_damage_to_any_vector_is_found_and_only_that_is_forgotten(
    form: str, tmp_path: Path
) -> None:
    memory, path = memory_of(form), tmp_path / "rows"
    *_, (_, state) = played(memory, in_file(started(memory), path), range(6))
    known, content = np.flatnonzero(state["stored"] >= 0), path.read_bytes()
    before = recorded(state)
    for client in known.tolist():
        for rows in (own for own in state.values() if isinstance(own, MappedRows)):
            at = rows.offset + (int(state["place"][client]) + 1) * rows.strides[0] - 1
            flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            path.write_bytes(flipped)
            with pytest.warns(UserWarning, match=f"1 of {known.size} remembered updates are"):
                found = reopened(recorded(before), path)
            assert np.array_equal(np.flatnonzero(found["stored"] >= 0), known[known != client])
            assert found["squares"][client] == 0
    path.write_bytes(content)
    assert np.array_equal(reopened(recorded(before), path)["stored"], before["stored"])


def test_a_file_in_use_is_not_written_by_the_one_that_takes_its_name(tmp_path: Path) -> None:
    """Of an earlier ledger of the same name, whose server has not ended yet."""
    memory, path = Memory(), tmp_path / "rows"
    *_, (_, state) = played(memory, in_file(started(memory), path), range(3))
    steps = [step for step, _ in played(memory, started(memory), range(6))]
    *_, (_, other) = played(memory, in_file(started(memory), path), range(20, 24))
    assert np.array_equal(next(played(memory, state, range(3, 4)))[0], steps[3])
    assert path.stat().st_mode & 0o777 == 0o600
    assert (reopened(recorded(other), path)["stored"] >= 0).any()


def test_a_full_disk_is_said_before_the_first_round(tmp_path: Path) -> None:
    path, state = tmp_path / "rows", started(Memory())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(InputError, match=r"cannot create .*rows with 2 MiB .* lower the `lim"):
            in_file(state, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not path.exists()


@pytest.mark.parametrize("name", ["none/rows", "folder"])
def test_a_file_that_cannot_be_created_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"cannot create .*{name} with 2 MiB"):
        in_file(started(Memory()), tmp_path / name)
    assert (tmp_path / "folder").is_dir()


def test_a_disk_that_fills_up_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where file systems copy on write, room that was reserved may be gone."""
    memory, path = Memory(), tmp_path / "rows"
    state = in_file(started(memory), path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(InputError, match=r"cannot write .*rows: No space left on device\."):
        next(played(memory, state, range(1)))


def test_few_vectors_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filed, "LARGE", 1 << 20)
    state = started(Memory())
    assert in_file(state, tmp_path / "rows") is state
    nothing: State = {}
    assert in_file(nothing, tmp_path / "rows") is nothing
    assert not any(tmp_path.iterdir())
