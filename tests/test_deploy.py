"""The compose files in deploy/: whole, pinned, and in the words of the Flower that is installed."""

import json
import re
import secrets
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedprice.flower import read_key, read_public_keys
from fedprice.flower.processes import DeploymentError, end_marked, flwr, free_port, offline
from fedprice.market.ledger import Ledger

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
FILES = ("compose.yaml", "client.yaml")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text("utf-8"))
    return found


def named(service: dict[str, Any], kind: str) -> set[str]:
    """What a service uses of a kind: by its name alone, or as the source of a mount."""
    return {
        use["source"] if isinstance(use, dict) else use.partition(":")[0]
        for use in service.get(kind, [])
    }


@pytest.mark.parametrize("name", FILES)
def test_whatever_a_service_uses_is_there_and_used(name: str) -> None:
    compose = read(name)
    services = compose["services"]
    for kind in ("secrets", "configs", "networks", "volumes"):
        used = set().union(*(named(service, kind) for service in services.values()))
        used = {use for use in used if not use.startswith("$")}  # directories of the host
        assert used == set(compose.get(kind, {})), kind
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for other, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in services[other]


@pytest.mark.parametrize("name", FILES)
def test_images_are_pinned(name: str) -> None:
    for service in read(name)["services"].values():
        assert re.fullmatch(r"(postgres:17@sha256:[0-9a-f]{64}|fedprice:[0-9.]+)", service["image"])
    assert "flwr==1.41.0\n" in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("name", FILES)
def test_no_secret_is_in_an_environment_or_on_a_command_line(name: str) -> None:
    for service in read(name)["services"].values():
        said = f"{service.get('environment', {})} {service.get('command', '')}".lower()
        said = re.sub(r"postgres_password_file|/run/secrets/[\w.-]+", "", said)  # where it is
        assert "password" not in said
        assert "postgresql" not in said


