"""Twelve hospitals and a small neural network in plain numpy: calibrate, price, train."""

import numpy as np

import fedprice as fp

RNG = np.random.default_rng(7)


def patients(count, shift):
    """Return measurements and a diagnosis that no straight line separates."""
    x = RNG.normal(shift, 1, (count, 2))
    return x, (np.sin(2 * x[:, 0]) > x[:, 1]).astype(float)


DATA = [patients(RNG.integers(60, 400), RNG.normal(0, 1, 2)) for _ in range(12)]
TEST = patients(2000, 0.0)
INITIAL = [RNG.normal(0, 1, (2, 16)), np.zeros(16), RNG.normal(0, 0.3, 16), np.zeros(())]


def forward(model, x):
    """Return the hidden layer, and the probability of the diagnosis."""
    hidden = np.tanh(x @ model[0] + model[1])
    return hidden, 1 / (1 + np.exp(-(hidden @ model[2] + model[3])))


def update(model, client, round_, seed):
    """Train on one hospital's patients; return new − old."""
    new, (x, y) = model, DATA[client]
    for rows in np.random.default_rng([seed, round_, client]).integers(0, len(y), (20, 16)):
        hidden, p = forward(new, x[rows])
        error = (p - y[rows]) / 16
        back = np.outer(error, new[2]) * (1 - hidden**2)
        slopes = (x[rows].T @ back, back.sum(axis=0), hidden.T @ error, error.sum())
        new = [w - slope for w, slope in zip(new, slopes, strict=True)]
    return [w - old for w, old in zip(new, model, strict=True)]


def evaluate(model):
    """Return the loss over all hospitals' patients, and the accuracy on others."""
    x, y = (np.concatenate(part) for part in zip(*DATA, strict=True))
    p = np.clip(forward(model, x)[1], 1e-9, 1 - 1e-9)
    accuracy = ((forward(model, TEST[0])[1] > 0.5) == TEST[1]).mean()
    return {"loss": -np.log(np.where(y, p, 1 - p)).mean(), "accuracy": accuracy}


def task():
    """Return what is learned."""
    sizes = [len(y) for _, y in DATA]
    return fp.Task.of(initial=INITIAL, samples=sizes, update=update, evaluate=evaluate)


if __name__ == "__main__":
    measured = fp.calibrate(task(), checkpoints=(10, 20, 30))
    clients = measured.clients(cost=RNG.exponential(30, 12), value=RNG.exponential(50, 12))
    outcome = fp.solve(fp.Game(clients, bound=measured.bound(rounds=50), budget=60))
    print(measured, outcome, fp.simulate(task(), outcome.levels, rounds=50), sep="\n")
