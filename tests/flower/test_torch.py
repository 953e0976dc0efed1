"""The example with PyTorch: it learns, and its clients are paid."""

from pathlib import Path

import pytest

from fedprice.flower.app import FlowerApp
from fedprice.market.ledger import Ledger

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-torch"


def test_the_example_with_pytorch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]'")
    caplog.set_level("INFO", logger="flwr")
    url = f"sqlite:///{tmp_path / 'torch.db'}"
    FlowerApp.read(EXAMPLE, f'ledger="{url}"').run_in_process()
    ledger = Ledger(url, create=False)
    run = ledger.verify().runs["torch"]
    ledger.close()
    assert run.settled
    assert sum(own.joined for own in run.clients.values()) == sum(
        own.heads for own in run.clients.values()
    )
    said = [r.message for r in caplog.records if ": accuracy " in r.message]  # by the app
    reached = [float(message.split()[-1]) for message in said]
    assert reached[0] < 0.5
    assert reached[-1] > 0.9
