"""Name files in an index, and find the files of names."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from retrieval_core.ingest.files import absolute_path, location_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.ingest.files import Discovery, FoundFile
    from retrieval_core.ports import SourceState


class FileNames:
    """The names of an index's files.

    A file in the folder of the index is named by its path in it. A file elsewhere is named by the folder that was
    indexed: the folder's own name and the path below it. If another file has that name, names of parent folders are
    put in front. A file that is in the index keeps its name.

    Args:
        base: The folder of the index, without symbolic links.
        known: The files in the index, by name.
    """

    def __init__(self, base: Path, known: Mapping[str, SourceState]) -> None:
        self._base = base
        self._known = known
        self._names = {state.location: name for name, state in sorted(known.items())}
        self._new: set[str] = set()

    def resolve(self, paths: Iterable[Path]) -> list[Path]:
        """Return paths spelled as the index knows them; only for those outside its folder there is another spelling.

        A path through a symbolic link may lead into the folder of the index, or to files that were indexed by another
        path.
        """
        return [self._spelled(path) for path in paths]

    def apply(self, discovery: Discovery) -> list[FoundFile]:
        """Return the files that were found, each with its name, ordered by name."""
        roots = sorted(discovery.folders, key=lambda folder: len(folder.parts))
        named = [replace(file, source=self._name(file, roots)) for file in discovery.files]
        return sorted(named, key=lambda file: file.source)

    def vanished(self, discovery: Discovery) -> dict[str, bool]:
        """Return the names of files in the index that were looked for and not found, and whether they are ignored."""
        found = {file.location for file in discovery.files}
        locations = ((name, state.location) for name, state in self._known.items())
        gone = {name: at for name, at in locations if at not in found and discovery.covers(at)}
        return {name: discovery.ignores(location) for name, location in gone.items()}

    def locate(self, name: str) -> str:
        """Return the location of a file or folder by its name; it need not be in the index."""
        if (state := self._known.get(name)) is not None:
            return state.location
        named = (folder for folder, own in self._folders.items() if own == name.rstrip("/"))
        return next(named, name)

    def names_at(self, path: Path, *, is_folder: bool) -> list[str]:
        """Return the name of the file at a path, or of all files in the folder at it."""
        location = location_of(self._spelled(path), self._base)
        if not is_folder:
            return [self._names[location]] if location in self._names else []
        if location == ".":
            return [name for at, name in self._names.items() if not is_outside(at)]
        return [name for at, name in self._names.items() if at.startswith(f"{location}/")]

    @cached_property
    def _folders(self) -> dict[str, str]:
        """Names of folders outside the index's folder, by location, as the names of their files have them."""
        folders: dict[str, str] = {}
        for location, name in self._names.items():
            if not is_outside(location) or is_outside(name):
                continue
            where, own = PurePosixPath(location), PurePosixPath(name)
            while where.name == own.name and own.parent.name:
                where, own = where.parent, own.parent
                if folders.setdefault(str(where), str(own)) != str(own):
                    break
        return folders

    @cached_property
    def _taken(self) -> set[str]:
        """All names of files, and of the folders in them."""
        taken: set[str] = set()
        for name in self._names.values():
            _add(name, taken)
        return taken

    def _name(self, file: FoundFile, roots: Sequence[Path]) -> str:
        if (known := self._names.get(file.location)) is not None:
            return known
        path = absolute_path(file.path)
        name = self._outside_name(path, file.location, roots) if is_outside(file.location) else file.location
        if name in self._known or name in self._new:
            name = self._unused(path, parts=name.count("/") + 2)
        self._names[file.location] = name
        self._new.add(name)
        _add(name, self._taken)
        return name

    def _outside_name(self, path: Path, location: str, roots: Sequence[Path]) -> str:
        where = PurePosixPath(location)
        for folder in where.parents:
            if (own := self._folders.get(str(folder))) is not None:
                return f"{own}/{where.relative_to(folder)}"
        root = next((root for root in roots if path.is_relative_to(root)), path)
        name = self._unused(root)
        if root == path:
            return name
        self._folders[location_of(root, self._base)] = name
        return f"{name}/{path.relative_to(root).as_posix()}"

    def _unused(self, path: Path, parts: int = 1) -> str:
        """Return the shortest end of a path that is neither a name yet nor a path in the folder of the index.

        Args:
            path: An absolute one.
            parts: How many of its parts the name has at least.
        """
        names = path.relative_to(path.anchor).parts
        for count in range(parts, len(names) + 1):
            name = "/".join(names[-count:])
            if name not in self._taken and not os.path.lexists(self._base / name):
                return name
        return f"{sha256(os.fsencode(path)).hexdigest()[:8]}/{path.name or 'root'}"

    def _spelled(self, path: Path) -> Path:
        location = location_of(path, self._base)
        if not is_outside(location) or self._is_known(location):
            return path
        real = Path(os.path.realpath(path))
        location = location_of(real, self._base)
        if not is_outside(location) or self._is_known(location):
            return real
        for folder in {
            str(above) for known in self._names if is_outside(known) for above in PurePosixPath(known).parents
        }:
            if is_outside(folder) and Path(os.path.realpath(self._base / folder)) == real:
                return absolute_path(self._base / folder)
        return path

    def _is_known(self, location: str) -> bool:
        """Whether a file or folder, or a file in the folder, is in the index."""
        return location in self._names or any(known.startswith(f"{location}/") for known in self._names)


def _add(name: str, names: set[str]) -> None:
    """Add a name and those of the folders that it is in."""
    while name and name not in names:
        names.add(name)
        name = name.rpartition("/")[0]


def is_outside(location: str) -> bool:
    """Return whether a location is outside the folder of the index."""
    return location == ".." or location.startswith("../") or Path(location).is_absolute()
