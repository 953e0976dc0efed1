"""Makes the pictures of docs/web.md again: `python docs/screenshots.py`.

A market is run into a temporary directory, and shown by a real server.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from trials.serving import CHROMIUM, FLAGS, serving_of

FIGURES = Path(__file__).parent / "figures"


class Shot(NamedTuple):
    """One picture: its page, name, size and colours, and what to wait for."""

    name: str
    path: str
    sign: str
    width: int = 1280
    height: int = 960
    scheme: str = "light"


SHOTS = (
    Shot("web-price", "?select=38", "1 selected"),
    Shot("web-price-dark", "?budget=60", "of 60", scheme="dark"),
    Shot("web-price-narrow", "", "Select none", width=390, height=844),
    Shot("web-beliefs", "beliefs", "of the loss", height=1320),
    Shot("web-runs", "runs", "verified,", height=340),
    Shot("web-run", "runs/setup1-equilibrium-0", "verified,"),
    Shot("web-client", "client/1", "verified,"),
)


def run(*arguments: str) -> None:
    """Run a command of fedprice."""
    subprocess.run([sys.executable, "-m", "fedprice", *arguments], check=True)


def main() -> None:
    """Make all pictures."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        ledger = f"sqlite:///{name}/market.db"
        run("simulate", "setup1", "--rounds", "300", "--ledger", ledger)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with serving_of("--ledger", ledger) as serving:
            for shot in SHOTS:
                size = {"width": shot.width, "height": shot.height}
                context = browser.new_context(viewport=size, color_scheme=shot.scheme)  # type: ignore[arg-type]
                page = context.new_page()
                page.goto(serving.url + shot.path)
                page.get_by_text(shot.sign).first.wait_for(timeout=60_000)
                page.wait_for_timeout(4000)
                page.screenshot(path=FIGURES / f"{shot.name}.png")
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
