"""The summary of a study of one's own: one row per scheme, and what the first one is beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprice.experiments.results import basis, mean, title_of
from fedprice.experiments.study import FULL
from fedprice.experiments.table import Table
from fedprice.experiments.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.experiments.results import Result
    from fedprice.experiments.verdicts import Claim

__all__ = ["ORDER", "listed", "summary_table"]

ORDER = ("loss", "accuracy", "time")
WORDS = {Verdict.HOLDS: "ahead", Verdict.FAILS: "behind"}


def _compared(claims: Sequence[Claim]) -> dict[str, str]:
    """Return what the first scheme is beside each other one, by its name.

    Such as "ahead", or "ahead in loss and time, inconclusive in accuracy".
    """
    compared: dict[str, dict[str, list[str]]] = {}
    for claim in claims:
        if claim.about:
            words = WORDS.get(claim.verdict, claim.verdict.value)
            compared.setdefault(claim.runs[-1], {}).setdefault(words, []).append(claim.about)
    return {other: _in_words(words) for other, words in compared.items()}


def _in_words(abouts: dict[str, list[str]]) -> str:
    if len(abouts) == 1:
        return next(iter(abouts))
    parts = []
    for words in sorted(abouts, key=[*WORDS.values(), *abouts].index):
        names = listed(sorted(abouts[words], key=ORDER.index))
        parts.append(f"{words} in {names}" if words in WORDS.values() else f"{words}: {names}")
    return "; ".join(parts)


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def summary_table(result: Result, claims: Sequence[Claim]) -> Table:
    """Return what each scheme reaches, and how the first one compares with it."""
    study, beside = result.study, _compared(claims)
    names = list(dict.fromkeys([*study.outcomes, *([FULL] if FULL in result.curves else [])]))
    times = result.race("loss", names, study.reference, result.end, None).times
    unit = "time, s" if study.source.clock is not None else "rounds"
    rows: list[dict[str, Any]] = [
        {
            "scheme": "everybody joins" if name not in study.outcomes else title_of(name),
            **{f"final {what}": result.estimate([name], mean, what) for what in result.measures},
            f"{unit} to the target": times[name],
            f"{study.subject} is": beside.get(name, "–"),
        }
        for name in names
    ]
    return Table(
        "table-summary",
        f"{study.subject} beside the others",
        rows,
        f"What the trained models reach, and when their loss gets to what {study.reference} "
        f"reaches at {study.fraction('loss'):.0%} of the evaluation time.",
        basis(study.settings),
    )
