"""Ten hospitals and scikit-learn's multilayer perceptron on handwritten digits."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import fedprice as fp

X, Y = load_digits(return_X_y=True)
X, TEST_X, Y, TEST_Y = train_test_split(X / 16, Y, test_size=400, random_state=0)
CUTS = np.sort(np.random.default_rng(1).choice(np.arange(60, 1300, 40), 9, replace=False))
DATA = list(zip(np.split(X, CUTS), np.split(Y, CUTS), strict=True))


def network(model, seed=0):
    """Return a classifier with the weights of a model."""
    net = MLPClassifier(
        (32,), solver="sgd", learning_rate_init=0.1, batch_size=16, random_state=seed
    )
    net.partial_fit(X[:20], Y[:20], classes=range(10))  # it has no weights before
    if model is not None:
        net.coefs_, net.intercepts_ = [*model[:2]], [*model[2:]]
    return net


def update(model, client, round_, seed):
    """Train for one epoch on one hospital's digits; return new − old."""
    net = network(model, np.random.default_rng([seed, round_, client]).integers(2**31))
    old = [array.copy() for array in model]  # scikit-learn trains in place
    net.partial_fit(*DATA[client])
    return [new - before for new, before in zip(net.coefs_ + net.intercepts_, old, strict=True)]


def evaluate(model):
    """Return the loss over all hospitals' digits, and the accuracy on others."""
    net = network(model)
    return {
        "loss": log_loss(Y, net.predict_proba(X), labels=range(10)),
        "accuracy": net.score(TEST_X, TEST_Y),
    }


def task():
    """Return what is learned."""
    start = network(None)
    initial, samples = start.coefs_ + start.intercepts_, [len(y) for _, y in DATA]
    return fp.Task.of(initial=initial, samples=samples, update=update, evaluate=evaluate)


if __name__ == "__main__":
    print(fp.simulate(task(), levels=0.4, rounds=30))
