"""A real server in a process of its own, and the browser that looks at it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# The first has no windows of its own to draw, which saves a third of the time.
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _BROWSERS)), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE = 120.0  # seconds within which a server answers or ends, on a busy machine


class Serving:
    """A server that a test may talk to and end."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url
        self.said: list[str] = []  # on stderr, after the address
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def stop(self) -> int:
        """End the server as Ctrl-C does, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE)
        self._listener.join(PATIENCE)
        return code


@contextmanager
def serving_of(*arguments: object) -> Iterator[Serving]:
    """Run `fedprice serve` with these arguments on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedprice", "serve", "--port", "0", "--no-browser",
         *map(str, arguments)],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    began = time.monotonic()
    try:
        while True:
            line = process.stderr.readline()
            if "fedprice is at " in line:
                break
            assert line, "the server ended"
            assert time.monotonic() - began < PATIENCE
        serving = Serving(process, line.partition("fedprice is at ")[2].split()[0])
        yield serving
        serving.stop()
        assert not any("ERROR" in line for line in serving.said), "".join(serving.said)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stderr.close()
