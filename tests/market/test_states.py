"""The state of a run in rows: every array comes back as it was, of any size, in bounded memory."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedprice.arrays import State
from fedprice.errors import InputError
from fedprice.market import states
from fedprice.market.ledger import DamagedError, Ledger
from fedprice.market.money import LEVEL_ONE
from fedprice.market.schema import states as table
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


@settings(max_examples=60, deadline=None)
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
