"""How fast the pages are, in a real browser: `make bench-web`.

Headless Chromium on the same machine as the server. From slider to redrawn charts is the time from
a key press on the slider of the budget until all charts that follow it have drawn their new points.
Writes web.json and web.md beside this file.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import fedprice as fp
from benchmarks.large_ledger import large_ledger
from trials.serving import CHROMIUM, FLAGS, Serving, serving_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from playwright.sync_api import Browser, Page

T = TypeVar("T")
HERE = Path(__file__).parent
ROUNDS, CLIENTS, BROWSERS = 100_000, 1_000_000, 20
PACE = 0.04  # seconds between rounds of a run that grows
# What follows the budget: price over value, level over impact, the frontier.
WATCH = """() => {
    window.drawn = {};
    window.pressed = 0;
    const charts = [...document.querySelectorAll('.nicegui-echart')].slice(0, 3);
    charts.forEach((element, n) => getElement(element.id.slice(1)).chart.on('finished', () => {
        window.drawn[n] = performance.now(); }));
    document.addEventListener('keydown', () => { window.pressed = performance.now(); }, true);
}"""
DRAWN = "() => [0, 1, 2].every(n => (window.drawn[n] || 0) > window.pressed)"
TOOK = "() => Math.max(...Object.values(window.drawn)) - window.pressed"
SLIDER = "[aria-label='budget slider'] [tabindex]"
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def memory(process: int) -> float:
    """Return the memory that a process holds, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def heap(page: Page) -> float:
    """Return the memory of a tab's scripts after a collection, in MB."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return _metric(metrics, "JSHeapUsedSize") / 2**20


def _metric(metrics: list[dict[str, Any]], name: str) -> float:
    return float(next(one["value"] for one in metrics if one["name"] == name))


def opened(browser: Browser, url: str, sign: str) -> tuple[Page, float, float]:
    """Return a page, the time to its first paint, and until it shows a sign, in seconds."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(60_000)
    page.wait_for_timeout(1500)  # the browser draws its own new window first
    start = time.perf_counter()
    page.goto(url)
    page.wait_for_function(sign)
    whole = time.perf_counter() - start
    page.wait_for_function(FIRST_PAINT)
    return page, page.evaluate(FIRST_PAINT) / 1000, whole


# The page has its numbers and charts, and is connected to the server.
PRICED = """() => window.did_handshake
    && [...document.querySelectorAll('.fp-number')].some(e => e.textContent !== '–')
    && document.querySelector('.nicegui-echart canvas')"""


def paints(browser: Browser, serving: Serving, repeats: int = 7) -> tuple[float, float]:
    """Return the medians of first paint and of the whole page, in seconds."""
    first, whole = [], []
    for _ in range(repeats):
        page, painted, done = opened(browser, serving.url, PRICED)
        first.append(painted)
        whole.append(done)
        page.context.close()
    return statistics.median(first), statistics.median(whole)


def drags(page: Page, repeats: int) -> list[float]:
    """Return the times from slider to redrawn charts, in seconds."""
    page.wait_for_timeout(3000)  # the second scheme, the frontier
    page.evaluate(WATCH)
    page.locator(SLIDER).focus()
    took = []
    for n in range(repeats):
        page.keyboard.press("ArrowRight" if n % 10 < 5 else "ArrowLeft")
        page.wait_for_function(DRAWN)
        took.append(page.evaluate(TOOK) / 1000)
        page.wait_for_timeout(150)
    return took


def apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result, run in another thread: this one already has an event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def many_browsers(serving: Serving) -> tuple[int, float, float]:
    """Drag in many browsers at once; return errors, the median time, and the server's memory.

    Each is a separate context within one Chromium: they share only the processor.
    """
    from playwright.async_api import Browser as AsyncBrowser
    from playwright.async_api import async_playwright

    async def one(browser: AsyncBrowser) -> tuple[int, list[float]]:
        page = await (await browser.new_context()).new_page()
        page.set_default_timeout(120_000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("response", lambda r: errors.append(r.url) if r.status >= 400 else None)
        await page.goto(serving.url)
        await page.wait_for_function(PRICED)
        await page.wait_for_timeout(5000)
        await page.evaluate(WATCH)
        await page.locator(SLIDER).focus()
        took = []
        for _ in range(5):
            await page.keyboard.press("ArrowRight")
            await page.wait_for_function(DRAWN)
            took.append(await page.evaluate(TOOK) / 1000)
            await page.wait_for_timeout(1000)
        return len(errors) + await page.get_by_role("alert").count(), took

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        found = await asyncio.gather(*(one(browser) for _ in range(BROWSERS)))
        held = memory(serving.process.pid)
        await browser.close()
    times = [seconds for _, some in found for seconds in some]
    return sum(errors for errors, _ in found), statistics.median(times), held


def busy(page: Page, serving: Serving) -> float:
    """Return the processor time of a tab and of the server so far, in seconds."""
    session = page.context.new_cdp_session(page)
    # Not the usual clock of the tab: its tasks take longer while other processes are busy.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab = _metric(session.send("Performance.getMetrics")["metrics"], "TaskDuration")
    session.detach()
    ticks = Path(f"/proc/{serving.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return tab + sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def ledgers(browser: Browser, directory: Path) -> list[tuple[str, float, float | None]]:
    """Open a run of many rounds, and watch it while it grows."""
    url = f"sqlite:///{directory / 'market.db'}"
    figures: list[tuple[str, float, float | None]] = []
    live = {}
    for done in (1000, ROUNDS):
        large_ledger(url, rounds=ROUNDS, stop_after=done - 200)
        with serving_of("--ledger", url) as serving:
            page, _, _ = opened(browser, f"{serving.url}runs/large", _shows(done - 200))
            page.wait_for_timeout(2000)
            begun: list[float] = []

            def tell(
                _: int, page: Page = page, serving: Serving = serving, begun: list[float] = begun
            ) -> None:
                if not begun:  # the writer has read the ledger, and starts to record
                    begun.append(busy(page, serving))
                time.sleep(PACE)  # so that the page looks as often, however fast the writer is

            large_ledger(url, rounds=ROUNDS, stop_after=done, tell=tell)
            page.wait_for_function(_shows(done))
            live[done] = busy(page, serving) - begun[0]
            held = heap(page)
            page.context.close()
    firsts, opens = list[float](), list[float]()
    for _ in range(7):
        with serving_of("--ledger", url) as serving:  # a server that has not shown it before
            for times in (firsts, opens):
                page, _, whole = opened(browser, f"{serving.url}runs/large", _shows(ROUNDS))
                times.append(whole)
                page.context.close()
    figures += [
        (f"a run of {ROUNDS:,} rounds opens for the first time, s", statistics.median(firsts), 1.5),
        ("it opens again, s", statistics.median(opens), 1.5),
        ("memory of its tab, MB", held, None),
        ("its last 200 rounds shown live, processor time, s", live[ROUNDS], None),
        ("the same, over rounds 801 to 1,000", live[ROUNDS] / live[1000], 1.5),
    ]
    return figures


def _shows(rounds: int) -> str:
    """Return what is true of a page of a run that shows so many rounds."""
    return (
        f"() => document.querySelector('[aria-label=rounds] .fp-number')?.innerText == '{rounds:,}'"
    )


def main() -> int:
    """Run everything and write the table."""
    from playwright.sync_api import sync_playwright

    figures: list[tuple[str, float, float | None]] = []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        directory = Path(name)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with serving_of() as serving:
            first, whole = paints(browser, serving)
            page, _, _ = opened(browser, serving.url, PRICED)
            took = drags(page, 50)
            figures += [
                ("first paint, s", first, 2.0),
                ("whole page with charts, s", whole, None),
                (
                    "40 clients: from slider to redrawn charts, s",
                    statistics.median(took),
                    0.1,
                ),
                ("the slowest of 50, s", max(took), None),
                ("memory of the tab, MB", heap(page), None),
            ]
            page.context.close()
            errors, median, held = apart(many_browsers(serving))
            figures += [
                (f"{BROWSERS} browsers at once: errors", errors, 0),
                (
                    f"{BROWSERS} browsers at once: from slider to redrawn charts, s",
                    median,
                    None,
                ),
                (f"memory of the server with {BROWSERS} browsers, MB", held, None),
            ]
        large = directory / "clients.parquet"
        fp.population(CLIENTS).write(large)
        with serving_of(large) as serving:
            page, first, whole = opened(browser, f"{serving.url}?budget={5 * CLIENTS}", PRICED)
            took = drags(page, 15)
            figures += [
                ("10⁶ clients: first paint, s", first, 2.0),
                ("10⁶ clients: whole page with charts, s", whole, None),
                (
                    "10⁶ clients: from slider to redrawn charts, s",
                    statistics.median(took),
                    1.0,
                ),
                ("10⁶ clients: memory of the tab, MB", heap(page), 200),
                ("10⁶ clients: memory of the server, MB", memory(serving.process.pid), None),
            ]
            page.context.close()
        figures += ledgers(browser, directory)
        browser.close()
    lines = [
        "# The pages in a browser",
        "",
        "Written by `make bench-web`: headless Chromium and the server share a machine of two "
        "cores; medians.",
        "",
        "| figure | measured | limit | holds |",
        "|---|---:|---:|---|",
    ]
    failed = False
    for figure, measured, limit in figures:
        holds = limit is None or measured <= limit
        failed |= not holds
        bound = "" if limit is None else f"≤ {limit:g}"
        verdict = "" if limit is None else "yes" if holds else "NO"
        lines.append(f"| {figure} | {measured:.3g} | {bound} | {verdict} |")
    lines += [
        "",
        f"Python {platform.python_version()}, NiceGUI {_version()}; load of the machine "
        f"before: {load:.1f}.",
    ]
    (HERE / "web.md").write_text("\n".join(lines) + "\n")
    (HERE / "web.json").write_text(json.dumps([list(f) for f in figures], indent=1) + "\n")
    print("\n".join(lines))
    return int(failed)


def _version() -> str:
    from importlib.metadata import version

    return version("nicegui")


if __name__ == "__main__":
    sys.exit(main())