@pytest.mark.slow
def test_every_option_is_one_of_the_installed_flower() -> None:
    options: dict[str, set[str]] = {}
    for name in FILES:
        for service in read(name)["services"].values():
            command, *rest = service.get("command", [""])
            if command.startswith("flower-"):
                options.setdefault(command, set()).update(o.partition("=")[0] for o in rest)
    assert set(options) == {"flower-superlink", "flower-supernode"}
    for command, used in options.items():
        program = Path(sys.executable).with_name(command)
        said = subprocess.run(
            [program, "--help"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        assert used <= set(re.findall(r"--[a-z-]+", said)), command


def test_the_image_is_made_from_what_is_in_the_repository() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert copied
    assert all((ROOT / word).exists() for word in copied)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of deploy/ with the secrets that its script makes for two clients."""
    if shutil.which("openssl") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("needs the commands openssl and ssh-keygen")
    folder = tmp_path_factory.mktemp("deploy")
    shutil.copytree(DEPLOY, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("secrets"))
    fedprice = folder / "bin" / "fedprice"
    fedprice.parent.mkdir()
    fedprice.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from fedprice.cli import main; main()' \"$@\"\n"
    )
    fedprice.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{fedprice.parent}:/usr/bin:/bin")
        script = [str(folder / "make-secrets.sh"), "2", "market.example.org"]
        subprocess.run(script, check=True, timeout=60, capture_output=True)
        again = subprocess.run(script, check=False, timeout=60, capture_output=True)
    assert again.returncode != 0  # no key is overwritten
    return folder


def test_the_script_makes_every_file_that_the_services_need(prepared: Path) -> None:
    compose = read("compose.yaml")
    for kind in ("secrets", "configs"):
        for source in compose[kind].values():
            path = prepared / source["file"]
            assert path.is_file(), path
            assert kind == "configs" or path.stat().st_mode & 0o077 == 0, path
    made = prepared / "secrets"
    read_key(made / "market" / "server.key")
    assert set(read_public_keys(made / "market")) == {"1", "2"}
    for n in (1, 2):
        load_ssh_private_key((made / f"node-{n}").read_bytes(), None)
    password = (made / "database-password").read_text()
    assert f":{password}@database/" in (made / "ledger-url").read_text()
    authority = x509.load_pem_x509_certificate((made / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((made / "server.pem").read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = set(names.get_values_for_type(x509.DNSName))
    assert known == {"market.example.org", "superlink", "localhost"}


def laid_out(service: dict[str, Any], compose: dict[str, Any], prepared: Path, root: Path) -> None:
    """Put the files of a service where its container would have them, below a directory."""
    for kind, otherwise in (("secrets", "/run/secrets/"), ("configs", "/")):
        for use in service.get(kind, []):
            long = use if isinstance(use, dict) else {"source": use, "target": otherwise + use}
            target = root / long["target"].removeprefix("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(prepared / compose[kind][long["source"]]["file"], target)
    (root / "state").mkdir()


@pytest.mark.slow
def test_the_services_commands_run_the_example(prepared: Path, tmp_path: Path) -> None:
    """As processes on this machine instead of containers, with a ledger in a file."""
    mark, port, compose = secrets.token_hex(8), free_port(), read("compose.yaml")
    url = f"sqlite:///{tmp_path / 'market.db'}"
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        (DEPLOY / "flower.toml")
        .read_text()
        .replace("superlink:8000", f"127.0.0.1:{port}")
        .replace("/tls", str(prepared / "secrets"))
    )
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *more: str, **environment: str) -> None:
        service, root = compose["services"][name], tmp_path / name
        laid_out(service, compose, prepared, root)
        command = [
            re.sub(r"(?<![\w.])/(tls|run|market|state)\b", rf"{root}/\1", argument)
            .replace("superlink:8000", f"127.0.0.1:{port}")
            .replace("0.0.0.0", "127.0.0.1")
            .replace("--port=8000", f"--port={port}")
            for argument in service["command"]
        ]
        own = offline(root / "state", mark) | environment
        with (tmp_path / f"{name}.log").open("wb") as log:
            started.append(
                subprocess.Popen([*command, *more], env=own, cwd=root, stdout=log, stderr=log)
            )

    def ask(*arguments: str) -> Any:
        said = flwr([*arguments, "--format", "json"], offline(home, mark), tmp_path, timeout=120)
        return json.loads(said)

    try:
        start("superlink", FEDPRICE_LEDGER=url)
        wait_for(lambda: bool(ask("supernode", "list")["success"]))
        for n in (1, 2):
            public = str(prepared / "secrets" / f"node-{n}.pub")
            ask("supernode", "register", public, "market", "--name", str(n))
            start(f"supernode-{n}", f"--port={free_port()}")
        wait_for(lambda: [n["status"] for n in ask("supernode", "list")["nodes"]] == ["online"] * 2)
        config = f'clients=2 rounds=1 budget=60.0 keys="{tmp_path / "superlink" / "market"}"'
        ask("run", str(ROOT / "examples" / "flower-app"), "market", "--run-config", config)
        wait_for(lambda: ask("ls")["runs"][0]["status"].startswith("finished"))
        assert ask("ls")["runs"][0]["status"] == "finished:completed"
    finally:
        for process in started:
            process.terminate()
        end_marked(mark)
        for process in started:
            process.wait()
    ledger = Ledger(url, create=False)
    assert ledger.verify().runs["first"].settled
    ledger.close()
    assert (tmp_path / "supernode-1" / "market" / "client-1.receipts").exists()


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 180
    while True:
        with suppress(DeploymentError):
            if holds():
                return
        assert time.monotonic() < until
        time.sleep(1)


def test_the_image_is_built_from_all_that_the_wheel_needs() -> None:
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    there = {name for line in copied for name in line.split()}
    sent = set((ROOT / ".dockerignore").read_text().splitlines())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {*project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"], "src"}
    needed |= {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"}
    assert needed <= there
    assert {f"!{name}" for name in there} <= sent


@pytest.mark.parametrize("name", ["test", "publish"])
def test_actions_are_pinned_by_commit(name: str) -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows" / f"{name}.yml").read_text())["jobs"]
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)
