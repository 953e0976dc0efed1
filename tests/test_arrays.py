"""Work on large vectors, and on items while the next item is made."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedprice._plumbing.arrays import LARGE, each_meanwhile, in_parts, scratch


def test_the_next_item_is_made_while_the_last_one_is_worked_on() -> None:
    second, seen = threading.Event(), list[tuple[int, bool]]()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    each_meanwhile(items(), lambda item: (item, second.wait(60)), seen.append, large=True)
    assert seen == [(1, True), (2, True)]


@pytest.mark.parametrize("large", [False, True])
def test_an_item_is_done_with_before_the_next_one_is_begun(large: bool) -> None:
    """What `work` returns may be overwritten by its next call."""
    seen = list[str]()

    def work(item: int) -> int:
        seen.append(f"work {item}")
        return item

    def then(item: int) -> None:
        time.sleep(0.01)
        seen.append(f"then {item}")

    each_meanwhile(range(3), work, then, large=large)
    assert seen == ["work 0", "then 0", "work 1", "then 1", "work 2", "then 2"]


@pytest.mark.parametrize("large", [False, True])
def test_an_update_was_accepted_and_never_added_when_the_next_reply_failed(large: bool) -> None:
    seen = list[int]()

    def items() -> Iterator[int]:
        yield 0
        raise ConnectionError

    with pytest.raises(ConnectionError):
        each_meanwhile(items(), lambda item: item, seen.append, large=large)
    assert seen == [0]


@pytest.mark.parametrize("large", [False, True])
def test_items_are_worked_on_one_after_the_other_and_the_first_error_ends_it(large: bool) -> None:
    made, seen = list[int](), list[int]()

    def items() -> Iterator[int]:
        for item in range(9):
            made.append(item)
            yield item

    def work(item: int) -> int:
        if item == 4:
            raise ValueError("four")
        return item

    with pytest.raises(ValueError, match="four"):
        each_meanwhile(items(), work, seen.append, large=large)
    assert seen == [0, 1, 2, 3]
    assert made[-1] <= 5  # nobody is asked for more than the next one


def test_work_leaves_a_core_to_whoever_makes_the_next_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = list[int]()

    def work(_: object) -> int:
        return len(in_parts(LARGE, lambda part: part))

    def then(count: int) -> None:
        parts.extend((count, work(None)))

    for cores in (2, 4):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        each_meanwhile([None], work, then, large=True)
    assert parts == [1, 2, 3, 4]


def test_scratch_is_the_same_memory_again_but_not_that_of_another_thread() -> None:
    first = scratch(1000)
    assert first.size == 1000
    assert np.shares_memory(first, scratch(10))
    assert np.shares_memory(scratch(2000), scratch(1000))
    with ThreadPoolExecutor(1) as other:
        assert not np.shares_memory(scratch(1000), other.submit(scratch, 1000).result())
