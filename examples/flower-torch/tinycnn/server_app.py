"""The server: one price for clients that keep cost and value to themselves."""

import logging

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedprice.flower import PostedPrice, PricedParticipation
from fedprice.market.simulation import simulation_key
from tinycnn.task import accuracy, load, network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Offer, train, pay."""
    config, seed = context.run_config, int(context.run_config["seed"])
    rate, clients = float(config["learning-rate"]), int(config["clients"])
    pictures, labels = load(clients, seed, samples=1000)
    net = network(seed)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        found = accuracy(net, pictures, labels)
        logging.getLogger("flwr").info("round %s: accuracy %.3f", server_round, found)
        return MetricRecord({"accuracy": found})

    PricedParticipation(
        str(config["ledger"]),
        str(config["run"]),
        key=simulation_key(seed, "server"),
        pricing=PostedPrice(budget=float(config["budget"]), alpha=float(config["alpha"])),
        clients=clients,
        learning_rate=lambda _: rate,
        local_steps=20,  # about as many batches as a client has
        norm_cap=50.0,
        fund=True,
    ).start(
        grid,
        ArrayRecord(net.state_dict()),
        num_rounds=int(config["rounds"]),
        evaluate_fn=evaluate,
    )
