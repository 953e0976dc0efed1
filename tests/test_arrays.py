"""Work on items that is done while the next item is made."""

import threading
from collections.abc import Iterator

import pytest

from fedprice.arrays import LARGE, each_meanwhile, in_parts


def test_the_next_item_is_made_while_the_last_one_is_worked_on() -> None:
    second, seen = threading.Event(), list[tuple[int, bool]]()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    each_meanwhile(items(), lambda item: seen.append((item, second.wait(20))), large=True)
    assert seen == [(1, True), (2, True)]


@pytest.mark.parametrize("large", [False, True])
def test_items_are_worked_on_one_after_the_other_and_the_first_error_ends_it(large: bool) -> None:
    made, seen = list[int](), list[int]()

    def items() -> Iterator[int]:
        for item in range(9):
            made.append(item)
            yield item

    def work(item: int) -> None:
        if item == 4:
            raise ValueError("four")
        seen.append(item)

    with pytest.raises(ValueError, match="four"):
        each_meanwhile(items(), work, large=large)
    assert seen == [0, 1, 2, 3]
    assert made[-1] <= 5  # nobody is asked for more than the next one


def test_work_leaves_a_core_to_whoever_makes_the_next_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = list[list[slice]]()

    def work(_: object) -> None:
        parts.append(in_parts(LARGE, lambda part: part))

    for cores in (2, 4):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        each_meanwhile([None], work, large=True)
        work(None)
    assert [len(own) for own in parts] == [1, 2, 3, 4]
