"""The server: a strategy that buys participation, and pays through a ledger."""

import os
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedprice import Beliefs, InputError
from fedprice.flower import (
    FullInformation,
    Limits,
    PostedTariffs,
    PricedParticipation,
    read_key,
    read_public_keys,
)
from fedprice.market.simulation import simulation_key
from fedprice.rounds import HorvitzThompson, run_fingerprint
from pricedapp.task import MEAN_COST, MEAN_VALUE, task_of

app = ServerApp()


def pricing_of(context: Context) -> FullInformation | PostedTariffs:
    """Return how to price clients that reveal cost and value, or keep them to themselves."""
    config = context.run_config
    budget, alpha = float(config["budget"]), float(config["alpha"])
    if config["pricing"] == "full":
        return FullInformation(budget=budget, alpha=alpha)
    if config["pricing"] != "beliefs":
        raise InputError(f"`pricing` must be 'full' or 'beliefs'; got {config['pricing']!r}.")
    return PostedTariffs(
        budget=budget,
        alpha=alpha,
        beliefs=Beliefs.exponential(cost=MEAN_COST, value=MEAN_VALUE),
        form=str(config["form"]),
        sequential=bool(config["sequential"]),
    )


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Offer, train, pay."""
    config, task = context.run_config, task_of(context)
    rounds, keys, seed = int(config["rounds"]), str(config["keys"]), int(config["seed"])
    nodes = len(list(grid.get_node_ids()))
    strategy = PricedParticipation(
        os.environ.get("FEDPRICE_LEDGER") or str(config["ledger"]),  # clients see the settings
        str(config["run"]),
        key=read_key(Path(keys) / "server.key") if keys else simulation_key("server"),
        keys=read_public_keys(Path(keys)) if keys else None,
        pricing=pricing_of(context),
        clients=min(int(config["clients"]), nodes),  # Flower's default federation has only 2
        aggregator=HorvitzThompson(),  # unbiased, and safe because the loss is convex
        learning_rate=task.training.rate,
        local_steps=task.training.local_steps,
        limits=Limits(
            wait=float(config["wait"]),
            round_timeout=float(config["round-timeout"]),
            at_once=int(config["at-once"]),
        ),
        fund=True,  # it is an example: the money is invented
        task=run_fingerprint(task, 1.0, rounds=rounds, aggregator=HorvitzThompson(), seed=seed),
        seed=None if keys else seed,  # a simulation can be repeated
    )

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord(task.evaluate([arrays["weights"].numpy()]))

    strategy.start(
        grid,
        ArrayRecord({"weights": Array(task.initial[0])}),
        num_rounds=rounds,
        evaluate_fn=evaluate,
    )
