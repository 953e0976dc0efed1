"""Progress of training on stderr: a live bar on a terminal, a few quiet lines elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedprice.cli.console import stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["rounds_bar"]

QUIET = 30.0  # seconds between lines where there is no terminal


@contextmanager
def rounds_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function that takes the rounds done, the rounds in total, and a note to show.

    The bar shows rounds per second and the time left.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr()
    start = said = time.monotonic()

    def speed(done: int) -> float:
        return done / max(time.monotonic() - start, 1e-9)

    if not console.is_terminal:

        def tell(done: int, total: int, note: str = "") -> None:
            nonlocal start, said
            if not done:
                start = time.monotonic()
            if time.monotonic() - said > QUIET:
                said = time.monotonic()
                left = f", {(total - done) / speed(done):.0f} s left" if done else ""
                console.print(
                    f"{title}: {done:,} of {total:,} rounds, {speed(done):,.0f} per second{left}. "
                    f"{note}".rstrip(),
                    markup=False,
                )

        yield tell
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=None, note="")

        def show(done: int, total: int, note: str = "") -> None:
            nonlocal start
            if not done:
                start = time.monotonic()
            text = f"{note}  {speed(done):,.0f} rounds/s".strip()
            progress.update(task, completed=done, total=total, note=text)

        yield show
