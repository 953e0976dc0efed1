"""ridge: the ServerApp."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from ridge.task import get_initial

# Create ServerApp
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg."""
    # Read run config
    num_rounds: int = context.run_config["num-server-rounds"]
    lr: float = context.run_config["lr"]

    strategy = FedAvg(
        fraction_train=context.run_config["fraction-train"],
        fraction_evaluate=context.run_config["fraction-evaluate"],
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_initial()),
        num_rounds=num_rounds,
        train_config=ConfigRecord({"lr": lr}),
    )

    # Save final model to disk
    np.savez("final_model.npz", *result.arrays.to_numpy_ndarrays())
