"""What must be readable on a telephone, in light and in dark, on each page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("nicegui", reason="needs the extra `web`")

from playwright.sync_api import expect

from fedprice.market.ledger import Ledger
from tests.market.test_following import record, unsigned
from tests.web.conftest import wait_for_card
from trials.serving import Serving, serving_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

SIGNS = {
    "": "Clients and what they are offered",
    "beliefs": "What could go wrong",
    "runs/first": "Newest rounds",
    "client/bob": "Entries",
    "results": "Results",
}
# The words of buttons, links and heads that are broken into pieces: higher than wide, letter by
# letter.
BROKEN = """() => [...document.querySelectorAll('th, .q-btn__content, a')].filter(element => {
    const range = document.createRange(), words = [];
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (walker.nextNode())
        for (const match of walker.currentNode.data.matchAll(/[A-Za-z]+/g)) {
            range.setStart(walker.currentNode, match.index);
            range.setEnd(walker.currentNode, match.index + match[0].length);
            words.push(new Set([...range.getClientRects()].map(r => Math.round(r.top))).size);
        }
    return words.some(lines => lines > 1);
}).map(element => element.textContent)"""
# The contrast of text to the panel that it stands on, as WCAG 2 computes it.
CONTRAST = """element => {
    const light = color => {
        const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map(x => x / 255)
            .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [a, b] = [getComputedStyle(element).color,
        getComputedStyle(element.closest('.fp-panel')).backgroundColor].map(light);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with a run and the report of a study."""
    folder = tmp_path_factory.mktemp("narrow")
    ledger = Ledger(str(folder / "market.db"))
    unsigned(ledger, "first", 20)
    record(ledger, "first", 0, 20)
    ledger.close()
    (folder / "report.html").write_text("<!doctype html><h1>A study</h1>", encoding="utf-8")
    with serving_of("--ledger", folder / "market.db", "--results", folder) as started:
        yield started


@pytest.mark.parametrize("path", SIGNS)
def test_a_narrow_page_neither_scrolls_nor_breaks_words_nor_hides_a_page(
    page: Page, served: Serving, path: str
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(served.url + path)
    expect(page.get_by_text(SIGNS[path]).first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(BROKEN) == []
    if path == "results":
        report = page.frame_locator("iframe")
        expect(report.get_by_role("heading", name="A study")).to_be_visible()
    menu = page.get_by_role("navigation", name="Pages")
    assert menu.evaluate("element => element.scrollWidth <= element.clientWidth")


@pytest.mark.slow
def test_a_command_is_seen_as_a_whole_on_a_narrow_page(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    with serving_of() as empty:
        for path in ("runs", "client", "results"):
            page.goto(empty.url + path)
            command = page.locator(".fp-code")
            expect(command).to_be_visible()
            assert command.evaluate("element => element.scrollWidth <= element.clientWidth")


@pytest.mark.slow
def test_buttons_and_links_are_readable_on_dark(page: Page, served: Serving) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(served.url)
    wait_for_card(page, "spend", "200")
    expect(page.locator("body.body--dark")).to_be_visible()
    for name in ("Use the example", "CSV", "copy as Python"):
        found = page.get_by_role("button", name=name, exact=name == "CSV")
        assert found.evaluate(CONTRAST) >= 4.5
    assert page.get_by_role("link", name="Post prices").evaluate(CONTRAST) >= 4.5


@pytest.mark.slow
def test_a_narrow_page_shows_what_follows_beside_the_budget(page: Page, served: Serving) -> None:
    """Whoever drags the budget on a telephone sees the cards."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(served.url)
    wait_for_card(page, "spend", "200")
    for column in ("payment", "price", "level"):
        assert (box := page.locator("th", has_text=column).last.bounding_box())
        assert box["x"] + box["width"] <= 390, "prices and payments are in sight"
    slider = page.locator("[aria-label='budget slider']").bounding_box()
    spend = page.locator(".fp-figure[aria-label='spend']").bounding_box()
    assert slider is not None
    assert spend is not None
    assert spend["y"] < slider["y"] < 844
    # They stay in sight while any other control moves.
    page.locator("[aria-label='cost exponent slider']").scroll_into_view_if_needed()
    expect(page.locator(".fp-figure[aria-label='spend']")).to_be_in_viewport()
