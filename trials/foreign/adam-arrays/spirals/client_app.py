"""spirals: the ClientApp."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from spirals.task import adam, forward, load_data

# Flower ClientApp
app = ClientApp()


def record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    """Return arrays by name as Flower sends them."""
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


@app.train()
def train(msg: Message, context: Context):
    """Train with the Adam moments that this client kept from its last round."""
    node, config = context.node_config["partition-id"], context.run_config
    params = {name: array.numpy() for name, array in msg.content["arrays"].items()}
    if "moments" in context.state:
        moments = {name: array.numpy() for name, array in context.state["moments"].items()}
        steps = int(context.state["progress"]["steps"])
    else:
        moments = {f"{kind}.{n}": np.zeros_like(p) for n, p in params.items() for kind in "mv"}
        steps = 0
    x, y = load_data(node, config["seed"])
    rng = np.random.default_rng([config["seed"], node, steps])
    picks = [rng.choice(len(y), 32, replace=False) for _ in range(config["local-steps"])]
    batches = [(x[pick], y[pick]) for pick in picks]
    params, moments, losses = adam(params, moments, steps, msg.content["config"]["lr"], batches)
    context.state["moments"] = record(moments)
    context.state["progress"] = MetricRecord({"steps": steps + len(losses)})
    metrics = {"loss": float(np.mean(losses)), "num-examples": len(y)}
    content = RecordDict({"arrays": record(params), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on points that were not trained with."""
    params = {name: array.numpy() for name, array in msg.content["arrays"].items()}
    x, y = load_data(context.node_config["partition-id"], context.run_config["seed"] + 1000)
    _, logs = forward(params, x)
    metrics = {
        "loss": -float(logs[np.arange(len(y)), y].mean()),
        "accuracy": float((logs.argmax(axis=1) == y).mean()),
        "num-examples": len(y),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
