"""Tasks that are not convex, for the studies: a numpy MLP and PyTorch CNNs on small digits.

Ten clients with power-law sizes and few digits each. All randomness of an update follows from
seed, round and client, so that all estimators of a seed share coins and batches.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice import Federation, Task
from fedprice.data.partition import scaled_sizes
from fedprice.data.sources import load_images

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import Arrays

__all__ = ["cnn", "digits", "mlp", "quickstart"]

NUM_CLIENTS, SAMPLES, TESTS = 10, 3000, 2000


@cache
def digits(side: int = 8, uneven: float = 8.0, skew: float = 1.0, seed: int = 0) -> Federation:
    """Split MNIST, with images averaged down to side × side pixels, over ten clients.

    Sizes follow a power law; the shares of the digits of each client a Dirichlet law with
    concentration `skew`.
    """
    images = load_images("mnist", None)
    rng = np.random.default_rng(seed)
    sizes = rng.permutation(scaled_sizes(np.geomspace(1, uneven, NUM_CLIENTS), SAMPLES, 1))
    labels = images.y_train.astype(np.int32)
    pools = [rng.permutation(np.flatnonzero(labels == c)).tolist() for c in range(10)]
    dealt = []
    for size in sizes:
        counts = rng.multinomial(size, rng.dirichlet(np.full(10, skew)))
        dealt.append(
            np.concatenate([[pools[c].pop() for _ in range(k)] for c, k in enumerate(counts) if k])
        )

    def small(pixels: Any) -> Any:
        wide = np.pad(pixels, ((0, 0), (2, 2), (2, 2)))  # 32 × 32
        step = wide.shape[1] // side
        blocks = wide.reshape(len(wide), side, step, side, step)
        values = (blocks.mean(axis=(2, 4)) / 255 - 0.1) / 0.24  # mean 0, variance 1
        return values.reshape(len(wide), -1).astype(np.float32)

    return Federation.of(
        f"MNIST {side} × {side}",
        [(small(images.x_train[rows]), labels[rows]) for rows in dealt],
        (small(images.x_test[:TESTS]), images.y_test[:TESTS]),
        num_classes=10,
    )


def batches(samples: int, batch: int, epochs: int, key: tuple[int, int, int]) -> list[Any]:
    """Return the rows of each local step: shuffled epochs, drawn from (seed, round, client)."""
    rng = np.random.default_rng(key)
    rows: list[Any] = []
    for _ in range(epochs):
        order = rng.permutation(samples)
        rows += [order[first : first + batch] for first in range(0, samples, batch)]
    return rows


def mlp(
    federation: Federation,
    *,
    hidden: int = 64,
    rate: float = 0.1,
    momentum: float = 0.0,
    epochs: int = 2,
    batch: int = 32,
) -> Task:
    """Return a task with one hidden layer of rectified linear units, in numpy."""
    features, classes = federation.features.shape[1], federation.num_classes
    rng = np.random.default_rng(0)
    initial = [
        rng.normal(0, np.sqrt(2 / features), (features, hidden)).astype(np.float32),
        np.zeros(hidden, np.float32),
        rng.normal(0, np.sqrt(1 / hidden), (hidden, classes)).astype(np.float32),
        np.zeros(classes, np.float32),
    ]

    def forward(model: Arrays, x: Any) -> tuple[Any, Any]:
        active = np.maximum(x @ model[0] + model[1], 0)
        logits = active @ model[2] + model[3]
        logits -= logits.max(axis=1, keepdims=True)
        return active, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        x, y = federation.client(client)
        own = [array.copy() for array in model]
        velocity = [np.zeros_like(array) for array in model]
        for rows in batches(y.size, batch, epochs, (seed, round_, client)):
            active, logs = forward(own, x[rows])
            slope = np.exp(logs)
            slope[np.arange(rows.size), y[rows]] -= 1
            slope /= rows.size
            back = (slope @ own[2].T) * (active > 0)
            gradient = [x[rows].T @ back, back.sum(axis=0), active.T @ slope, slope.sum(axis=0)]
            for array, speed, part in zip(own, velocity, gradient, strict=True):
                speed *= momentum
                speed += part
                array -= rate * speed
        return [new - old for new, old in zip(own, model, strict=True)]

    def evaluate(model: Arrays) -> dict[str, float]:
        logs = forward(model, federation.features)[1]
        loss = -logs[np.arange(federation.labels.size), federation.labels].mean()
        guess = forward(model, federation.test_features)[1].argmax(axis=1)
        return {"loss": float(loss), "accuracy": float((guess == federation.test_labels).mean())}

    return Task.of(
        initial=initial,
        samples=federation.samples,
        update=update,
        evaluate=evaluate,
        name=f"MLP, {federation.name}",
    )


def cnn(
    federation: Federation,
    *,
    channels: int = 8,
    rate: float = 0.1,
    momentum: float = 0.0,
    epochs: int = 2,
    batch: int = 32,
) -> Task:
    """Return a task with two convolutions and a linear layer, in PyTorch."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    side = round(federation.features.shape[1] ** 0.5)
    net = nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * channels * (side // 4) ** 2, federation.num_classes),
    )
    return torch_task("CNN", net, federation, rate, momentum, epochs, batch)


