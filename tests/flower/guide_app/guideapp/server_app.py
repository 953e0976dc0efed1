"""guideapp: the server."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from guideapp.task import TRUTH

# Create ServerApp
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run federated learning, and save the final model."""
    num_rounds = int(context.run_config["num-server-rounds"])
    fraction_train = float(context.run_config["fraction-train"])
    learning_rate = float(context.run_config["learning-rate"])

    def distance(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        (weights,) = arrays.to_numpy_ndarrays()
        return MetricRecord({"loss": float(np.sum((weights - TRUTH) ** 2))})

    # Initialize FedAvg strategy
    strategy = FedAvg(fraction_train=fraction_train)

    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(TRUTH.size)]),
        train_config=ConfigRecord({"lr": learning_rate}),
        num_rounds=num_rounds,
        evaluate_fn=distance,
    )
    np.save("final_model.npy", result.arrays.to_numpy_ndarrays()[0])
