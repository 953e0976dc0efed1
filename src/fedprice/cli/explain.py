"""`fedprice explain`: what a word means."""

from __future__ import annotations

from typing import Annotated

import typer

from fedprice.cli.console import stdout
from fedprice.errors import InputError, nearest
from fedprice.words import WORDS

__all__ = ["explain"]


def explain(
    term: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TERM]", help="A word such as level, price or impact."),
    ] = None,
) -> None:
    """Explain a word that fedprice uses; without one, list them all."""
    if not term:
        for word in WORDS:
            stdout().print(word, markup=False)
        return
    asked = " ".join(" ".join(term).lower().replace("_", " ").replace("-", " ").split())
    meaning = _meaning(asked)
    if meaning is None:
        raise InputError(f"no explanation of {asked!r} is known. {nearest(asked, WORDS)}")
    stdout().print(meaning, markup=False)


def _meaning(asked: str) -> str | None:
    """Return the explanation of a word, also in the plural."""
    for word in (asked, asked.removesuffix("s"), f"{asked}s"):
        if word in WORDS:
            return WORDS[word]
    return None
