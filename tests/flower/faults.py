"""A copy of the example app whose clients misbehave, each in its own way."""

import shutil
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"
KINDS = ("honest", "raises", "not finite", "wrong shape", "forged", "replayed", "hangs", "killed")

EVIL = '''
"""Faults by partition; the market runs inside, so that what it signed can be changed."""

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


def misbehave(app):
    """Put `evil` around the app, the market's part of it included."""
    honest = type(app)

    def call(own, message, context):
        return evil(message, context, lambda m, c: honest.__call__(own, m, c))

    app.__class__ = type(honest.__name__, (honest,), {{"__call__": call}})


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
    begin, market = (
        "app = ClientApp()\n",
        'ParticipationMod(client, returns="update").answer(app)\n',
    )
    assert begin + market in text
    faulty = (
        "from pricedapp.faults import inner, misbehave\n\n"
        f"app = ClientApp(mods=[inner])\n{market}misbehave(app)\n"
    )
    client.write_text(text.replace(begin + market, faulty))
    return folder
