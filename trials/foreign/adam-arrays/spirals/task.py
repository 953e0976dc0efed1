"""spirals: which of three spirals a point belongs to."""

from itertools import pairwise

import numpy as np


def load_data(partition_id: int, seed: int, rows: int = 300):
    """Return points and labels; every partition sees another stretch of the spirals."""
    rng = np.random.default_rng([seed, partition_id])
    y = rng.integers(3, size=rows)
    along = rng.beta(1 + partition_id % 3, 3 - partition_id % 3, rows)
    turn = 4 * along + 2 * np.pi / 3 * y + rng.normal(0, 0.1, rows)
    x = np.stack([np.sin(turn), np.cos(turn)], axis=1) * (0.2 + along[:, None])
    return x.astype(np.float32), y


def initial(hidden: int, seed: int) -> dict[str, np.ndarray]:
    """Return the parameters by name."""
    rng = np.random.default_rng(seed)
    sizes = [2, hidden, hidden, 3]
    params = {}
    for layer, (before, after) in enumerate(pairwise(sizes)):
        weight = rng.normal(0, np.sqrt(2 / before), (before, after))
        params[f"layer{layer}.weight"] = weight.astype(np.float32)
        params[f"layer{layer}.bias"] = np.zeros(after, np.float32)
    return params


def forward(params, x):
    """Return what each layer passes on, and the logarithms of the probabilities."""
    passed = [x]
    for layer in range(2):
        below = passed[-1] @ params[f"layer{layer}.weight"] + params[f"layer{layer}.bias"]
        passed.append(np.maximum(below, 0))
    logits = passed[-1] @ params["layer2.weight"] + params["layer2.bias"]
    logits = logits - logits.max(axis=1, keepdims=True)
    return passed, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def gradients(params, x, y):
    """Return loss and gradients."""
    passed, logs = forward(params, x)
    loss = -float(logs[np.arange(len(y)), y].mean())
    back, grads = np.exp(logs), {}
    back[np.arange(len(y)), y] -= 1
    back /= len(y)
    for layer in (2, 1, 0):
        grads[f"layer{layer}.weight"] = passed[layer].T @ back
        grads[f"layer{layer}.bias"] = back.sum(axis=0)
        back = back @ params[f"layer{layer}.weight"].T * (passed[layer] > 0)
    return loss, grads


def adam(params, moments, steps, lr, batches):
    """Run Adam; returns parameters, moments and the losses of the steps."""
    params, losses = dict(params), []
    for number, (x, y) in enumerate(batches, start=steps + 1):
        loss, grads = gradients(params, x, y)
        losses.append(loss)
        for name, grad in grads.items():
            m = 0.9 * moments[f"m.{name}"] + 0.1 * grad
            v = 0.999 * moments[f"v.{name}"] + 0.001 * grad**2
            moments[f"m.{name}"], moments[f"v.{name}"] = m, v
            step = m / (1 - 0.9**number) / (np.sqrt(v / (1 - 0.999**number)) + 1e-8)
            params[name] = (params[name] - lr * step).astype(np.float32)
    return params, moments, losses
