"""A real server in a process of its own, and a real browser that looks at it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from trials.serving import CHROMIUM, FLAGS, Serving, serving_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI
    from playwright.sync_api import Browser, Locator, Page


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


PATIENCE = 120_000  # milliseconds: waiting longer costs nothing while all goes well
REPORT = "<!doctype html><title>Study</title><h1>A study</h1>"


@pytest.fixture(scope="session")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The pages with the report of a study, in this process, where NiceGUI has one app only."""
    from fedprice.web.app import build
    from fedprice.web.served_files import Served

    results = tmp_path_factory.mktemp("studied")
    (results / "report.html").write_text(REPORT, encoding="utf-8")
    return build(Served(results=results))


@pytest.fixture
def serving() -> Iterator[Callable[..., Serving]]:
    """Start servers with `serving(*arguments)`; all of them end with the test."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(serving_of(*arguments))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium for the tests of a file; while it runs, no other event loop can."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here; install Debian's package chromium-headless-shell")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new tab in a context of its own, 1280 pixels wide; errors of its scripts fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors, errors
