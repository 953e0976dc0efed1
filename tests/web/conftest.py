"""A real server in a process of its own, and a real browser that looks at it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Locator, Page

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
START = 60.0  # seconds within which a server answers, on a busy machine


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
        code = self.process.wait(20)
        self._listener.join(5)
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
            assert time.monotonic() - began < START
        serving = Serving(process, line.partition("fedprice is at ")[2].split()[0])
        yield serving
        serving.stop()
        assert not any("Traceback" in line for line in serving.said), "".join(serving.said)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stderr.close()


def card_of(page: Page, name: str) -> Locator:
    """The number on a card, as an element."""
    return page.locator(f".fp-figure[aria-label='{name}'] .fp-number")


def card(page: Page, name: str) -> str:
    """The number on a card."""
    return card_of(page, name).inner_text()


def wait_for_card(page: Page, name: str, text: str) -> None:
    """Wait until a card shows a number."""
    from playwright.sync_api import expect

    expect(card_of(page, name)).to_have_text(text)


@pytest.fixture
def serving() -> Iterator[Callable[..., Serving]]:
    """Start servers with `serving(*arguments)`; all of them end with the test."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(serving_of(*arguments))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium for the tests of a file; while it runs, no other event loop can."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here; install Debian's package chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=15_000)  # as long as everything else is waited for
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new tab in a context of its own, 1280 pixels wide; errors of its scripts fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(15_000)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors, errors
