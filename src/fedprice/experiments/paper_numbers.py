"""The numbers that the paper prints in its section VI."""

from __future__ import annotations

__all__ = ["PAYERS", "TIME_TO_ACCURACY", "TIME_TO_LOSS", "UTILITY_GAIN"]

# Tables II and III: seconds to the target loss and accuracy.
TIME_TO_LOSS = {
    "setup1": {"equilibrium": 711, "weighted": 791, "uniform": 903},
    "setup2": {"equilibrium": 926, "weighted": 1384, "uniform": 1969},
    "setup3": {"equilibrium": 1448, "weighted": 1758, "uniform": 2735},
}
TIME_TO_ACCURACY = {
    "setup1": {"equilibrium": 668, "weighted": 759, "uniform": 871},
    "setup2": {"equilibrium": 411, "weighted": 1096, "uniform": 1767},
    "setup3": {"equilibrium": 1412, "weighted": 1766, "uniform": 2645},
}
# Table IV: what the clients gain in total over the other schemes.
UTILITY_GAIN = {
    "setup1": {"uniform": 10_839, "weighted": 5_175},
    "setup2": {"uniform": 77_975, "weighted": 75_909},
    "setup3": {"uniform": 86_200, "weighted": 22_413},
}
# Table V: clients with a negative price in Setup 1, by the mean value.
PAYERS = {0: 0, 4_000: 3, 80_000: 5}
