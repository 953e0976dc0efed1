"""Many rounds on the grid in process with fixed updates: what the model moves by, a round."""

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedprice.flower import Client, InProcessGrid, ParticipationMod, PostedPrice
from fedprice.flower import PricedParticipation as Priced
from fedprice.flower.wire import to_record
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulation_key
from fedprice.rounds import HorvitzThompson

CLIENTS, SIZE = 8, 30
RNG = np.random.default_rng(11)
SAMPLES = RNG.integers(10, 200, CLIENTS)
COSTS = RNG.exponential(20, CLIENTS) + 2
UPDATES = RNG.normal(size=(CLIENTS, SIZE)).astype(np.float32)


def client(context: Context) -> Client:
    n = int(context.node_config["partition-id"])
    key = simulation_key(f"client {n + 1}")
    return Client(
        str(n + 1), key, int(SAMPLES[n]), float(COSTS[n]), value=5.0, grad_norm=1.0,
        least_profit=-10.0,  # all take part
    )  # fmt: skip


def train(message: Message, context: Context) -> Message:
    n = int(context.node_config["partition-id"])
    # A little of the round in it, or it would be refused as a copy of an earlier one.
    round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
    update = UPDATES[n] * np.float32(1 + 1e-5 * round_)
    return Message(RecordDict({"arrays": to_record(["w"], [update])}), reply_to=message)


def app() -> ClientApp:
    market = ParticipationMod(client, returns="update")
    made = ClientApp(mods=[market])
    market.answer(made)
    made.train()(train)
    return made


def strategy(ledger: Ledger) -> Priced:
    return Priced(
        ledger, "run", key=simulation_key("server"), clients=CLIENTS, fund=True, seed=1,
        pricing=PostedPrice(budget=40.0, alpha=1.0), aggregator=HorvitzThompson(),
    )  # fmt: skip


def mean_and_error(rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean step, its standard error in each direction, and the step of full participation."""
    ours, grid = strategy(Ledger("sqlite://")), InProcessGrid(app(), CLIENTS)
    arrays = ours.agree(grid, to_record(["w"], [np.zeros(SIZE, np.float32)]), rounds)
    assert ours._loop is not None
    steps, before = [], ours._loop.vector
    for server_round in range(1, rounds + 1):
        sent = ours.configure_train(server_round, arrays, ConfigRecord(), grid)
        arrays, _ = ours.aggregate_train(server_round, grid.send_and_receive(sent))
        steps.append(ours._loop.vector - before)
        before = ours._loop.vector
    taken = np.array(steps)
    full = SAMPLES / SAMPLES.sum() @ UPDATES.astype(np.float64) * (1 + 0.5e-5 * rounds)
    return taken.mean(axis=0), taken.std(axis=0, ddof=1) / np.sqrt(rounds), full
