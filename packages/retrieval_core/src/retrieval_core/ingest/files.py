"""Which files there are, what they are called in the index, and whether they changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to index: where it is, its name in the index, and its size in bytes."""

    path: Path
    source: str
    size: int


@dataclass(frozen=True, slots=True)
class Discovery:
    """What lies below some paths.

    Attributes:
        files: Each once, ordered by source.
        folders: Names, in the index, of the folders that were walked: what was indexed below them and is not among the
            files is gone.
        missing: Paths that do not exist.
    """

    files: tuple[FoundFile, ...]
    folders: tuple[str, ...]
    missing: tuple[Path, ...]

    def covers(self, source: str) -> bool:
        """Whether a source lies below one of the folders that were walked."""
        return any(_lies_below(source, folder) for folder in self.folders)


def discover(paths: Iterable[Path], base: Path, suffixes: Collection[str]) -> Discovery:
    """Find the files below some paths.

    In folders, only files with one of the suffixes count, and names that begin with a dot are passed over, as are
    folders behind symbolic links. A file that is named itself always counts.

    Args:
        paths: Files and folders.
        base: The folder that names in the index are relative to.
        suffixes: In lower case, with their dot.
    """
    files: dict[str, FoundFile] = {}
    folders: list[str] = []
    missing: list[Path] = []
    for path in paths:
        if path.is_dir():
            folders.append(source_name(path, base))
            found = _walk(path, suffixes)
        elif path.exists():
            found = iter((path,))
        else:
            missing.append(path)
            continue
        for file in found:
            source = source_name(file, base)
            files[source] = FoundFile(file, source, file.stat().st_size)
    return Discovery(tuple(files[source] for source in sorted(files)), tuple(folders), tuple(missing))


def source_name(path: Path, base: Path) -> str:
    """Return a path's name in the index: relative to the base where that is possible, with forward slashes.

    So the names stay right when the index and the files move together.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - unlike resolve() it leaves symbolic links alone
    try:
        return Path(os.path.relpath(absolute, base)).as_posix()
    except ValueError:  # another drive on Windows
        return absolute.as_posix()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _walk(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(parent, name)
            if not name.startswith(".") and path.suffix.lower() in suffixes and path.is_file():
                yield path


def _lies_below(source: str, folder: str) -> bool:
    if folder == ".":
        return not source.startswith(("../", "/"))
    return source.startswith(f"{folder}/")
