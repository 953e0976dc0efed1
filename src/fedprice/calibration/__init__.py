"""Pilots: `calibrate` measures the constants of the bound and the clients' norms of a task.

`measured` has their results, and the games made from them; `pilots` runs them, `search` finds
pilots that measure α well enough (`searched` records its steps), and `fits` fits the bound to them.
"""

from fedprice.calibration.measured import IMPACTS, Calibration, Fit, Slope
from fedprice.calibration.pilots import calibrate, usual_levels

__all__ = ["IMPACTS", "Calibration", "Fit", "Slope", "calibrate", "usual_levels"]
