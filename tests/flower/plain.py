"""A Flower app that has none of the settings of our examples, in Flower's own words."""

from pathlib import Path

PROJECT = """
[project]
name = "plain"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "plainapp.server_app:app"
clientapp = "plainapp.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 2
fails = false
sleeps = 0.0
"""

SERVER = """
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp

from fedprice.flower import FullInformation, Limits, PricedParticipation
from fedprice.market.simulation import simulation_key

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    time.sleep(config["sleeps"])
    if config["fails"]:
        raise RuntimeError("the cable is loose")
    result = PricedParticipation(
        os.environ["FEDPRICE_LEDGER"],
        os.environ["FEDPRICE_RUN"],
        key=simulation_key("server"),
        pricing=FullInformation(budget=100.0, alpha=1.0),
        clients=2,
        limits=Limits(wait=60.0),
        fund=True,
        seed=0,
    ).start(grid, ArrayRecord({"w": Array(np.zeros(3))}), num_rounds=config["num-server-rounds"])
    np.save("model.npy", result.arrays["w"].numpy())
"""

CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprice.flower import Client, ParticipationMod
from fedprice.market.simulation import simulation_key


def client(context):
    name = str(context.node_config["partition-id"] + 1)
    return Client(
        name=name, key=simulation_key("client " + name), samples=5, cost=1.0, value=0.1,
        grad_norm=1.0, reveals=True, least_profit=-10.0,
    )


market = ParticipationMod(client, returns="update")
app = ClientApp(mods=[market])
market.answer(app)


@app.train()
def train(message, context):
    n = context.node_config["partition-id"]
    round_ = message.content["config"]["server-round"]
    arrays = ArrayRecord({"w": Array(np.arange(3.0) + n + 0.5 * round_)})
    metrics = MetricRecord({"num-examples": 5})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
"""

FEDERATION = """
[tool.flwr.federations]
default = "here"

[tool.flwr.federations.here]
options.num-supernodes = 2
"""


def plain_app(folder: Path, *, federation: bool = False) -> Path:
    """Write the app into a directory."""
    (folder / "plainapp").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT + FEDERATION * federation)
    for name, text in (("__init__", ""), ("server_app", SERVER), ("client_app", CLIENT)):
        (folder / "plainapp" / f"{name}.py").write_text(text)
    return folder
