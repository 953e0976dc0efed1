"""`fedprice flower`, as typed: in process, and what it says to bad input."""

import os
import sys
from pathlib import Path

import pytest

from fedprice.flower.app import FlowerApp
from fedprice.market.ledger import Ledger
from tests.conftest import Run
from tests.flower.plain import plain_app

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPRICE_LEDGER", raising=False)
    monkeypatch.delenv("FEDPRICE_RUN", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("plainapp")]:
        monkeypatch.delitem(sys.modules, name)  # each test writes its own
    return tmp_path


def simulate(run: Run, settings: str) -> tuple[int, str, str]:
    return run("flower", "simulate", EXAMPLE, "--run-config", settings)


def test_an_app_in_process(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = simulate(run, "rounds=2 clients=2 budget=60")
    assert code == 0, err
    assert "first: 2 of 2 rounds, settled" in out
    assert (home / "market.db").exists()
    monkeypatch.setenv("FEDPRICE_LEDGER", "other.db")
    code, out, err = simulate(run, "rounds=3 clients=2 budget=60")
    assert code == 0, err
    assert "first: 3 of 3 rounds, settled" in out
    assert (home / "other.db").exists()


def test_bad_input_is_one_line(run: Run, home: Path) -> None:
    (home / "notes").write_text("x")
    (home / "broken").mkdir()
    (home / "broken" / "pyproject.toml").write_text("[project]")
    assert simulate(run, "rounds=2 clients=2 budget=60")[0] == 0
    for arguments, text in (
        (("simulate", home / "none"), "there is no Flower app in"),
        (("simulate", home / "broken"), "not of a Flower app"),
        (("simulate", EXAMPLE, "--run-config", "runds=3"), "Did you mean 'rounds'"),
        (("simulate", EXAMPLE, "--run-config", "rounds=many"), "text needs quotes"),
        (("simulate", EXAMPLE, "--run-config", 'rounds="ten"'), "must be a whole number"),
        (("simulate", EXAMPLE, "--run-config", "budget=true"), "must be a number"),
        (("simulate", EXAMPLE, "--run-config", "at-once=-1"), "at least 0"),
        (("simulate", EXAMPLE, "--run-config", "clients=0"), "at least one"),
        (("simulate", EXAMPLE, "--run-config", "rounds=3 clients=2 budget=60"), "another name"),
        (("simulate", EXAMPLE, "--run-config", "budget=9 rounds=2 clients=2"), "another budget"),
        (("keys", home / "notes", "--clients", 2), "is not a directory"),
    ):
        code, out, err = run("flower", *arguments)
        assert (code, out) == (2, ""), (arguments, err)
        assert text in err.splitlines()[-1]


def test_a_deployment_that_fails_is_exit_code_7(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprice.flower.deployment.shutil.which", lambda *_, **__: None)
    code, out, err = run("flower", "up", EXAMPLE, "--clients", 2)
    assert (code, out) == (7, "")
    assert "flower-superlink" in err.splitlines()[-1]


def test_keys_for_everybody(run: Run, home: Path) -> None:
    assert run("flower", "keys", "keys", "--clients", 2)[0] == 0
    names = sorted(path.name for path in (home / "keys").iterdir())
    assert names == [
        "client-1.key", "client-1.pub", "client-2.key", "client-2.pub", "server.key", "server.pub",
    ]  # fmt: skip
    assert (home / "keys" / "server.key").stat().st_mode & 0o077 == 0
    code, _, err = run("flower", "keys", "keys", "--clients", 2)
    assert code == 2
    assert "a key is not overwritten" in err


def test_an_app_without_our_settings_is_usable(run: Run, home: Path) -> None:
    """No `clients`, `rounds`, `ledger` or `run` in it: --clients, and what the command chooses."""
    app = plain_app(home / "app")
    code, out, err = run("flower", "simulate", app)
    assert (code, out) == (2, "")
    assert "does not say how many it has. Give --clients." in err
    code, out, err = run("flower", "simulate", app, "--clients", 2)
    assert code == 0, err
    assert "plain: 2 of 2 rounds, settled" in out  # the name of its project
    assert (home / "market.db").exists()
    assert (home / "model.npy").exists()
    assert "FEDPRICE_RUN" not in os.environ


def test_clients_are_those_of_the_apps_federation(run: Run, home: Path) -> None:
    app = plain_app(home / "app", federation=True)
    code, out, err = run("flower", "simulate", app)
    assert code == 0, err
    assert "plain: 2 of 2 rounds, settled" in out


def test_rounds_of_an_app_that_calls_them_num_server_rounds(run: Run, home: Path) -> None:
    app = plain_app(home / "app")
    code, out, err = run("flower", "simulate", app, "--clients", 2, "--rounds", 3)
    assert code == 0, err
    assert "plain: 3 of 3 rounds, settled" in out
    text = (app / "pyproject.toml").read_text().replace("num-server-rounds = 2", "epochs = 2")
    (app / "pyproject.toml").write_text(text)
    code, out, err = run("flower", "simulate", app, "--clients", 2, "--rounds", 3)
    assert (code, out) == (2, "")
    assert "neither a setting `rounds` nor `num-server-rounds`" in err


def test_run_config_is_not_overwritten_by_defaults(run: Run) -> None:
    app = FlowerApp.read(EXAMPLE, "rounds=2 clients=3")
    assert (app.config["rounds"], app.config["clients"], app.clients) == (2, 3, 3)
    for command in ("simulate", "up"):
        for option, text in (("--clients", "clients=3"), ("--rounds", "rounds=3")):
            code, out, err = run("flower", command, EXAMPLE, option, 2, "--run-config", text)
            assert (code, out) == (2, "")
            assert f"{option} is 2, but --run-config says {text}; give one of them." in err
    app = FlowerApp.read(EXAMPLE, "rounds=2 clients=3", clients=3, rounds=2)  # the same is fine
    assert app.clients == 3


def test_a_relative_ledger_lands_where_the_user_stands(run: Run, home: Path) -> None:
    app = plain_app(home / "app")
    code, _, err = run("flower", "simulate", app, "--clients", 2, "--ledger", "own.db")
    assert code == 0, err
    assert (home / "own.db").exists()
    assert not (home / "market.db").exists()


def test_the_environment_names_the_run(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRICE_RUN", "mine")
    assert "mine: 2 of 2" in run("flower", "simulate", plain_app(home / "app"), "--clients", 2)[1]
    code, _, err = simulate(run, "rounds=2 clients=2 budget=60")
    assert code == 2
    assert "run 'mine' in" in err  # another app in the same ledger
    assert FlowerApp.read(EXAMPLE, 'run="other"').run == "other"


def test_a_finished_run_is_not_shown_as_new(run: Run, home: Path) -> None:
    """In process it runs, so that other settings are refused; elsewhere nothing is started."""
    app = plain_app(home / "app")
    assert run("flower", "simulate", app, "--clients", 2)[0] == 0
    ledger = Ledger("sqlite:///market.db", create=False)
    before = ledger.verify().hashes
    for arguments in (("simulate",), ("simulate", "--ray"), ("up", "--ledger", "market.db")):
        code, out, err = run("flower", arguments[0], app, "--clients", 2, *arguments[1:])
        assert (code, out) == (8, ""), (arguments, err)
        assert "run 'plain' in" in err.splitlines()[-1]
        assert "had already finished; nothing was trained" in err.splitlines()[-1]
    assert ledger.verify().hashes == before
    ledger.close()


def test_a_timeout_is_for_ray(run: Run, home: Path) -> None:
    code, _, err = run("flower", "simulate", EXAMPLE, "--timeout", 5)
    assert code == 2
    assert "--timeout applies only to --ray" in err


def test_a_directory_that_is_no_deployments_is_refused(run: Run, home: Path) -> None:
    (home / "work").mkdir()
    (home / "work" / "thesis.tex").write_text("x")
    code, _, err = run("flower", "up", EXAMPLE, "--clients", 2, "--work", home / "work")
    assert code == 2
    assert "neither empty nor the directory of an earlier deployment" in err
    assert [path.name for path in (home / "work").iterdir()] == ["thesis.tex"]


def test_keys_that_are_not_there_are_named(run: Run, home: Path) -> None:
    assert run("flower", "keys", "own", "--clients", 1)[0] == 0
    code, _, err = run("flower", "up", EXAMPLE, "--clients", 2, "--keys", "own")
    assert code == 2
    assert "own has no client-2.key; make keys with: fedprice flower keys" in err


def test_keys_for_an_app_that_cannot_take_them_are_refused(run: Run, home: Path) -> None:
    """They were ignored, and everybody signed with keys that anybody can compute."""
    assert run("flower", "keys", "own", "--clients", 2)[0] == 0
    app = plain_app(home / "app")
    code, _, err = run("flower", "up", app, "--clients", 2, "--keys", "own")
    assert code == 2
    assert "has no setting `keys`" in err


def test_up_takes_what_was_typed(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings and options before defaults; a ledger in --work before the app's own setting."""
    seen: list[tuple[FlowerApp, Path]] = []
    monkeypatch.setattr(
        "fedprice.cli.flower._deploy", lambda app, folder, *_: seen.append((app, folder))
    )
    for arguments in (
        ("--run-config", "rounds=2 clients=3 at-once=1"),
        ("--clients", 3, "--rounds", 2, "--work", "work", "--keys", "own"),
        ("--run-config", 'ledger="own.db" rounds=2', "--clients", 3),
        ("--rounds", 2, "--clients", 3, "--ledger", "own.db"),
    ):
        code, _, err = run("flower", "up", EXAMPLE, *arguments)
        assert code == 0, err
    for app, _ in seen:
        assert (app.clients, app.config["clients"], app.config["rounds"]) == (3, 3, 2)
    (first, folder), (kept, work), (by_setting, _), (by_option, _) = seen
    assert first.config["at-once"] == 1
    assert kept.config["at-once"] == 2 * (os.cpu_count() or 1)
    assert first.ledger == first.config["ledger"] == f"sqlite:///{folder}/market.db"
    assert first.config["keys"] == str(folder / "keys" / "all")
    assert not folder.exists()
    assert work == home / "work"
    assert kept.ledger == f"sqlite:///{work / 'market.db'}"
    assert kept.config["keys"] == str(home / "own")
    assert by_setting.ledger == by_option.ledger == f"sqlite:///{home}/own.db"
    assert (by_setting.config["ledger"], by_option.config["ledger"]) == (by_setting.ledger, "")


GUIDE = Path(__file__).parents[1] / "flower" / "guide_app"


def test_an_app_that_knows_nothing_of_the_market_is_named(run: Run, home: Path) -> None:
    app = FlowerApp.read(GUIDE).copied(home / "app")
    code, _, err = run("flower", "simulate", app, "--clients", 2, "--rounds", 1)
    assert code == 2
    assert "started no PricedParticipation: nothing was priced or recorded" in err


def test_an_app_ran_the_code_of_another_with_the_same_name(home: Path) -> None:
    for name in ("one", "two", "one"):
        app = FlowerApp.read(FlowerApp.read(GUIDE).copied(home / name))
        file = app.module("guideapp.server_app").__file__
        assert Path(file).is_relative_to(home / name)


def test_another_run_by_its_name(run: Run, home: Path) -> None:
    settings = ("--run-config", "rounds=2 clients=2 budget=60")
    for name in ("one", "two"):
        code, out, err = run("flower", "simulate", EXAMPLE, *settings, "--run", name)
        assert code == 0, err
        assert f"{name}: 2 of 2 rounds, settled" in out
    code, _, err = run("flower", "simulate", EXAMPLE, *settings, "--run", "two")
    assert code == 8
    assert "`fedprice ledger show two`" in err


def test_a_copy_of_an_app_is_what_flower_may_change(home: Path) -> None:
    app = FlowerApp.read(EXAMPLE)
    copy = app.copied(home / "app")
    assert (copy / "pricedapp" / "client_app.py").exists()
    assert FlowerApp.read(copy).config.keys() == app.config.keys()
    assert app.copied(home / "app") == copy  # again, over what was there


def test_a_wrong_file_of_a_client_is_named_before_anything_starts(run: Run, home: Path) -> None:
    assert run("flower", "keys", home / "keys", "--clients", 2)[0] == 0
    (home / "keys" / "client-1.toml").write_text("value = 3\n")
    code, _, err = run(
        "flower", "up", EXAMPLE, "--clients", 2, "--keys", home / "keys", "--work", home / "w"
    )
    assert code == 2
    assert "`cost` is missing" in err
