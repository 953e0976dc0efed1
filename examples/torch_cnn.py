"""Eight hospitals and a small convolutional network in PyTorch."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import fedprice as fp

RNG = np.random.default_rng(3)


def pictures(count):
    """Return noisy pictures of a horizontal bar, a vertical bar, or a square."""
    labels, images = RNG.integers(0, 3, count), RNG.normal(0, 0.5, (count, 1, 10, 10))
    for image, label in zip(images, labels, strict=True):
        (row, column), (high, wide) = RNG.integers(0, 5, 2), ((2, 6), (6, 2), (4, 4))[label]
        image[0, row : row + high, column : column + wide] += 1.0
    return torch.tensor(images, dtype=torch.float32), torch.tensor(labels)


DATA, TEST = [pictures(int(count)) for count in RNG.integers(60, 300, 8)], pictures(1000)
torch.set_num_threads(1)
torch.manual_seed(0)
NET = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 3))


def update(model, client, round_, seed):
    """Train for one epoch on one hospital's pictures; return new − old."""
    vector_to_parameters(torch.tensor(model[0]), NET.parameters())
    images, labels = DATA[client]
    order = np.random.default_rng([seed, round_, client]).permutation(len(labels))
    optimiser = torch.optim.SGD(NET.parameters(), lr=0.1)
    for batch in torch.tensor(order).split(16):
        optimiser.zero_grad()
        nn.functional.cross_entropy(NET(images[batch]), labels[batch]).backward()
        optimiser.step()
    return [parameters_to_vector(NET.parameters()).detach().numpy() - model[0]]


def evaluate(model):
    """Return the loss over all hospitals' pictures, and the accuracy on others."""
    vector_to_parameters(torch.tensor(model[0]), NET.parameters())
    images, labels = (torch.cat(part) for part in zip(*DATA, strict=True))
    loss = nn.functional.cross_entropy(NET(images), labels).detach()
    return {"loss": loss, "accuracy": (NET(TEST[0]).argmax(1) == TEST[1]).float().mean()}


def task():
    """Return what is learned."""
    initial = [parameters_to_vector(NET.parameters()).detach().numpy()]
    samples = [len(labels) for _, labels in DATA]
    return fp.Task.of(initial=initial, samples=samples, update=update, evaluate=evaluate)


if __name__ == "__main__":
    print(fp.simulate(task(), levels=0.5, rounds=20))
