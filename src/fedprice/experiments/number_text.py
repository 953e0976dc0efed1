"""Numbers as text: three digits, thousands grouped, intervals with as many digits as they need."""

from __future__ import annotations

import math

__all__ = ["half_width", "interval_text", "number_text", "parts_of"]

MOST_DECIMALS = 7


def number_text(value: float) -> str:
    """Return a number with three digits, and thousands grouped.

    >>> number_text(0.78745), number_text(12345.6), number_text(float("inf")), number_text(0.5)
    ('0.787', '12,346', '∞', '0.5')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}").replace("-", "−", 1)


def parts_of(value: float, low: float, high: float, limit: float = math.nan) -> tuple[str, str]:
    """Return a number and its interval as texts, to one or two digits of its shorter side.

    An end that is more than ten times as far away as the other one is rounded by its own side; an
    end next to a limit has the digits that show on which side of it the end lies.

    >>> parts_of(0.3031, 0.3023, 0.3039), parts_of(-7.63, -44, 25.8), parts_of(3, 1, 9)
    (('0.3031', '0.3023 to 0.3039'), ('−8', '−44 to 26'), ('3', '1 to 9'))
    >>> parts_of(0.9, 0.88, 0.92), parts_of(0.2, 0.01, 6.6), parts_of(0.5, math.nan, math.nan)
    (('0.900', '0.880 to 0.920'), ('0.20', '0.01 to 7'), ('0.5', 'no interval'))
    >>> parts_of(1.0, 0.1, 9688.2), parts_of(0.95, 0.9004, 0.9996, limit=1)
    (('1.0', '0.1 to 10,000'), ('0.95', '0.90 to 0.9996'))
    """
    if math.isnan(low) or math.isnan(high):
        return number_text(value), "no interval"
    half = (high - low) / 2
    if not math.isfinite(value + half) or half <= 0 or all(x % 1 == 0 for x in (value, low, high)):
        texts = [number_text(x) for x in (value, low, high)]
    else:
        sides = value - low, high - value
        near, far = sorted(sides)
        decimals = [_decimals(near if near > 0 else half)] * 3
        if far > 10 * near > 0:
            decimals[1 if far == sides[0] else 2] = _decimals(far)
        texts = [_fixed(x, places) for x, places in zip((value, low, high), decimals, strict=True)]
    ends = (_beside(text, end, limit) for text, end in zip(texts[1:], (low, high), strict=True))
    number = _beside(texts[0], value, limit) if low == high else texts[0]
    return number, " to ".join(ends)


def half_width(value: float, low: float, high: float, limit: float = math.nan) -> str | None:
    """Return what to print after ±, or None where that would be another interval.

    >>> half_width(0.5, 0.4, 0.6), half_width(0.5, 0.4, 0.61)
    ('0.10', None)
    """
    number, interval = parts_of(value, low, high, limit)
    if not math.isfinite(value + low + high):
        return None
    places = _places(number)
    below, above = (_fixed(side, places) for side in (value - low, high - value))
    reached = (round(_read(number) + sign * _read(above), places) for sign in (-1, 1))
    if (
        below != above
        or any(_places(end) != places for end in interval.split(" to "))
        or any(_hidden(x, end, limit) for x, end in zip(reached, (low, high), strict=True))
    ):
        return None
    return above


def _beside(text: str, number: float, limit: float) -> str:
    """Return the text of a number with the decimals that show its side of a limit."""
    places = _places(text)
    while _hidden(_read(text), number, limit):
        places += 1
        text = _fixed(number, places)
    return text


def _hidden(rounded: float, number: float, limit: float) -> bool:
    """Return whether rounding hides on which side of a limit a number lies."""
    if math.isnan(limit) or number == limit:
        return False
    return rounded == limit or (rounded > limit) != (number > limit)


def _places(text: str) -> int:
    return len(text.partition(".")[2])


def _read(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-").replace("∞", "inf"))


def _decimals(side: float) -> int:
    """Return after how many decimals a number with an interval ends; negative before the point.

    Two digits of a side that begins with 1, 2 or 3, else one.
    """
    return min(-math.floor(math.log10(side / 4)), MOST_DECIMALS)


def interval_text(value: float, low: float, high: float, limit: float = math.nan) -> str:
    """Return a number with its interval in brackets.

    >>> interval_text(0.5, 0.4, 0.61)
    '0.50 (0.40 to 0.61)'
    >>> interval_text(0.0, 0.0, 0.0)
    '0'
    """
    number, interval = parts_of(value, low, high, limit)
    return number if low == high else f"{number} ({interval})"


def _fixed(value: float, decimals: int) -> str:
    text = f"{round(value, decimals):,.{max(decimals, 0)}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−", 1)
