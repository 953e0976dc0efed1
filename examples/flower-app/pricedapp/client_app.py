"""The client: one line makes it take part in the market, the rest is any Flower app."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprice.flower import Client, ParticipationMod, read_key, read_public_key
from fedprice.market.simulation import simulation_key
from pricedapp.task import costs_and_values, gradient_norm, task_of


def client(context: Context) -> Client:
    """Return this client. Its cost and value stay here unless it reveals them."""
    n, config = int(context.node_config["partition-id"]), context.run_config
    name, seed = str(n + 1), int(config["seed"])
    task = task_of(context)
    costs, values = costs_and_values(int(config["clients"]), seed)
    keys = context.node_config.get("keys")  # the node's own setting, which the server cannot change
    if keys:
        key = read_key(Path(str(keys)) / f"client-{name}.key")
        server = read_public_key(Path(str(keys)) / "server.pub")
        receipts = Path(str(keys)) / f"client-{name}.receipts"  # for `fedprice verify`
    else:  # a simulation: anybody can compute these
        key, server, receipts = simulation_key(f"client {name}"), None, None
    return Client(
        name=name,
        key=key,
        samples=int(task.samples[n]),
        grad_norm=gradient_norm(task, n, seed),
        cost=float(costs[n]),
        value=float(values[n]),
        least_profit=-1000.0,  # some value the model so much that they pay for it
        server=server,
        reveals=config["pricing"] == "full",  # otherwise they stay here
        receipts=receipts,
    )


app = ClientApp()
ParticipationMod(client, returns="update").answer(app)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on this client's data, and return the update of the model."""
    n = int(context.node_config["partition-id"])
    model = message.content["arrays"]["weights"].numpy()
    round_ = int(message.content["config"]["server-round"]) - 1
    task, seed = task_of(context), int(context.run_config["seed"])
    update = task.updates([model], np.array([n]), round_, seed).values[0].reshape(model.shape)
    arrays = ArrayRecord({"weights": Array(update)})
    metrics = MetricRecord({"num-examples": int(task.samples[n])})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return the accuracy of the model on this client's data."""
    n = int(context.node_config["partition-id"])
    features, labels = task_of(context).federation.client(n)
    weights = message.content["arrays"]["weights"].numpy()
    guessed = (features @ weights[:, :-1].T + weights[:, -1]).argmax(axis=1)
    found = {"accuracy": float((guessed == labels).mean()), "num-examples": len(labels)}
    return Message(RecordDict({"metrics": MetricRecord(found)}), reply_to=message)
