"""ridge: the ClientApp."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ridge.task import load_data, test
from ridge.task import train as train_fn

# Flower ClientApp
app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    config, partition_id = context.run_config, context.node_config["partition-id"]
    x, y, _, _ = load_data(partition_id, config["seed"])
    rng = np.random.default_rng(
        [config["seed"], partition_id, msg.content["config"]["server-round"]]
    )
    weights = train_fn(
        msg.content["arrays"].to_numpy_ndarrays(),
        x,
        y,
        config["local-epochs"],
        msg.content["config"]["lr"],
        config["penalty"],
        rng,
    )
    metrics = {"train_mse": test(weights, x, y)[0], "num-examples": len(y)}
    content = RecordDict({"arrays": ArrayRecord(weights), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    _, _, x, y = load_data(context.node_config["partition-id"], context.run_config["seed"])
    mse, r2 = test(msg.content["arrays"].to_numpy_ndarrays(), x, y)
    metrics = MetricRecord({"mse": mse, "r2": r2, "num-examples": len(y)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
