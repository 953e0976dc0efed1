"""A client's view of an offer that it kept: what each level would earn, and which one is best."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from fedprice._plumbing.plots import COLORS, new_figure
from fedprice.errors import InputError
from fedprice.market.agreement import conditions_of
from fedprice.market.canonical import canonical_text, digest
from fedprice.market.chain import find
from fedprice.market.database import Database
from fedprice.market.earnings import earnings_of, levels_of
from fedprice.market.messages import RefusedError, Signed
from fedprice.market.money import LEVEL_ONE, money_text
from fedprice.market.offers import FOREVER, Conditions, Offer, chosen_level, run_tariffs
from fedprice.verify import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any, BinaryIO

    import polars as pl
    from matplotlib.figure import Figure
    from sqlalchemy import Connection

    from fedprice._plumbing.arrays import FloatArray

__all__ = [
    "draw_levels",
    "earnings",
    "last_offer",
    "levels_shown",
    "offer_in_words",
    "offer_made",
    "read_offer",
]


def read_offer(path: Path, client: str | None = None) -> tuple[Offer, Conditions]:
    """Return the last offer to a client in a file, and the conditions that it is under.

    The file is what a `Client` with `receipts` keeps, or an export. The signature of the offer is
    checked, not the whole export.

    Parameters
    ----------
    path
        Receipts, or an export, whole or for this client.
    client
        Whose offer to read: an export has those of all, receipts are of one client.
    """
    try:
        with path.open("rb") as file:
            return last_offer(file, str(path), client)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error


def last_offer(file: BinaryIO, name: str, client: str | None = None) -> tuple[Offer, Conditions]:
    """Return what `read_offer` returns, from an open file; errors use this name."""
    offers: list[Signed] = []
    conditions: dict[str, str] = {}
    try:
        for line in iter(lambda: file.readline(LONGEST_LINE), b""):
            stored = json.loads(line)
            if "number" in stored:
                if client is None:
                    raise InputError(
                        f"{name} is an export, with offers to all clients; name yours: --client."
                    )
                for signed, sheet in _offers_in(stored, client):
                    offers.append(signed)
                    conditions[digest(sheet.encode())] = sheet
                continue
            text, signature, key = (stored[part] for part in ("content", "signature", "key"))
            signed = Signed(text.encode(), bytes.fromhex(signature), bytes.fromhex(key))
            kind = json.loads(text)["kind"]
            if kind == "Offer":
                offers.append(signed)
            elif kind == "Conditions":
                conditions[signed.hash] = text
    except InputError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{name} is not a file of receipts, as clients with `receipts` keep it, nor an export "
            "of a ledger."
        ) from error
    if not offers:
        whose = "" if client is None else f" to {client!r}"
        raise InputError(f"{name} holds no offer{whose}: a client keeps those that it answered.")
    try:
        offer: Offer = offers[-1].open(Offer, offers[-1].key)
        all_ = conditions_of(conditions[offer.conditions])
    except RefusedError as error:
        raise InputError(f"{name}: the last offer cannot be used: {error}") from error
    except LookupError:
        raise InputError(f"{name} lacks the conditions of its last offer.") from None
    if client not in (None, offer.client):
        raise InputError(f"{name} has the offers to {offer.client!r}, not to {client!r}.")
    return offer, all_


def _offers_in(stored: dict[str, Any], client: str) -> Iterator[tuple[Signed, str]]:
    """Yield the offers to a client in an entry of an export, with their conditions."""
    content = stored.get("content", {})  # a hidden entry has none
    if content.get("kind", "") != "offer":
        return
    named = canonical_text({"client": client})[1:-1]
    for text, signature in content["offers"]:
        if named in text:
            server = bytes.fromhex(json.loads(content["conditions"])["server"])
            yield Signed(text.encode(), bytes.fromhex(signature), server), content["conditions"]


def offer_made(url: str, run: str, client: str) -> tuple[Offer, Conditions] | None:
    """Return the last offer to a client for a run in a ledger; None if there is none.

    The ledger is only read. An unsigned run has no offers.
    """
    found = None
    named = canonical_text({"client": client})[1:-1]
    with closing(Database(url, read_only=True)) as database, database.reading() as connection:
        for content in _offers_made(connection, run):
            for text, signature in content["offers"]:
                if named not in text:  # so that only one of many offers is parsed
                    continue
                conditions = conditions_of(content["conditions"])
                server = bytes.fromhex(conditions.server)
                signed = Signed(text.encode(), bytes.fromhex(signature), server)
                offer: Offer = signed.open(Offer, server)
                found = (offer, conditions) if offer.client == client else found
    return found


def _offers_made(connection: Connection, run: str) -> Iterator[dict[str, Any]]:
    """Yield the entries with the offers of a run: set after set, and turn after turn."""
    for attempt in itertools.count(1):
        content = find(connection, ["offer", run, attempt])
        if content is None:
            return
        for turn in itertools.count(2):
            yield content
            content = find(connection, ["offer", run, attempt, turn])
            if content is None:
                break


def offer_in_words(offer: Offer, conditions: Conditions) -> list[str]:
    """Return sentences that explain an offer to its client.

    Examples
    --------
    >>> from fedprice.market.messages import ModelSchema
    >>> zero, schema = "0" * 64, ModelSchema([], [], [], []).content()
    >>> all_ = Conditions(
    ...     zero, zero, "run", "", 9, 36, "EUR", schema, zero, zero, "1", 10, zero, FOREVER
    ... )
    >>> offer = Offer(all_.hash, "alice", ((LEVEL_ONE // 2, -8_000_000),), False, 1, "", "0", zero)
    >>> print(*offer_in_words(offer, all_))  # doctest: +NORMALIZE_WHITESPACE
    The price is negative: you would pay 8.00 EUR per unit of level for 9 rounds, up to level 0.5,
    where you pay 4.00 EUR. That is worth it only if a better model is worth more to you.
    This period has 9 of the 36 rounds of the run; all numbers below are for the whole run, as if
    these terms held for all of it.
    """
    unit, tariff = conditions.unit, offer.pays
    cap = f"{tariff.cap / LEVEL_ONE:.4g}"
    most = f"{money_text(abs(tariff.payment(tariff.cap)))} {unit}"
    price = f"{money_text(abs(tariff.blocks[0][1]))} {unit} per unit of level"
    rounds = f"for {conditions.rounds:,} rounds"
    if tariff.menu:
        said = [f"You are offered {tariff}, in {unit} {rounds}. Only these levels can be chosen."]
    elif len(tariff.blocks) > 1:
        said = [f"You are offered {tariff}, in {unit} per unit of level {rounds}."]
    elif tariff.is_income:
        said = [
            f"The price is negative: you would pay {price} {rounds}, up to level {cap}, where you "
            f"pay {most}. That is worth it only if a better model is worth more to you."
        ]
    else:
        said = [f"You are paid {price} {rounds}, up to level {cap}, where you get {most}."]
    if (tariff.menu or len(tariff.blocks) > 1) and any(price < 0 for _, price in tariff.blocks):
        said.append(
            "Where a price is negative, a higher level earns less, and you pay where the payment "
            "is below 0."
        )
    if offer.level_floor > 1:
        said.append(f"The least level that is accepted is {offer.level_floor / LEVEL_ONE:.4g}.")
    if conditions.rounds < conditions.run_rounds:
        said.append(
            f"This period has {conditions.rounds:,} of the {conditions.run_rounds:,} rounds of the "
            "run; all numbers below are for the whole run, as if these terms held for all of it."
        )
    if conditions.expires < FOREVER:
        until = datetime.fromtimestamp(conditions.expires, UTC)
        said.append(f"It can be answered until {until:%Y-%m-%d %H:%M} UTC.")
    return said


def levels_shown(offer: Offer, chosen: int) -> FloatArray:
    """Return levels to compare: those of a menu; else tenths of the cap and the ends of blocks.

    The chosen one, in multiples of 2⁻³², is among them.
    """
    return levels_of(offer.pays.ends, chosen, menu=offer.menu, floor=offer.level_floor)


def earnings(
    offer: Offer,
    conditions: Conditions,
    levels: FloatArray,
    *,
    cost: float,
    value: float,
    cost_exponent: float = 2.0,
) -> pl.DataFrame:
    """Return what levels would earn in the whole run, one per row.

    `profit` is the payment minus the cost; `utility` also subtracts what the client's absence costs
    it through the model, according to the offer's impact.

    Parameters
    ----------
    offer, conditions
        The offer. A period's terms are treated as if they held for the whole run.
    levels
        Levels above 0, as shares of the rounds.
    cost, value, cost_exponent
        c, v and τ of the client, for the whole run.

    Examples
    --------
    >>> from fedprice.market.messages import ModelSchema
    >>> zero, schema = "0" * 64, ModelSchema([], [], [], []).content()
    >>> all_ = Conditions(zero, zero, "run", "", 9, 9, "EUR", schema, zero, zero, "1", 10, zero, 0)
    >>> blocks = ((LEVEL_ONE // 2, 8_000_000), (LEVEL_ONE, 2_000_000))
    >>> offer = Offer(all_.hash, "alice", blocks, False, 1, "", "0.1", zero)
    >>> earnings(offer, all_, np.array([0.5, 1.0]), cost=4, value=10).rows()
    [(0.5, 4.0, 1.0, 3.0, 2.0), (1.0, 5.0, 4.0, 1.0, 1.0)]
    """
    value_impact = value * float(offer.impact)
    tariffs = run_tariffs(offer, conditions)
    return earnings_of(
        tariffs, levels, cost=cost, value_impact=value_impact, exponent=cost_exponent
    )


def draw_levels(
    offer: Offer,
    conditions: Conditions,
    *,
    cost: float,
    value: float,
    cost_exponent: float = 2.0,
) -> Figure:
    """Draw what each level would earn, with the level that suits the client best."""
    own = {"cost": cost, "value": value, "cost_exponent": cost_exponent}
    chosen = chosen_level(offer, conditions, **own)
    if offer.menu:
        levels, style = levels_shown(offer, chosen), "o"
    else:
        levels, style = np.linspace(offer.level_floor, offer.pays.cap, 400) / LEVEL_ONE, "-"
    rows = earnings(offer, conditions, levels, **own)
    (best,) = earnings(offer, conditions, np.array([chosen]) / LEVEL_ONE, **own).rows(named=True)
    figure, (axis,) = new_figure()
    money = np.append(rows.select("payment", "cost", "profit").to_numpy().ravel(), best["utility"])
    for name, color in zip(("payment", "cost", "profit", "utility"), COLORS, strict=False):
        if name != "utility" or value * float(offer.impact):
            axis.plot(rows["level"], rows[name], style, color=color, label=name)
    axis.axvline(best["level"], color="0.4", linewidth=0.8, linestyle="--")
    axis.axhline(0, color="0.4", linewidth=0.8)
    low, high = money.min(), money.max()
    room = 0.06 * (high - low) or 1.0  # the utility falls without bound as the level falls
    axis.set(xlabel="level", ylabel=conditions.unit, ylim=(low - room, high + room))
    axis.legend(frameon=False)
    figure.suptitle(f"what each level would earn; best is {best['level']:.4g}", fontsize="medium")
    return figure
