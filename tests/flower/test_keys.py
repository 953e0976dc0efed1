"""Keys in files: private ones for their owner alone, public ones that are somebody's."""

import os
from pathlib import Path

import pytest

from fedprice.errors import InputError
from fedprice.market.keys import read_key, read_public_key, read_public_keys, write_keys


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_keys_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    (tmp_path / "empty").mkdir(0o777)
    before = os.umask(umask)
    try:
        for name in ("new", "empty"):
            write_keys(tmp_path / name, ["1"])
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
            for path in (tmp_path / name).glob("*.key"):
                assert path.stat().st_mode & 0o777 == 0o600
            for path in (tmp_path / name).glob("*.pub"):
                assert path.stat().st_mode & 0o777 == 0o644, "others read it, and cannot replace it"
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_private_key_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    write_keys(tmp_path / "keys", ["1"])
    path = tmp_path / "keys" / "server.key"
    assert read_key(path).public == read_public_key(path.with_suffix(".pub"))
    path.chmod(mode)
    with pytest.raises(InputError, match=rf"open to others \(mode {mode:04o}\); run: chmod 600 "):
        read_key(path)


def test_a_low_order_public_key_is_refused(tmp_path: Path) -> None:
    write_keys(tmp_path, ["1", "2"])
    (tmp_path / "client-2.pub").write_text("00" * 32)
    with pytest.raises(InputError, match=r"client-2\.pub` must not be a point of small order"):
        read_public_keys(tmp_path)
    (tmp_path / "client-2.pub").write_bytes(b"\xff" * 64)
    with pytest.raises(InputError, match="does not contain a key of 64 hexadecimal digits"):
        read_public_keys(tmp_path)
