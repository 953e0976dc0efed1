"""The server: one price for clients that keep cost and value to themselves."""

import logging
import os

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedprice.flower import Limits, Periods, PostedPrice, PricedParticipation
from fedprice.market.simulation import simulation_key
from tinycnn.task import load, metrics, network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Offer, train, pay."""
    config, seed = context.run_config, int(context.run_config["seed"])
    clients = int(config["clients"])
    pictures, labels = load(clients, seed, samples=1000)
    net = network(seed)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        found = metrics(net, pictures, labels)
        logging.getLogger("flwr").info("round %s: accuracy %.3f", server_round, found["accuracy"])
        return MetricRecord(found)

    PricedParticipation(
        os.environ.get("FEDPRICE_LEDGER") or str(config["ledger"]),  # clients see the settings
        str(config["run"]),
        key=simulation_key("server"),
        pricing=PostedPrice(budget=float(config["budget"]), alpha=float(config["alpha"])),
        clients=min(clients, len(list(grid.get_node_ids()))),  # Flower's default federation has 2
        periods=Periods(warm_up=2),  # norms are measured there
        limits=Limits(norm_cap=50.0),
        fund=True,
        seed=seed,  # a simulation can be repeated
    ).start(
        grid,
        ArrayRecord(net.state_dict()),
        num_rounds=int(config["rounds"]),
        evaluate_fn=evaluate,
    )
