"""A small Flower app over the market of tests/market: the same clients, data and settings."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprice import Bound, Game, solve
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
from fedprice.market.updates import SLACK
from fedprice.rounds import HorvitzThompson, run_fingerprint
from trials.markets import NAMES, ROUNDS, TRAINING, small_outcome, small_task

TASK = small_task()
# The market of tests/market: its prices are the same, as α G² is, but twice the norm is declared,
# so that no honest update is above its cap.
CLIENTS = replace(small_outcome(TASK.federation).game.clients, grad_norm=np.full(4, 4.0))
OUTCOME = solve(Game(CLIENTS, bound=Bound(alpha=0.75, rounds=ROUNDS), budget=4.0))
SEED = 3
CAP = SLACK * 4.0 * TASK.reach(0)
SHAPE = (10, 61)


def client_of(context: Context) -> Client:
    n = int(context.node_config["partition-id"])
    clients = OUTCOME.game.clients
    return Client(
        name=NAMES[n],
        key=simulation_key(f"client {NAMES[n]}"),
        samples=int(TASK.samples[n]),
        grad_norm=float(clients.norm[n]),
        cost=float(clients.cost[n]),
        value=float(clients.value[n]),
        least_profit=-1e6,
        server=simulation_key("server").public,
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
        "key": simulation_key("server"),
        "pricing": FullInformation(budget=4.0, alpha=0.75, max_weight=math.inf),
        "aggregator": HorvitzThompson(),
        "clients": 4,
        "learning_rate": TRAINING.rate,
        "local_steps": TRAINING.local_steps,
        "fund": True,
        "limits": Limits(wait=5.0),
        "seed": SEED,
        "task": run_fingerprint(
            TASK, 1.0, rounds=ROUNDS, aggregator=HorvitzThompson(), seed=SEED
        ),
    }  # fmt: skip
    return PricedParticipation(ledger, "run", **(settings | changes))  # type: ignore[arg-type]
