"""Numbers as text: three digits, thousands grouped, intervals with as many digits as they need."""

from __future__ import annotations

import math

__all__ = ["interval_text", "number_text", "parts_of"]

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


def parts_of(value: float, low: float, high: float) -> tuple[str, str]:
    """Return a number and its interval as texts, to one or two digits of its shorter side.

    >>> parts_of(0.3031, 0.3023, 0.3039), parts_of(-7.63, -44, 25.8), parts_of(3, 1, 9)
    (('0.3031', '0.3023 to 0.3039'), ('−8', '−44 to 26'), ('3', '1 to 9'))
    >>> parts_of(0.9, 0.88, 0.92), parts_of(0.2, 0.01, 6.6), parts_of(0.5, math.nan, math.nan)
    (('0.900', '0.880 to 0.920'), ('0.20', '0.01 to 6.60'), ('0.5', 'no interval'))
    """
    if math.isnan(low) or math.isnan(high):
        return number_text(value), "no interval"
    half = (high - low) / 2
    if not math.isfinite(value + half) or half <= 0 or all(x % 1 == 0 for x in (value, low, high)):
        return number_text(value), f"{number_text(low)} to {number_text(high)}"
    side = min(value - low, high - value)
    # Two digits of a side that begins with 1, 2 or 3, else one.
    exponent = math.floor(math.log10((side if side > 0 else half) / 4) + 1)
    decimals = min(max(1 - exponent, 0), MOST_DECIMALS)
    texts = [_fixed(x, decimals) for x in (value, low, high)]
    return texts[0], f"{texts[1]} to {texts[2]}"


def interval_text(value: float, low: float, high: float) -> str:
    """Return a number with its interval in brackets.

    >>> interval_text(0.5, 0.4, 0.61)
    '0.50 (0.40 to 0.61)'
    """
    number, interval = parts_of(value, low, high)
    return f"{number} ({interval})"


def _fixed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−", 1)
