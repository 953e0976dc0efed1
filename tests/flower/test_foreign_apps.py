"""Apps that were not written for fedprice run with a short patch, and learn as with FedAvg."""

from pathlib import Path

import pytest

from fedprice.market.ledger import Ledger
from trials.foreign_apps import APPS, FOLDER, PATCH_LIMIT, ForeignApp

GAP = 0.05  # below FedAvg with all clients, at levels that are half of that


each_app = pytest.mark.parametrize("app", APPS, ids=[app.name for app in APPS])


@each_app
def test_the_app_knows_nothing_of_fedprice(app: ForeignApp) -> None:
    for file in (FOLDER / app.name).rglob("*.*"):
        if file.suffix in (".py", ".toml"):
            assert "fedprice" not in file.read_text("utf-8")


@each_app
def test_the_patch_is_short(app: ForeignApp) -> None:
    assert app.lines_added <= PATCH_LIMIT


@pytest.mark.first_case
@each_app
def test_a_patched_app_learns_as_with_fedavg(app: ForeignApp, tmp_path: Path) -> None:
    if app.needs:
        needed = pytest.importorskip(app.needs, reason=f"{app.needs} is not installed")
        if app.needs == "torch":
            needed.set_num_threads(1)  # more threads than free cores are slower by far
    plain = app.score(app.run_here(app.copy(tmp_path, priced=False)))
    copied = app.copy(tmp_path, priced=True)
    url = app.new_ledger(copied)
    assert app.score(app.run_here(copied)) > plain - GAP
    ledger = Ledger(url, create=False)
    (run,) = ledger.verify().runs.values()
    ledger.close()
    assert run.settled
    assert sum(own.joined for own in run.clients.values()) > 0
