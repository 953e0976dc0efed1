"""Losses and accuracies of the engine against plain numpy in 64 bits."""

import numpy as np
import pytest
from scipy.special import logsumexp

from fedprice.data.synthetic import synthetic
from fedprice.learning import LogisticRegression, Training

FEDERATION = synthetic(num_clients=4, samples=403)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1e3])
def test_losses_are_those_of_numpy(scale: float) -> None:
    """Also far beyond the differences of logits below which an exponential counts as 0."""
    task = LogisticRegression(FEDERATION, Training())
    model = scale * np.random.default_rng(1).normal(size=task.initial[0].shape).astype(np.float32)
    x = np.column_stack([FEDERATION.features, np.ones(len(FEDERATION.features))])
    logits = x @ model.T.astype(np.float64)
    losses = logsumexp(logits, axis=1) - logits[np.arange(len(x)), FEDERATION.labels]
    found = task.evaluate([model])
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-6)
    test_x = np.column_stack([FEDERATION.test_features, np.ones(len(FEDERATION.test_features))])
    best = (test_x @ model.T.astype(np.float64)).argmax(axis=1)  # of equal ones, the first
    assert found["accuracy"] == np.mean(best == FEDERATION.test_labels)


def test_a_model_that_exploded_has_no_finite_loss() -> None:
    task = LogisticRegression(FEDERATION, Training())
    for wrong in (np.nan, np.inf):
        model = np.ones_like(task.initial[0])
        model[3] = wrong
        assert not np.isfinite(task.evaluate([model])["loss"])
