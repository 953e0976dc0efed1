"""Six apps in Flower's style that know nothing of fedprice, and the patch that adds it to each."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.serverapp.strategy import Result, Strategy

from fedprice.flower import InProcessGrid, PricedParticipation
from fedprice.flower.app import FlowerApp
from fedprice.market.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["APPS", "ForeignApp"]

FOLDER = Path(__file__).parent / "foreign"
PATCH_LIMIT = 10  # lines added to client and server together


@dataclass(frozen=True)
class ForeignApp:
    """An app in trials/foreign, and the metric that it is judged by.

    Attributes
    ----------
    name, package
        Of its directory, and of the package in it.
    metric
        What tells how good its model is: 1 is perfect.
    needs
        A module that not everybody has installed; empty if there is none.
    """

    name: str
    package: str
    metric: str = "accuracy"
    needs: str = ""

    @property
    def patch(self) -> Path:
        """The unified diff that adds fedprice."""
        return FOLDER / f"{self.name}.diff"

    @property
    def lines_added(self) -> int:
        """How many lines the patch adds."""
        lines = self.patch.read_text("utf-8").splitlines()
        return sum(line.startswith("+") and not line.startswith("+++") for line in lines)

    def copy(self, folder: Path, *, priced: bool) -> Path:
        """Copy the app below a folder, with or without fedprice; return where it is."""
        copied = folder / ("priced" if priced else "plain") / self.name
        shutil.copytree(FOLDER / self.name, copied, ignore=shutil.ignore_patterns("__pycache__"))
        if priced:
            # In a repository, paths would be those from its root.
            alone = os.environ | {"GIT_CEILING_DIRECTORIES": str(copied.parent.resolve())}
            subprocess.run(
                ["git", "apply", self.patch.resolve()], cwd=copied, env=alone, check=True
            )
        return copied

    def new_ledger(self, folder: Path) -> str:
        """Return the URL of a new ledger; the same coins in every run and place follow from it."""
        url = f"sqlite:///{folder / 'market.db'}"
        Ledger(url, identity="ab" * 32).close()
        return url

    def run_here(self, copied: Path) -> Result:
        """Run a copy in this process, in its own directory; return what its strategy returned."""
        app = FlowerApp.read(copied)
        random.seed(0)  # Flower draws the order of its nodes from it
        with self._fresh_modules(), _results() as results, _inside(copied):
            server, client = app.components_here()
            InProcessGrid(client, app.clients, app.config).start(server)
        (result,) = results
        return result

    def score(self, result: Result) -> float:
        """Return the metric of the last round: the server's if it evaluates, or the clients'."""
        found = result.evaluate_metrics_serverapp or result.evaluate_metrics_clientapp
        return float(found[max(found)][self.metric])  # type: ignore[arg-type]

    @contextmanager
    def _fresh_modules(self) -> Iterator[None]:
        """Forget the app's modules afterwards: plain and priced have the same names."""
        try:
            yield
        finally:
            for name in [n for n in sys.modules if n.split(".")[0] == self.package]:
                del sys.modules[name]


@contextmanager
def _results() -> Iterator[list[Result]]:
    """Collect what strategies return while this is entered."""
    results: list[Result] = []
    starts = {kind: kind.start for kind in (Strategy, PricedParticipation)}

    def kept(start: Any) -> Any:
        def started(*args: Any, **kwargs: Any) -> Result:
            results.append(start(*args, **kwargs))
            return results[-1]

        return started

    try:
        for kind, start in starts.items():
            kind.start = kept(start)  # type: ignore[method-assign]
        yield results
    finally:
        for kind, start in starts.items():
            kind.start = start  # type: ignore[method-assign]


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


APPS = [
    ForeignApp("numpy-regression", "ridge", metric="r2"),
    ForeignApp("sklearn-digits", "skdigits"),
    ForeignApp("torch-batchnorm", "normnet", needs="torch"),
    ForeignApp("adam-arrays", "spirals"),
    ForeignApp("tabular", "credit"),
    ForeignApp("trees", "forest", metric="auc", needs="xgboost"),
]
