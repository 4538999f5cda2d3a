"""What is in the packages' wheels and source distributions, compared with what git holds.

As a command, ``python tests/support/release_files.py FOLDER`` says what is wrong in a folder of built files, and fails.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
TOP = ("LICENSE", "README.md", "pyproject.toml")
"""What stands beside the folder ``src`` of each package."""


def differences(what: str, held: Mapping[str, bytes], expected: Mapping[str, bytes | None]) -> Iterator[str]:
    """Yield a line for each file that is missing, is not expected or has another content.

    Args:
        what: The archive.
        held: What it holds, by path.
        expected: What it has to hold; ``None`` for what the build writes itself.
    """
    for name in sorted(expected.keys() | held.keys()):
        if name not in held:
            yield f"{what}: {name} is missing"
        elif name not in expected:
            yield f"{what}: {name} does not belong there; git does not know it"
        elif expected[name] is not None and held[name] != expected[name]:
            yield f"{what}: {name} differs from the file in the repository"


def problems(package: Path, built: Path, tracked: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a line for each thing that is wrong with the wheel and the source distribution of a package.

    Args:
        package: Its folder.
        built: The folder with the archives.
        tracked: The files of the package that git holds, by path relative to the package.
    """
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    wheel, source = built / f"{stem}-py3-none-any.whl", built / f"{stem}.tar.gz"
    if absent := [path.name for path in (wheel, source) if not path.is_file()]:
        yield from (f"{name} was not built" for name in absent)
        return
    modules = {name.removeprefix("src/"): text for name, text in tracked.items() if name.startswith("src/")}
    if not any(name.endswith("/py.typed") for name in modules):
        yield f"{package.name}: there is no py.typed"
    described: dict[str, bytes | None] = dict.fromkeys(("METADATA", "WHEEL", "RECORD"))
    described["licenses/LICENSE"] = tracked["LICENSE"]
    if "scripts" in project:
        described["entry_points.txt"] = None
    info = {f"{stem}.dist-info/{name}": text for name, text in described.items()}
    with ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    yield from differences(wheel.name, held, {**modules, **info})
    if b"\nLicense-Expression: MIT\n" not in held.get(f"{stem}.dist-info/METADATA", b""):
        yield f"{wheel.name}: its METADATA does not name the licence"
    with tarfile.open(source) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        held = {name.removeprefix(f"{stem}/"): file.read() for name, file in files.items() if file is not None}
    written: dict[str, bytes | None] = {"PKG-INFO": None, ".gitignore": None}
    yield from differences(source.name, held, {**tracked, **written})


def tracked_files(package: Path) -> dict[str, bytes]:
    """Return the files that git holds of a package, but for those that no archive holds."""
    command = ("git", "-C", str(package), "ls-files", "-z", "src", *TOP)
    listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    return {name: (package / name).read_bytes() for name in listed if name}


def main(built: str) -> int:
    """Say what is wrong with what was built of all packages; return 1 if anything is."""
    packages = sorted(path.parent for path in (ROOT / "packages").glob("*/pyproject.toml"))
    found = [line for package in packages for line in problems(package, Path(built), tracked_files(package))]
    sys.stderr.writelines(f"{line}\n" for line in found)
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
