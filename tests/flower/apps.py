"""A small Flower app over the market of tests/market: the same clients, data and settings."""

import math
from collections.abc import Callable

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprice.flower import (
    Client,
    FullInformation,
    Limits,
    ParticipationMod,
    PricedParticipation,
)
from fedprice.flower.wire import to_record
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulation_key
from fedprice.rounds import HorvitzThompson, run_fingerprint
from tests.market.markets import NAMES, ROUNDS, TRAINING, small_outcome, small_task

TASK = small_task()
OUTCOME = small_outcome(TASK.federation)
SEED = 3
SHAPE = (10, 61)


def client_of(context: Context) -> Client:
    n = int(context.node_config["partition-id"])
    clients = OUTCOME.game.clients
    return Client(
        name=NAMES[n],
        key=simulation_key(SEED, f"client {NAMES[n]}"),
        samples=int(TASK.samples[n]),
        grad_norm=float(clients.grad_norm[n]),
        cost=float(clients.cost[n]),
        value=float(clients.value[n]),
        server=simulation_key(SEED, "server").public,
        reveals=True,
    )


def train(message: Message, context: Context) -> Message:
    n = int(context.node_config["partition-id"])
    model = message.content.array_records["arrays"]["weights"].numpy()
    round_ = int(message.content.config_records["config"]["server-round"]) - 1  # type: ignore[arg-type]
    row = TASK.updates([model], np.array([n]), round_, SEED).values[0]
    update = row.reshape(SHAPE)
    metrics = MetricRecord({"num-examples": int(TASK.samples[n])})
    content = RecordDict({"arrays": to_record(["weights"], [update]), "metrics": metrics})
    return Message(content, reply_to=message)


def evaluate(message: Message, context: Context) -> Message:
    n = int(context.node_config["partition-id"])
    found = MetricRecord({"who": float(n), "num-examples": int(TASK.samples[n])})
    return Message(RecordDict({"metrics": found}), reply_to=message)


def client_app(
    handle: Callable[[Message, Context], Message] = train,
    client: Callable[[Context], Client] = client_of,
) -> ClientApp:
    market = ParticipationMod(client, returns="update")
    app = ClientApp(mods=[market])
    market.answer(app)
    app.train()(handle)
    app.evaluate()(evaluate)
    return app


def initial() -> ArrayRecord:
    return to_record(["weights"], [np.zeros(SHAPE, np.float32)])


def strategy(ledger: Ledger, **changes: object) -> PricedParticipation:
    settings: dict[str, object] = {
        "key": simulation_key(SEED, "server"),
        "pricing": FullInformation(budget=4.0, alpha=3.0, max_weight=math.inf),
        "aggregator": HorvitzThompson(),
        "clients": 4,
        "learning_rate": TRAINING.rate,
        "local_steps": TRAINING.local_steps,
        "fund": True,
        "limits": Limits(wait=5.0),
        "task": run_fingerprint(
            TASK, 1.0, rounds=ROUNDS, aggregator=HorvitzThompson(), seed=SEED
        ),
    }  # fmt: skip
    return PricedParticipation(ledger, "run", **(settings | changes))  # type: ignore[arg-type]
