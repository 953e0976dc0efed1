"""A tiny reproduction end to end: stopped, resumed, tampered with, and looked at in a browser."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedprice.errors import InputError
from fedprice.experiments.cells import Store
from fedprice.experiments.reproduce import gather, reproduce
from fedprice.experiments.settings import Settings
from fedprice.experiments.study import scheme_outcome
from tests.conftest import Run

TINY = Settings(
    setups=("setup1",), seeds=3, rounds=40, local_steps=10, num_clients=8, pilot_repeats=8,
    pilot_rounds=(5, 10), bias_seeds=2, level_vectors=6, level_rounds=20, population_draws=5,
    random_prices=20,
)  # fmt: skip
OWN = """
import fedprice as fp

def mine(game):
    return fp.Outcome.from_prices(game, game.clients.cost / 20, scheme="mine")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduction")


@pytest.fixture(scope="module")
def settings_file(place: Path) -> Path:
    path = place / "tiny.toml"
    path.write_text(TINY.to_toml(), encoding="utf-8")
    return path


def command(*arguments: object) -> subprocess.Popen[str]:
    """Start the real command, in a session of its own, so that it can be killed with no trace."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedprice", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def whole(place: Path, settings_file: Path) -> Path:
    """A reproduction that nobody interrupted."""
    out = place / "whole"
    code, printed, err = finish(command("reproduce", "--settings", settings_file, "--out", out))
    assert code == 0, err
    assert printed.rstrip().endswith("report.html")
    return out


def steady(page: Path) -> str:
    """The report without wall-clock times and the machine."""
    return re.sub(r"(?s)<(\w+) data-volatile>.*?</\1>", "", page.read_text(encoding="utf-8"))


def test_everything_is_there(whole: Path) -> None:
    tables = {path.name for path in (whole / "tables").iterdir()}
    figures = {path.name for path in (whole / "figures").iterdir()}
    for key in ("verdicts", "table-i", "table-ii", "table-iii", "table-iv", "table-v"):
        assert {f"{key}.csv", f"{key}.md", f"{key}.tex"} <= tables
    for key in ("fig-4-setup1", "fig-5", "fig-bias-setup1", "fig-bound"):
        assert {f"{key}.svg", f"{key}.png", f"{key}.pdf"} <= figures
    page = (whole / "results.md").read_text(encoding="utf-8")
    assert page.count("](figures/") == len(figures) / 3
    assert Settings.read(whole / "settings.toml") == TINY
    results = pl.read_parquet(whole / "results.parquet")
    assert set(results["run"]) >= {"equilibrium", "weighted", "uniform", "difference", "full"}
    assert not list((whole / "cells").glob(".*"))


def test_killed_at_random_and_resumed_it_is_the_same(
    whole: Path, place: Path, settings_file: Path
) -> None:
    """SIGKILL to the command once some cells are stored; then the same command again."""
    out = place / "killed"
    enough = np.random.default_rng(3).integers(3, 20)
    process = command("reproduce", "--settings", settings_file, "--out", out, "--workers", 2)
    deadline = time.monotonic() + 240
    while len(list(out.glob("cells/setup1*.npz"))) < enough and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    group = process.pid
    process.kill()
    finish(process)
    wait_until(lambda: not processes_of(group))  # the workers follow their parent
    assert not (out / "report.html").exists()
    before = {path: path.stat().st_mtime_ns for path in out.glob("cells/*.npz")}
    code, _, err = finish(command("reproduce", "--settings", settings_file, "--out", out))
    assert code == 0, err
    after = {path: path.stat().st_mtime_ns for path in before}
    assert after == before  # nothing was computed twice
    assert steady(out / "report.html") == steady(whole / "report.html")
    for one, other in zip(sorted_files(whole), sorted_files(out), strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes()


def sorted_files(folder: Path) -> list[Path]:
    return sorted((folder / "tables").iterdir()) + sorted((folder / "figures").glob("*.svg"))


def processes_of(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getpgid(int(entry.name)) == group:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def test_ctrl_c_says_how_to_go_on(place: Path, settings_file: Path) -> None:
    out = place / "stopped"
    process = command("reproduce", "--settings", settings_file, "--out", out)
    wait_until(lambda: len(list(out.glob("cells/setup1*.npz"))) > 2, 240)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert re.search(r"stopped; \d+ of \d+ runs .* Run the same command again to go on", err)
    assert "Traceback" not in err
    wait_until(lambda: not processes_of(process.pid))


def test_broken_and_foreign_cells_are_named_and_computed_anew(whole: Path, place: Path) -> None:
    out = place / "tampered"
    shutil.copytree(whole, out)
    cells = sorted((out / "cells").glob("*uniform*.npz"))
    cells[0].write_bytes(cells[0].read_bytes()[:-100])  # broken
    shutil.copy(cells[2], cells[1])  # another's
    kept = stored(cells[2])
    flipped = bytearray(cells[2].read_bytes())
    flipped[len(flipped) // 2] ^= 1
    cells[2].write_bytes(flipped)
    with pytest.raises(InputError, match=r"lacks 3 of \d+ results .* Run: fedprice reproduce"):
        gather(out)
    calibration = next((out / "cells").glob("*calibration*"))
    calibration.rename(out / "elsewhere")
    with pytest.raises(InputError, match=r"lacks the calibration of setup1\. Run: fedprice repro"):
        gather(out)
    (out / "elsewhere").rename(calibration)
    told: list[str] = []
    reproduce(TINY, out, report=told.append)
    assert sum("is broken; it is computed anew" in line for line in told) == 2
    assert sum("belongs to something else" in line for line in told) == 1
    assert stored(cells[2]) == kept


def test_a_changed_setting_reruns_only_what_depends_on_it(whole: Path, place: Path) -> None:
    out = place / "changed"
    shutil.copytree(whole, out)
    before = set((out / "cells").iterdir())
    own = place / "own.py"
    own.write_text(OWN, encoding="utf-8")
    changed = Settings(**(vars(TINY) | {"seeds": 4, "schemes": (f"{own}:mine",)}))
    found = reproduce(changed, out, workers=1)
    new = sorted(path.name for path in set((out / "cells").iterdir()) - before)
    # One more seed of three schemes, of the difference estimator, of two means; four of `mine`.
    assert len(new) == 3 + 1 + 2 + 4
    assert sum("mine" in name for name in new) == 4
    assert "mine" in found.results[0].schemes


def test_own_scheme_in_tables_and_figures(run: Run, place: Path, settings_file: Path) -> None:
    own = place / "own.py"
    own.write_text(OWN, encoding="utf-8")
    out = place / "changed"
    code, printed, _ = run(
        "reproduce", "--settings", settings_file, "--out", out, "--seeds", 4, "--scheme",
        f"{own}:mine", "--workers", 1,
    )  # fmt: skip
    assert code == 0
    assert "report.html" in printed
    assert "mine" in (out / "tables" / "table-ii.md").read_text(encoding="utf-8")
    assert "mine" in (out / "figures" / "fig-4-setup1.svg").read_text(encoding="utf-8")
    code, printed, _ = run("report", out)
    assert code == 0
    for text, message in (
        (f"{own}:other", "failed: AttributeError"),
        ("nowhere.py:mine", "no Python file nowhere.py"),
        ("unifrm", "Did you mean 'uniform'"),
    ):
        code, _, err = run("reproduce", "--settings", settings_file, "--out", out, "--scheme", text)
        assert code == 2
        assert message in err


def test_bad_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRICE_DATA", str(tmp_path))
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("seds = 3\n", encoding="utf-8")
    cases: list[tuple[tuple[object, ...], str]] = [
        (("reproduce", "setup4"), "there is no setup 'setup4'"),
        (("reproduce", "setup2", "--out", tmp_path / "o"), "Run: fedprice data get mnist"),
        (("reproduce", "--settings", wrong), "Did you mean 'seeds'"),
        (("reproduce", "--workers", "many"), "`--workers` must be a number"),
        (("report", tmp_path / "none"), "holds no reproduction"),
    ]
    for arguments, message in cases:
        code, _, err = run(*arguments)
        assert code == 2, err
        assert message in err
        assert err.count("\n") == 1


def test_no_space_loses_nothing(whole: Path, place: Path) -> None:
    """Files may not grow beyond 3,000 bytes: no cell can be stored, none is half-written."""
    out = place / "full"
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); "
    program = limit + "from fedprice.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "reproduce", "--settings", whole / "settings.toml",
         "--out", out, "--workers", "1"],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", "")},
    )  # fmt: skip
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert all(path.stat().st_size < 3000 for path in out.rglob("*") if path.is_file())
    Store(out / "cells").clean()
    assert not list(out.rglob("*.part"))


def test_schemes_by_name_and_by_file(whole: Path) -> None:
    study = gather(whole).results[0].study
    assert scheme_outcome(study.game(), "uniform-published").scheme == "uniform-published"


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium here; Debian's package is `chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-background-networking", "--disable-sync"],
        )
        yield started
        started.close()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (400, "light")])
def test_the_report_in_a_browser(browser: object, whole: Path, width: int, scheme: str) -> None:
    context = browser.new_context(  # type: ignore[attr-defined]
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((whole / "report.html").as_uri())
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [
        (whole / "report.html").as_uri()
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    images = page.query_selector_all("figure img")
    assert len(images) == 4
    for image in images:
        image.scroll_into_view_if_needed()
        assert image.is_visible()
        assert image.evaluate("i => i.complete && i.naturalWidth > 100")
        assert len(image.get_attribute("alt")) > 20
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) < 200) == (scheme == "dark")
    page.keyboard.press("Tab")  # the first stop is the link past the contents
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#verdicts"
    headings = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    steps = np.diff(headings)
    assert headings[0] == 1
    assert steps.max() <= 1
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    context.close()


def test_ray_gives_the_same(whole: Path, place: Path) -> None:
    """A local Ray on loopback computes two missing cells as the processes did."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedprice[ray]'")
    out = place / "ray"
    shutil.copytree(whole, out)
    cells = sorted((out / "cells").glob("*weighted*.npz"))[:2]
    kept = [stored(cell) for cell in cells]
    for cell in cells:
        cell.unlink()
    settings = whole / "settings.toml"
    process = command("reproduce", "--settings", settings, "--out", out, "--workers", "ray")
    code, _, err = finish(process)
    assert code == 0, err
    assert [stored(cell) for cell in cells] == kept
    wait_until(lambda: not processes_of(process.pid))


def stored(cell: Path) -> dict[str, list[object]]:
    with np.load(cell) as arrays:
        return {key: arrays[key].tolist() for key in arrays.files if key != "seconds"}
