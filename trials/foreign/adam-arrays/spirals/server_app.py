"""spirals: the ServerApp."""

from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from spirals.task import initial

# Create ServerApp
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg."""
    config = context.run_config
    params = initial(config["hidden"], config["seed"])
    arrays = ArrayRecord({name: Array(array) for name, array in params.items()})
    strategy = FedAvg(fraction_evaluate=config["fraction-evaluate"])
    strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=config["num-server-rounds"],
        train_config=ConfigRecord({"lr": config["lr"]}),
    )
