"""The learning task: a small convolutional network that classifies drawn shapes."""

import numpy as np
import torch
from flwr.app import Context
from torch import nn

SIDE, CLASSES = 12, 4


def network(seed: int) -> nn.Module:
    """Return the network with its initial weights."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * (SIDE // 2) ** 2, CLASSES),
    )


def load(
    partition: int, seed: int, samples: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy pictures of bars and blocks; clients see the classes unevenly."""
    rng = np.random.default_rng([seed, partition])
    count = samples or int(rng.integers(80, 320))
    shares = rng.dirichlet(np.full(CLASSES, 0.7)) if samples is None else None
    labels = rng.choice(CLASSES, size=count, p=shares)
    pictures = rng.normal(0, 0.6, (count, 1, SIDE, SIDE))
    for picture, label in zip(pictures, labels, strict=True):
        at = int(rng.integers(2, SIDE - 4))
        rows = slice(at, at + (2 if label != 2 else 4))
        columns = slice(at, at + 4) if label in (2, 3) else slice(1, SIDE - 1)
        spot = (rows, columns) if label != 1 else (columns, rows)
        picture[0][spot] += 2.0
    return torch.tensor(pictures, dtype=torch.float32), torch.tensor(labels)


def fit(net: nn.Module, partition: int, round_: int, context: Context) -> None:
    """Train the network on a client's data, in an order that seed and round determine."""
    config = context.run_config
    pictures, labels = load(partition, int(config["seed"]))
    torch.manual_seed(hash((int(config["seed"]), partition, round_)) % 2**31)
    optimiser = torch.optim.SGD(net.parameters(), lr=float(config["learning-rate"]))
    for _ in range(int(config["local-epochs"])):
        for batch in torch.randperm(len(labels)).split(16):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(pictures[batch]), labels[batch]).backward()
            optimiser.step()


def metrics(net: nn.Module, pictures: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Return the loss, and the share of pictures that are classified correctly."""
    with torch.no_grad():
        logits = net(pictures)
        right = (logits.argmax(dim=1) == labels).float().mean()
        return {
            "loss": float(nn.functional.cross_entropy(logits, labels)),
            "accuracy": float(right),
        }
