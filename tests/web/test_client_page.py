"""The Client page in a browser: statement, offer and export."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from fedprice.market.ledger import Ledger
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.statements import statement_of
from fedprice.market.tariffs import Tariff
from tests.web.markets import exported, offer_of
from trials.markets import agreed, paying, small_market
from trials.serving import serving_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Locator, Page

HOSTILE = "<img src=x onerror=document.title='run'>"
BLOCKS = Tariff(((LEVEL_ONE // 2, 8 * MICRO), (LEVEL_ONE, 2 * MICRO)))
MENU = Tariff(((LEVEL_ONE // 4, -8 * MICRO), (LEVEL_ONE, 2 * MICRO)), menu=True)


class Shown(NamedTuple):
    """A server that shows a ledger, and an export of that ledger."""

    url: str
    ledger: Ledger
    export: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("market")
    url = f"sqlite:///{folder / 'market.db'}"
    ledger = Ledger(url, unit="EUR", identity="ab" * 32)
    small_market(ledger, delivery=0.7)
    agreed(ledger, MICRO, {HOSTILE: paying(MICRO), "a/b": paying(0)}, run="<b>second</b>")
    ledger.deposit(f"client:{HOSTILE}", MICRO, "gift")
    exported(ledger, folder / "market.jsonl")
    with serving_of("--ledger", url) as serving:
        yield Shown(serving.url, ledger, folder / "market.jsonl")
    ledger.close()


def part(page: Page | Locator, name: str) -> Locator:
    return page.locator(f"[data-part={name}]")


def figure(page: Page | Locator, name: str) -> Locator:
    return page.locator(f".fp-figure[aria-label='{name}'] .fp-number").first


def drop(page: Page, where: str, content: bytes, name: str = "dropped.jsonl") -> None:
    file = {"name": name, "mimeType": "application/jsonl", "buffer": content}
    part(page, where).locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]


def test_a_statement_has_the_numbers_of_the_ledger(page: Page, shown: Shown) -> None:
    rows, runs = statement_of(shown.ledger, "alice")
    (summed,) = runs.to_dicts()
    head = shown.ledger.head()
    page.goto(shown.url + "client")
    part(page, "clients").get_by_text("alice").click()
    run = part(page, "run")
    run.wait_for()
    assert figure(page, "balance").inner_text() == str(rows["balance"][-1])
    assert figure(page, "paid").inner_text() == str(summed["paid"])
    assert figure(page, "lost").inner_text() == str(summed["lost"])
    delivered = f"{summed['joined']} of {summed['heads']}"
    assert figure(page, "delivered").inner_text() == delivered
    for fact, said in (
        ("rounds", "12 of 12"),
        ("heads", str(summed["heads"])),
        ("missed", str(summed["missed"])),
    ):
        assert run.locator(f"[data-fact={fact}]").inner_text() == said
    assert f"{delivered} heads were delivered in 12 of 12 rounds" in part(run, "why").inner_text()
    page.get_by_text(f"verified, {head.number} entries").wait_for()
    missed = rows.filter(rows["event"] == "missed")["round"].to_list()
    told = part(run, "why-not").inner_text()
    assert [int(number) for number in re.findall(r"\d+", told)] == missed
    entries = part(page, "entries").locator("tbody tr")
    rare = rows.filter(~rows["event"].is_in(["tails", "joined"]))
    assert entries.count() == rare.height
    page.get_by_text("every round").click()
    expect(entries).to_have_count(rows.height)
    with page.expect_download() as saved:
        page.get_by_text("Statement as CSV").click()
    assert saved.value.suggested_filename == "statement-alice.csv"
    text = saved.value.path().read_text("utf-8")
    assert text.count("\n") == rows.height + 1
    assert text.startswith("entry,run,round,event,amount,balance,note\n")


# A vertical line is drawn where a level is; ECharts would round it to two digits.
MARKED = """level => {
    const own = document.querySelector('[aria-label="What each level of the offer would earn"]');
    const chart = getElement(own.id.slice(1)).chart;
    const place = chart.convertToPixel({xAxisIndex: 0}, level);
    return chart.getZr().storage.getDisplayList().some(drawn => drawn.shape?.x1 !== undefined
        && drawn.style.lineDash && Math.abs(drawn.shape.x1 - place) < 1);
}"""


def test_typing_a_cost_moves_the_best_level(page: Page, shown: Shown) -> None:
    page.goto(shown.url + "client/alice")
    cost = page.get_by_label("your cost, EUR")
    cost.wait_for()
    best = figure(page, "best level")
    assert best.inner_text() == "–"
    levels = []
    for typed in ("4", "40"):
        before = best.inner_text()
        cost.fill(typed)
        expect(best).not_to_have_text(before)
        levels.append(float(best.inner_text()))
        page.wait_for_function(MARKED, arg=levels[-1])
    assert levels[0] > levels[1]
    assert "best" in part(page, "levels").inner_text()
    assert page.url == shown.url + "client/alice"  # what was typed is not in the address
    cost.fill("-1")
    part(page, "offer").get_by_text("your cost must be above 0; got -1.").wait_for()


@pytest.mark.slow
def test_an_offer_is_dropped(page: Page, shown: Shown) -> None:
    page.goto(shown.url + "client")
    drop(page, "offer", offer_of(BLOCKS, impact=0.25)[2])
    page.get_by_text("Run first, offered to alice").wait_for()
    page.get_by_label("your cost, EUR").fill("5")
    page.get_by_label("your value, EUR").fill("4")
    expect(figure(page, "best level")).to_have_text(re.compile(r"0\.54"))
    drop(page, "offer", b"{}\n", "bad.jsonl")
    page.get_by_text("bad.jsonl is not a file of receipts").wait_for()
    drop(page, "offer", offer_of(MENU)[2])
    part(page, "offer-words").get_by_text("Only these levels can be chosen").wait_for()
    assert "you pay where the payment is below 0" in part(page, "offer-words").inner_text()
    assert not page.get_by_text("bad.jsonl").is_visible()


def test_an_export_is_verified_and_a_changed_one_refused(page: Page, shown: Shown) -> None:
    page.goto(shown.url + "client/alice")
    whole = shown.export.read_bytes()
    box = part(page, "export")
    head = box.get_by_label("expected head")
    head.fill(shown.ledger.head().hash)
    drop(page, "export", whole)
    part(box, "verified").wait_for()
    assert part(box, "head").inner_text() == shown.ledger.head().hash
    assert f"{whole.count(bytes([10]))} entries" in part(box, "counts").inner_text()
    assert figure(box, "balance").inner_text() == figure(page, "balance").inner_text()
    for content, said in (
        (whole.replace(b'"missed":["', b'"missed":["x', 1), "dropped.jsonl does not verify: entry"),
        (b"".join(whole.splitlines(keepends=True)[:-1]), "the ledger was truncated"),
        (b"no export\n", "line 1 is not an entry of an exported ledger"),
    ):
        drop(page, "export", content)
        box.get_by_text(said).wait_for()
        assert not part(box, "verified").is_visible()
    head.fill("abc")
    drop(page, "export", whole)
    box.get_by_text("a head must be 64 hexadecimal digits; got 'abc'.").wait_for()
    page.goto(shown.url + "client/alice")  # the server survived all of it
    part(page, "run").wait_for()


@pytest.mark.slow
def test_names_are_text(page: Page, shown: Shown) -> None:
    page.goto(shown.url + "client")
    page.get_by_label("client's name").fill("ONERROR")
    expect(page.locator(".fp-choice")).to_have_count(1)
    page.locator(".fp-choice").click()
    run = part(page, "run")
    run.wait_for()
    assert part(page, "client").inner_text() == HOSTILE
    assert run.get_by_text("<b>second</b>").count() == 1
    assert page.locator("img[src=x]").count() == 0
    assert page.title() == "Client · fedprice"
    page.get_by_text("another client").click()
    page.get_by_label("client's name").fill("a/b")  # it has no money yet
    page.get_by_label("client's name").press("Enter")
    run.wait_for()
    assert part(page, "client").inner_text() == "a/b"
    page.goto(shown.url + "client?name=a%2Fb")
    run.wait_for()
    assert part(page, "client").inner_text() == "a/b"
    run.get_by_text("<b>second</b>").click()
    page.wait_for_url("**/runs/*")
    page.goto(shown.url + "client/alicia")
    page.get_by_text("has no client 'alicia'. Did you mean 'alice'?").wait_for()


@pytest.mark.slow
def test_a_narrow_screen_does_not_scroll_sideways(page: Page, shown: Shown) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for place in ("client", "client/alice", f"client/{quote(HOSTILE, safe='')}"):
        page.goto(shown.url + place)
        part(page, "clients" if place == "client" else "run").wait_for()
        drop(page, "export", shown.export.read_bytes())
        part(page, "verified").wait_for()
        drop(page, "export", shown.export.read_bytes().replace(b'"missed":["', b'"missed":["x'))
        page.get_by_text("does not verify").wait_for()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, place
