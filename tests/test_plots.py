"""The colours of figures and pages: told apart by people who see fewer of them."""

from itertools import combinations

import numpy as np
import pytest

from fedprice._plumbing.plots import COLORS, ON_SCREEN

# Machado, Oliveira, Fernandes (2009): linear RGB as somebody without one kind of cone sees it.
SEEN = {
    "all": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
JUST_SEEN = 2.3  # the difference in CIE Lab that people just notice
TOGETHER = 4  # lines that a figure or a page has at most, beside each other


def lab(color: str, seen: str) -> np.ndarray:
    """Return a colour in CIE Lab, as somebody sees it."""
    values = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(SEEN[seen]) @ linear, 0, 1)
    x, y, z = np.cbrt(np.asarray(TO_XYZ) @ linear / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("colors", [COLORS, ON_SCREEN])
@pytest.mark.parametrize("seen", SEEN)
def test_colours_are_told_apart(colors: tuple[str, ...], seen: str) -> None:
    for one, other in combinations(colors[:TOGETHER], 2):
        distance = np.linalg.norm(lab(one, seen) - lab(other, seen))
        assert distance > 5 * JUST_SEEN, (one, other, distance)
