"""skdigits: the ServerApp."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from skdigits.task import get_model, get_params

# Create ServerApp
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg."""
    config = context.run_config
    model = get_model(config["learning-rate"], config["penalty"], config["seed"])
    arrays = ArrayRecord(get_params(model))

    # Initialize FedAvg strategy
    strategy = FedAvg(fraction_evaluate=config["fraction-evaluate"])

    # Start strategy, run FedAvg for `num_rounds`
    result = strategy.start(
        grid=grid, initial_arrays=arrays, num_rounds=config["num-server-rounds"]
    )
    coef, intercept = result.arrays.to_numpy_ndarrays()
    np.savez("final_model.npz", coef=coef, intercept=intercept)