@cache
def letters(samples: int) -> Federation:
    """Split lower-case letters, 32 × 32 pixels from −1 to 1, at random over ten equal clients."""
    images = load_images("emnist", None)
    rows = np.random.default_rng(0).permutation(len(images.y_train))[: NUM_CLIENTS * samples]

    def wide(pixels: Any) -> Any:
        padded = np.pad(pixels, ((0, 0), (2, 2), (2, 2))) / 127.5 - 1
        return padded.reshape(len(padded), -1).astype(np.float32)

    labels = images.y_train.astype(np.int32)
    return Federation.of(
        "letters",
        [(wide(images.x_train[own]), labels[own]) for own in np.split(rows, NUM_CLIENTS)],
        (wide(images.x_test[:TESTS]), images.y_test[:TESTS]),
        num_classes=26,
    )


def quickstart(seed: int, samples: int, *, normalised: bool = False) -> Task:
    """Return Flower's PyTorch quickstart as it is shipped, with letters instead of CIFAR-10.

    Two convolutions and three linear layers with initial weights drawn from the seed, ten equal
    clients with data of the same kind, rate 0.1, momentum 0.9, batches of 32, one epoch;
    `normalised` adds batch normalisation after each convolution.
    """
    import torch
    from torch import nn

    torch.manual_seed(seed)
    layers = [
        nn.Conv2d(1, 6, 5),
        *([nn.BatchNorm2d(6)] if normalised else []),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        *([nn.BatchNorm2d(16)] if normalised else []),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 26),
    ]
    return torch_task(
        "quickstart",
        nn.Sequential(*layers),
        letters(samples),
        rate=0.1,
        momentum=0.9,
        epochs=1,
        batch=32,
    )


def torch_task(
    name: str,
    net: Any,
    federation: Federation,
    rate: float,
    momentum: float,
    epochs: int,
    batch: int,
) -> Task:
    """Return a task that trains a network with stochastic gradient descent."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    side = round(federation.features.shape[1] ** 0.5)
    held = net.state_dict()  # parameters and buffers, which share their memory with the network
    initial = [array.numpy().copy() for array in held.values()]
    loss_of = nn.CrossEntropyLoss()

    def tensors(x: Any, y: Any) -> tuple[Any, Any]:
        return torch.from_numpy(x).reshape(-1, 1, side, side), torch.from_numpy(y).long()

    own_data = [tensors(*federation.client(n)) for n in range(federation.num_clients)]
    train = tensors(federation.features, federation.labels)
    test = tensors(federation.test_features, federation.test_labels)

    def load(model: Arrays) -> None:
        with torch.no_grad():
            for own, array in zip(held.values(), model, strict=True):
                own.copy_(torch.as_tensor(array))

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        load(model)
        net.train()
        x, y = own_data[client]
        optimiser = torch.optim.SGD(net.parameters(), lr=rate, momentum=momentum)
        for rows in batches(len(y), batch, epochs, (seed, round_, client)):
            optimiser.zero_grad()
            loss_of(net(x[rows]), y[rows]).backward()
            optimiser.step()
        return [own.numpy() - array for own, array in zip(held.values(), model, strict=True)]

    def evaluate(model: Arrays) -> dict[str, float]:
        load(model)
        net.eval()
        with torch.no_grad():
            loss = float(loss_of(net(train[0]), train[1]))
            accuracy = float((net(test[0]).argmax(dim=1) == test[1]).float().mean())
        return {"loss": loss, "accuracy": accuracy}

    return Task.of(
        initial=initial,
        samples=federation.samples,
        update=update,
        evaluate=evaluate,
        names=list(held),
        name=f"{name}, {federation.name}",
    )
