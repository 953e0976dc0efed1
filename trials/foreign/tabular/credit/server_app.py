"""credit: the ServerApp."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from credit.task import initial

# Create ServerApp
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg."""
    config = context.run_config
    strategy = FedAvg(
        fraction_evaluate=config["fraction-evaluate"],
        min_available_nodes=4,
        arrayrecord_key="model",
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(initial()),
        num_rounds=config["num-server-rounds"],
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
    )
