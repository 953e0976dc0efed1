"""forest: the ServerApp."""

from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedXgbBagging

# Create ServerApp
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run bagging."""
    num_rounds = context.run_config["num-server-rounds"]
    # The clients make the first trees: the model is empty at first
    arrays = ArrayRecord([np.frombuffer(b"", dtype=np.uint8)])
    strategy = FedXgbBagging(
        fraction_train=context.run_config["fraction-train"],
        fraction_evaluate=context.run_config["fraction-evaluate"],
    )
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=num_rounds)

    # Save final model to disk
    Path("final_model.json").write_bytes(result.arrays["0"].numpy().tobytes())
