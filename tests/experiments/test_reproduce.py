"""A tiny reproduction end to end: stopped, resumed, tampered with, and looked at in a browser."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from fedprice.errors import InputError
from fedprice.experiments import cells as cells_module
from fedprice.experiments import paper_numbers as paper
from fedprice.experiments.beyond_tables import bound_points, losses_along, rank_correlation
from fedprice.experiments.cells import SetupSource, compute
from fedprice.experiments.reproduce import Reproduction, gather, reproduce
from fedprice.experiments.results import title_of
from fedprice.experiments.settings import PAPER_SCHEMES, Settings
from fedprice.experiments.setup_claims import RACES, all_claims
from fedprice.experiments.setup_report import report_of
from fedprice.experiments.setup_tables import all_tables
from fedprice.experiments.study_tables import total_utility, utility_gain
from fedprice.experiments.verdicts import Verdict
from fedprice.pricing import solve
from fedprice.pricing.along import price_along
from tests.conftest import Run, exit_code
from trials.serving import CHROMIUM, FLAGS

TINY = Settings(
    setups=("setup1",), seeds=5, most_seeds=5, rounds=200, local_steps=10, num_clients=8,
    pilot_repeats=8, pilot_rounds=(5, 10), bias_seeds=2, level_vectors=6, level_rounds=20,
    population_draws=5, random_prices=20,
)  # fmt: skip
# The last words; a worker's traceback used to follow, or a warning about semaphores.
RESUME = r"stopped; \d+ of \d+ runs of .*\. Run the same command again to resume\.\n\Z"
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
    given = ("study", "paper", "--settings", settings_file, "--out", out, "--workers", 1)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        assert exit_code(patch, *given) == 0
    assert printed.getvalue().rstrip().endswith("report.html")
    return out


def steady(page: Path) -> str:
    """The report without wall-clock times and the machine."""
    return re.sub(r"(?s)<(\w+) data-volatile>.*?</\1>", "", page.read_text(encoding="utf-8"))


def test_everything_is_there(whole: Path) -> None:
    tables = {path.name for path in (whole / "tables").iterdir()}
    figures = {path.name for path in (whole / "figures").iterdir()}
    for key in ("verdicts", "table-i", "table-ii", "table-iii", "table-iv", "table-v"):
        assert {f"{key}.csv", f"{key}.md", f"{key}.tex"} <= tables
    for key in (
        "fig-prices-setup1",
        "fig-4-setup1",
        "fig-4-curves-setup1",
        "fig-5",
        "fig-bias-setup1",
        "fig-bound",
    ):
        assert {f"{key}.svg", f"{key}.png", f"{key}.pdf"} <= figures
    page = (whole / "results.md").read_text(encoding="utf-8")
    assert page.count("](figures/") == len(figures) / 3
    assert Settings.read(whole / "settings.toml") == TINY
    results = pl.read_parquet(whole / "results.parquet")
    assert set(results["run"]) >= {"equilibrium", "weighted", "uniform", "memory", "full"}
    assert not list((whole / "cells").glob(".*"))


@pytest.mark.slow
def test_killed_at_random_and_resumed_it_is_the_same(
    whole: Path, place: Path, settings_file: Path
) -> None:
    """SIGKILL to the command once some cells are stored; then the same command again."""
    out = place / "killed"
    enough = np.random.default_rng(3).integers(3, 20)
    process = command("study", "paper", "--settings", settings_file, "--out", out, "--workers", 2)
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
    code, _, err = finish(command("study", "paper", "--settings", settings_file, "--out", out))
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


def wait_until(holds: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def test_ctrl_c_says_how_to_go_on(place: Path, settings_file: Path) -> None:
    out = place / "stopped"
    process = command("study", "paper", "--settings", settings_file, "--out", out)
    wait_until(lambda: len(list(out.glob("cells/setup1*.npz"))) > 3, 240)  # and a run
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert re.search(RESUME, err), err
    wait_until(lambda: not processes_of(process.pid))


@pytest.mark.slow
def test_ctrl_c_while_workers_start_shows_no_traceback(place: Path, settings_file: Path) -> None:
    """They ignored it only once all that they import was there."""
    process = command("study", "paper", "--settings", settings_file, "--out", place / "at once")
    wait_until(lambda: any(map(is_worker, processes_of(process.pid))), 240)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert re.search(RESUME, err), err
    wait_until(lambda: not processes_of(process.pid))


def is_worker(process: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


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
    with pytest.raises(InputError, match=r"lacks 3 of \d+ results .* Run: fedprice study paper"):
        gather(out)
    calibration = next((out / "cells").glob("*calibration*"))
    calibration.rename(out / "elsewhere")
    with pytest.raises(InputError, match=r"lacks the calibration of setup1\. Run: fedprice study"):
        gather(out)
    (out / "elsewhere").rename(calibration)
    told: list[str] = []
    reproduce(TINY, out, workers=1, report=told.append)
    assert sum("is damaged; it is recomputed" in line for line in told) == 2
    assert sum("belongs to another result" in line for line in told) == 1
    assert stored(cells[2]) == kept


def test_a_changed_setting_reruns_only_what_depends_on_it(whole: Path, place: Path) -> None:
    out = place / "changed"
    shutil.copytree(whole, out)
    before = set((out / "cells").iterdir())
    own = place / "own.py"
    own.write_text(OWN, encoding="utf-8")
    changed = Settings(**(vars(TINY) | {"seeds": 6, "most_seeds": 6, "schemes": (f"{own}:mine",)}))
    found = reproduce(changed, out, workers=1)
    new = sorted(path.name for path in set((out / "cells").iterdir()) - before)
    # One more seed of five schemes, two means and two biased mechanisms; six of `mine`.
    assert len(new) == 5 + 2 + 2 + 6
    assert sum("mine" in name for name in new) == 6
    assert "mine" in found.results[0].compared


def test_seeds_are_added_only_where_a_verdict_is_open(whole: Path, place: Path) -> None:
    out = place / "more"
    shutil.copytree(whole, out)
    told: list[str] = []
    changed = Settings(**(vars(TINY) | {"most_seeds": 10}))
    found = reproduce(changed, out, workers=2, report=told.append)
    assert any(re.search("setup1: some verdicts are inconclusive; .* to 10 seeds", t) for t in told)
    result = found.results[0]
    claims = [claim for claim in all_claims(found.results) if claim.runs]
    still = [claim for claim in claims if claim.verdict is Verdict.INCONCLUSIVE]
    assert still
    assert all(claim.seeds == 10 for claim in still)
    assert result.seeds("uniform") == 10
    assert result.seeds("uniform-published") == 5  # no claim is about it
    # One look at 5 seeds and one at 10 share the 5 %; runs that began with 2 are looked at thrice.
    assert result.error("equilibrium", "uniform") == pytest.approx(0.025)
    assert result.error("equilibrium", "subset") == pytest.approx(0.05 / 3)
    again = gather(out)
    assert [c.ours for c in all_claims(again.results)] == [
        c.ours for c in all_claims(found.results)
    ]


@pytest.mark.slow
def test_own_scheme_in_tables_and_figures(run: Run, place: Path, settings_file: Path) -> None:
    own = place / "own.py"
    own.write_text(OWN, encoding="utf-8")
    out = place / "changed"
    code, printed, _ = run(
        "study", "paper", "--settings", settings_file, "--out", out, "--seeds", 6,
        "--most-seeds", 6, "--scheme", f"{own}:mine", "--workers", 1,
    )  # fmt: skip
    assert code == 0
    assert "report.html" in printed
    assert "mine" in (out / "tables" / "table-ii.md").read_text(encoding="utf-8")
    assert "mine" in (out / "figures" / "fig-4-setup1.svg").read_text(encoding="utf-8")
    for text, message in (
        (f"{own}:other", "own.py has no function 'other'"),
        ("nowhere.py:mine", "no Python file "),
        ("unifrm", "Did you mean 'uniform'"),
    ):
        code, _, err = run(
            "study", "paper", "--settings", settings_file, "--out", out, "--scheme", text
        )
        assert code == 2
        assert message in err


def test_data_are_for_the_setups_that_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str | None] = {}

    def begin(_: Settings, name: str, data: str | None, *rest: object) -> SimpleNamespace:
        given[name] = data
        return SimpleNamespace()

    module = import_module("fedprice.experiments.reproduce")
    monkeypatch.setattr(module, "begin", begin)
    module._load(Settings(setups=("setup1", "setup2")), "images", None, None)
    assert given == {"setup1": None, "setup2": "images"}


def test_bad_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRICE_DATA", str(tmp_path))
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("seds = 3\n", encoding="utf-8")
    cases: list[tuple[tuple[object, ...], str]] = [
        (("study", "setup4"), "there is no setup 'setup4'"),
        (("study", "setup2", "--out", tmp_path / "o"), "Run: fedprice data get mnist"),
        (("study", "paper", "--settings", wrong), "Did you mean 'seeds'"),
        (("study", "paper", "--workers", "many"), "`--workers` must be a whole number"),
        (
            ("study", "paper", "--quick", "--settings", wrong),
            "--quick cannot be combined with --settings",
        ),
        (("study", "setup1", "--out", wrong), "cannot make the directory"),
        (("study", "paper", "setup1"), "paper stands for all setups; leave it out, or setup1."),
        (("study", "setup1", "digits"), "there is no setup 'digits'"),
        (
            ("study", "setup1", "--budget", 3),
            "--budget applies only to data, a task or an app of your own",
        ),
        (
            ("study", "setup1", "--max-weight", 3),
            "--max-weight applies only to data, a task or an app of",
        ),
    ]
    for arguments, message in cases:
        code, _, err = run(*arguments)
        assert code == 2, err
        assert message in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pilot_rounds = 5", "`pilot_rounds` must be a list of whole numbers; got 5"),
        ('pilot_rounds = ["a"]', "`pilot_rounds` must be a list of whole numbers"),
        ("schemes = [3]", "`schemes` must be a list of names"),
        ('setups = "setup1"', "`setups` must be a list of names"),
        ('setups = ["setup1", "setup1"]', "`setups` must name each once"),
        ("rounds = 1", "`rounds` must be a whole number, at least 2"),
        ("seeds = 2.5", "`seeds` must be a whole number"),
        ("seeds = ", "is not TOML"),
    ],
)
def test_bad_settings(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        Settings.read(path)


@pytest.mark.slow
def test_no_space_loses_nothing(whole: Path, place: Path) -> None:
    """Files may not grow beyond 4,500 bytes: no more cell can be stored, and those there stay."""
    out = place / "full"
    shutil.copytree(whole, out)
    cells = sorted((out / "cells").glob("*uniform*.npz"))
    assert min(cell.stat().st_size for cell in cells) > 4500
    for cell in cells:
        cell.unlink()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4500, 4500)); "
    program = limit + "from fedprice.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "study", "paper", "--settings", whole / "settings.toml",
         "--out", out, "--workers", "1"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert re.search(r"cannot write .*uniform.*: File too large", done.stderr)
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert {p: c for p, c in after.items() if p.name != "run.json"} == {
        p: c for p, c in before.items() if p.name != "run.json"
    }
    code, _, err = finish(
        command("study", "paper", "--settings", whole / "settings.toml", "--out", out)
    )
    assert code == 0, err
    assert steady(out / "report.html") == steady(whole / "report.html")


@pytest.mark.slow
def test_a_failed_call_leaves_a_reproduction_as_it_was(run: Run, whole: Path, place: Path) -> None:
    out = place / "kept"
    shutil.copytree(whole, out)
    code, _, err = run("study", "setup1", "--out", out, "--scheme", "nowhere.py:x")
    assert code == 2
    assert "no Python file" in err
    assert Settings.read(out / "settings.toml") == TINY
    settings = out / "settings.toml"
    code, _, err = run("study", "paper", "--settings", settings, "--out", out)
    assert (code, "Nothing was left to train" in err) == (0, True)


@pytest.mark.parametrize("name", ["uniform", "subset", "mine"])
def test_names_that_something_else_has(whole: Path, place: Path, name: str) -> None:
    own = place / f"{name}_taken.py"
    own.write_text(OWN.replace("mine", name), encoding="utf-8")
    again = (
        (f"{own}:{name}",) if name != "mine" else (f"{own}:mine", f"{own.with_name('own.py')}:mine")
    )
    (place / "own.py").write_text(OWN, encoding="utf-8")
    settings = Settings(**(vars(TINY) | {"schemes": again}))
    with pytest.raises(InputError, match=f"would be called '{name}' in the results"):
        reproduce(settings, shutil.copytree(whole, place / f"taken-{name}"))


def test_a_worker_with_other_code_is_refused(whole: Path) -> None:
    cell = gather(whole).results[0].study.cells({})[0]
    with pytest.raises(InputError, match="this worker has other data, or other code"):
        compute(cell, "0" * 64)


def test_fingerprints_change_with_all_that_matters(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = gather(whole).results[0].study.cells({})[0]
    source = cell.source
    assert isinstance(source, SetupSource)
    changed = [
        replace(cell, seed=9),
        replace(cell, levels=cell.levels * 0.99),
        replace(cell, aggregator="fedavg"),
        replace(cell, source=replace(source, num_clients=9), levels=np.ones(9)),
        replace(cell, source=replace(source, training=replace(source.training, batch=8))),
    ]
    prints = {cell.fingerprint(), *(other.fingerprint() for other in changed)}
    assert len(prints) == 6
    monkeypatch.setattr(cells_module, "code_version", lambda: "another")
    assert cell.fingerprint() not in prints
    monkeypatch.undo()
    clock = cell.settings["clock"]
    slower = replace(clock, compute=2 * clock.compute)
    monkeypatch.setattr(cells_module, "clock_of", lambda *_: slower)
    assert cell.fingerprint() not in prints


def test_what_tables_say_by_hand(whole: Path) -> None:
    """Utility gains, payers and a wrong α, each computed another way."""
    found = gather(whole)
    result = found.results[0]
    study, losses = result.study, {n: result.last(n).mean() for n in ("equilibrium", "uniform")}
    ours, theirs = study.outcomes["equilibrium"], study.outcomes["uniform"]
    clients = ours.game.clients
    total = {}
    for name, outcome in (("equilibrium", ours), ("uniform", theirs)):
        q = outcome.levels
        worth = clients.value * (study.own - losses[name])
        total[name] = sum(outcome.prices * q - clients.cost * q * q + worth)
        assert total_utility(result, name).value == pytest.approx(total[name])
    gain = utility_gain(result, "uniform").value
    assert gain == pytest.approx(total["equilibrium"] - total["uniform"])
    tables = {table.key: table.rows for table in all_tables(found.results)}
    for key, printed in (("table-ii", paper.TIME_TO_LOSS), ("table-iii", paper.TIME_TO_ACCURACY)):
        for row in tables[key]:
            expected = printed["setup1"]["equilibrium"] / row["paper, s"]
            assert row["paper's ratio"] == pytest.approx(expected, nan_ok=True)
            assert row["paper, s"] == printed["setup1"].get(row["scheme"])
    for row in tables["table-schemes"]:
        curves = result.curves[next(n for n in study.outcomes if title_of(n) == row["scheme"])]
        assert len(curves) > 1
        assert row["mean joiners"] == pytest.approx(
            np.concatenate([c.joined for c in curves]).mean()
        )
    payers = [row["payers, median"] for row in tables["table-v"]]
    draws = [
        (solve(replace(study.setup, mean_value=v).game(study.federation, study.calibration,
               rounds=TINY.rounds, seed=s)).prices < 0).sum()
        for v in (0, 4_000, 80_000) for s in range(5)
    ]  # fmt: skip
    assert payers == [int(np.median(draws[i : i + 5])) for i in (0, 5, 10)]
    claims = [c for c in all_claims(found.results) if c.text.startswith("Some clients pay")]
    assert [c.ours.value for c in claims] == payers[1:]
    right = next(row for row in tables["table-alpha"] if row["α believed / true"] == "1")
    assert right["spend / budget"] == pytest.approx(1)
    assert right["loss by the bound / optimal"] == pytest.approx(1)
    assert all(row["equilibrium / best random"] <= 1 for row in tables["table-random"])
    directions = np.random.default_rng(1).exponential(size=(5, len(clients)))
    one_by_one = [price_along(ours.game, d, "one").expected_loss for d in directions]
    assert losses_along(ours.game, directions) == pytest.approx(one_by_one, rel=1e-6)
    predicted, measured = bound_points(result)
    expected = spearmanr(predicted, measured).statistic
    assert rank_correlation(result).value == pytest.approx(expected)
    assert study.least < result.last("full").min()
    assert study.level_vectors.mean(axis=1) == pytest.approx(np.full(6, 0.25))


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here; Debian's package is `chromium-headless-shell`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (1300, "dark"), (390, "light")])
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
    if width == 1300:  # every table fits; on a phone it scrolls inside its box
        wide = "e => e.scrollWidth > e.clientWidth && e.getAttribute('aria-labelledby')"
        boxes = page.query_selector_all(".scroll")
        assert [box.evaluate(wide) for box in boxes if box.evaluate(wide)] == []
    images = page.query_selector_all("figure img")
    assert len(images) == 6
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


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reproduction]:
    folder = tmp_path_factory.mktemp("short")
    return folder, reproduce(replace(TINY, scope="times"), folder, workers=1)


def test_a_quick_runs_figures_are_those_of_the_whole_bit_for_bit(
    short: tuple[Path, Reproduction], whole: Path
) -> None:
    in_full = gather(whole).results
    claims = all_claims(short[1].results)
    assert claims == all_claims(in_full)[: len(claims)]
    assert [claim.text.split()[4:8] for claim in claims] == [
        ["target", what, "sooner", "than"] for what, _ in RACES
    ]
    (ours,), (theirs,) = short[1].results, in_full
    for what in ("loss", "accuracy"):
        known = theirs.timed(what).times
        assert ours.timed(what).times == {name: known[name] for name in PAPER_SCHEMES}
    rounds = {name: len(curves[0].joined) for name, curves in ours.curves.items()}
    assert set(rounds) == set(PAPER_SCHEMES)
    assert rounds["uniform"] < TINY.rounds  # it is needed only as far as it sets the targets
    for name, curves in ours.curves.items():
        for own, longer in zip(curves, theirs.curves[name], strict=True):
            assert own.loss.tolist() == longer.loss[: own.loss.size].tolist()


def test_a_quick_runs_screen_the_report_and_a_second_call(
    short: tuple[Path, Reproduction], run: Run, tmp_path: Path
) -> None:
    folder, found = short
    settings = tmp_path / "settings.toml"
    settings.write_text(found.settings.to_toml(), encoding="utf-8")
    code, out, err = run("study", "paper", "--settings", settings, "--out", folder)
    assert code == 0, err
    assert "Nothing was left to train: all runs are stored, and only the report" in err
    assert "To look around: fedprice serve --results" in err
    assert out.splitlines()[-1] == str(folder / "report.html")
    assert len(re.findall("holds|fails|inconclusive", out)) == len(RACES)
    paid = out[: out.index("divided by that of other prices")].splitlines()
    assert len([line for line in paid if re.match(r" (\d|all 8)", line)]) == 5
    spends = re.search(r"^ all 8 .*?([\d.]+) +([\d.]+) +([\d.]+) *$", out, flags=re.MULTILINE)
    assert spends is not None
    assert spends.groups() == ("200.00",) * 3
    written = report_of(found)
    assert "`fedprice study setup1` examines the other claims" in written.paragraphs[2]
    assert {table.key for table in written.tables} >= {"table-ii", "table-iii"}
    assert "minus scheme's then" in (folder / "tables" / "table-ii.md").read_text("utf-8")


@pytest.mark.slow
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
    process = command("study", "paper", "--settings", settings, "--out", out, "--workers", "ray")
    code, _, err = finish(process)
    assert code == 0, err
    assert [stored(cell) for cell in cells] == kept
    wait_until(lambda: not processes_of(process.pid))


def stored(cell: Path) -> dict[str, list[object]]:
    with np.load(cell) as arrays:
        return {key: arrays[key].tolist() for key in arrays.files if key != "seconds"}
