"""Apps that were not written for fedprice, patched and run in three places: `make bench-apps`.

Each of the apps in trials/foreign is copied and run as it is, with all clients in every
round. Its patch is then applied to another copy, which is run by `fedprice flower` in process, on
Ray and as a deployment with TLS. Writes apps.json and apps.md beside this file; with names of apps,
only their rows are measured again. Apps whose framework is not installed are left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import flwr

from fedprice.market.ledger import Ledger
from trials.foreign_apps import APPS, ForeignApp

HERE = Path(__file__).parent
PLACES = {
    "in process": ["simulate"],
    "Ray": ["simulate", "--ray", "--timeout", "900"],
    "deployment": ["up", "--timeout", "900"],
}


def priced(app: ForeignApp, place: str, folder: Path) -> dict[str, Any]:
    """Run a patched copy in a place; return its metric and what the ledger records."""
    copied = app.copy(folder, priced=True)
    url = app.new_ledger(folder)
    command, *options = PLACES[place]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "fedprice", "flower", command, copied, *options, "--ledger", url],
        cwd=folder,
        env=os.environ | {"FEDPRICE_RUN": "run"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1], "seconds": seconds}
    ledger = Ledger(url, create=False)
    run = ledger.verify().runs["run"]
    scores = [
        own.metrics[app.metric]
        for own in ledger.metrics("run")
        if own.who != "train" and app.metric in own.metrics
    ]
    ledger.close()
    joined = [own.joined / run.done for own in run.clients.values()]
    return {
        "score": scores[-1],
        "share_joined": sum(joined) / len(joined),
        "settled": run.settled,
        "seconds": seconds,
    }


def measure(app: ForeignApp) -> dict[str, Any]:
    """Run an app as it is, and patched in all places."""
    with tempfile.TemporaryDirectory(prefix="fedprice-") as folder:
        plain = app.score(app.run_here(app.copy(Path(folder), priced=False)))
    found: dict[str, Any] = {"metric": app.metric, "lines": app.lines_added, "FedAvg": plain}
    for place in PLACES:
        with tempfile.TemporaryDirectory(prefix="fedprice-") as folder:
            found[place] = priced(app, place, Path(folder))
        print(app.name, place, found[place], file=sys.stderr, flush=True)
    return found


def cell(own: dict[str, Any]) -> str:
    """Return a result in a place, for the table."""
    if "error" in own:
        return f"failed: {own['error']}"
    return f"{own['score']:.3f}"


def report(result: dict[str, Any]) -> str:
    """Return the table, as Markdown."""
    lines = [
        "| app | lines added | metric | all clients, unpriced | "
        + " | ".join(PLACES)
        + " | joined |",
        "|---|---:|---|---:|" + "---:|" * len(PLACES) + "---:|",
    ]
    for name, own in result.items():
        cells = [cell(own[place]) for place in PLACES]
        joined = own["in process"].get("share_joined", float("nan"))
        lines.append(
            f"| {name} | {own['lines']} | {own['metric']} | {own['FedAvg']:.3f} | "
            + " | ".join(cells)
            + f" | {joined:.0%} |"
        )
    return "\n".join(
        [
            "# Apps that were not written for fedprice",
            "",
            "Written by `make bench-apps`. Apps in Flower's style (`trials/foreign`), ten "
            "rounds each: as they are, with all clients in every round, by FedAvg (trees: bagging "
            "of XGBoost); and with a patch beside them, whose added lines are counted in client "
            "and server together, blank ones included. The metric is that of the last round, "
            "measured by the app itself on the server or on its clients. Joined: how many of all "
            "possible trainings took place; the coins are the same in all places.",
            "",
            *lines,
            "",
            f"Python {platform.python_version()}, Flower {flwr.__version__}, "
            f"{os.cpu_count()} cores.",
            "",
        ]
    )


def main() -> None:
    """Run all, or the apps that are named; print and write the table."""
    file, wanted = HERE / "apps.json", sys.argv[1:]
    known = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for app in APPS:
        if app.needs and importlib.util.find_spec(app.needs) is None:
            print(f"{app.name} is left out: {app.needs} is not installed", file=sys.stderr)
        elif not wanted or app.name in wanted:
            known[app.name] = measure(app)
            result = {own.name: known[own.name] for own in APPS if own.name in known}
            file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            (HERE / "apps.md").write_text(report(result), encoding="utf-8")
    sys.stdout.write(report(known))


if __name__ == "__main__":
    main()
