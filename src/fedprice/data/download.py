"""A downloader for pooch that resumes interrupted downloads."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from fedprice.errors import require

__all__ = ["resume"]

CHUNK = 1 << 16
PATIENCE = 30  # seconds without an answer


def resume(url: str, output: str, _pooch: Any) -> None:
    """Download a URL to `output`; what arrived before an interruption is not downloaded again.

    pooch calls it, and compares the checksum of the result.

    Raises
    ------
    OSError
        If the server does not answer, or the connection breaks.
    """
    part = Path(output).parent / f".{url.rpartition('/')[2]}.part"
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the stored part is not the beginning of this file
            part.unlink()
        raise
    with answer, part.open("ab") as file:
        if answer.status != 206:
            done = 0
            file.truncate(0)
        missing = int(answer.headers.get("Content-Length") or 0)
        bar = require("tqdm", "learn").tqdm(
            total=done + missing or None, initial=done, unit="B", unit_scale=True,
            file=sys.stderr, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        with bar:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
        if file.tell() < done + missing:
            raise OSError(f"{url} was interrupted; run the command again to resume")
    part.replace(output)
