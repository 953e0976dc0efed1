"""forest: data for gradient-boosted trees."""

import numpy as np
import xgboost as xgb
from flwr.common.config import unflatten_dict


def get_params(run_config) -> dict[str, object]:
    """Return XGBoost's parameters from the run config."""
    params = unflatten_dict(run_config)["params"]
    return {name.replace("-", "_"): value for name, value in params.items()}


def load_data(partition_id: int, seed: int):
    """Return training and validation data: points in a bent valley or out of it."""
    rng = np.random.default_rng([seed, partition_id])
    rows = int(rng.integers(200, 600))
    x = rng.normal(rng.normal(0, 0.3, 6), 1.0, (rows, 6))
    y = (np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.normal(0, 1, rows) > 0).astype(int)
    cut = int(0.8 * rows)
    return xgb.DMatrix(x[:cut], y[:cut]), xgb.DMatrix(x[cut:], y[cut:])
