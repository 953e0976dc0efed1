"""The root finder on curves that tempt Newton's iteration to leave."""

import math
from collections.abc import Callable

import pytest

from fedprice.pricing.root import Spend, find_root


@pytest.mark.parametrize("start", [1e-9, 1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize(
    ("curve", "slope", "root"),
    [
        (lambda x: x**0.6, lambda x: 0.6 * x**-0.4, 5.0),
        (lambda x: -(x ** (-1 / 3)), lambda x: x ** (-4 / 3) / 3, 1e-6),
        (lambda x: math.atan(x - 3), lambda x: 1 / (1 + (x - 3) ** 2), 2.0),
        (lambda x: max(x, 2.0) - 2 if x < 5 else 3.0, lambda x: float(2 < x < 5), 4.0),
        (lambda x: x**9, lambda x: 9 * x**8, 1.5),
    ],
)
def test_finds_the_root_from_anywhere(
    curve: Callable[[float], float], slope: Callable[[float], float], root: float, start: float
) -> None:
    budget = curve(root)

    def spend(x: float) -> Spend:
        return Spend(curve(x), curve(x) - budget, slope(x), abs(curve(x)))

    found = find_root(spend, start, upper=1e12)
    assert found.found
    assert found.point == pytest.approx(root, rel=1e-9)
    assert curve(found.point) <= budget
    assert found.iterations < 100


def test_says_when_no_number_lies_between() -> None:
    def step(x: float) -> Spend:
        total = 0.0 if x < math.pi else 1.0
        return Spend(total, total - 0.5, 0.0, 1.0)

    jump = find_root(step, 1.0, upper=10.0)
    assert not jump.found
    assert jump.lower < math.pi <= jump.upper
    assert jump.upper == pytest.approx(jump.lower, rel=1e-15)
