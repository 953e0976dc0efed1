"""Signing keys in files: 64 hexadecimal digits; private ones are readable only by their owner."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedprice._plumbing.table_limits import limited_content
from fedprice._plumbing.tables import whole_file
from fedprice.errors import InputError
from fedprice.market.messages import SigningKey, require_digest, require_public_key

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "read_key",
    "read_public_key",
    "read_public_keys",
    "simulation_key",
    "write_keys",
    "write_missing_keys",
]


def write_keys(folder: Path, clients: Iterable[str]) -> None:
    """Make keys for a server and its clients: NAME.key is private, NAME.pub is public.

    A new or empty directory is made accessible only to its owner.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a directory.")
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        folder.chmod(0o700)
    for name in ("server", *(f"client-{client}" for client in clients)):
        _write_key(folder, name)


def write_missing_keys(folder: Path, clients: Iterable[str]) -> None:
    """Make the keys that are missing in a directory, if any."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    for name in ("server", *(f"client-{client}" for client in clients)):
        if not (folder / f"{name}.pub").exists():  # which is written last
            (folder / f"{name}.key").unlink(missing_ok=True)
            _write_key(folder, name)


def _write_key(folder: Path, name: str) -> None:
    key = SigningKey()
    private = folder / f"{name}.key"
    if private.exists():
        raise InputError(f"{private} exists; a key is not overwritten.")
    handle = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        os.fchmod(handle, 0o600)  # whatever the umask
        file.write(key.private.hex() + "\n")
    with whole_file(folder / f"{name}.pub") as part:
        part.write_text(key.public.hex() + "\n")
        part.chmod(0o644)  # whatever the umask: others could otherwise replace it, or not read it


def read_key(path: str | Path) -> SigningKey:
    """Read a private key; refuse one that anybody but its owner can read or change."""
    path = Path(path)
    if path.suffix == ".pub":
        raise InputError(f"a private key is needed; {path} is a public one.")
    private = _read(path)
    mode = path.stat().st_mode & 0o777
    if os.name == "posix" and mode & 0o077:
        raise InputError(
            f"the private key {path} is open to others (mode {mode:04o}); run: chmod 600 {path}"
        )
    return SigningKey(private)


def read_public_key(path: str | Path) -> bytes:
    """Read a public key."""
    key = _read(Path(path))
    require_public_key(str(path), key)
    return key


def _read(path: Path) -> bytes:
    try:
        text = limited_content(path).decode(errors="replace").strip()
    except OSError as error:
        raise InputError(f"cannot read the key {path}: {error.strerror}.") from error
    try:
        require_digest("key", text)
    except InputError:
        raise InputError(f"{path} does not contain a key of 64 hexadecimal digits.") from None
    return bytes.fromhex(text)


def read_public_keys(folder: Path) -> dict[str, bytes]:
    """Read the public keys of all clients in a directory, by client."""
    found = {
        path.stem.removeprefix("client-"): read_public_key(path)
        for path in sorted(folder.glob("client-*.pub"))
    }
    if not found:
        raise InputError(f"there are no keys client-NAME.pub in {folder}.")
    return found


def simulation_key(whose: str) -> SigningKey:
    """Return a key that anybody can compute, for simulations only."""
    return SigningKey(hashlib.sha256(f"fedprice simulation\0{whose}".encode()).digest())
