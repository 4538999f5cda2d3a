"""Find the files to index, and name them."""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import TYPE_CHECKING

from retrieval_core.ingest.gitignore import FILE_NAME, IgnoreRules, read_rules, working_tree
from retrieval_core.ingest.skipping import is_package_folder, is_secret, skip_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from retrieval_core.ports import SourceState

_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
"""Codes of the system for a path, or the target of a link, that is not there."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to index.

    Attributes:
        source: Its name in the index; the location until it is named.
        size: In bytes.
        location: Its path relative to the folder of the index; the source if it is not given.
        is_named: Whether it was named itself, rather than found in a folder.
    """

    path: Path
    source: str
    size: int
    location: str = ""
    is_named: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "location", self.location or self.source)


@dataclass(frozen=True, slots=True)
class Discovery:
    """What lies below some paths.

    Attributes:
        files: Each once, ordered by location.
        base: The folder that locations are relative to.
        folders: Those that were walked: what was indexed below them and is not among the files is gone.
        refused: Paths that are no file, or could not be looked at, each with its reason. Nothing is known of them.
        gone: Paths that were named and are not there, by location.
        skipped_types: How many files of other types the folders have, by suffix; ignored ones do not count.
        skipped_links: How many symbolic links were passed over since they lead out of the folder that they are in.
        skipped: How many files, and folders of installed packages, are secrets or no code to search, by the reason.
        ignored: Files and folders that a ``.gitignore`` excludes; what lies in such a folder was not looked at.
    """

    files: tuple[FoundFile, ...]
    base: Path
    folders: tuple[Path, ...]
    refused: tuple[tuple[Path, str], ...]
    skipped_links: int = 0
    ignored: frozenset[Path] = frozenset()
    gone: Mapping[str, Path] = field(default_factory=dict[str, Path])
    skipped_types: Mapping[str, int] = field(default_factory=dict[str, int])
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])

    def covers(self, location: str) -> bool:
        """Whether a file was named and is gone, or lies below a folder that was walked and would have seen it."""
        if location in self.gone:
            return True
        path = absolute_path(self.base / location)
        if any(path.is_relative_to(refused) for refused, _ in self.refused):
            return False
        return any(path.is_relative_to(folder) for folder in self.folders)

    def ignores(self, location: str) -> bool:
        """Whether a file is ignored, or lies in a folder that is."""
        path = absolute_path(self.base / location)
        return not self.ignored.isdisjoint((path, *path.parents))


def discover(
    paths: Iterable[Path],
    base: Path,
    is_read: Callable[[Path], bool],
    *,
    follow_links: bool = False,
    gitignore: bool = True,
    settings_file: Path | None = None,
) -> Discovery:
    """Find the files below some paths.

    In folders, only files of types that are read count, and names that begin with a dot are passed over, as are
    symbolic links that lead out of the folder, links to folders in it, what a ``.gitignore`` of the working tree
    excludes (outside of one, of the folder or of one below it), and secrets and code that
    :mod:`retrieval_core.ingest.skipping` skips. What is named itself always counts: a rule that excludes a named
    folder, or one that it is in, does not hold there.

    Args:
        paths: Files and folders.
        base: The folder that locations are relative to.
        is_read: Whether files of a name are read.
        follow_links: Whether all links are followed, wherever they lead; each folder is walked once.
        gitignore: Whether ``.gitignore`` files are heeded, and code is skipped. Secrets are always skipped.
        settings_file: The file that the settings were read from. It may contain keys, so it is skipped.
    """
    base = base.resolve()  # the working folder, which paths are often given relative to, has no links in it either
    finder = _Finder(base, is_read, follow_links=follow_links, gitignore=gitignore, settings_file=settings_file)
    folders: list[Path] = []
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112 - false, and no error, below a folder that cannot be entered
            folders.append(absolute_path(path))
            finder.walk(path)
        else:
            finder.add(path, named=True)
    found = tuple(finder.files[location] for location in sorted(finder.files))
    return Discovery(
        found,
        base,
        tuple(folders),
        tuple(finder.refused),
        finder.skipped_links,
        frozenset(finder.ignored),
        finder.gone,
        dict(sorted(((s, n) for s, n in finder.skipped_types.items() if n), key=lambda item: (-item[1], item[0]))),
        finder.skipped,
    )


