"""The URL of a ledger may hold a password: it reaches the server, and nothing and nobody else."""

import threading
from pathlib import Path

import pytest
import sqlalchemy

from fedprice.errors import InputError
from fedprice.flower.app import FlowerApp
from fedprice.flower.processes import MARK
from fedprice.market.ledger import Ledger
from tests.conftest import Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"
TORCH = EXAMPLE.with_name("flower-torch")
SECRET = "s3cr3tpassword"


@pytest.fixture
def secret_url(postgres: str) -> str:
    """A ledger whose password works, as any password does there."""
    address = sqlalchemy.make_url(postgres).set(password=SECRET)
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    engine.dispose()
    return address.render_as_string(hide_password=False)


class Spy:
    """Looks at all processes, again and again, for the secret."""

    def __init__(self) -> None:
        self.on_command_lines: set[str] = set()
        self.in_environments: set[str] = set()
        self.marked: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    environment = (process / "environ").read_bytes()
                except OSError:
                    continue
                if SECRET in command:
                    self.on_command_lines.add(command)
                if SECRET.encode() in environment:
                    self.in_environments.add(command)
                if MARK.encode() in environment:
                    self.marked.add(command)

    def __enter__(self) -> "Spy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.slow
def test_a_deployment_gives_the_ledger_to_its_server_alone(
    tmp_path: Path, secret_url: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """It was in `ps`, in a file that everybody could read, and with every client."""
    monkeypatch.setenv("FEDPRICE_LEDGER", secret_url)
    work = tmp_path / "work"
    settings = "budget=60 local-steps=2"
    with Spy() as spy:
        code, out, err = run(
            "flower", "up", EXAMPLE, "--clients", 2, "--rounds", 2, "--work", work,
            "--run-config", settings, "--timeout", 200,
        )  # fmt: skip
    assert code == 0, err
    assert "first: 2 of 2 rounds, settled" in out
    assert SECRET not in out + err
    assert spy.on_command_lines == set()
    assert any("flower-superlink" in command for command in spy.in_environments)
    for command in spy.in_environments:
        assert "flower-supernode" not in command
        assert "clientapp" not in command
    assert any("clientapp" in command for command in spy.marked)
    for path in work.rglob("*"):  # the SuperLink's database, with what clients are sent, as well
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    assert work.stat().st_mode & 0o777 == 0o700
    ledger = Ledger(secret_url, create=False)
    assert ledger.is_settled("first")
    ledger.close()


def test_a_failing_server_does_not_show_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    url = f"postgresql://market:{SECRET}@127.0.0.1:1/market"
    monkeypatch.setenv("FEDPRICE_LEDGER", url)
    code, out, err = run("flower", "simulate", EXAMPLE, "--run-config", "clients=2 rounds=2")
    assert code == 5
    assert SECRET not in out + err
    assert "database error in the database 'market' on 127.0.0.1" in err


@pytest.mark.slow
def test_the_simulation_on_ray_keeps_the_ledger_out_of_settings(
    tmp_path: Path, secret_url: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("FEDPRICE_LEDGER", secret_url)
    monkeypatch.chdir(tmp_path)  # where the log of the run is kept
    with Spy() as spy:
        code, out, err = run(
            "flower", "simulate", EXAMPLE, "--ray", "--run-config",
            "clients=2 rounds=2 budget=60 local-steps=2",
        )  # fmt: skip
    assert code == 0, err
    assert "first: 2 of 2 rounds, settled" in out
    assert SECRET not in out + err
    assert spy.on_command_lines == set()


@pytest.mark.parametrize("folder", [EXAMPLE, TORCH])
def test_settings_of_an_app_never_hold_the_environments_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = f"postgresql://market:{SECRET}@127.0.0.1:1/market"
    monkeypatch.setenv("FEDPRICE_LEDGER", url)
    app = FlowerApp.read(folder)
    assert app.ledger == url
    assert app.config["ledger"] == ""  # an app that does not look further records nowhere else
    assert SECRET not in repr(app)
    monkeypatch.chdir(tmp_path)
    for name in ("own.db", "sqlite:///own.db"):
        monkeypatch.setenv("FEDPRICE_LEDGER", name)
        assert app.ledger == f"sqlite:///{tmp_path / 'own.db'}"
    monkeypatch.delenv("FEDPRICE_LEDGER")
    app = FlowerApp.read(folder, 'ledger="sqlite:///other.db"')
    assert app.ledger == app.config["ledger"] == f"sqlite:///{tmp_path / 'other.db'}"


def test_a_password_in_the_settings_is_refused() -> None:
    """Clients see the settings of an app."""
    for url in (
        f"postgresql://market:{SECRET}@127.0.0.1:1/market",
        f"postgresql://market@127.0.0.1:1/market?password={SECRET}",
    ):
        with pytest.raises(
            InputError, match=r"clients see the settings.*FEDPRICE_LEDGER"
        ) as caught:
            FlowerApp.read(EXAMPLE, f'ledger="{url}"')
        assert SECRET not in str(caught.value)
    FlowerApp.read(EXAMPLE, 'ledger="postgresql://market@127.0.0.1:1/market"')
