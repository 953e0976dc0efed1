"""normnet: the network and its data."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions with batch normalisation, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 2 * 2, 10)

    def forward(self, x):
        """Return the logits."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


@cache
def load_data(partition_id: int | None, num_partitions: int, batch_size: int, seed: int):
    """Return loaders of one partition's training and validation pictures; of the test if None."""
    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x = torch.tensor(pictures[order], dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(labels[order])
    if partition_id is None:
        return DataLoader(TensorDataset(x[:360], y[:360]), batch_size=128)
    own = np.array_split(np.arange(360, len(labels)), num_partitions)[partition_id]
    cut = int(0.8 * len(own))
    train = TensorDataset(x[own[:cut]], y[own[:cut]])
    valid = TensorDataset(x[own[cut:]], y[own[cut:]])
    return DataLoader(train, batch_size, shuffle=True), DataLoader(valid, batch_size)


def train(net: Net, loader: DataLoader, epochs: int, lr: float) -> float:
    """Train the network, and return the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


@torch.no_grad()
def test(net: Net, loader: DataLoader) -> tuple[float, float]:
    """Return loss and accuracy."""
    net.eval()
    loss, correct = 0.0, 0
    for x, y in loader:
        output = net(x)
        loss += F.cross_entropy(output, y, reduction="sum").item()
        correct += int((output.argmax(1) == y).sum())
    return loss / len(loader.dataset), correct / len(loader.dataset)
