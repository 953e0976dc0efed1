"""The server: a strategy that buys participation, and pays through a ledger."""

import os
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedprice.flower import FullInformation, PricedParticipation, read_key, read_public_keys
from fedprice.learning import HorvitzThompson, run_fingerprint
from fedprice.market.simulation import simulation_key
from pricedapp.task import federation_of, initial_model, training_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Offer, train, pay."""
    config, training = context.run_config, training_of(context)
    federation, keys, seed = federation_of(context), str(config["keys"]), int(config["seed"])
    strategy = PricedParticipation(
        os.environ.get("FEDPRICE_LEDGER") or str(config["ledger"]),  # clients see the settings
        str(config["run"]),
        key=read_key(Path(keys) / "server.key") if keys else simulation_key(seed, "server"),
        keys=read_public_keys(Path(keys)) if keys else None,
        pricing=FullInformation(budget=float(config["budget"]), alpha=float(config["alpha"])),
        clients=int(config["clients"]),
        learning_rate=training.rate,
        local_steps=training.local_steps,
        wait=float(config["wait"]),
        round_timeout=float(config["round-timeout"]),
        at_once=int(config["at-once"]),
        fund=True,  # it is an example: the money comes from nowhere
        task=run_fingerprint(
            federation, 1.0, training=training, aggregator=HorvitzThompson(), clock=None, seed=seed
        ),
    )

    def accuracy(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        weights = arrays["weights"].numpy()
        logits = federation.test_features @ weights[:, :-1].T + weights[:, -1]
        right = float((logits.argmax(axis=1) == federation.test_labels).mean())
        return MetricRecord({"accuracy": right})

    strategy.start(
        grid,
        ArrayRecord({"weights": Array(initial_model(federation))}),
        num_rounds=training.rounds,
        evaluate_fn=accuracy,
    )
