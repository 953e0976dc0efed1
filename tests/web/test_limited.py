"""Computations for strangers: they end after a time, and none ends or fills the server."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedprice import InputError
from fedprice.web.limited import close, computed

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    yield
    close()


def endless() -> str:
    while True:
        pass


def filling() -> str:
    return str(len(bytearray(2**31)))


def killed() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def waiting(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)
    return "waited"


def touching(path: str) -> str:
    Path(path).touch()
    return "touched"


def test_a_computation_has_a_limited_time_and_memory() -> None:
    async def three() -> str:
        with pytest.raises(InputError, match=r"more than 0\.1 seconds of a processor"):
            await computed(endless, longest=0.1)
        with pytest.raises(InputError, match="more than 1 GiB"):
            await computed(filling)
        return await computed(str, "still there")

    assert asyncio.run(three()) == "still there"


def test_a_computation_that_dies_ends_nothing_else() -> None:
    async def two() -> str:
        with pytest.raises(InputError, match="was ended"):
            await computed(killed)
        return await computed(str, "another worker")

    assert asyncio.run(two()) == "another worker"


def test_a_long_computation_does_not_hold_up_others(tmp_path: Path) -> None:
    path = str(tmp_path / "go on")

    async def both() -> list[str]:
        return [*await asyncio.gather(computed(waiting, path), computed(touching, path))]

    assert asyncio.run(both()) == ["waited", "touched"]
