"""normnet: the ClientApp."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from normnet.task import Net, load_data
from normnet.task import test as test_fn
from normnet.task import train as train_fn

# Flower ClientApp
app = ClientApp()


def get_loaders(context: Context):
    """Return loaders of the local training and validation data."""
    node, config = context.node_config, context.run_config
    return load_data(
        node["partition-id"], node["num-partitions"], config["batch-size"], config["seed"]
    )


def get_model(msg: Message):
    """Return the model as received."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    return model


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model, (trainloader, _) = get_model(msg), get_loaders(context)
    config = msg.content["config"]
    torch.manual_seed(1000 * config["server-round"] + context.node_config["partition-id"])
    loss = train_fn(model, trainloader, context.run_config["local-epochs"], config["lr"])
    metrics = {"train_loss": loss, "num-examples": len(trainloader.dataset)}
    content = RecordDict(
        {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model, (_, valloader) = get_model(msg), get_loaders(context)
    loss, accuracy = test_fn(model, valloader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(valloader.dataset)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