class _Finder:
    """Collects files, and what could not be looked at."""

    def __init__(
        self,
        base: Path,
        is_read: Callable[[Path], bool],
        *,
        follow_links: bool,
        gitignore: bool,
        settings_file: Path | None,
    ) -> None:
        self.files: dict[str, FoundFile] = {}
        self.refused: list[tuple[Path, str]] = []
        self.skipped_links = 0
        self.ignored: set[Path] = set()
        self.gone: dict[str, Path] = {}
        self.skipped_types: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self._base = base
        self._is_read = is_read
        self._follow_links = follow_links
        self._gitignore = gitignore
        self._settings_file = None if settings_file is None else os.path.realpath(settings_file)

    def walk(self, folder: Path) -> None:
        root = os.path.realpath(folder)
        walked = {root}
        rules = {folder: self._rules_at(Path(root))}
        for parent, below, names in os.walk(folder, onerror=self._not_listed, followlinks=self._follow_links):
            here = rules.pop(Path(parent))
            below[:] = [name for name in below if self._goes_into(Path(parent, name), root, walked, here)]
            rules.update((path, self._rules_below(here, path)) for path in (Path(parent, name) for name in below))
            for name in names:
                path = Path(parent, name)
                if name.startswith("."):
                    continue
                if not self._is_read(path):
                    self.skipped_types[path.suffix.lower()] += not here.ignore(os.fsencode(name), is_folder=False)
                elif not self._ignores(here, path, is_folder=False) and not self._leads_out(path, root):
                    reason = self._skips(path, folder)
                    if reason is None:
                        self.add(path, named=False)
                    else:
                        self.skipped[reason] += 1

    def _skips(self, path: Path, root: Path) -> str | None:
        """Return why a file in a folder is skipped; ``None`` if it is not."""
        if is_secret(path) or (self._settings_file and os.path.realpath(path) == self._settings_file):
            return "secrets"
        if path.is_symlink():  # notes.md may lead to .env
            real = Path(os.path.realpath(path))
            if real.name.startswith(".") or is_secret(real):
                return "secrets"
        return skip_by_name(path.relative_to(root)) if self._gitignore else None

    def _rules_at(self, folder: Path) -> IgnoreRules:
        """Return the rules that hold in the named folder.

        Rules that ignore this folder, or a folder that it is in, do not hold. All others do, as for git.
        """
        if not self._gitignore:
            return IgnoreRules()
        root, *below = working_tree(folder)
        rules = self._rules_below(IgnoreRules(), root)
        for place in below:
            rules = self._rules_below(rules.include_folder(os.fsencode(place.name)), place)
        return rules

    def _rules_below(self, above: IgnoreRules, folder: Path) -> IgnoreRules:
        """Return what is ignored in a folder of another; a working tree of its own begins anew."""
        if not self._gitignore:
            return above
        try:
            own = read_rules(folder)
        except OSError as error:
            self._refuse(folder / FILE_NAME, f"it cannot be read, so nothing is ignored by it: {error.strerror}")
            own = ()
        is_root = os.path.exists(folder / ".git")  # noqa: PTH110 - false, and no error, if it cannot be entered
        return IgnoreRules(own, os.fsencode(folder.name), None if is_root else above)

    def _ignores(self, rules: IgnoreRules, path: Path, *, is_folder: bool) -> bool:
        # To git, a link to a folder is a file.
        if not rules.ignore(os.fsencode(path.name), is_folder=is_folder and not path.is_symlink()):
            return False
        self.ignored.add(absolute_path(path))
        return True

    def _goes_into(self, folder: Path, root: str, walked: set[str], rules: IgnoreRules) -> bool:
        """Whether a folder is walked: none that is hidden or ignored, none twice, and links only where that is wanted.

        The real places of those that were walked are added to ``walked``; the rules are of the folder that it is in.
        """
        if folder.name.startswith(".") or self._ignores(rules, folder, is_folder=True) or self._leads_out(folder, root):
            return False
        if self._gitignore and is_package_folder(folder.name):
            self.skipped["vendored"] += 1
            return False
        if not self._follow_links:
            return True  # :func:`os.walk` does not go behind the links that are left
        real = os.path.realpath(folder)
        is_new = real not in walked
        walked.add(real)
        return is_new

    def _leads_out(self, path: Path, root: str) -> bool:
        """Whether a path is a link out of the folder where the walk began and is not followed; counted where it is."""
        if self._follow_links or not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(root):
            return False
        self.skipped_links += 1
        return True

    def add(self, path: Path, *, named: bool) -> None:
        location = location_of(path, self._base)
        try:
            location.encode()
            state = path.stat()
        except UnicodeEncodeError:
            self._refuse(path, "its name is not valid Unicode; rename it")
        except (OSError, ValueError) as error:  # ValueError: it has a null character
            if isinstance(error, OSError) and error.errno not in _NOT_THERE:
                self._refuse(path, error.strerror or type(error).__name__)
            elif named:
                self.gone[location] = path
        else:
            if S_ISREG(state.st_mode):
                self.files[location] = FoundFile(path, location, state.st_size, is_named=named)
            elif named:
                self._refuse(path, "it is no ordinary file")

    def _not_listed(self, error: OSError) -> None:
        self._refuse(Path(error.filename), f"the folder cannot be read: {error.strerror}")

    def _refuse(self, path: Path, reason: str) -> None:
        self.refused.append((absolute_path(path), reason))


def location_of(path: Path, base: Path) -> str:
    """Return where a path is: relative to the base if that is possible, with forward slashes.

    So the locations stay right when the index and the files move together.
    """
    absolute = absolute_path(path)
    try:
        return Path(os.path.relpath(absolute, base)).as_posix()
    except ValueError:  # another drive on Windows
        return absolute.as_posix()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def absolute_path(path: Path) -> Path:
    """Return an absolute path without ``..``; unlike :meth:`Path.resolve` it leaves symbolic links alone."""
    return Path(os.path.abspath(path))  # noqa: PTH100


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
