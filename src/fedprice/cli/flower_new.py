"""`fedprice flower new`: a complete Flower app to start from."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fedprice.cli.console import stderr
from fedprice.errors import InputError

__all__ = ["examples", "new"]


def examples() -> Path:
    """Return the directory of the examples: inside the installed package, or that of a clone."""
    package = Path(__file__).parents[1]
    installed, cloned = package / "examples", package.parents[1] / "examples"
    return installed if installed.is_dir() else cloned


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory to write, which must not exist.")
    ],
    torch: Annotated[
        bool, typer.Option("--torch", help="Train a small network with PyTorch.")
    ] = False,
) -> None:
    """Write a complete Flower app that buys participation, to run and to change."""
    if folder.exists():
        raise InputError(f"{folder} exists already. Name a directory that does not.")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"{folder.parent} is not a directory. Create it first.")
    try:
        with tempfile.TemporaryDirectory(dir=folder.absolute().parent) as beside:
            made = Path(beside) / "app"
            shutil.copytree(
                examples() / ("flower-torch" if torch else "flower-app"),
                made,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
            made.rename(folder)  # atomically
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}.") from error
    stderr().print(f"wrote {folder}; run it with: fedprice flower simulate {folder}", markup=False)
