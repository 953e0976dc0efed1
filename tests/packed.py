"""Write verify.pyz, the verifier as one file that an auditor keeps: `make verify.pyz`.

It holds the package `fedprice.verify` and nothing else. Packed again from the same sources, it has
the same bytes, so that whoever gets one can compare it with one of their own.
"""

import atexit
import shutil
import sys
import tempfile
import zipapp
from functools import cache
from os import utime
from pathlib import Path

import fedprice.verify

SOURCE = Path(fedprice.verify.__file__).parent
EPOCH = 315_619_200  # 1980-01-02: the earliest day that an archive can name in every time zone


def pack(target: Path) -> None:
    """Write the verifier as one file that Python runs."""
    with tempfile.TemporaryDirectory() as place:
        inside = Path(place) / "verify"
        inside.mkdir()
        for path in SOURCE.glob("*.py"):
            shutil.copyfile(path, inside / path.name)
        (Path(place) / "__main__.py").write_text(
            "import sys\n\nfrom verify.program import main\n\nsys.exit(main())\n", "utf-8"
        )
        for path in (*inside.iterdir(), inside, Path(place) / "__main__.py"):
            path.chmod(0o755 if path.is_dir() else 0o644)
            utime(path, (EPOCH, EPOCH))
        zipapp.create_archive(place, target, interpreter="/usr/bin/env python3")


@cache
def verifier() -> Path:
    """Return the verifier as one file, packed once per process."""
    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place)
    pack(Path(place) / "verify.pyz")
    return Path(place) / "verify.pyz"


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
