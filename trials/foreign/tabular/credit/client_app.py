"""credit: the ClientApp."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from credit.task import load_data, predict, weighted_loss
from credit.task import train as train_fn

# Flower ClientApp
app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    config = context.run_config
    data, _ = load_data(context.node_config["partition-id"], config["seed"])
    params, losses = train_fn(
        msg.content["model"].to_numpy_ndarrays(),
        data,
        config["local-epochs"],
        msg.content["config"]["lr"],
    )
    metrics = {"loss": losses[-1], "loss-by-epoch": losses, "num-examples": len(data[2])}
    content = RecordDict({"model": ArrayRecord(params), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    _, data = load_data(context.node_config["partition-id"], context.run_config["seed"])
    params = msg.content["model"].to_numpy_ndarrays()
    chance, labels = predict(params, *data[:2]), data[2]
    right = (chance > 0.5) == labels
    metrics = {
        "loss": weighted_loss(params, *data)[0],
        "accuracy": float(right.mean()),
        "accuracy-by-class": [float(right[labels == c].mean()) for c in (0, 1)],
        "share-approved": float((chance > 0.5).mean()),
        "num-examples": len(labels),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
