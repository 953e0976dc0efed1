"""forest: the ClientApp."""

import numpy as np
import xgboost as xgb
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from forest.task import get_params, load_data

# Flower ClientApp
app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Grow trees on local data, and return the new ones only."""
    trees = context.run_config["local-epochs"]
    params = get_params(context.run_config)
    data, _ = load_data(context.node_config["partition-id"], context.run_config["seed"])
    if msg.content["config"]["server-round"] == 1:
        booster = xgb.train(params, data, num_boost_round=trees)
    else:
        booster = xgb.Booster(params=params)
        booster.load_model(bytearray(msg.content["arrays"]["0"].numpy().tobytes()))
        for _ in range(trees):
            booster.update(data, booster.num_boosted_rounds())
        booster = booster[booster.num_boosted_rounds() - trees :]
    model = np.frombuffer(booster.save_raw("json"), dtype=np.uint8)
    metrics = MetricRecord({"num-examples": data.num_row()})
    content = RecordDict({"arrays": ArrayRecord([model]), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    _, data = load_data(context.node_config["partition-id"], context.run_config["seed"])
    booster = xgb.Booster(params=get_params(context.run_config))
    booster.load_model(bytearray(msg.content["arrays"]["0"].numpy().tobytes()))
    auc = float(booster.eval(data).split(":")[1])
    metrics = MetricRecord({"auc": auc, "num-examples": data.num_row()})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
