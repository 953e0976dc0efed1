"""Write locks/EXTRA.txt: versions of constraints.txt and hashes of their files, for pip.

``make locks`` runs it, with an environment in which the extra `test` is installed. Hashes are those
that the package index states for files of CPython 3.11 to 3.13 and for sources.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
EXTRAS = ("all", "test")  # what `make demo` and `make test` install
# What builds the package itself.
BUILD = {
    "editables",
    "hatchling",
    "packaging",
    "pathspec",
    "pluggy",
    "tomlkit",
    "trove-classifiers",
}
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = (("linux", "Linux"), ("darwin", "Darwin"))
# Files of other interpreters and of systems on which nothing was tried.
OTHER = re.compile(
    r"-pp3|musllinux|win32|win_|ppc64|s390x|i686|armv7|riscv|-cp(?!31[123]-|3\d+-abi3)"
)


def pinned() -> dict[str, str]:
    """Return the versions of constraints.txt, by canonical name."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = (line.partition("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, _, version in pairs}


def needed(extra: str) -> set[str]:
    """Return the packages that an extra of fedprice needs on any Python and system."""
    environments = [
        {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": system,
         "platform_system": name, "implementation_name": "cpython",
         "platform_python_implementation": "CPython", "platform_machine": "x86_64"}
        for python in PYTHONS for system, name in SYSTEMS
    ]  # fmt: skip
    seen: set[tuple[str, str]] = set()
    waiting = [("fedprice", extra)]
    while waiting:
        name, chosen = waiting.pop()
        if (name, chosen) in seen:
            continue
        seen.add((name, chosen))
        try:
            stated = requires(name) or []
        except PackageNotFoundError:  # needed on another Python or system only
            continue
        for required in map(Requirement, stated):
            marker = required.marker
            if marker is None or any(marker.evaluate(e | {"extra": chosen}) for e in environments):
                waiting += [
                    (canonicalize_name(required.name), one) for one in ("", *required.extras)
                ]
    return {name for name, _ in seen} - {"fedprice"} | BUILD


def hashes_of(name: str, version: str) -> list[str]:
    """Return the hashes of the files of a version, as pip's own finder sees the index."""
    from pip._internal.commands import create_command
    from pip._internal.index.collector import parse_links
    from pip._internal.models.link import Link

    command = create_command("download")
    options, _ = command.parse_args(["--disable-pip-version-check", "--quiet", name])
    with command.main_context():
        session = command.get_default_session(options)  # type: ignore[attr-defined]
        finder = command._build_package_finder(options, session)  # type: ignore[attr-defined]
        collector = finder._link_collector
        found: set[str] = set()
        for url in finder.search_scope.get_index_urls_locations(name):
            page = collector.fetch_response(Link(url))
            for link in () if page is None else parse_links(page):
                file = link.filename
                stem = re.escape(re.sub(r"[-_.]+", "-", name)).replace(r"\-", "[-_.]+")
                is_version = re.match(
                    rf"{stem}-{re.escape(version)}(-|\.tar\.gz|\.zip)", file, re.I
                )
                if is_version and link.hash_name == "sha256" and not OTHER.search(file):
                    found.add(str(link.hash))
    return sorted(found)


def locked(extra: str) -> dict[tuple[str, str], list[str]]:
    """Return the hashes in a lock, by name and version."""
    path = ROOT / "locks" / f"{extra}.txt"
    text = path.read_text("utf-8") if path.exists() else ""
    blocks = re.findall(r"^([a-z0-9-]+)==(\S+) \\\n((?:    \S+.*\n)+)", text, re.MULTILINE)
    return {(n, v): re.findall("sha256:([0-9a-f]{64})", hashes) for n, v, hashes in blocks}


def lock_text(hashes: dict[tuple[str, str], list[str]]) -> str:
    """Return what pip reads."""
    lines = ["# Written by `make locks`: versions of constraints.txt, with hashes of their files."]
    for (name, version), own in sorted(hashes.items()):
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{h}" for h in own)]))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the locks; hashes that are there already are not asked for again."""
    versions = pinned()
    names = {extra: needed(extra) for extra in EXTRAS}
    every = set().union(*names.values())
    if missing := every - set(versions):
        raise SystemExit(f"constraints.txt has no version of {', '.join(sorted(missing))}")
    hashes = {key: own for extra in EXTRAS for key, own in locked(extra).items()}
    new = [(name, versions[name]) for name in sorted(every) if (name, versions[name]) not in hashes]
    with ThreadPoolExecutor(24) as pool:
        hashes |= zip(new, pool.map(lambda key: hashes_of(*key), new), strict=True)
    if missing := {name for name, version in new if not hashes[name, version]}:
        raise SystemExit(f"the index states no hash for {', '.join(sorted(missing))}")
    (ROOT / "locks").mkdir(exist_ok=True)
    for extra in EXTRAS:
        own = {(name, versions[name]): hashes[name, versions[name]] for name in names[extra]}
        (ROOT / "locks" / f"{extra}.txt").write_text(lock_text(own), "utf-8")


if __name__ == "__main__":
    main()
