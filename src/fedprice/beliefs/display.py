"""Summaries of posted tariffs: one for the terminal, and one for a notebook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedprice.pricing.display import (
    Section,
    count_clients,
    extremes,
    html_tables,
    marginal_value,
    number,
    percent,
    rich_tables,
    saved_share,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedprice.beliefs.posted import Posted

__all__ = ["NAMES", "floor_facts", "html_summary", "rich_summary"]

NAMES = {
    "price": "posted prices",
    "blocks": "block tariffs",
    "tariff": "nonlinear tariffs",
    "menu": "menus",
}
FORMS = {
    "price": "one price per unit of level",
    "blocks": "a price for each of {} blocks of levels",
    "tariff": "a nonlinear tariff of {} levels",
    "menu": "a menu of up to {} levels with payments",
}
LOWEST = 0.01  # of the largest level: lower levels are not listed
MOST_BLOCKS = 8  # the most blocks whose prices are listed


def rich_summary(posted: Posted) -> RenderableType:
    """Return a summary for rich: what is expected, some clients, the certificate."""
    return rich_tables(*_parts(posted))


def html_summary(posted: Posted) -> str:
    """Return a summary for a notebook, with the same content as the one for the terminal."""
    return html_tables(*_parts(posted))


def _parts(posted: Posted) -> tuple[str, list[tuple[str, str]], list[Section], str]:
    title = f"{NAMES[posted.form]}, {count_clients(len(posted.clients))}"
    return title, _facts(posted), _sections(posted), _certificate(posted)


def _facts(posted: Posted) -> list[tuple[str, str]]:
    # Within rounding errors, a remainder of a budget of 0 is 0.
    met = math.isclose(posted.expected_spend, posted.budget, abs_tol=1e-9 * posted.spend_std)
    spend = number(posted.budget if met else posted.expected_spend)
    std = number(posted.spend_std)
    pairs = [
        ("form", _form(posted)),
        ("distance to full participation", _distance(posted)),
        ("expected spend", f"{spend} ± {std} (standard deviation) of {number(posted.budget)}"),
        ("over the budget", f"with a probability of {posted.over_budget:.1%}"),
        ("mean expected level", number(float(posted.moments.level.mean()))),
    ]
    if posted.worst is not None:
        loss, most = posted.worst
        more = percent(loss / posted.expected_loss - 1) if posted.expected_loss else "0%"
        pairs.append(
            ("largest over α", f"expected loss {more} more, expected spend {number(most)}")
        )
    if posted.classes is not None:
        used = np.unique(posted.classes[posted.impact > 0]).size
        pairs.append(("price classes", f"{used}; clients of a class get the same price"))
    if posted.clients.level_min.any():
        pairs += floor_facts(posted)
    if posted.separate:
        pairs.append(
            (
                "budget",
                "met up to the effect of one client: each tariff ignores its own client's part",
            )
        )
    if unused := _unused(posted):
        pairs.append(("not used", unused))
    if posted.multiplier and posted.expected_loss:
        loss = posted.expected_loss
        whole = loss + float(posted.impact.sum())
        pairs.append(marginal_value(posted.multiplier, loss, whole, posted.budget))
    return pairs


def _distance(posted: Posted) -> str:
    """Return the distance to full participation of the expected loss (see `Outcome.distance`)."""
    loss = posted.expected_loss
    left = loss / (loss + float(posted.impact.sum())) if loss else 0.0
    return f"{percent(left)}: as if everybody joined {percent(1 - left)} of the rounds"


def _form(posted: Posted) -> str:
    blocks = posted.tariffs.ends.shape[1]
    if posted.form in ("blocks", "tariff") and blocks == 1:
        return f"{FORMS['price']}: no {NAMES[posted.form]} were found that do better"
    return FORMS[posted.form].format(blocks)


def _unused(posted: Posted) -> str:
    """Return which beliefs are about classes that no client has; "" if none."""
    if posted.beliefs.kind != "class" or posted.clients.classes is None:
        return ""
    used = set(posted.clients.classes.tolist())
    names = [name for name in posted.beliefs.types if name not in used]
    if not names:
        return ""
    which = "class" if len(names) == 1 else "classes"
    return f"beliefs about {which} {', '.join(map(repr, names))}, which no client has"


def floor_facts(posted: Posted) -> list[tuple[str, str]]:
    """Return the probability that a client answers below its floor, and what would help."""
    worst = int(np.argmax(posted.missed))
    if not posted.missed[worst]:
        return [("floors", "met by every type in the beliefs")]
    floor, lowest, price = posted.floor_remedies(worst)
    name = posted.clients.ids[worst]
    help_ = f"lower the floor of {name} from {floor:.3g} to {lowest:.3g} (level_min, max_weight)"
    if posted.form == "price":
        help_ += f", or offer it {number(price)} instead of {number(float(posted.prices[worst]))}"
    chance = f"missed with a probability of up to {posted.missed[worst]:.2g} (client {name})"
    return [
        ("floors", f"{chance}; posted tariffs cannot promise them"),
        ("to meet them", help_),
    ]


def _sections(posted: Posted) -> list[Section]:
    """Return the clients with the largest expected payments of either sign."""
    brought = posted.moments
    columns = (posted.impact, brought.level, brought.spend, np.sqrt(brought.variance))
    header = ("client", "impact", "expected level", "expected payment", "± sd", _offer_name(posted))
    sections = []
    for heading, clients in extremes(posted.moments.spend):
        rows = [
            [str(posted.clients.ids[n]), *(number(float(x[n])) for x in columns), _offer(posted, n)]
            for n in clients.tolist()
        ]
        sections.append(Section(f"{heading}, in expectation", header, rows))
    return sections


def _offer_name(posted: Posted) -> str:
    if posted.form == "price":
        return "price"
    return "levels and payments" if posted.tariffs.menu else "prices up to levels"


def _offer(posted: Posted, n: int) -> str:
    """Return the tariff of a client in one line."""
    tariffs = posted.tariffs
    ends, prices = tariffs.ends[n].tolist(), tariffs.prices[n].tolist()
    if posted.form == "price":
        return number(prices[0])
    if tariffs.menu:
        # The lowest levels are for costs above all believed ones, and say little.
        first = int(np.argmax(tariffs.ends[n] >= LOWEST * ends[-1]))
        shown = [f"{ends[i]:.3g} for {number(tariffs.end_payments[n, i])}" for i in (first, -1)]
        return " … ".join(shown)
    blocks = [f"{number(p)} up to {end:.3g}" for end, p in zip(ends, prices, strict=True)]
    if len(blocks) > MOST_BLOCKS:
        blocks = [blocks[0], "…", blocks[-1]]
    return ", ".join(blocks)


def _certificate(posted: Posted) -> str:
    proof = posted.certificate
    if not np.isfinite(proof.dual):
        return "No certificate: it is not proven that no other tariffs have a smaller loss."
    # The certificate's own terms are Σ k/q, and under an interval of α those of its worst end.
    loss = posted.expected_loss if posted.worst is None else posted.worst[0]
    offers = (
        "lottery over prices" if posted.classes is None else "price per class, randomised or not,"
    )
    over = "" if posted.worst is None else ", the largest over α,"
    return (
        f"Certificate: no {offers} with this expected spend has an expected loss{over} that is "
        f"lower by more than {saved_share(proof.primal - proof.dual, loss)}; this is proven."
    )
