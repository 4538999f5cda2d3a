"""Follow folders as their files change, for ``retrieval index --watch`` and ``retrieval-mcp --watch``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from retrieval_core.errors import MissingExtraError
from retrieval_core.ingest.files import FileNames
from retrieval_core.ingest.gitignore import FILE_NAME
from retrieval_core.ingest.readers import is_supported

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from retrieval_core.ports import Store

PAUSE_MS = 50
"""Changes without such a pause in between are one change, but for at most :data:`LONGEST_MS`."""
LONGEST_MS = 2000
IDLE_MS = 500
"""How often it is checked whether the folders are still those that are watched."""


class _Place(NamedTuple):
    """The folder that a path leads to now; another one at the same path has another device or number."""

    real: Path
    device: int
    number: int


class Changes(NamedTuple):
    """What to look at again: some paths that changed, or whole folders if these are not known.

    Attributes:
        folders: Those that are there.
        paths: Files and folders that were changed, added or deleted; ``None`` if anything may have changed.
    """

    folders: tuple[Path, ...]
    paths: frozenset[Path] | None


async def find_changed(changes: Changes, store: Store, base: Path) -> tuple[Path, ...]:
    """Return what has to be indexed again: some files if nothing else can have changed, else the folders.

    Only files that the index has are indexed by themselves: whether new ones count depends on what is around them.

    Args:
        base: The folder that locations of files are relative to.

    Raises:
        StoreError: The index can't be read.
    """
    if changes.paths is None:
        return changes.folders
    paths, known = changes.paths, await store.sources()

    def find() -> tuple[Path, ...]:
        names = FileNames(base.resolve(), known)
        files: list[Path] = []
        for path in paths:
            is_indexed = bool(names.names_at(path, is_folder=False))
            if is_indexed and path.is_file():
                files.append(path)
            elif path.exists() or is_indexed or names.names_at(path, is_folder=True):
                return changes.folders
        return tuple(files)

    return await asyncio.to_thread(find)


def follow_folders(
    folders: Sequence[Path], index: Path, warn: Callable[[str], None], stop: Event | None = None
) -> Generator[Changes]:
    """Yield the folders that are there, once at the start and again after each change that may matter to the index.

    The paths are followed, not the folders that were there at the start. If a folder is deleted and made again, renamed
    and put back, or a link to it or to a folder above it is switched, the new folder is watched and counts as changed.
    A folder that is missing, or that was replaced by an empty one, is left out until it has files again, so that
    nobody takes its documents for deleted.

    Args:
        folders: Watched with everything below them.
        index: Where the index is; files written there are no change.
        warn: Called with one sentence when a folder goes missing, and with one when it is back.
        stop: Ends the generator when it is set.

    Raises:
        MissingExtraError: watchfiles is not installed.
        OSError: A folder can't be watched, for instance since the system allows no more watches.
    """
    try:
        from watchfiles import Change, watch  # noqa: PLC0415 - the extra 'watch'
    except ImportError as error:
        raise MissingExtraError("watch", "retrieval index --watch") from error

    stop = stop or Event()
    index = index.resolve()
    known: dict[Path, _Place | None] = {}
    missing: set[Path] = set()
    while not stop.is_set():
        places = _places(folders, known)
        _report(folders, places, missing, warn)
        known |= dict.fromkeys(missing) | places
        roots = [place.real for place in places.values()]
        is_due = True  # nobody saw what changed before these folders were watched
        paths: frozenset[Path] | None = None
        watched = watch(
            *roots,
            watch_filter=None,
            stop_event=stop,
            step=PAUSE_MS,
            debounce=LONGEST_MS,
            rust_timeout=IDLE_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        try:
            for seen in watched if roots else _ticks(stop):
                deleted = {Path(name) for change, name in seen if change is Change.deleted}
                # A new folder may get the number of a deleted one.
                known |= {folder: None for folder, place in places.items() if place.real in deleted}
                if not deleted.isdisjoint(roots) or _places(folders, known) != places:
                    break
                changed = {
                    Path(name) for change, name in seen if matters(Path(name), change is Change.deleted, roots, index)
                }
                if paths is not None:
                    paths |= changed
                if (is_due or changed) and places:
                    changes = Changes(tuple(places), paths)
                    is_due, paths = False, frozenset[Path]()
                    yield changes
        except FileNotFoundError:  # a folder went missing just before it was watched
            stop.wait(IDLE_MS / 1000)


def matters(path: Path, is_gone: bool, folders: Sequence[Path], index: Path) -> bool:
    """Return whether a change may matter to the index: one of a folder, or of a file of a type that is read.

    A deleted path may have been either. Files of the index itself don't matter, or each run would cause the next.
    """
    below = next((path.relative_to(folder).parts for folder in folders if path.is_relative_to(folder)), ())
    is_hidden = any(part.startswith(".") and part != FILE_NAME for part in below)
    if is_hidden or path.is_relative_to(index) or path.name.startswith(f"{index.name}-"):
        return False
    return is_gone or path.name == FILE_NAME or is_supported(path) or _is_folder(path)


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - false, and no error, below a folder that cannot be entered


def _places(folders: Sequence[Path], known: Mapping[Path, _Place | None]) -> dict[Path, _Place]:
    """Return the folders that are there; one that was replaced by an empty folder is not."""
    found = {folder: place for folder in folders if (place := _place_of(folder)) is not None}
    return {
        folder: place
        for folder, place in found.items()
        if folder not in known or known[folder] == place or _has_entries(folder)
    }


def _place_of(folder: Path) -> _Place | None:
    try:
        state = folder.stat()
        return _Place(folder.resolve(), state.st_dev, state.st_ino) if folder.is_dir() else None
    except (OSError, RuntimeError):  # RuntimeError: links lead in a circle, before Python 3.13
        return None


def _has_entries(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def _report(
    folders: Sequence[Path], places: Mapping[Path, _Place], missing: set[Path], warn: Callable[[str], None]
) -> None:
    for folder in folders:
        if folder not in places and folder not in missing:
            missing.add(folder)
            what = "was replaced by an empty one" if _is_folder(folder) else "is not there"
            warn(f"the folder {folder} {what}; its documents stay in the index until it has files again")
        elif folder in places and folder in missing:
            missing.remove(folder)
            warn(f"the folder {folder} is back. Its changes are indexed again.")


def _ticks(stop: Event) -> Generator[set[tuple[Any, str]]]:
    """Yield no changes, as often as the folders are checked."""
    while not stop.wait(IDLE_MS / 1000):
        yield set()
