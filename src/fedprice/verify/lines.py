"""Lines of a file that somebody else wrote: numbered, and safe to parse."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

from .forms import VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LONGEST_LINE", "MOST_ENTRIES", "MOST_VALUES", "fits", "lines_of"]

LONGEST_LINE = 1 << 27  # bytes: the offers to 200,000 clients
MOST_VALUES = 1 << 22  # commas and brackets of a line: what it takes in memory
MOST_ENTRIES = 1 << 24  # of an export: a pipe need not end
_ESCAPED = re.compile(rb"\\u(?!00)")  # may stand for a character beyond ASCII
_CONTINUED = bytes(range(0x80, 0xC0))  # the later bytes of a character


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines that are safe to parse: not too long, not too many.

    They come without their ends, and without a mark of UTF-8 at the start: programs that a file
    passes through change these, which says nothing about what is written.
    """
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise VerificationError(f"line {number} is longer than {LONGEST_LINE:,} bytes.")
        if number > MOST_ENTRIES:
            raise VerificationError(f"it has more than {MOST_ENTRIES:,} lines.")
        if not fits(line):
            raise VerificationError(
                f"line {number} has more than {MOST_VALUES:,} values, or more than "
                f"{LONGEST_LINE // 4:,} characters that are not all ASCII."
            )
        line = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).rstrip(b"\r\n")
        yield number, line


def fits(line: bytes) -> bool:
    """Return whether a line is short enough to be parsed in 1 GB of memory.

    One character beyond ASCII makes all characters of a text up to four times as large.
    """
    if not line.isascii() or _ESCAPED.search(line):
        characters = 4 * len(line.translate(None, _CONTINUED))
    else:
        characters = len(line)
    return characters <= LONGEST_LINE and sum(map(line.count, b",[{")) <= MOST_VALUES
