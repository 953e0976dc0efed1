"""The client: an ordinary PyTorch app for Flower, and one line for the market."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedprice.flower import Client, ParticipationMod
from fedprice.market.simulation import simulation_key
from tinycnn.task import fit, load, network


def client(context: Context) -> Client:
    """Return this client; its cost and value stay here."""
    n, seed = int(context.node_config["partition-id"]), int(context.run_config["seed"])
    rng = np.random.default_rng([seed, n, 1])
    return Client(
        name=str(n + 1),
        key=simulation_key(f"client {n + 1}"),  # an example: anybody can compute it
        samples=len(load(n, seed)[1]),
        cost=float(rng.exponential(10)),
        value=float(rng.exponential(5)),
        least_profit=-20.0,
    )


app = ClientApp()
ParticipationMod(client).answer(app)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train, and return the new weights, as any Flower app does."""
    net = network(int(context.run_config["seed"]))
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    round_ = int(message.content["config"]["server-round"])
    fit(net, int(context.node_config["partition-id"]), round_, context)
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict())}), reply_to=message)
