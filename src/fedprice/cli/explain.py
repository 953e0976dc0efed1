"""`fedprice explain`: what a word means, and which schemes there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedprice.cli.console import stdout
from fedprice.commands.words import SCHEME_WORDS, SYMBOLS, WORDS
from fedprice.errors import InputError, nearest

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["explain"]

LIST = "schemes"


def explain(
    term: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TERM]", help="A word such as level, price or impact; or schemes."),
    ] = None,
) -> None:
    """Explain a word that fedprice uses, or list the schemes; without a word, list all words."""
    if not term:
        for word in [*WORDS, LIST]:
            stdout().print(word, markup=False)
        return
    asked = " ".join(" ".join(term).lower().replace("_", " ").replace("-", " ").split())
    if asked == LIST:
        stdout().print(_schemes())
        return
    meaning = _meaning(asked)
    if meaning is None:
        raise InputError(f"there is no explanation of {asked!r}. {nearest(asked, WORDS)}")
    stdout().print(meaning, markup=False)


def _meaning(asked: str) -> str | None:
    """Return the explanation of a word, also in the plural, a scheme, or a letter of the paper.

    A column such as "client surplus" is explained by its last words.
    """
    last = asked.partition(" ")[2]
    for word in (asked, asked.removesuffix("s"), f"{asked}s", last):
        if word in WORDS:
            return WORDS[word]
    return SCHEME_WORDS.get(asked.replace(" ", "-")) or WORDS.get(SYMBOLS.get(asked, ""))


def _schemes() -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE,
        show_header=False,
        caption="FILE.py:FUNCTION names one of your own: a function from a Game to an Outcome.",
        caption_justify="left",
    )
    table.add_column(no_wrap=True)
    table.add_column()
    for name, meaning in SCHEME_WORDS.items():
        table.add_row(name, meaning)
    return table
