"""The state of a run in rows: every array comes back as it was, of any size, in bounded memory."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedprice._plumbing.arrays import State
from fedprice.errors import InputError
from fedprice.market import states
from fedprice.market.ledger import DamagedError, Ledger
from fedprice.market.money import LEVEL_ONE
from fedprice.market.schema import state_parts
from fedprice.market.schema import states as table
from fedprice.rounds import Memory
from tests.remembered import FORMS, remembered
from trials.markets import at_price

MODEL = "ab" * 32


def opened(url: str, rounds: int = 9) -> Ledger:
    ledger = Ledger(url)
    ledger.deposit("treasury", 10**7, "first")
    ledger.open_unsigned("run", 10**7, {"alice": at_price(10**7, LEVEL_ONE)}, rounds=rounds)
    return ledger


def require_same(found: State | None, state: State) -> None:
    assert found is not None
    assert list(found) == list(state)
    for name, array in state.items():
        own = found[name]
        assert (own.dtype, own.shape) == (array.dtype, array.shape)
        assert own.tobytes() == array.tobytes()
        assert own.flags.writeable


def awkward() -> State:
    rng = np.random.default_rng(1)
    return {
        "none": np.empty((0, 3), np.float32),
        "scalar": np.array(7, np.int16),
        "text": np.array(["trotter-tukey", "ü"]),
        "not finite": np.array([np.nan, np.inf, -0.0]),
        "turned": np.asfortranarray(rng.standard_normal((30, 20))),
        "every other": np.arange(20, dtype=">u4")[::2],
        "flags": np.array([True, False]),
        "large": rng.standard_normal(3 * states.PART // 8 + 5),
        "a part": rng.standard_normal(states.PART // 8),
        "end": np.empty(0),
    }


def test_every_array_comes_back_as_it_was(url: str) -> None:
    ledger = opened(url)
    ledger.record_round("run", 0, model=MODEL, state=awkward())
    require_same(ledger.progress("run")[1], awkward())
    ledger.verify()
    ledger.close()


@pytest.mark.parametrize("state", [{}, {"none": np.empty(0)}])
def test_a_state_may_be_empty(url: str, state: State) -> None:
    ledger = opened(url)
    ledger.record_round("run", 0, model=MODEL, state=awkward())
    ledger.record_round("run", 1, model=MODEL, state=state)
    require_same(ledger.progress("run")[1], state)
    ledger.verify()
    ledger.close()


def test_a_state_replaces_the_last_one_whatever_its_size(url: str) -> None:
    """Parts that are no longer needed go away, and those of another run stay."""
    ledger = opened(url)
    ledger.deposit("treasury", 10**7, "second")
    ledger.open_unsigned("other", 10**7, {"alice": at_price(10**7, LEVEL_ONE)}, rounds=1)
    ledger.record_round("other", 0, model=MODEL, state=awkward())
    sizes = [10, 3 * states.PART, 3 * states.PART, states.PART + 8, 80, 0, 2 * states.PART]
    for r, size in enumerate(sizes):
        state = {"model": np.full(size // 8, float(r)), "done": np.array([r])}
        ledger.record_round("run", r, model=MODEL, state=state)
        require_same(ledger.progress("run")[1], state)
        ledger.verify()
    require_same(ledger.progress("other")[1], awkward())
    ledger.record_round("run", len(sizes), model=MODEL)
    assert ledger.progress("run")[1] is None
    ledger.verify()
    ledger.close()


@pytest.fixture
def written() -> Iterator[list[int]]:
    """The bytes of each part of a state that is written."""
    sizes: list[int] = []

    def count(*arguments: Any) -> None:
        if "new" in arguments[3]:  # an update; what it finds nowhere is inserted
            sizes.append(len(arguments[3]["new"]))

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_execute", count)
    yield sizes
    sqlalchemy.event.remove(sqlalchemy.Engine, "before_execute", count)


def record(ledger: Ledger, r: int, state: State) -> None:
    """Record a round, and read its state again."""
    ledger.record_round("run", r, model=MODEL, state=state)
    require_same(ledger.progress("run")[1], state)
    ledger.verify()


@pytest.mark.parametrize("form", FORMS)
def test_a_round_writes_only_the_vectors_that_it_changed(
    url: str, form: str, written: list[int]
) -> None:
    ledger, (memory, each) = opened(url), FORMS[form]
    for r, state in enumerate(remembered(memory)):
        written.clear()
        record(ledger, r, state)
        rows = state["aggregator.rows"]
        fresh = np.flatnonzero(state["aggregator.stored"] == r)
        chunks = np.unique(fresh // each).size if r else len(rows) // each
        rest = sum(array.nbytes for array in state.values()) - rows.nbytes
        assert sum(written) == chunks * each * rows[0].nbytes + rest
    ledger.close()


def test_a_state_that_was_written_whole_goes_on_in_parts(written: list[int]) -> None:
    """As earlier versions wrote it: the digest is that of the whole only."""
    ledger = opened("sqlite://")
    for r, state in enumerate(remembered(Memory())):
        written.clear()
        record(ledger, r, state)
        assert (sum(written) > state["aggregator.rows"].nbytes) == (r in (0, 3))
        if r == 2:
            with ledger._database.writing() as connection:
                cut = sqlalchemy.func.substr(table.c.digest, 1, 64)
                connection.execute(table.update().values(digest=cut))
            require_same(ledger.progress("run")[1], state)
    ledger.close()


def test_a_memory_that_starts_afresh_is_written_whole() -> None:
    """So is one of another form, and one after a round that kept no state."""
    ledger, done = opened("sqlite://", rounds=99), 0
    for memory in (Memory(), Memory(cap=1.0), FORMS["8 bits"][0], Memory()):
        for state in remembered(memory, 3):
            record(ledger, done, state)
            done += 1
    for state in remembered(Memory()):
        kept = done % 3 > 0
        ledger.record_round("run", done, model=MODEL, state=state if kept else None)
        found = ledger.progress("run")[1]
        require_same(found, state) if kept else None
        done += 1
    ledger.close()


@pytest.mark.parametrize("form", ["one per client", "8 bits"])
def test_damage_to_any_vector_is_found(form: str) -> None:
    ledger = opened("sqlite://")
    for r, state in enumerate(remembered(FORMS[form][0])):
        ledger.record_round("run", r, model=MODEL, state=state)
    with ledger._database.reading() as connection:
        parts = list(connection.execute(sqlalchemy.select(state_parts)))
    for part in parts:
        where = state_parts.c.number == part.number
        for changed in (bytes([part.bytes[0] ^ 1]) + part.bytes[1:], part.bytes):
            with ledger._database.writing() as connection:
                connection.execute(state_parts.update().where(where).values(bytes=changed))
            if changed != part.bytes:
                with pytest.raises(DamagedError, match="the state of run 'run' is damaged"):
                    ledger.verify()
    ledger.verify()
    with ledger._database.writing() as connection:
        cut = sqlalchemy.func.substr(table.c.digest, 1, 100)
        connection.execute(table.update().values(digest=cut))
    with pytest.raises(DamagedError, match="the state of run 'run' is damaged"):
        ledger.verify()
    ledger.close()


@pytest.mark.parametrize("digest", ["no digest", "ab" * 40, "00" * 64])
def test_a_damaged_digest_is_replaced_by_the_next_round(digest: str) -> None:
    ledger = opened("sqlite://")
    for r, state in enumerate(remembered(Memory(), 4)):
        record(ledger, r, state)
        with ledger._database.writing() as connection:
            connection.execute(table.update().values(digest=digest))
    ledger.close()


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1),
        arrays.arrays(
            arrays.integer_dtypes() | arrays.floating_dtypes() | arrays.boolean_dtypes(),
            arrays.array_shapes(min_dims=0, min_side=0, max_side=40),
        ),
    )
)
def test_any_state_comes_back(state: dict[str, Any]) -> None:
    """With parts so small that most arrays take several, and some share one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "PART", 64)
        patch.setattr(states, "SMALL", 16)
        ledger = opened("sqlite://")
        ledger.record_round("run", 0, model=MODEL, state=state)
    require_same(ledger.progress("run")[1], state)  # whatever the size of its parts
    ledger.verify()
    ledger.close()


