"""Checkpoints: what changed is appended, and a crash at any byte leaves the state before."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprice._plumbing.arrays import State
from fedprice.errors import InputError
from fedprice.rounds import Memory
from fedprice.rounds import checkpoint as module
from fedprice.rounds.checkpoint import Checkpoint
from tests.remembered import FORMS, SIZE, remembered


class Loop:
    """What a checkpoint needs of a run."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.name = (memory or Memory()).name

    def state(self) -> State:
        return {"how": np.array([self.name, "plain"])}

    def restore(self, state: State) -> None:
        self.restored = state


def restored(path: Path, memory: Memory | None = None) -> State:
    loop: Any = Loop(memory)
    Checkpoint(path, "what").restore(loop)
    found: State = loop.restored
    return found


def require_same(found: State, state: State) -> None:
    assert found.keys() == state.keys()
    assert all(np.array_equal(array, state[name]) for name, array in found.items())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.npz"


def two_writes(path: Path) -> tuple[bytes, bytes, State, State]:
    """The file before and after something was appended, and the states."""
    files, states = [], []
    for state in remembered(Memory(), 2):
        Checkpoint(path, "what").write(state)
        files.append(path.read_bytes())
        states.append({name: array.copy() for name, array in state.items()})
    assert files[1].startswith(files[0])
    return files[0], files[1], states[0], states[1]


@pytest.mark.parametrize("form", FORMS)
def test_only_what_changed_is_appended(path: Path, form: str) -> None:
    """Until the file is twice as large as its content; it remains an npz that numpy reads."""
    memory, each = FORMS[form]
    begun, appended, size = 0, 0, 0
    for r, state in enumerate(remembered(memory, 30)):
        Checkpoint(path, "what").write(state)
        require_same(restored(path, memory), state)
        rows = state["aggregator.rows"]
        grown, size = path.stat().st_size - size, path.stat().st_size
        changed = np.unique(np.flatnonzero(state["aggregator.stored"] == r) // each).size
        expected = changed * each * rows[0].nbytes
        rest = sum(array.nbytes for array in state.values()) - rows.nbytes
        assert size < 2.1 * (rows.nbytes + rest)
        if r and grown > 0:
            appended += 1
            assert grown < expected + rest + 12_000  # names and types
        else:
            begun += 1
    assert appended > begun > 1
    with np.load(path) as saved:
        assert np.array_equal(saved["aggregator.stored"], state["aggregator.stored"])
    assert [file.name for file in path.parent.iterdir()] == ["run.npz"]


def test_a_crash_at_any_byte_leaves_the_state_before(path: Path) -> None:
    before, after, first, second = two_writes(path)
    for cut in [*range(len(before), len(after), 7000), *range(len(after) - 22, len(after))]:
        for lost in (b"", bytes(len(after) - cut)):  # a power loss may leave zeros
            path.write_bytes(after[:cut] + lost)
            require_same(restored(path), second if after[:cut] + lost == after else first)
            Checkpoint(path, "what").write(second)
            require_same(restored(path), second)


def test_ctrl_c_while_it_is_written_leaves_the_state_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _, first, second = two_writes(path)
    append, after = module._append, 0

    def interrupted(*arguments: Any) -> None:
        nonlocal after
        if after == 0:
            raise KeyboardInterrupt
        after -= 1
        append(*arguments)

    monkeypatch.setattr(module, "_append", interrupted)
    for steps in range(5):
        path.write_bytes(before)
        after = steps
        with pytest.raises(KeyboardInterrupt):
            Checkpoint(path, "what").write(second)
        assert path.read_bytes().startswith(before)
        require_same(restored(path), first)


def test_damage_to_a_vector_is_found(path: Path) -> None:
    """The state before is used where it does not have the vector."""
    _, after, first, second = two_writes(path)
    for r in (0, 1):
        row = int(np.flatnonzero(second["aggregator.stored"] == r)[0])
        at = after.index(second["aggregator.rows"][row].tobytes()) + SIZE
        path.write_bytes(after[:at] + bytes([after[at] ^ 1]) + after[at + 1 :])
        if r == 0:
            with pytest.raises(InputError, match="is not a checkpoint"):
                restored(path)
        else:
            require_same(restored(path), first)


def test_another_run_of_the_same_name_replaces_the_file(path: Path) -> None:
    """A file that is further, or of other settings, has other vectors."""
    for memory in (Memory(), Memory(), Memory(cap=1.0), FORMS["8 bits"][0]):
        for state in remembered(memory, 3):
            Checkpoint(path, "what").write(state)
            require_same(restored(path, memory), state)


def test_a_run_that_diverged_says_so_at_the_end_of_its_file(path: Path) -> None:
    _, after, _, second = two_writes(path)
    Checkpoint(path, "what").mark_diverged()
    assert path.read_bytes().startswith(after)
    require_same(restored(path, Memory(cap=1.0)), second)


def test_a_full_disk_is_an_error_in_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _, first, second = two_writes(path)
    path.write_bytes(before)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_append", full)
    with pytest.raises(InputError, match=r"cannot write .*run.npz: No space left on device"):
        Checkpoint(path, "what").write(second)
    require_same(restored(path), first)
