"""skdigits: the ClientApp."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from skdigits.task import CLASSES, get_model, get_params, load_data, set_params

# Flower ClientApp
app = ClientApp()


def prepare(msg: Message, context: Context, seed: int = 0):
    """Return the model as received, and the local data."""
    config, node = context.run_config, context.node_config
    model = get_model(config["learning-rate"], config["penalty"], config["seed"] + seed)
    set_params(model, msg.content["arrays"].to_numpy_ndarrays())
    return model, load_data(node["partition-id"], node["num-partitions"], config["seed"])


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model, (x_train, y_train, _, _) = prepare(msg, context, msg.content["config"]["server-round"])
    for _ in range(context.run_config["local-epochs"]):
        model.partial_fit(x_train, y_train)
    content = RecordDict(
        {
            "arrays": ArrayRecord(get_params(model)),
            "metrics": MetricRecord(
                {"train_accuracy": model.score(x_train, y_train), "num-examples": len(x_train)}
            ),
        }
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model, (_, _, x_test, y_test) = prepare(msg, context)
    metrics = {
        "num-examples": len(x_test),
        "test_logloss": log_loss(y_test, model.predict_proba(x_test), labels=CLASSES),
        "accuracy": model.score(x_test, y_test),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
