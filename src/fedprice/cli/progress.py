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
def rounds_bar(title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that is told how many more rounds are done, and a note to show.

    The bar tells rounds a second and the time left.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr()
    start = said = time.monotonic()
    done = 0

    def speed() -> float:
        return done / max(time.monotonic() - start, 1e-9)

    if not console.is_terminal:

        def tell(rounds: int, note: str = "") -> None:
            nonlocal done, said
            done += rounds
            if time.monotonic() - said > QUIET:
                said = time.monotonic()
                left = (total - done) / max(speed(), 1e-9)
                line = f"{title}: {done:,} of {total:,} rounds, {speed():,.0f} a second, "
                console.print(f"{line}{left:.0f} s left {note}".rstrip(), markup=False)

        yield tell
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total, note="")

        def show(rounds: int, note: str = "") -> None:
            nonlocal done
            done += rounds
            text = f"{note}  {speed():,.0f} rounds/s".strip()
            progress.update(task, advance=rounds, note=text)

        yield show
