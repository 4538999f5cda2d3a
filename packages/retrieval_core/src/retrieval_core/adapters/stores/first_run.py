"""The progress of the run that fills a new index, in a file beside it that searches of other processes read."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from retrieval_core.errors import IndexNotFoundError, IndexNotReadyError

if TYPE_CHECKING:
    from pathlib import Path


FOLDER = ".retrieval"
"""The folder of an index among its documents. Git ignores it."""


def make_folder(folder: Path) -> None:
    """Make the folder of an index, if it is not there.

    Raises:
        OSError: It can't be made.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == FOLDER:
            (folder / ".gitignore").write_text("*\n", "ascii")


def write_progress(index: Path, done: int, total: int) -> None:
    """Record how many of how many files of a new index are indexed. If that fails, indexing goes on without it."""
    file = _file_beside(index)
    new = file.with_name(f"{file.name}.new")
    with suppress(OSError):
        make_folder(file.parent)
        new.write_text(json.dumps([done, total]), "ascii")
        new.replace(file)


def remove_progress(index: Path) -> None:
    """Remove the record, at the end of the run."""
    with suppress(OSError):
        _file_beside(index).unlink()


def read_progress(index: Path) -> tuple[int, int] | None:
    """Return how many of how many files of a new index are indexed; ``None`` if it is not being made."""
    try:
        done, total = json.loads(_file_beside(index).read_text("ascii"))
        return int(done), int(total)
    except (OSError, ValueError, TypeError):
        return None


def index_not_found(index: Path, where: str) -> IndexNotFoundError:
    """Return the error for an index that is not there, or not yet.

    Args:
        where: Names its place in the message.
    """
    if (progress := read_progress(index)) is not None:
        return IndexNotReadyError(*progress)
    advice = "make one with: retrieval index PATH… (in Python: index.ingest(PATH))"
    return IndexNotFoundError(f"there is no index at {where}; {advice}")


def _file_beside(index: Path) -> Path:
    return index.with_name(f"{index.name}-progress")