def test_an_array_of_objects_is_refused_and_nothing_is_recorded(url: str) -> None:
    ledger = opened(url)
    with pytest.raises(InputError, match="numbers and text; 'model' is of type object"):
        ledger.record_round("run", 0, model=MODEL, state={"model": np.array([{}])})
    assert ledger.rounds_done("run") == 0
    ledger.verify()
    ledger.close()


LARGE = """
import resource, sys, time
import numpy as np
from fedprice.market.schema import states as table
from fedprice.market.ledger import DamagedError, Ledger
from fedprice.market.offers import Terms
from fedprice.market.tariffs import Tariff
size = int(sys.argv[2])
ledger = Ledger(sys.argv[1])
ledger.deposit("treasury", 10**7, "first")
ledger.open_unsigned("run", 10**7, {"alice": Terms(Tariff.flat(10**7, 2**32), 2**32)}, rounds=2)
model = np.random.default_rng(0).standard_normal(size)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, seconds = peak(), []
for r in range(2):
    model += 0.5
    begun = time.perf_counter()
    ledger.record_round("run", r, model="ab" * 32, state={"model": model, "done": np.array([r])})
    seconds.append(time.perf_counter() - begun)
written = peak()
begun = time.perf_counter()
ledger.verify()
seconds.append(time.perf_counter() - begun)
verified = peak()
begun = time.perf_counter()
state = ledger.progress("run")[1]
seconds.append(time.perf_counter() - begun)
print(written - before, verified - before, peak() - before - model.nbytes)
assert np.array_equal(state["model"], model)
told = " ".join(f"{s:.2f}" for s in seconds)
print(f"seconds to write, write again, verify, read: {told}", file=sys.stderr)
"""
MIB = 1 << 20


def extra_memory(url: str, size: int) -> list[int]:
    """Bytes beside the state itself that writing, verifying and reading it took."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, url, str(size)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sys.stderr.write(done.stderr)
    return [int(number) for number in done.stdout.split()]


@pytest.mark.slow
def test_a_state_is_neither_written_nor_read_by_way_of_copies(url: str) -> None:
    """20 million numbers, 160 MB."""
    assert max(extra_memory(url, 20_000_000)) < 40 * MIB


@pytest.mark.slow
def test_a_state_of_150_million_numbers_is_kept(url: str) -> None:
    """1.2 GB, more than SQLite lets one value have."""
    assert max(extra_memory(url, 150_000_000)) < 40 * MIB


def test_a_type_that_numpy_cannot_even_parse_is_damage() -> None:
    ledger = opened("sqlite://")
    ledger.record_round("run", 0, model="ab" * 32, state={"model": np.zeros(1)})
    with ledger._database.writing() as connection:
        connection.execute(table.update().values(arrays='[["model","f4,(",[1]]]'))
    with pytest.raises(DamagedError, match="is damaged"):
        ledger.progress("run")
