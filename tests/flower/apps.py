"""A small Flower app over the market of tests/market: the same clients, data and settings."""

from collections.abc import Callable

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprice.flower import Client, FullInformation, ParticipationMod, PricedParticipation
from fedprice.flower.wire import to_record
from fedprice.learning import HorvitzThompson, local_update, run_fingerprint
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulation_key
from tests.market.markets import NAMES, TRAINING, small_federation, small_outcome

FEDERATION = small_federation()
OUTCOME = small_outcome(FEDERATION)
SEED = 3
SHAPE = (10, 61)


def client_of(context: Context) -> Client:
    n = int(context.node_config["partition-id"])
    clients = OUTCOME.game.clients
    return Client(
        name=NAMES[n],
        key=simulation_key(SEED, f"client {NAMES[n]}"),
        samples=int(FEDERATION.samples[n]),
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
    update = local_update(FEDERATION, n, model, training=TRAINING, round_=round_, seed=SEED)
    metrics = MetricRecord({"num-examples": int(FEDERATION.samples[n])})
    content = RecordDict({"arrays": to_record(["weights"], [update]), "metrics": metrics})
    return Message(content, reply_to=message)


def evaluate(message: Message, context: Context) -> Message:
    n = int(context.node_config["partition-id"])
    found = MetricRecord({"who": float(n), "num-examples": int(FEDERATION.samples[n])})
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
        "pricing": FullInformation(budget=4.0, alpha=3.0),
        "clients": 4,
        "learning_rate": TRAINING.rate,
        "local_steps": TRAINING.local_steps,
        "fund": True,
        "wait": 5.0,
        "task": run_fingerprint(
            FEDERATION, np.ones(4), training=TRAINING, aggregator=HorvitzThompson(), clock=None,
            seed=SEED,
        ),
    }  # fmt: skip
    return PricedParticipation(ledger, "run", **(settings | changes))  # type: ignore[arg-type]
