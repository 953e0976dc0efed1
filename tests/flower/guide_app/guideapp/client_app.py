"""guideapp: the client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from guideapp.task import fit, load_data, loss

# Flower ClientApp
app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    features, labels = load_data(context)
    (weights,) = msg.content.array_records["arrays"].to_numpy_ndarrays()
    rate = float(msg.content.config_records["config"]["lr"])
    weights = fit(weights, features, labels, rate)
    metrics = {"train_loss": loss(weights, features, labels), "num-examples": len(labels)}
    content = RecordDict({"arrays": ArrayRecord([weights]), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    features, labels = load_data(context)
    (weights,) = msg.content.array_records["arrays"].to_numpy_ndarrays()
    metrics = {"eval_loss": loss(weights, features, labels), "num-examples": len(labels)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
