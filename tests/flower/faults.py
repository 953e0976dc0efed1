"""A copy of the example app whose clients misbehave, each in its own way."""

import shutil
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"
KINDS = ("honest", "raises", "not finite", "wrong shape", "forged", "replayed", "hangs", "killed")

EVIL = '''
"""Faults by partition; the market's mod runs inside, so that what it signed can be changed."""

import time

import numpy as np
from flwr.app import Array, ArrayRecord

KINDS = {kinds!r}


def evil(message, context, call_next):
    kind = KINDS[int(context.node_config["partition-id"]) % len(KINDS)]
    if message.metadata.message_type != "train" or kind == "honest":
        return call_next(message, context)
    if kind == "raises":
        raise RuntimeError("on purpose")
    if kind in ("hangs", "killed"):
        time.sleep(300)
    reply = call_next(message, context)
    if kind in ("not finite", "wrong shape"):
        return reply  # the inner mod did it, before it was signed
    update = reply.content["arrays"]["weights"].numpy()
    if kind == "forged":
        update = update * np.float32(2)
    if kind == "replayed":
        if "first" in context.state:
            reply.content["arrays"] = context.state["first"]
            reply.content["fedprice"] = context.state["signed"]
        context.state["first"] = reply.content["arrays"]
        context.state["signed"] = reply.content["fedprice"]
        return reply
    reply.content["arrays"] = ArrayRecord({{"weights": Array(update)}})
    return reply


def inner(message, context, call_next):
    kind = KINDS[int(context.node_config["partition-id"]) % len(KINDS)]
    reply = call_next(message, context)
    if message.metadata.message_type == "train" and kind in ("not finite", "wrong shape"):
        update = reply.content["arrays"]["weights"].numpy()
        update = update * np.float32("nan") if kind == "not finite" else update[:, :5]
        reply.content["arrays"] = ArrayRecord({{"weights": Array(update)}})
    return reply
'''


def faulty_app(folder: Path) -> Path:
    """Write the app into a new directory."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    package = folder / "pricedapp"
    (package / "faults.py").write_text(EVIL.format(kinds=KINDS).lstrip())
    client = package / "client_app.py"
    text = client.read_text()
    answers = 'app = ClientApp()\nParticipationMod(client, returns="update").answer(app)\n'
    assert answers in text
    faulty = (
        "from pricedapp.faults import evil, inner\n\n"
        'market = ParticipationMod(client, returns="update")\n'
        "app = ClientApp(mods=[evil, market, inner])\n"
    )
    client.write_text(text.replace(answers, faulty))
    return folder
