"""The form of letters: parts in order, money without needless digits, levels in words."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedprice.pricing.display import number, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Letter", "Money", "file_name", "level_in_words", "luck_in_words", "short_name"]

LONGEST_NAME = 120  # characters of a client's name in a letter
LONGEST_FILE = 60  # bytes of a client's name in the name of a file
PRICES_WHOLE, SUMS_WHOLE = 100.0, 10.0  # prices and sums from here on are whole
DIGITS = 3  # significant, of smaller ones
MOST_DECIMALS = 12
ROUNDING = 1e-9  # relative: an amount this close below a whole one is taken for it

STYLE = """\
@page { size: A4; margin: 15mm; @bottom-right { content: "page " counter(page); } }
body { font: 10.5pt/1.4 system-ui, sans-serif; max-width: 44em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 18pt; border-bottom: 1px solid; padding-bottom: .2em; overflow-wrap: anywhere; }
h2 { font-size: 12pt; margin: 1.2em 0 .3em; break-after: avoid; }
h1, h2 { color: #1f77b4; }
p, td { overflow-wrap: anywhere; orphans: 3; widows: 3; }
pre { background: #f0f0f0; padding: .7em; white-space: pre-wrap; break-inside: avoid; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2em .5em; }
tr { break-inside: avoid; }
tbody tr:nth-child(odd) { background: #f5f5f5; }
.facts td:first-child { width: 18%; }
.numbers th + th, .numbers td + td { text-align: right; }
@media print { body { font-size: 9.5pt; margin: 0; padding: 0; max-width: none; } }
* { print-color-adjust: exact; }
"""
PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
{style}</style>
{body}
</html>
"""


@dataclass(frozen=True)
class Letter:
    """A letter: a title and parts in order.

    A part is a heading, a paragraph, a command to type, or a table whose first row has the names of
    its columns: `("heading" | "text" | "command", text)` or `("table", rows)`.
    """

    title: str
    parts: Sequence[tuple[str, str | Sequence[Sequence[str]]]]

    def markdown(self) -> str:
        """Return the letter as Markdown; what a client is called cannot change its form."""
        lines = [f"# {_plain(self.title)}"]
        for kind, content in self.parts:
            if isinstance(content, str):
                mark = {"heading": f"## {_plain(content)}", "text": _plain(content)}
                lines.append(mark.get(kind, f"```sh\n{content}\n```"))
                continue
            first, *rest = ([_plain(cell) for cell in row] for row in content)
            rule = ["---", *["---" if len(first) == 2 else "--:"] * (len(first) - 1)]
            lines.append("\n".join(f"| {' | '.join(row)} |" for row in (first, rule, *rest)))
        return "\n\n".join(lines) + "\n"

    def html(self) -> str:
        """Return the letter as a page that needs no other file and prints well on A4."""
        tags = {"heading": "h2", "text": "p", "command": "pre"}
        lines = [f"<h1>{html.escape(self.title)}</h1>"]
        for kind, content in self.parts:
            if isinstance(content, str):
                lines.append(f"<{tags[kind]}>{html.escape(content)}</{tags[kind]}>")
                continue
            first, *rest = ([html.escape(cell) for cell in row] for row in content)
            lines.append(f'<table class="{"facts" if len(first) == 2 else "numbers"}">')
            lines.append(f"<thead><tr><th>{'<th>'.join(first)}</thead>")
            lines += [f"<tr><td>{'<td>'.join(row)}" for row in rest]
            lines.append("</table>")
        body = "\n".join(lines)
        return PAGE.format(title=html.escape(self.title), style=STYLE, body=body)


def _plain(text: str) -> str:
    r"""Return text in which nothing is taken for Markdown.

    Examples
    --------
    >>> print(_plain("St. *Anna* <b>"))
    St. \*Anna\* \<b\>
    """
    return re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", text)


def file_name(n: int, count: int, client: str) -> str:
    """Return the name of a client's letter: its row, so that no two are the same, and its name.

    Examples
    --------
    >>> file_name(2, 40, "../St. Anna"), file_name(0, 1, "..")
    ('03-St-Anna', '1')
    """
    name = re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", client)).strip("-")
    short = name.encode()[:LONGEST_FILE].decode(errors="ignore").rstrip("-")
    return f"{n + 1:0{len(str(count))}}" + (f"-{short}" if short else "")


def level_in_words(level: float) -> str:
    """Return what a level means for somebody who is asked to join.

    Examples
    --------
    >>> level_in_words(1), level_in_words(0.31), level_in_words(0.012), level_in_words(0)
    ('join every round', 'join about 3 rounds in 10', 'join about 1 round in 83', 'stay away')
    """
    if level <= 0:
        return "stay away"
    if level >= 0.9995:
        return "join every round"
    if level >= 0.275:
        whole = 10 if level < 0.95 else 1000 if level >= 0.995 else 100
        share = round(level * whole)
        return f"join about {share} rounds in {whole}"
    return f"join about 1 round in {number(round(1 / level))}"


def luck_in_words(level: float, rounds: int) -> str:
    """Return how far coins can move a payment that is for all rounds together.

    Examples
    --------
    >>> print(luck_in_words(0.5, 1000))
    Luck does not change the payment: your coins choose 500 rounds, and each update that you deliver
    is paid the same.
    >>> print(luck_in_words(0.1464, 1000))
    Luck hardly changes the payment: your coins choose 146 or 147 rounds, and each update that you
    deliver is paid the same, so that you earn the payment to within one update.
    """
    heads = round(level * rounds, 6)  # beyond what coins resolve
    least, most = map(number, (math.floor(heads), math.ceil(heads)))
    same = "rounds, and each update that you deliver is paid the same"
    if least == most:
        return f"Luck does not change the payment: your coins choose {least} {same}."
    return (
        f"Luck hardly changes the payment: your coins choose {least} or {most} {same}, so that you "
        "earn the payment to within one update."
    )


def short_name(client: str) -> str:
    """Return what a letter calls a client: no control characters, and not too long."""
    name = safe(client)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


@dataclass(frozen=True)
class Money:
    """How a letter writes money: with how many decimals, and in which currency.

    Examples
    --------
    >>> euros = Money.like(2364.46, "EUR")
    >>> euros.down(559.07), euros.down(-2.5), euros.up(559.07), euros.text(559.0)
    (559.0, -3.0, 560.0, '559 EUR')
    >>> Money.like(0.41234).text(0.4)
    '0.400'
    """

    decimals: int
    currency: str = ""

    @classmethod
    def like(
        cls, amount: float, currency: str = "", *, whole: float = PRICES_WHOLE, more: int = 0
    ) -> Money:
        """Return whole amounts if this one is large, and otherwise some significant digits."""
        digits = 0
        if 0 < abs(amount) < whole:
            digits = DIGITS - 1 - math.floor(math.log10(abs(amount)))
        return cls(min(digits + more, MOST_DECIMALS), currency)

    @classmethod
    def of_sum(cls, amount: float, currency: str = "", *, more: int = 0) -> Money:
        """Return how a sum that is paid at once is written."""
        return cls.like(amount, currency, whole=SUMS_WHOLE, more=more)

    def down(self, amount: float) -> float:
        """Return an amount rounded down: a client is paid no less than its letter says."""
        scaled = amount * 10.0**self.decimals
        return math.floor(scaled + ROUNDING * abs(scaled)) / 10.0**self.decimals

    def up(self, amount: float) -> float:
        """Return an amount rounded up."""
        return -self.down(-amount)

    def text(self, amount: float) -> str:
        """Return an amount with its currency."""
        digits = f"{amount + 0.0:,.{self.decimals}f}"
        return f"{digits} {self.currency}" if self.currency else digits
