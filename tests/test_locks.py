"""What `make demo` and `make test` install is locked by hashes, and the locks are current."""

import pytest

from tests.locks import EXTRAS, OTHER, ROOT, locked, needed, pinned


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_lock_is_current(extra: str) -> None:
    versions = pinned()
    hashes = locked(extra)
    assert set(hashes) == {(name, versions[name]) for name in needed(extra)}, "run: make locks"
    assert all(hashes.values())
    text = (ROOT / "locks" / f"{extra}.txt").read_text("utf-8")
    assert text.count("--hash=sha256:") == sum(map(len, hashes.values()))
    assert "://" not in text, "an index is named"


def test_files_of_systems_that_are_not_tried_are_left_out() -> None:
    kept = """x-1-cp313-cp313-manylinux_2_28_x86_64.whl x-1-py3-none-any.whl x-1.tar.gz
        x-1-cp39-abi3-macosx_11_0_arm64.whl x-1-cp310-abi3-manylinux_2_28_aarch64.whl"""
    left_out = """x-1-cp313-cp313t-manylinux_2_28_x86_64.whl x-1-cp310-cp310-manylinux1_x86_64.whl
        x-1-cp311-cp311-win_amd64.whl x-1-cp311-cp311-musllinux_1_2_x86_64.whl
        x-1-pp311-pypy311_pp73-macosx_11_0_arm64.whl"""
    assert not any(map(OTHER.search, kept.split()))
    assert all(map(OTHER.search, left_out.split()))
